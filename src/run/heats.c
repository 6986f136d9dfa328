/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: heats.h. Must not know: how experts are counted, what predictors learn. */
#include "src/run/heats.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/intmath.h"
#include "src/run/engine.h"
#include "src/run/expect.h"
#include "src/run/prefetch.h"
#include "src/tier/heat_file.h"

static struct heat_model model_of(const struct engine *g)
{
    return (struct heat_model){.fingerprint = g->main_fingerprint, .all = g->fingerprint, .layers = g->shape->layers, .mtp_layers = g->shape->mtp_layers, .experts = g->shape->experts};
}

/* What predictors have learned takes the place of what was there. */
static int keep_learned(const struct engine *g, struct heat_file *f, struct error *e)
{
    const struct expect *x = prefetch_expect(g->prefetch);
    size_t bytes = x != NULL ? expect_state_bytes(x) : 0;
    if (bytes == 0 || bytes > HEAT_LEARNED_MOST) {
        return 0;
    }
    unsigned char *data = malloc(bytes);
    if (data == NULL) {
        return error_nomem(e, "what predictors learned", bytes);
    }
    expect_save(x, data);
    free(f->learned);
    f->learned = data;
    f->learned_bytes = bytes;
    return 0;
}

/* What this run has learned, and of the file that is there what it has no part of. */
static int collect(const struct engine *g, const struct heat_model *m, struct heat_file *ret, struct error *e)
{
    struct heat_file f = {0};
    heat_file_read(g->settings.heat, m, &f, NULL); /* nothing is kept of one that is damaged */
    uint32_t layers = m->layers + max_u32(m->mtp_layers, f.mtp_layers);
    int r = 0;
    float *uses = calloc((size_t)layers * m->experts + 1, sizeof(*uses));
    if (uses == NULL) {
        heat_file_deinit(&f);
        return error_nomem(e, "popularity of experts", (uint64_t)layers * m->experts * sizeof(*uses));
    }
    if (f.uses != NULL) {
        memcpy(uses, f.uses, ((size_t)m->layers + f.mtp_layers) * m->experts * sizeof(*uses));
    }
    store_uses(g->store, uses);
    r = keep_learned(g, &f, e);
    free(f.uses);
    f.uses = uses;
    f.mtp_layers = layers - m->layers;
    if (r < 0) {
        heat_file_deinit(&f);
        return r;
    }
    *ret = f;
    return 0;
}

static int write_file(const struct engine *g, struct error *e)
{
    const struct heat_model m = model_of(g);
    struct heat_file f = {0};
    int r = collect(g, &m, &f, e);
    r = r < 0 ? r : heat_file_write(g->settings.heat, &m, &f, e);
    heat_file_deinit(&f);
    return r;
}

int heats_open(struct engine *g, struct error *e)
{
    const struct heat_model m = model_of(g);
    struct heat_file f = {0};
    if (g->settings.heat == NULL || g->store == NULL) {
        return 0;
    }
    int r = heat_file_read(g->settings.heat, &m, &f, e);
    if (r == -ENOENT) {
        return write_file(g, e);
    }
    r = r < 0 ? r : store_warm(g->store, f.uses, m.layers + min_u32(f.mtp_layers, m.mtp_layers), e);
    struct expect *x = prefetch_expect(g->prefetch);
    if (r == 0 && x != NULL && f.learned != NULL && expect_load(x, f.learned, f.learned_bytes) < 0) {
        log_print(&g->log, LOG_NOTICE, "%s: what predictors learned is of another version of this program: it is learned again", g->settings.heat);
    }
    heat_file_deinit(&f);
    return r;
}

void heats_close(struct engine *g)
{
    struct error e = {0};
    if (g->settings.heat != NULL && g->open && g->store != NULL && write_file(g, &e) < 0) {
        log_print(&g->log, LOG_NOTICE, "popularity of experts is not kept: %s", e.text);
    }
}
