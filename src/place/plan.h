/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the decision where every byte goes and whether it fits, as pure arithmetic. Allocates nothing, opens nothing.
 * Must not know: files, kernels, how a limit was found. */
#ifndef SLUICE_PLACE_PLAN_H
#define SLUICE_PLACE_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "common/ops.h"
#include "src/base/alloc.h"
#include "src/base/settings.h"
#include "src/base/str.h"
#include "src/model/shape.h"
#include "src/place/cost.h"
#include "src/place/hits.h"
#include "src/place/machine.h"
#include "src/place/speed.h"

enum {
    PLAN_DEFAULT_CONTEXT = 32768,      /* most that is chosen without -c; a larger one is a decision of the user */
    PLAN_USEFUL_CONTEXT = 4096,        /* with less, without -c, experts rather leave RAM */
    PLAN_MAX_UBATCH = 65536,           /* rows of a chunk beyond which nothing fits */
    PLAN_OPEN_STEPS = 2,               /* steps that may be open at once */
    PLAN_LEFT_SHARE = 20,              /* a part of MemAvailable that experts leave to others, where not all of them stay */
    PLAN_STAGING_BYTES = 16 << 20,     /* reads in flight while loading, page cache included */
    PLAN_PROGRAM_BYTES = 24 << 20,     /* code, libraries, small objects: 14 MiB measured before a model is opened */
    PLAN_GEMM_ADDRESSES = 128 << 20,   /* address space, not memory, that OpenBLAS maps for a thread (cpu_gemm_prepare) */
    PLAN_THREAD_BYTES = 1 << 20,       /* touched stack and library buffers of one thread */
};

/* Byte sums of a checkpoint (src/tier/plan_input.h fills them) and choices already made. */
struct plan_input {
    const struct shape *shape;
    const struct machine *machine;
    uint64_t resident_bytes, scale_bytes, tokenizer_bytes, table_bytes;
    uint64_t expert_bytes;      /* slots of all experts, each of its own size */
    uint64_t max_expert_bytes;  /* one slot that takes any expert */
    struct cost cost;           /* src/tier/cost_input.h; all zero: speed of prompts unknown */
    struct hits hits;           /* all zero: as published */
    uint64_t idle_bytes;        /* of resident_bytes: not read for every token (embedding table, MTP layers) */
    uint32_t nodes;             /* memory nodes that weights are bound to; 0: none */
    uint64_t node_bytes[WEIGHT_NODES_MAX]; /* of weights, as spread over nodes, with all experts */
    uint64_t node_expert_bytes[WEIGHT_NODES_MAX], node_slot_bytes[WEIGHT_NODES_MAX]; /* of them all experts; one slot */
    uint64_t ram_setting;       /* --ram, 0: none */
    struct amount expert_ram;   /* --expert-ram */
    uint64_t spare;             /* bytes that experts leave to others, where not all of them stay */
    uint64_t ahead_bytes;       /* tables of what reads ahead, where not all experts stay */
    uint32_t threads;           /* workers */
    uint32_t ubatch;            /* rows of a chunk */
    uint32_t context;           /* 0: choose */
    uint32_t sessions;          /* timelines with a full context each: >= 1 */
    uint32_t drafts;            /* rows that may be computed ahead of each; 0: no drafting */
    enum kv_type kv;
};

struct plan {
    uint64_t limit;             /* bytes the process may use */
    enum memory_limit binding;  /* which limit that is */
    uint64_t bytes[PURPOSE_COUNT]; /* sum = total */
    uint64_t total;
    uint64_t needed;            /* least total that would work: smallest context, one expert in RAM at a time */
    bool fits;
    bool node_short;            /* it fits but for a node that cannot hold its share */
    uint32_t context;           /* positions per session */
    uint32_t context_max;       /* largest that fits */
    uint32_t kv_pages;          /* pages of the pool */
    uint64_t kv_page_bytes;     /* one page, all layers */
    uint64_t kv_token_bytes;    /* one position, all layers */
    uint64_t experts;           /* routed experts, all layers */
    uint64_t expert_slots;      /* of them stay in RAM at once; the others are read when they are used */
    uint64_t nvme_bytes;        /* of experts that have no slot */
    uint64_t staging_slots;     /* slots to read into, beside those: 0 if all stay */
    uint32_t nodes;             /* memory nodes that weights are bound to; 0: none */
    struct plan_node {
        int number;
        uint64_t weights, available; /* bytes; available 0: unknown */
    } node[WEIGHT_NODES_MAX];   /* [nodes] */
    struct speed speed;         /* what follows for a token */
    char binding_text[160];     /* what bounds speed, one line */
};

/* Always fills *ret; ERROR_DOES_NOT_FIT with limit, need and least setting in the text when it does not fit. */
int plan_make(const struct plan_input *in, struct plan *ret, struct error *e);

#endif
