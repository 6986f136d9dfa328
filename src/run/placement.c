/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: placement.h. Must not know: what is in the buffers. */
#include "src/run/placement.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/intmath.h"

enum { SAMPLES = 4096 }; /* of a buffer: a row is right to 2 % even if its pages lie at random */

/* Share of the buffer's pages on each node of the table, and on others. */
struct shares {
    double row[TOPOLOGY_MAX_NODES], elsewhere;
};

static int sample(const struct buffer *b, const struct placement *p, int *node, struct shares *ret)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint32_t n = (uint32_t)min_u64(ceil_div_u64(b->mapped, page), SAMPLES);
    int r = numa_pages_where(b->data, b->mapped, node, n);
    *ret = (struct shares){0};
    for (uint32_t i = 0; r == 0 && i < n; i++) {
        uint32_t k = 0;
        while (k < p->n && p->row[k].node != node[i]) {
            k++;
        }
        *(k < p->n ? &ret->row[k] : &ret->elsewhere) += node[i] >= 0 ? 1.0 / n : 0;
    }
    return r;
}

/* Bytes of each buffer that are in huge pages. A mapping of the kernel may hold several buffers and more: what is huge in it is
 * counted for the first of them. Without /proc nothing is. */
static void count_huge(const struct buffer *const *buffers, uint32_t n, uint64_t *huge)
{
    FILE *f = fopen("/proc/self/smaps", "re");
    char line[256];
    unsigned long long begin = 0, end = 0, first, last, kb;
    while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
        if (sscanf(line, "%llx-%llx ", &first, &last) == 2) {
            begin = first;
            end = last;
        }
        uint64_t left = sscanf(line, "AnonHugePages: %llu kB", &kb) == 1 ? kb * 1024 : 0;
        for (uint32_t i = 0; i < n && left > 0; i++) {
            uint64_t at = (uintptr_t)buffers[i]->data, a = max_u64(begin, at), b = min_u64(end, at + buffers[i]->mapped);
            uint64_t some = a < b ? min_u64(left, b - a) : 0;
            huge[i] += some;
            left -= some;
        }
    }
    if (f != NULL) {
        fclose(f);
    }
}

int placement_measure(const struct buffer *const *buffers, uint32_t n, const struct topology *nodes, struct placement *ret, struct error *e)
{
    struct placement p = {.n = nodes->nodes};
    uint64_t *huge = calloc(n + 1, sizeof(*huge));
    int *sampled = malloc(SAMPLES * sizeof(*sampled));
    if (huge == NULL || sampled == NULL) {
        free(huge);
        free(sampled);
        return error_nomem(e, "placement table", SAMPLES * sizeof(*sampled));
    }
    for (uint32_t k = 0; k < p.n; k++) {
        p.row[k].node = nodes->node_os[k];
    }
    count_huge(buffers, n, huge);
    for (uint32_t i = 0; i < n; i++) {
        const struct buffer *b = buffers[i];
        struct shares s;
        int r = b->mapped > 0 ? sample(b, &p, sampled, &s) : 0;
        p.refused = r < 0 ? -r : p.refused;
        p.bytes += b->mapped;
        for (uint32_t k = 0; k < p.n && b->mapped > 0; k++) {
            p.row[k].asked += b->node == p.row[k].node ? b->mapped : 0;
            p.row[k].found += (uint64_t)(s.row[k] * (double)b->mapped + 0.5);
            p.row[k].huge += (uint64_t)(s.row[k] * (double)huge[i] + 0.5);
        }
        p.elsewhere += b->mapped > 0 ? (uint64_t)(s.elsewhere * (double)b->mapped + 0.5) : 0;
    }
    free(sampled);
    free(huge);
    *ret = p;
    return 0;
}

bool placement_misses(const struct placement *p)
{
    bool misses = false;
    for (uint32_t k = 0; k < p->n && p->refused == 0; k++) {
        misses |= p->row[k].found < 0.95 * (double)p->row[k].asked;
    }
    return misses;
}

uint64_t placement_huge(const struct placement *p)
{
    uint64_t sum = 0;
    for (uint32_t k = 0; k < p->n; k++) {
        sum += p->row[k].huge;
    }
    return sum;
}

void placement_text(const struct placement *p, struct str *out)
{
    char found[24], asked[24];
    if (p->refused != 0) {
        str_printf(out, "not verified: move_pages is refused (%s)", strerror(p->refused));
        return;
    }
    for (uint32_t k = 0; k < p->n; k++) {
        const struct placement_row *w = &p->row[k];
        double share = w->found > 0 ? 100.0 * (double)w->huge / (double)w->found : 0;
        str_printf(out, "%snode %d: %s", k > 0 ? ", " : "", w->node, format_bytes(found, w->found));
        if (w->asked > 0) {
            str_printf(out, " of %s asked", format_bytes(asked, w->asked));
        }
        str_printf(out, ", %.0f %% in huge pages", share);
    }
    if (p->elsewhere > 0) {
        str_printf(out, ", other nodes: %s", format_bytes(found, p->elsewhere));
    }
}

void placement_json(const struct placement *p, struct str *out)
{
    str_puts(out, "[");
    for (uint32_t k = 0; k < p->n; k++) {
        const struct placement_row *w = &p->row[k];
        str_printf(out, "%s{\"node\": %d, \"asked\": %llu, \"found\": ", k > 0 ? ", " : "", w->node, (unsigned long long)w->asked);
        str_printf(out, p->refused != 0 ? "null" : "%llu", (unsigned long long)w->found);
        str_printf(out, p->refused != 0 ? ", \"huge\": null}" : ", \"huge\": %llu}", (unsigned long long)w->huge);
    }
    str_puts(out, "]");
}
