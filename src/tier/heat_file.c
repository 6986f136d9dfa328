/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: heat_file.h. Little-endian on disk like the rest of the project's files. Must not know: who counts. */
#include "src/tier/heat_file.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "io/file.h"

enum { HEAT_VERSION = 1 };

static const char heat_magic[8] = "SLUICE-H";

/* Then layers x experts float32 uses, then the XXH3 of all before it. */
struct heat_header {
    char magic[8];
    uint32_t version, layers, experts, reserved;
    char fingerprint[40];
};

static size_t count_of(const struct heat *h) { return (size_t)h->layers * h->experts; }

/* The uses in a file of so many bytes that is to be one of `h`; NULL: it is none, and *e says why. */
static const char *find_uses(const struct heat *h, const char *path, const char *fingerprint, const char *data, size_t bytes, struct error *e)
{
    struct heat_header head;
    uint64_t sum;
    if (bytes < sizeof(head) || memcmp(data, heat_magic, sizeof(heat_magic)) != 0) {
        error_set(e, ERROR_FORMAT, "%s: is no file of expert popularity (--heat): name another one, it is made when the program ends", path);
        return NULL;
    }
    memcpy(&head, data, sizeof(head));
    head.fingerprint[sizeof(head.fingerprint) - 1] = '\0';
    if (head.version != HEAT_VERSION) {
        error_set(e, ERROR_FORMAT, "%s: version %u of the file, %d is expected: delete it", path, head.version, HEAT_VERSION);
        return NULL;
    }
    if (strcmp(head.fingerprint, fingerprint) != 0 || head.layers != h->layers || head.experts != h->experts) {
        error_set(e, ERROR_FORMAT, "%s: popularity of experts of another model (%s, %u layers of %u; this one is %s, %u of %u): name another file (--heat)", path,
                  head.fingerprint, head.layers, head.experts, fingerprint, h->layers, h->experts);
        return NULL;
    }
    size_t body = sizeof(head) + count_of(h) * sizeof(float);
    if (bytes == body + sizeof(sum)) {
        memcpy(&sum, data + body, sizeof(sum));
    }
    if (bytes != body + sizeof(sum) || XXH3_64bits(data, body) != sum) {
        error_set(e, ERROR_FORMAT, "%s: is damaged (%zu bytes, %zu expected, or its checksum is wrong): delete it, popularity is learned again", path, bytes, body + sizeof(sum));
        return NULL;
    }
    return data + sizeof(head);
}

int heat_file_read(struct heat *h, const char *path, const char *fingerprint, struct error *e)
{
    char *data;
    size_t bytes;
    struct error failure = {0};
    int r = file_read_all(path, sizeof(struct heat_header) + count_of(h) * sizeof(float) + 64, &data, &bytes, &failure);
    if (r == -ENOENT) {
        return r;
    }
    if (r < 0) {
        return error_set(e, r, "%s", failure.text);
    }
    const char *uses = find_uses(h, path, fingerprint, data, bytes, e);
    for (size_t i = 0; uses != NULL && i < count_of(h); i++) {
        float x;
        memcpy(&x, uses + i * sizeof(x), sizeof(x));
        h->weight[i] = isfinite(x) && x > 0 ? (double)x * h->unit : 0;
    }
    free(data);
    return uses != NULL ? 0 : ERROR_FORMAT;
}

int heat_file_write(const struct heat *h, const char *path, const char *fingerprint, struct error *e)
{
    struct heat_header head = {.version = HEAT_VERSION, .layers = h->layers, .experts = h->experts};
    memcpy(head.magic, heat_magic, sizeof(head.magic));
    strncpy(head.fingerprint, fingerprint, sizeof(head.fingerprint) - 1);
    size_t body = sizeof(head) + count_of(h) * sizeof(float);
    char *data = malloc(body + sizeof(uint64_t));
    if (data == NULL) {
        return error_nomem(e, "file of expert popularity", body);
    }
    memcpy(data, &head, sizeof(head));
    for (size_t i = 0; i < count_of(h); i++) {
        float x = (float)(h->weight[i] / h->unit);
        memcpy(data + sizeof(head) + i * sizeof(x), &x, sizeof(x));
    }
    uint64_t sum = XXH3_64bits(data, body);
    memcpy(data + body, &sum, sizeof(sum));
    int r = file_write_all(path, data, body + sizeof(sum), e);
    free(data);
    return r;
}
