/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what the two readers of a shape (config.json, GGUF metadata) share: notes, the list of missing keys, YaRN
 * magnitudes. Must not know: JSON, GGUF. Private to src/model. */
#ifndef SLUICE_MODEL_SHAPE_BUILD_H
#define SLUICE_MODEL_SHAPE_BUILD_H

#include "common/attr.h"
#include "src/model/shape.h"

struct shape_reader {
    const char *where;   /* for messages */
    struct shape *shape; /* being filled */
    struct error *e;
    int code;            /* first error; reading goes on so that all missing keys are known */
    uint32_t n_missing;
    char missing[900];   /* "key (meaning), key (meaning)" */
};

/* One line about an assumed value or an ignored key; dropped when SHAPE_MAX_NOTES are there. */
void shape_note(struct shape *s, const char *fmt, ...) ATTR_PRINTF(2, 3);

void shape_reader_missing(struct shape_reader *r, const char *key, const char *meaning);

/* First error, or all missing keys in one message that ends with `advice`, or shape_check. */
int shape_reader_finish(struct shape_reader *r, const char *advice);

/* An end token, once. */
void shape_add_eos(struct shape *s, int32_t id);

/* m(k) of spec 3.5: 0.1 k ln(factor) + 1 for factor > 1, else 1. */
double shape_yarn_m(double factor, double k);

/* attn_scale of a shape whose nope and rope are known: (nope + rope)^-0.5 * m^2. */
void shape_set_scale(struct shape *s, double m);

#endif
