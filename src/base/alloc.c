/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: mapping and counting of large buffers. Must not know: how large anything should be. */
#include "src/base/alloc.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/intmath.h"
#include "src/base/numa.h"

enum { HUGE_PAGE = 2 << 20 };

const char *purpose_name(enum purpose p)
{
    static const char *const names[PURPOSE_COUNT] = {
        [PURPOSE_RESIDENT] = "resident weights",
        [PURPOSE_EXPERTS] = "experts",
        [PURPOSE_SCALES] = "fp8 scales",
        [PURPOSE_KV] = "kv cache",
        [PURPOSE_WORK] = "work",
        [PURPOSE_STAGING] = "staging",
        [PURPOSE_TOKENIZER] = "tokenizer",
        [PURPOSE_TABLES] = "tables",
        [PURPOSE_PROGRAM] = "program",
    };
    return (unsigned)p < PURPOSE_COUNT ? names[p] : "unknown";
}

/* Maps `bytes` (whole pages) at a multiple of a huge page and gives back what lies around it. */
static void *map_huge_aligned(size_t bytes)
{
    unsigned char *raw = mmap(NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED) {
        return MAP_FAILED;
    }
    size_t before = (size_t)(-(uintptr_t)raw & (HUGE_PAGE - 1));
    unsigned char *data = raw + before;
    if (before > 0) {
        munmap(raw, before);
    }
    if (before < HUGE_PAGE) {
        munmap(data + bytes, HUGE_PAGE - before);
    }
    return data;
}

static void add(uint64_t *to, uint64_t bytes) { __atomic_fetch_add(to, bytes, __ATOMIC_RELAXED); }

static void count_bind(struct account *a, const struct buffer *b)
{
    if (b->bind_errno != 0) {
        add(&a->bind_refused, b->mapped);
        __atomic_store_n(&a->bind_errno, b->bind_errno, __ATOMIC_RELAXED);
    }
}

static void count(struct account *a, const struct buffer *b, int huge_errno)
{
    add(&a->bytes[b->purpose], b->mapped);
    add(&a->huge_bytes, b->huge ? b->mapped : 0);
    if (huge_errno != 0) {
        add(&a->huge_refused, b->mapped);
        __atomic_store_n(&a->huge_errno, huge_errno, __ATOMIC_RELAXED);
    }
    count_bind(a, b);
}

int buffer_init_node(struct buffer *b, struct account *account, enum purpose purpose, size_t bytes, int node, struct error *e)
{
    *b = (struct buffer){ .node = -1 };
    if (bytes == 0) {
        return 0;
    }
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (bytes > SIZE_MAX / 2) {
        return error_nomem(e, purpose_name(purpose), bytes);
    }
    size_t mapped = align_up_u64(bytes, page);
    bool large = mapped >= HUGE_PAGE;
    void *data = large ? map_huge_aligned(mapped)
                       : mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
        return error_nomem(e, purpose_name(purpose), bytes);
    }
    int huge_errno = large && madvise(data, mapped, MADV_HUGEPAGE) != 0 ? errno : 0;
    *b = (struct buffer){ .data = data, .bytes = bytes, .mapped = mapped, .purpose = purpose, .node = node,
                          .bind_errno = node < 0 ? 0 : -numa_bind_pages(data, mapped, node),
                          .huge = large && huge_errno == 0, .account = account };
    if (account != NULL) {
        count(account, b, huge_errno);
    }
    return 0;
}

int buffer_init(struct buffer *b, struct account *account, enum purpose purpose, size_t bytes, struct error *e)
{
    return buffer_init_node(b, account, purpose, bytes, -1, e);
}

int buffer_init_bare(struct buffer *b, size_t bytes, struct error *e)
{
    *b = (struct buffer){ .node = -1 };
    if (bytes == 0) {
        return 0;
    }
    void *data = bytes > SIZE_MAX / 2 ? MAP_FAILED : mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) {
        return error_nomem(e, "addresses", bytes);
    }
    *b = (struct buffer){ .data = data, .bytes = bytes, .mapped = align_up_u64(bytes, (size_t)sysconf(_SC_PAGESIZE)), .node = -1 };
    return 0;
}

void buffer_interleave(struct buffer *b, const int *node, uint32_t n)
{
    if (b->data == NULL) {
        return;
    }
    b->bind_errno = -numa_interleave_pages(b->data, b->mapped, node, n);
    if (b->account != NULL) {
        count_bind(b->account, b);
    }
}

void buffer_deinit(struct buffer *b)
{
    if (b->data != NULL) {
        munmap(b->data, b->mapped);
        if (b->account != NULL) {
            __atomic_fetch_sub(&b->account->bytes[b->purpose], b->mapped, __ATOMIC_RELAXED);
            __atomic_fetch_sub(&b->account->huge_bytes, b->huge ? b->mapped : 0, __ATOMIC_RELAXED);
        }
    }
    *b = (struct buffer){ .node = -1 };
}

uint64_t account_total(const struct account *a)
{
    uint64_t total = 0;
    for (unsigned p = 0; p < PURPOSE_COUNT; p++) {
        total += __atomic_load_n(&a->bytes[p], __ATOMIC_RELAXED);
    }
    return total;
}
