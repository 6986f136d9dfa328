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

struct fault {
    _Atomic int calls, first, last, kind, happened;
};

static struct fault reads, submissions;
static _Atomic bool held;
static _Atomic int holding;

static void set(struct fault *f, int n, int times, int error)
{
    f->calls = 0;
    f->happened = 0;
    f->kind = error;
    f->first = n;
    f->last = n > 0 ? n + times : 0;
}

/* Whether this call fails. */
static bool falls_on(struct fault *f)
{
    int call = ++f->calls;
    bool hit = call >= f->first && call < f->last;
    f->happened += hit;
    return hit;
}

void fault_read(int n, int times, int error) { set(&reads, n, times, error); }
int fault_count(void) { return reads.happened; }
int fault_calls(void) { return reads.calls; }
void fault_hold(int on) { held = on; }
int fault_holding(void) { return holding; }
void fault_submit(int n, int times, int error) { set(&submissions, n, times, error); }

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
}

/* Bytes of n that are to be read; 0 or -1: that is the answer. */
static ssize_t left_of(size_t n)
{
    wait_while_held();
    if (!falls_on(&reads)) {
        return (ssize_t)n;
    }
    if (reads.kind == FAULT_END) {
        return 0;
    }
    if (reads.kind == FAULT_SHORT) {
        return (ssize_t)(n / 2 + n % 2);
    }
    errno = reads.kind;
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
        if (falls_on(&reads)) {
            int *res = &cqes[i]->res;
            *res = reads.kind == FAULT_END ? 0 : reads.kind != FAULT_SHORT ? -reads.kind : *res > 1 ? *res / 2 + *res % 2 : *res;
        }
    }
    return n;
}

int __wrap_io_uring_submit(struct io_uring *ring)
{
    wait_while_held();
    return falls_on(&submissions) ? -submissions.kind : __real_io_uring_submit(ring);
}
