/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: an allocator for LD_PRELOAD in which the n-th call made by the program itself, libjansson or libpcre2 fails. Who
 * calls is told by the return address; what other libraries allocate always succeeds.
 *
 * FAIL_ALLOC_N: number of the call that fails, from 1; 0: none. FAIL_ALLOC_ALL: all later ones fail too.
 * FAIL_ALLOC_COUNT: file that gets the number of calls when the process ends. */
#undef _FILE_OFFSET_BITS /* both names of a call are defined here */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { RANGES_MAX = 16, BOOTSTRAP_BYTES = 4096 };

static struct {
    uintptr_t begin[RANGES_MAX], end[RANGES_MAX];
    int n;
    long fail_at;
    bool all, ready;
    long calls;
} state;

static bool counted_object(const struct dl_phdr_info *info)
{
    const char *name = info->dlpi_name;
    return name[0] == '\0' || strstr(name, "libjansson") != NULL || strstr(name, "libpcre2") != NULL;
}

static int add_object(struct dl_phdr_info *info, size_t size, void *seen)
{
    (void)size;
    bool first = *(int *)seen == 0; /* the program; the vDSO has no name either on some systems */
    *(int *)seen += 1;
    if (!counted_object(info) || (info->dlpi_name[0] == '\0' && !first)) {
        return 0;
    }
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type == PT_LOAD && (p->p_flags & PF_X) != 0 && state.n < RANGES_MAX) {
            state.begin[state.n] = info->dlpi_addr + p->p_vaddr;
            state.end[state.n++] = info->dlpi_addr + p->p_vaddr + p->p_memsz;
        }
    }
    return 0;
}

__attribute__((constructor)) static void start(void)
{
    int seen = 0;
    const char *n = getenv("FAIL_ALLOC_N");
    dl_iterate_phdr(add_object, &seen);
    state.fail_at = n != NULL ? atol(n) : 0;
    state.all = getenv("FAIL_ALLOC_ALL") != NULL;
    unsetenv("LD_PRELOAD");
    state.ready = true;
}

__attribute__((destructor)) static void finish(void)
{
    const char *path = getenv("FAIL_ALLOC_COUNT");
    int fd = path != NULL ? open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600) : -1;
    if (fd >= 0) {
        dprintf(fd, "%ld\n", __atomic_load_n(&state.calls, __ATOMIC_RELAXED));
        close(fd);
    }
}

static bool fails(const void *caller)
{
    bool counted = false;
    for (int i = 0; i < state.n && state.ready; i++) {
        counted = counted || ((uintptr_t)caller >= state.begin[i] && (uintptr_t)caller < state.end[i]);
    }
    if (!counted) {
        return false;
    }
    long call = __atomic_add_fetch(&state.calls, 1, __ATOMIC_RELAXED);
    bool now = state.fail_at > 0 && (call == state.fail_at || (state.all && call > state.fail_at));
    if (now) {
        errno = ENOMEM;
    }
    return now;
}

/* dlsym may allocate before there is an allocator: it gets bytes of this block, which are never given back. */
static struct {
    _Alignas(64) unsigned char bytes[BOOTSTRAP_BYTES];
    size_t used;
} boot;

static void *boot_alloc(size_t n)
{
    size_t at = (boot.used + 63) & ~(size_t)63;
    if (n > BOOTSTRAP_BYTES || at > BOOTSTRAP_BYTES - n) {
        return NULL;
    }
    boot.used = at + n;
    return boot.bytes + at;
}

static bool is_boot(const void *p) { return (const unsigned char *)p >= boot.bytes && (const unsigned char *)p < boot.bytes + BOOTSTRAP_BYTES; }

/* Pointer to the next definition of a name; NULL while it is being looked up. */
#define REAL(type, name) \
    static type real; \
    static volatile int looking; /* dlsym is declared as if it never came back here */ \
    if (real == NULL && !looking) { \
        looking = 1; \
        void *symbol = dlsym(RTLD_NEXT, name); \
        memcpy(&real, &symbol, sizeof(real)); \
        looking = 0; \
    }

void *malloc(size_t n)
{
    typedef void *(*malloc_fn)(size_t);
    REAL(malloc_fn, "malloc")
    return real == NULL ? boot_alloc(n) : fails(__builtin_return_address(0)) ? NULL : real(n);
}

void *calloc(size_t n, size_t size)
{
    typedef void *(*calloc_fn)(size_t, size_t);
    REAL(calloc_fn, "calloc")
    return real == NULL ? boot_alloc(n * size) : fails(__builtin_return_address(0)) ? NULL : real(n, size);
}

void *realloc(void *p, size_t n)
{
    typedef void *(*realloc_fn)(void *, size_t);
    REAL(realloc_fn, "realloc")
    if (real == NULL || is_boot(p)) {
        return NULL;
    }
    return fails(__builtin_return_address(0)) ? NULL : real(p, n);
}

void free(void *p)
{
    typedef void (*free_fn)(void *);
    REAL(free_fn, "free")
    if (real != NULL && !is_boot(p)) {
        real(p);
    }
}

char *strdup(const char *s)
{
    typedef char *(*strdup_fn)(const char *);
    REAL(strdup_fn, "strdup")
    return fails(__builtin_return_address(0)) ? NULL : real(s);
}

char *strndup(const char *s, size_t n)
{
    typedef char *(*strndup_fn)(const char *, size_t);
    REAL(strndup_fn, "strndup")
    return fails(__builtin_return_address(0)) ? NULL : real(s, n);
}

void *aligned_alloc(size_t align, size_t n)
{
    typedef void *(*aligned_fn)(size_t, size_t);
    REAL(aligned_fn, "aligned_alloc")
    return fails(__builtin_return_address(0)) ? NULL : real(align, n);
}

int posix_memalign(void **ret, size_t align, size_t n)
{
    typedef int (*memalign_fn)(void **, size_t, size_t);
    REAL(memalign_fn, "posix_memalign")
    return fails(__builtin_return_address(0)) ? ENOMEM : real(ret, align, n);
}

void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
    typedef void *(*mmap_fn)(void *, size_t, int, int, int, off_t);
    REAL(mmap_fn, "mmap")
    return fails(__builtin_return_address(0)) ? MAP_FAILED : real(at, n, prot, flags, fd, offset);
}

void *mmap64(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
    typedef void *(*mmap_fn)(void *, size_t, int, int, int, off_t);
    REAL(mmap_fn, "mmap64")
    return fails(__builtin_return_address(0)) ? MAP_FAILED : real(at, n, prot, flags, fd, offset);
}
