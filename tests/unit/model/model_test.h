/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what the unit tests of src/model share: golden models with single facts altered, configurations, metadata made by
 * hand, temporary folders. */
#ifndef TESTS_UNIT_MODEL_MODEL_TEST_H
#define TESTS_UNIT_MODEL_MODEL_TEST_H

#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

#include "common/attr.h"
#include "src/model/bind.h"

/* cmocka fixtures: *state is the path of an empty folder. */
int folder_setup(void **state);
int folder_teardown(void **state);

/* One of a ring of static buffers. */
const char *text(const char *fmt, ...) ATTR_PRINTF(1, 2);
const char *golden(const char *name); /* path of a golden model */

char *read_text(const char *path, size_t *ret_len); /* fails the test */
void write_text(const char *path, const char *data);

void assert_near(double found, double expected, double relative);
void assert_contains(const char *message, const char *part);

/* ---- config.json ---- */

json_t *golden_config(const char *name); /* new reference */
int shape_of_json(const json_t *config, struct shape *ret, struct error *e);
/* config with `key` set to the JSON `value` (NULL: deleted), read; releases nothing. */
int shape_with(const json_t *config, const char *key, const char *value, struct shape *ret, struct error *e);

/* ---- GGUF metadata ---- */

struct meta {
    struct gguf_value values[96];
    struct gguf_meta meta; /* values above, sorted */
};
void meta_copy(struct meta *m, const struct gguf_meta *from); /* strings stay the origin's */
void meta_drop(struct meta *m, const char *key);
void meta_u32(struct meta *m, const char *key, uint32_t value);
void meta_f32(struct meta *m, const char *key, double value);
void meta_bool(struct meta *m, const char *key, bool value);
void meta_text(struct meta *m, const char *key, const char *value);
/* DeepSeek-V3 as in real files; `newer`: with the _mla keys. Without tokenizer. */
void meta_v3(struct meta *m, bool newer);

/* ---- checkpoints ---- */

/* What is different from the origin. NULL: nothing of the kind. */
struct edit {
    const char *drop, *rename, *to; /* tensor; rename keeps the tensor under the name `to` */
    const char *reshape;
    uint64_t dims[3]; /* C order */
    uint32_t n_dims;
    const char *retype, *type; /* safetensors dtype, or name of a weight format for GGUF */
    const char *add; /* a tensor [2] of type F32 */
    const char *drop2;
    const char *drop_key;
};

/* Writes folder/model.safetensors + config.json, or folder/model.gguf: headers only. Returns the path to open. */
const char *write_edited(const char *folder, const char *origin, const struct edit *edit, const char *config);

int open_weights(const char *path, const char *mtp_from, bool mtp, struct weights **ret, struct error *e);

#endif
