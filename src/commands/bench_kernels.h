/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: each operation of the kernel table as a call that a bench can repeat, with its bytes and operations. Must not know:
 * threads, time. */
#ifndef SLUICE_COMMANDS_BENCH_KERNELS_H
#define SLUICE_COMMANDS_BENCH_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "cpu/cpu.h"

enum {
    KERNEL_COLS = 7168,     /* a row of the 671B model's gate and up matrices */
    KERNEL_TILE_ROWS = 64,  /* weight rows of a call from memory, as a task of the token loop has */
    KERNEL_BULK_ROWS = 128, /* activation rows of bulk products */
    KERNEL_HEADS = 16, KERNEL_LATENT = 512, KERNEL_ROPE = 64, KERNEL_POSITIONS = 1024, /* one segment of attention */
};

/* Memory of one worker. `weights` is far larger than the caches in all. */
struct kernel_place {
    unsigned char *weights;
    size_t weight_bytes;
    float *scratch; /* [KERNEL_SCRATCH_FLOATS] */
};

enum { KERNEL_SCRATCH_FLOATS = 4 << 20 };

/* Activations, shared and read only. */
struct kernel_input {
    float *x;         /* [KERNEL_BULK_ROWS, KERNEL_COLS] */
    int8_t *q;        /* of the block size in use */
    float *scale;
    int16_t *bsum16;
    float *fp8_scale; /* of a matrix of KERNEL_TILE_ROWS rows */
};

struct kernel;

typedef void (*kernel_call)(const struct kernel *k, const struct kernel_place *p, uint64_t index, bool cached);

/* One operation with one type and number of rows. */
struct kernel {
    const char *op;
    char type[16];
    enum weight_format format;
    enum kv_type kv;
    uint32_t n;
    double bytes, cached_bytes;           /* read by a call */
    double operations, cached_operations; /* 0: none worth counting */
    enum peak_kind peak;                  /* what the operations are compared with */
    bool memory;                          /* reads weights or latents: worth running from memory */
    kernel_call call;
    const struct ops *ops;
    const struct kernel_input *input;
    size_t row_bytes;
    uint32_t cached_rows;                 /* weight rows that stay in the second cache */
};

int kernel_input_init(struct kernel_input *in, struct error *e);
void kernel_input_deinit(struct kernel_input *in);

/* Fills the list with what `ops` has, of the formats of which `wanted` [FORMAT_COUNT] is true; returns how many. */
uint32_t kernel_list(const struct ops *ops, const struct kernel_input *in, const bool *wanted, struct kernel *list, uint32_t room);

/* Puts the weights or latents of `k` into a worker's memory, and its activations into the shared input. */
void kernel_fill(const struct kernel *k, struct kernel_place *p, struct kernel_input *in);

#endif
