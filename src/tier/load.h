/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: reading ranges of checkpoint files into buffers at open time - large reads, several in flight, progress, cancel,
 * NaN checks of FP8 codes and scales as they arrive. Must not know: who computes with them. */
#ifndef SLUICE_TIER_LOAD_H
#define SLUICE_TIER_LOAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "common/log.h"
#include "common/view.h"
#include "io/reader.h"
#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/model/names.h"
#include "src/tier/fingerprints.h"

enum {
    LOAD_PIECE = 4 << 20, /* one request */
    LOAD_DEPTH = 64,      /* requests that a reader of a loader takes, at least: together more than it has in flight, so that it never idles */
};

struct pool;

struct loader {
    struct reader *reader;
    struct account *account;
    uint32_t nodes;     /* memory nodes that the rows of a matrix are spread over, at least 1 */
    bool bare;          /* buffers are addresses without memory: nothing is read into them, for simulations */
    const int *node_os; /* [nodes] their numbers, or NULL: memory is taken where the system gives it */
    const struct fingerprints *fingerprints; /* what is loaded is checked against them; NULL: there are none */
    struct pool *pool;  /* the threads that check; NULL: the caller alone */
    const struct log *log;
    struct clock clock;
    const atomic_int *cancel; /* ERROR_INTERRUPTED when it becomes non-zero */
    void (*progress)(void *ctx, uint64_t done, uint64_t total, double seconds); /* may be NULL */
    void *progress_ctx;
    uint64_t done, total;     /* bytes; load_* count done, and raise total where the caller did not know it beforehand */
    uint64_t start_ns, reported_ns; /* kept by load_* */
};

/* Bytes [begin, begin + bytes) of a matrix. */
struct load_item {
    struct weight_ref ref;
    uint64_t begin, bytes;
    void *data; /* [bytes] */
};

/* Reads all items, in file order, up to LOAD_DEPTH pieces at once; checks F8 NaN codes. Error names file, tensor, offset. */
int load_matrices(struct loader *l, const struct load_item *items, size_t n, struct error *e);

/* Whether the bytes of an item that has been read are weights: FP8 NaN codes are ERROR_FORMAT, named as by load_matrices. */
int load_check_item(const struct load_item *item, struct error *e);

/* A vector (`scales` false) as float32 into out [ref.cols], or the FP8 scales of a matrix (`scales` true) into out
 * [ceil(rows/128), ceil(cols/128)]. */
struct load_floats_item {
    struct weight_ref ref;
    float *out;
    bool scales;
};

/* Reads all of them together, as load_matrices does. NaN and Inf are refused by name, so are scales that are negative,
 * with tensor and block, so is what differs from the fingerprints (matrices are checked by who knows where their parts lie). */
int load_floats(struct loader *l, const struct load_floats_item *items, size_t n, struct error *e);

int load_vector(struct loader *l, const struct weight_ref *ref, float *out, struct error *e);
int load_scales(struct loader *l, const struct weight_ref *ref, float *out, struct error *e);

/* ERROR_INTERRUPTED when the cancel flag is set, else 0. */
int load_interrupted(const struct loader *l, struct error *e);

/* Number of FP8 scales of a matrix; 0 if it has none. */
uint64_t load_scale_count(const struct weight_ref *ref);

#endif
