/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the wrapped allocator of the tests. Knows nothing of what is tested. */
#include "tests/unit/base/fail.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static int allocation, thread_start, advice, happened;

static int fails(int *countdown)
{
    if (*countdown == 0 || --*countdown > 0) {
        return 0;
    }
    happened = 1;
    return 1;
}

void fail_allocation(int n)
{
    happened = 0;
    allocation = n;
}

void fail_thread(int n)
{
    happened = 0;
    thread_start = n;
}

void fail_madvise(int on) { advice = on; }
int fail_happened(void) { return happened; }

/* Names and types are the linker's (--wrap). */
void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
char *__real_strdup(const char *s);
void *__real_aligned_alloc(size_t align, size_t n);
void *__real_mmap64(void *at, size_t n, int prot, int flags, int fd, off_t offset);
int __real_madvise(void *at, size_t n, int what);
int __real_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
char *__wrap_strdup(const char *s);
void *__wrap_aligned_alloc(size_t align, size_t n);
void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap64(void *at, size_t n, int prot, int flags, int fd, off_t offset);
int __wrap_madvise(void *at, size_t n, int what);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg);

void *__wrap_malloc(size_t n) { return fails(&allocation) ? NULL : __real_malloc(n); }
void *__wrap_calloc(size_t n, size_t size) { return fails(&allocation) ? NULL : __real_calloc(n, size); }
void *__wrap_realloc(void *p, size_t n) { return fails(&allocation) ? NULL : __real_realloc(p, n); }
char *__wrap_strdup(const char *s) { return fails(&allocation) ? NULL : __real_strdup(s); }
void *__wrap_aligned_alloc(size_t align, size_t n) { return fails(&allocation) ? NULL : __real_aligned_alloc(align, n); }

void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
    if (fails(&allocation)) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return __real_mmap64(at, n, prot, flags, fd, offset);
}

/* What mmap is called with large file offsets. */
void *__wrap_mmap64(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
    return __wrap_mmap(at, n, prot, flags, fd, offset);
}

int __wrap_madvise(void *at, size_t n, int what)
{
    if (advice) {
        errno = EINVAL;
        return -1;
    }
    return __real_madvise(at, n, what);
}

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg)
{
    return fails(&thread_start) ? EAGAIN : __real_pthread_create(t, a, fn, arg);
}
