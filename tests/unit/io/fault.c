/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the wrapped reads of the tests. Must not know: who reads. */
#include "tests/unit/io/fault.h"

#include <errno.h>
#include <liburing.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { LATE_US = 2000 };

struct fault {
    _Atomic int calls, first, last, kind, happened;
    _Atomic int one_in, n_kinds; /* by chance; one_in 0: not */
    const int *_Atomic kinds;
};

static struct fault reads, submissions;
static _Atomic bool held;
static _Atomic int holding, slow_us;

static void set(struct fault *f, int n, int times, int error)
{
    f->calls = 0;
    f->happened = 0;
    f->kind = error;
    f->first = n;
    f->last = n > 0 ? n + times : 0;
}

static void set_random(struct fault *f, int one_in, const int *kinds, int n)
{
    f->one_in = 0; /* a call that is under way may still look at the kinds it had */
    if (one_in > 0) {
        f->kinds = kinds;
        f->n_kinds = n;
        f->one_in = one_in;
    }
}

/* How this call fails; 0: it does not. */
static int falls_on(struct fault *f)
{
    int call = ++f->calls, one_in = f->one_in;
    uint64_t x = ((uint64_t)call + 1) * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 31)) * 0xbf58476d1ce4e5b9u;
    x ^= x >> 29;
    int kind = call >= f->first && call < f->last ? f->kind : one_in > 0 && x % (uint64_t)one_in == 0 ? f->kinds[(x >> 32) % (uint64_t)f->n_kinds] : 0;
    f->happened += kind != 0;
    if (kind == FAULT_LATE) {
        usleep(LATE_US);
    }
    return kind;
}

void fault_read(int n, int times, int error) { set(&reads, n, times, error); }
int fault_count(void) { return reads.happened; }
int fault_calls(void) { return reads.calls; }
void fault_hold(int on) { held = on; }
int fault_holding(void) { return holding; }
void fault_submit(int n, int times, int error) { set(&submissions, n, times, error); }
void fault_reads_at_random(int one_in, const int *kinds, int n) { set_random(&reads, one_in, kinds, n); }
void fault_submissions_at_random(int one_in, const int *kinds, int n) { set_random(&submissions, one_in, kinds, n); }
int fault_submissions(void) { return submissions.happened; }
void fault_slow(int us) { slow_us = us; }

/* The linker's names (--wrap); which of the two preads is called depends on the file offset option. */
ssize_t __real_pread(int fd, void *data, size_t n, off_t offset);
ssize_t __wrap_pread(int fd, void *data, size_t n, off_t offset);
ssize_t __wrap_pread64(int fd, void *data, size_t n, off_t offset);
ssize_t __real_process_vm_readv(pid_t pid, const struct iovec *here, unsigned long n_here, const struct iovec *there, unsigned long n_there, unsigned long flags);
ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *here, unsigned long n_here, const struct iovec *there, unsigned long n_there, unsigned long flags);
unsigned __real_io_uring_peek_batch_cqe(struct io_uring *ring, struct io_uring_cqe **cqes, unsigned count);
unsigned __wrap_io_uring_peek_batch_cqe(struct io_uring *ring, struct io_uring_cqe **cqes, unsigned count);
int __real_io_uring_submit(struct io_uring *ring);
int __wrap_io_uring_submit(struct io_uring *ring);

static void wait_while_held(void)
{
    holding++;
    while (held) {
        usleep(100);
    }
    holding--;
    if (slow_us > 0) {
        usleep((useconds_t)slow_us);
    }
}

/* Bytes of n that are to be read; 0 or -1: that is the answer. */
static ssize_t left_of(size_t n)
{
    wait_while_held();
    int kind = falls_on(&reads);
    if (kind == 0 || kind == FAULT_LATE) {
        return (ssize_t)n;
    }
    if (kind == FAULT_END) {
        return 0;
    }
    if (kind == FAULT_SHORT) {
        return (ssize_t)(n / 2 + n % 2);
    }
    errno = kind;
    return -1;
}

ssize_t __wrap_pread(int fd, void *data, size_t n, off_t offset)
{
    ssize_t left = left_of(n);
    return left > 0 ? __real_pread(fd, data, (size_t)left, offset) : left;
}

ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *here, unsigned long n_here, const struct iovec *there, unsigned long n_there, unsigned long flags)
{
    ssize_t left = left_of(here->iov_len);
    const struct iovec to = {here->iov_base, (size_t)left}, from = {there->iov_base, (size_t)left};
    return left > 0 ? __real_process_vm_readv(pid, &to, n_here, &from, n_there, flags) : left;
}

ssize_t __wrap_pread64(int fd, void *data, size_t n, off_t offset) { return __wrap_pread(fd, data, n, offset); }

unsigned __wrap_io_uring_peek_batch_cqe(struct io_uring *ring, struct io_uring_cqe **cqes, unsigned count)
{
    unsigned n = __real_io_uring_peek_batch_cqe(ring, cqes, count);
    for (unsigned i = 0; i < n; i++) {
        int kind = falls_on(&reads), *res = &cqes[i]->res;
        if (kind != 0 && kind != FAULT_LATE) {
            *res = kind == FAULT_END ? 0 : kind != FAULT_SHORT ? -kind : *res > 1 ? *res / 2 + *res % 2 : *res;
        }
    }
    return n;
}

int __wrap_io_uring_submit(struct io_uring *ring)
{
    wait_while_held();
    int kind = falls_on(&submissions);
    return kind == 0 || kind == FAULT_LATE ? __real_io_uring_submit(ring) : -kind;
}
