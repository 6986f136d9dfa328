/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: heat_file.h. Little-endian on disk like the rest of the project's files. Must not know: who counts. */
#include "src/tier/heat_file.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "io/file.h"

enum { HEAT_VERSION = 2 };

static const char heat_magic[8] = "SLUICE-H";

/* Then (layers + mtp_layers) x experts float32 uses, the learned part, and the XXH3 of all before it. In version 1 `layers` are all of them,
 * mtp_layers is 0, and there is no learned part and no count of its bytes. */
struct heat_header {
    char magic[8];
    uint32_t version, layers, experts, mtp_layers;
    char fingerprint[40];
    uint64_t learned_bytes;
};

enum { HEADER_1 = offsetof(struct heat_header, learned_bytes) };

/* What a file that was read consists of. */
struct layout {
    struct heat_header head;
    size_t uses, learned, end; /* where they begin; end of the learned part */
};

static bool same_model(const struct heat_header *h, const struct heat_model *m)
{
    bool main = h->layers == m->layers && h->experts == m->experts && strcmp(h->fingerprint, m->fingerprint) == 0;
    bool all = h->version == 1 && h->layers == m->layers + m->mtp_layers && h->experts == m->experts && strcmp(h->fingerprint, m->all) == 0;
    return (main || all) && h->mtp_layers <= HEAT_MTP_MOST && h->learned_bytes <= HEAT_LEARNED_MOST;
}

/* The header of a file that is to be one of the model. */
static int read_header(const char *path, const struct heat_model *m, const char *data, size_t bytes, struct heat_header *ret, struct error *e)
{
    if (bytes < HEADER_1 || memcmp(data, heat_magic, sizeof(heat_magic)) != 0) {
        return error_set(e, ERROR_FORMAT, "%s: is no file of expert popularity (--heat): name another one, it is made when the program ends", path);
    }
    memset(ret, 0, sizeof(*ret));
    memcpy(ret, data, HEADER_1);
    ret->fingerprint[sizeof(ret->fingerprint) - 1] = '\0';
    if (ret->version != 1 && ret->version != HEAT_VERSION) {
        return error_set(e, ERROR_FORMAT, "%s: version %u of the file, 1 or %d is expected: delete it", path, ret->version, HEAT_VERSION);
    }
    if (ret->version == 1) {
        ret->mtp_layers = 0;
    } else if (bytes >= sizeof(*ret)) {
        memcpy(&ret->learned_bytes, data + HEADER_1, sizeof(ret->learned_bytes));
    }
    return same_model(ret, m) ? 0 : error_set(e, ERROR_FORMAT, "%s: popularity of experts of another model (%s, %u layers of %u; this one is %s, %u of %u): name another file (--heat)",
                                              path, ret->fingerprint, ret->layers, ret->experts, m->fingerprint, m->layers, m->experts);
}

static int find_parts(const char *path, const struct heat_model *m, const char *data, size_t bytes, struct layout *ret, struct error *e)
{
    uint64_t sum = 0;
    int r = read_header(path, m, data, bytes, &ret->head, e);
    if (r < 0) {
        return r;
    }
    ret->uses = ret->head.version == 1 ? HEADER_1 : sizeof(ret->head);
    ret->learned = ret->uses + ((size_t)ret->head.layers + ret->head.mtp_layers) * ret->head.experts * sizeof(float);
    ret->end = ret->learned + ret->head.learned_bytes;
    if (bytes == ret->end + sizeof(sum)) {
        memcpy(&sum, data + ret->end, sizeof(sum));
    }
    return bytes == ret->end + sizeof(sum) && XXH3_64bits(data, ret->end) == sum
               ? 0
               : error_set(e, ERROR_FORMAT, "%s: is damaged (%zu bytes, %zu expected, or its checksum is wrong): delete it, popularity is learned again", path, bytes, ret->end + sizeof(sum));
}

static int copy_parts(const struct heat_model *m, const char *data, const struct layout *at, struct heat_file *ret, struct error *e)
{
    size_t n = (at->learned - at->uses) / sizeof(float), learned = at->end - at->learned;
    struct heat_file f = {.mtp_layers = at->head.layers - m->layers + at->head.mtp_layers, .learned_bytes = learned};
    f.uses = malloc(n * sizeof(*f.uses) + 1);
    f.learned = learned > 0 ? malloc(learned) : NULL;
    if (f.uses == NULL || (learned > 0 && f.learned == NULL)) {
        heat_file_deinit(&f);
        return error_nomem(e, "file of expert popularity", at->end);
    }
    memcpy(f.uses, data + at->uses, n * sizeof(*f.uses));
    for (size_t i = 0; i < n; i++) {
        f.uses[i] = isfinite(f.uses[i]) && f.uses[i] > 0 ? f.uses[i] : 0;
    }
    if (learned > 0) {
        memcpy(f.learned, data + at->learned, learned);
    }
    *ret = f;
    return 0;
}

int heat_file_read(const char *path, const struct heat_model *m, struct heat_file *ret, struct error *e)
{
    char *data;
    size_t bytes, most = sizeof(struct heat_header) + ((size_t)m->layers + HEAT_MTP_MOST) * m->experts * sizeof(float) + HEAT_LEARNED_MOST + sizeof(uint64_t);
    struct error failure = {0};
    struct layout at;
    int r = file_read_all(path, most, &data, &bytes, &failure);
    if (r < 0) {
        return r == -ENOENT ? r : error_set(e, r, "%s", failure.text);
    }
    r = find_parts(path, m, data, bytes, &at, e);
    r = r < 0 ? r : copy_parts(m, data, &at, ret, e);
    free(data);
    return r;
}

void heat_file_deinit(struct heat_file *f)
{
    free(f->uses);
    free(f->learned);
    *f = (struct heat_file){0};
}

int heat_file_write(const char *path, const struct heat_model *m, const struct heat_file *f, struct error *e)
{
    struct heat_header head = {.version = HEAT_VERSION, .layers = m->layers, .experts = m->experts, .mtp_layers = f->mtp_layers, .learned_bytes = f->learned_bytes};
    memcpy(head.magic, heat_magic, sizeof(head.magic));
    strncpy(head.fingerprint, m->fingerprint, sizeof(head.fingerprint) - 1);
    size_t uses = ((size_t)m->layers + f->mtp_layers) * m->experts * sizeof(float), body = sizeof(head) + uses + f->learned_bytes;
    char *data = malloc(body + sizeof(uint64_t));
    if (data == NULL) {
        return error_nomem(e, "file of expert popularity", body);
    }
    memcpy(data, &head, sizeof(head));
    memcpy(data + sizeof(head), f->uses, uses);
    if (f->learned_bytes > 0) {
        memcpy(data + sizeof(head) + uses, f->learned, f->learned_bytes);
    }
    uint64_t sum = XXH3_64bits(data, body);
    memcpy(data + body, &sum, sizeof(sum));
    int r = file_write_all(path, data, body + sizeof(sum), e);
    free(data);
    return r;
}
