/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: reads and opens for LD_PRELOAD that fail in ways a disk or file system can. Must not know: who reads.
 *
 * FAIL_IO: "short" (every second read returns a part), "eintr" (every second one fails with EINTR), "eio" (from the
 * FAIL_IO_N-th on), "end" (from the FAIL_IO_N-th on, 0 bytes: the file has become shorter), "open" (O_DIRECT is refused at
 * open), "direct" (at every pread; io_uring's first answer). Reads are calls of pread and answers of io_uring. */
#undef _FILE_OFFSET_BITS /* both names of a call are defined here */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

enum { PART = 4096 };

static bool is_kind(const char *name)
{
    const char *kind = getenv("FAIL_IO");
    return kind != NULL && strcmp(kind, name) == 0;
}

static ssize_t refuse(int code)
{
    errno = code;
    return -1;
}

/* Number of this read. */
static long next_call(void)
{
    static long calls;
    return __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
}

static bool is_late(long call)
{
    const char *from = getenv("FAIL_IO_N");
    return call >= (from != NULL ? atol(from) : 1);
}

static ssize_t faulty_pread(int fd, void *data, size_t n, off_t offset, const char *name)
{
    ssize_t (*real)(int, void *, size_t, off_t);
    void *symbol = dlsym(RTLD_NEXT, name);
    memcpy(&real, &symbol, sizeof(real));
    long call = next_call();
    bool late = is_late(call);
    if (late && is_kind("eio")) {
        return refuse(EIO);
    }
    if (late && is_kind("end")) {
        return 0;
    }
    if (is_kind("direct") && (fcntl(fd, F_GETFL) & O_DIRECT) != 0) {
        return refuse(EINVAL);
    }
    if (call % 2 == 1 && is_kind("eintr")) {
        return refuse(EINTR);
    }
    return real(fd, data, call % 2 == 1 && is_kind("short") && n > PART ? PART : n, offset);
}

ssize_t pread(int fd, void *data, size_t n, off_t offset) { return faulty_pread(fd, data, n, offset, "pread"); }
ssize_t pread64(int fd, void *data, size_t n, off_t offset) { return faulty_pread(fd, data, n, offset, "pread64"); }

static int faulty_answer(int n)
{
    static bool refused;
    long call = next_call();
    if (is_late(call) && is_kind("eio")) {
        return -EIO;
    }
    if (is_late(call) && is_kind("end")) {
        return 0;
    }
    if (is_kind("direct") && !refused) {
        refused = true;
        return -EINVAL;
    }
    if (call % 2 == 1 && is_kind("eintr")) {
        return -EINTR;
    }
    return call % 2 == 1 && is_kind("short") && n > PART ? PART : n;
}

unsigned io_uring_peek_batch_cqe(struct io_uring *ring, struct io_uring_cqe **cqes, unsigned count)
{
    unsigned (*real)(struct io_uring *, struct io_uring_cqe **, unsigned);
    void *symbol = dlsym(RTLD_NEXT, "io_uring_peek_batch_cqe");
    memcpy(&real, &symbol, sizeof(real));
    unsigned n = real(ring, cqes, count);
    for (unsigned i = 0; i < n; i++) {
        cqes[i]->res = faulty_answer(cqes[i]->res);
    }
    return n;
}

static int faulty_open(const char *path, int flags, mode_t mode, const char *name)
{
    int (*real)(const char *, int, ...);
    void *symbol = dlsym(RTLD_NEXT, name);
    memcpy(&real, &symbol, sizeof(real));
    return (flags & O_DIRECT) != 0 && is_kind("open") ? (int)refuse(EINVAL) : real(path, flags, mode);
}

/* The mode is there only for calls that create. */
#define OPEN(name) \
    int name(const char *path, int flags, ...) \
    { \
        mode_t mode = 0; \
        if ((flags & O_CREAT) != 0) { \
            va_list args; \
            va_start(args, flags); \
            mode = va_arg(args, mode_t); \
            va_end(args); \
        } \
        return faulty_open(path, flags, mode, #name); \
    }
OPEN(open)
OPEN(open64)
