/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: KV pages (reference counts, copy on write, exhaustion) and what each KV type costs in accuracy against float32:
 * at most the stated divergence. usage: kv DEMO */
#undef NDEBUG
#include "src/run/kv.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/run/harness.h"

enum { LENGTH = 200 };

static void pages(void)
{
    struct error e = {0};
    struct kv_pool p;
    struct kv_table a, b;
    struct kv_layout layout = {.type = KV_F32, .latent = 3, .rope = 2, .row_bytes = kv_row_bytes(KV_F32, 3, 2)};
    assert(kv_pool_init(&p, NULL, layout, 2, 4, &e) == 0 && p.free_pages == 4);
    assert(kv_table_init(&a, &p, 300, &e) == 0 && kv_table_init(&b, &p, 300, &e) == 0);
    assert(kv_table_prepare(&a, 0, 100, &e) == 0 && a.n == 2 && p.free_pages == 2);
    memset(kv_table_row(&a, 1, 99), 0x5a, layout.row_bytes);
    kv_table_share(&a, &b);
    assert(p.free_pages == 2 && p.refs[a.page[0]] == 2 && kv_table_row(&b, 1, 99) == kv_table_row(&a, 1, 99));
    assert(kv_table_prepare(&b, 99, 1, &e) == 0); /* copies the second page, not the first */
    assert(b.page[0] == a.page[0] && b.page[1] != a.page[1] && p.free_pages == 1);
    assert(memcmp(kv_table_row(&b, 1, 99), kv_table_row(&a, 1, 99), layout.row_bytes) == 0);
    assert(kv_table_prepare(&a, 100, 64, &e) == 0 && p.free_pages == 0); /* no copy: the second page is a's own again */
    assert(kv_table_prepare(&b, 100, 100, &e) == ERROR_DOES_NOT_FIT && b.n == 2);
    kv_table_truncate(&a, 64);
    assert(a.n == 1 && p.free_pages == 2);
    kv_table_deinit(&a);
    assert(p.refs[b.page[0]] == 1);
    kv_table_deinit(&b);
    assert(p.free_pages == 4);
    kv_pool_deinit(&p);
}

static struct recording run(const char *model, const char *type)
{
    struct recording r = {0};
    int32_t text[LENGTH];
    struct sluice_engine *g = harness_open(model, "cache-type-k", type, "ubatch", "8", "threads", "2", "activations", "f32", NULL);
    struct sluice_session *s = harness_session(g, &r);
    harness_tokens(21, 4000, text, LENGTH);
    harness_feed(s, text, LENGTH);
    sluice_session_destroy(s);
    sluice_engine_close(g);
    return r;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median over positions of KL(float32 KV || this type), in nats: a position that a rounding routes otherwise may be far off. */
static double divergence(const struct recording *want, const struct recording *got)
{
    double each[LENGTH];
    for (uint32_t p = 0; p < LENGTH; p++) {
        const float *x = want->logits + (size_t)p * want->vocab, *y = got->logits + (size_t)p * got->vocab;
        double zx = 0, zy = 0, kl = 0, mx = -INFINITY, my = -INFINITY;
        for (uint32_t v = 0; v < want->vocab; v++) {
            mx = fmax(mx, (double)x[v]);
            my = fmax(my, (double)y[v]);
        }
        for (uint32_t v = 0; v < want->vocab; v++) {
            zx += exp((double)x[v] - mx);
            zy += exp((double)y[v] - my);
        }
        for (uint32_t v = 0; v < want->vocab; v++) {
            double a = (double)x[v] - mx - log(zx), b = (double)y[v] - my - log(zy);
            kl += exp(a) * (a - b);
        }
        each[p] = kl;
    }
    qsort(each, LENGTH, sizeof(each[0]), by_value);
    return each[LENGTH / 2];
}

int main(int argc, char **argv)
{
    /* Bounds: rounding of 11, 8 and about 7 bits; a wrong scale or order of a row costs whole nats. docs/numerics.md */
    static const struct {
        const char *type;
        double bound;
    } types[] = {{"f16", 1e-5}, {"bf16", 1e-4}, {"q8_0", 1e-3}};
    assert(argc == 2);
    pages();
    struct recording want = run(argv[1], "f32");
    for (size_t i = 0; i < 3; i++) {
        struct recording got = run(argv[1], types[i].type);
        double kl = divergence(&want, &got);
        fprintf(stderr, "%s: %.2g nats of %.2g\n", types[i].type, kl, types[i].bound);
        assert(kl > 0 && kl <= types[i].bound);
        recording_deinit(&got);
    }
    recording_deinit(&want);
    return 0;
}
