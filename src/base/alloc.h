/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: large buffers - aligned, huge-page-advised, tagged by purpose and counted in an account - so that a memory
 * report is one table. Small bookkeeping objects use malloc. Must not know: how large anything should be. */
#ifndef SLUICE_BASE_ALLOC_H
#define SLUICE_BASE_ALLOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

/* Every byte the plan counts has one of these. The order is the order of reports. */
enum purpose {
    PURPOSE_RESIDENT, /* dense weights */
    PURPOSE_EXPERTS,  /* routed experts in RAM */
    PURPOSE_SCALES,   /* FP8 block scales */
    PURPOSE_KV,       /* latent KV pages */
    PURPOSE_WORK,     /* scratch of steps and workers */
    PURPOSE_STAGING,  /* read buffers */
    PURPOSE_TOKENIZER,
    PURPOSE_TABLES,   /* tensor tables, rope tables, bookkeeping */
    PURPOSE_PROGRAM,  /* code, libraries, stacks */
    PURPOSE_COUNT,
};

const char *purpose_name(enum purpose p); /* "resident weights", ... */

/* Account of live bytes per purpose; belongs to an engine. All zero is a valid empty account. Thread-safe. */
struct account {
    uint64_t bytes[PURPOSE_COUNT];
    uint64_t huge_bytes; /* of them advised for huge pages */
    uint64_t huge_refused, bind_refused; /* bytes, ever: without the advice, and not bound to the node asked for */
    int huge_errno, bind_errno; /* why, of the last */
};

/* One buffer. `data` is 64-byte aligned (2 MiB when large), zeroed by the kernel. */
struct buffer {
    void *data;
    size_t bytes; /* as asked */
    size_t mapped; /* whole pages; what the account counts */
    enum purpose purpose;
    int node; /* number of the memory node asked for; below 0: none */
    int bind_errno; /* 0: bound or interleaved, or not asked to be */
    bool huge; /* the kernel took the advice */
    struct account *account;
};

/* bytes == 0 gives data == NULL, as does failure. `account` may be NULL. */
int buffer_init(struct buffer *b, struct account *account, enum purpose purpose, size_t bytes, struct error *e);

/* The same on one memory node (its number; below 0: anywhere). A refusal is a fact of the buffer and its account, no error. */
int buffer_init_node(struct buffer *b, struct account *account, enum purpose purpose, size_t bytes, int node, struct error *e);

/* Addresses without memory: whoever touches them crashes. In no account; any size that there are addresses for. */
int buffer_init_bare(struct buffer *b, size_t bytes, struct error *e);

/* Untouched pages of b will come from these n nodes in turn: for what all threads read. A refusal is a fact as above. */
void buffer_interleave(struct buffer *b, const int *node, uint32_t n);

void buffer_deinit(struct buffer *b);

uint64_t account_total(const struct account *a);

#endif
