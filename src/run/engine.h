/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: an open model: weights, plan, tiers, op table, pool, KV pages, work buffers. Immutable after open but for the KV
 * pool, counters and scratch. Must not know: sessions' state, sampling. */
#ifndef SLUICE_RUN_ENGINE_H
#define SLUICE_RUN_ENGINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "common/log.h"
#include "common/ops.h"
#include "cpu/cpu.h"
#include "io/read_rate.h"
#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/base/counters.h"
#include "src/base/settings.h"
#include "src/base/thread.h"
#include "src/model/bind.h"
#include "src/model/tokenizer.h"
#include "src/place/plan.h"
#include "src/run/drives.h"
#include "src/run/kv.h"
#include "src/run/nodes.h"
#include "src/run/placement.h"
#include "src/run/script.h"
#include "src/run/work.h"
#include "src/tier/resident.h"
#include "src/tier/store.h"

enum { STEPS_DOWN_MAX = 32, STEPS_OPEN_MAX = 2 };

struct step_down {
    char what[48], why[200];
};

struct step;
struct foresee;
struct prefetch;

enum { FINGERPRINT = 33 }; /* characters of one, its end included */

struct engine {
    bool open;                /* engine_open succeeded */
    uint64_t spare;           /* of engine_hooks */
    struct settings settings;
    struct log log;
    struct clock clock;
    const atomic_int *cancel; /* may be NULL */
    struct counters counters;
    struct account account;
    struct machine machine;
    struct plan plan;
    struct nodes nodes;
    struct placement placement; /* of the loaded weights */

    struct weights *weights;
    const struct shape *shape; /* of weights, or of the script */
    struct script *script;     /* scripted model: no weights, tokens from a file */
    struct fingerprints *fingerprints; /* NULL: none beside the model */
    struct resident *resident;
    struct store *store;
    struct read_rate io_budget; /* --io-limit: of all that the engine reads */
    struct reader *expert_reader; /* of the experts that are read when they are used; NULL: all are in RAM */
    struct drives drives;
    struct tokenizer *tokenizer; /* NULL: none */
    uint32_t *real_tokens;       /* [ceil(vocab/32)] bit mask of ids that are tokens */
    int32_t eos[SHAPE_MAX_EOS * 2];
    uint32_t n_eos;

    enum cpu_isa isa;
    struct ops ops;
    bool act_f32;        /* --activations f32 */
    bool bulk_own[FORMAT_COUNT]; /* bulk products of a format by our kernels, else by OpenBLAS: bulk_choice.h */
    uint32_t ubatch;     /* rows of a prompt chunk */
    uint32_t step_rows;  /* rows a step may have */
    uint32_t context;    /* positions of a session */
    uint32_t drafts;     /* rows that a session may have computed ahead; 0: no drafting */
    bool drafts_governed; /* as many as pay; false: always so many */
    struct pool *pool;
    struct kv_pool kv;
    struct work work;
    float *cos_sin;      /* [context, rope/2, 2] */
    struct buffer cos_sin_memory;
    struct step *steps[STEPS_OPEN_MAX];
    struct prefetch *prefetch; /* NULL: nothing is read ahead but for prompts */
    struct foresee *foresee; /* who watches; NULL: nobody. Belongs to its creator */
    uint32_t sessions;   /* alive */

    struct step_down steps_down[STEPS_DOWN_MAX];
    uint32_t n_steps_down;
    uint64_t load_bytes;
    double load_seconds;
    char fingerprint[FINGERPRINT];      /* of shape and tensor table: saved sessions carry it */
    char main_fingerprint[FINGERPRINT]; /* the same without the MTP layers: what does not depend on --mtp carries it */

    struct counter *tokens_prefill, *tokens_decode, *weight_bytes, *drafts_made, *drafts_accepted;
};

struct engine_hooks {
    struct log log;
    struct clock clock; /* now_ns NULL: the system's */
    const atomic_int *cancel;
    void (*progress)(void *ctx, uint64_t done, uint64_t total, double seconds);
    void *ctx;
    uint64_t spare; /* bytes that experts leave for the caller, where not all of them stay in RAM */
};

/* Takes a copy of settings. Plans and refuses before a weight is read. */
int engine_open(const struct settings *settings, const struct engine_hooks *hooks, struct engine **ret, struct error *e);
void engine_close(struct engine *g); /* accepts NULL */

static inline bool engine_cancelled(const struct engine *g) { return g->cancel && atomic_load_explicit(g->cancel, memory_order_relaxed) != 0; }

/* Announces once and remembers for reports. */
void engine_step_down(struct engine *g, const char *what, const char *fmt, ...) ATTR_PRINTF(3, 4);

/* Runs tasks on the pool; ERROR_INTERRUPTED as soon as the cancel flag is seen (remaining tasks are skipped). */
int engine_parallel(struct engine *g, uint32_t tasks, pool_fn fn, void *ctx, struct error *e);

/* The same with count[k] tasks that lie on node k, numbered by node: its workers take them first. */
int engine_parallel_nodes(struct engine *g, uint32_t nodes, const uint32_t *count, pool_fn fn, void *ctx, struct error *e);

/* ERROR_INTERRUPTED if the cancel flag is set, else 0. */
int engine_interrupted(const struct engine *g, struct error *e);

bool engine_is_end(const struct engine *g, int32_t token);

#endif
