/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: reads for LD_PRELOAD that return less than was asked, are interrupted, or end early. Must not know: who reads.
 *
 * FAIL_READ: "short" (every second pread returns a part), "eintr" (every second one fails with EINTR), "end" (from the
 * FAIL_READ_N-th on, 0 bytes: the file has become shorter), "eio" (from the FAIL_READ_N-th on). */
#undef _FILE_OFFSET_BITS /* both names of a call are defined here */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

enum { PART = 4096 };

static ssize_t faulty(int fd, void *data, size_t n, off_t offset, const char *name)
{
    static long calls;
    ssize_t (*real)(int, void *, size_t, off_t);
    void *symbol = dlsym(RTLD_NEXT, name);
    memcpy(&real, &symbol, sizeof(real));
    const char *kind = getenv("FAIL_READ"), *from = getenv("FAIL_READ_N");
    long call = __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
    if (kind == NULL) {
        return real(fd, data, n, offset);
    }
    if (call >= (from != NULL ? atol(from) : 1) && (strcmp(kind, "end") == 0 || strcmp(kind, "eio") == 0)) {
        errno = EIO;
        return strcmp(kind, "end") == 0 ? 0 : -1;
    }
    if (call % 2 == 1 && strcmp(kind, "eintr") == 0) {
        errno = EINTR;
        return -1;
    }
    return real(fd, data, call % 2 == 1 && strcmp(kind, "short") == 0 && n > PART ? PART : n, offset);
}

ssize_t pread(int fd, void *data, size_t n, off_t offset) { return faulty(fd, data, n, offset, "pread"); }
ssize_t pread64(int fd, void *data, size_t n, off_t offset) { return faulty(fd, data, n, offset, "pread64"); }
