/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the wrapped pread of the tests. Must not know: who reads. */
#include "tests/unit/io/fault.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/types.h>

static _Atomic int calls, first, last, kind, happened;

void fault_pread(int n, int times, int error)
{
    calls = 0;
    happened = 0;
    kind = error;
    first = n;
    last = n > 0 ? n + times : 0;
}

int fault_count(void) { return happened; }

/* The linker's names (--wrap); which of the two is called depends on the file offset option. */
ssize_t __real_pread(int fd, void *data, size_t n, off_t offset);
ssize_t __wrap_pread(int fd, void *data, size_t n, off_t offset);
ssize_t __wrap_pread64(int fd, void *data, size_t n, off_t offset);

ssize_t __wrap_pread(int fd, void *data, size_t n, off_t offset)
{
    int call = ++calls;
    if (call < first || call >= last) {
        return __real_pread(fd, data, n, offset);
    }
    happened++;
    if (kind == FAULT_END) {
        return 0;
    }
    if (kind == FAULT_SHORT) {
        return __real_pread(fd, data, n / 2 + n % 2, offset);
    }
    errno = kind;
    return -1;
}

ssize_t __wrap_pread64(int fd, void *data, size_t n, off_t offset) { return __wrap_pread(fd, data, n, offset); }
