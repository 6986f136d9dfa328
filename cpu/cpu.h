/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the door to the host kernels. Must not know: files, threads, models. */
#ifndef SLUICE_CPU_H
#define SLUICE_CPU_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "common/ops.h"

/* Instruction sets a table exists for, weakest first. */
enum cpu_isa { CPU_SCALAR, CPU_AVX2, CPU_AVX512, CPU_ISA_COUNT };

/* What the processor and the operating system offer (cpuid, xgetbv). */
struct cpu_flags {
    bool avx2;        /* AVX2, FMA, F16C, BMI2 */
    bool avx_vnni;
    bool avx512;      /* F, BW, DQ, VL */
    bool avx512_vnni, avx512_vbmi, avx512_bf16;
    bool amx_int8, amx_bf16;
    int amx_refused; /* errno: the processor has AMX, but the system does not let this process use it; the flags are off */
    char brand[64];
};

void cpu_detect(struct cpu_flags *ret_flags);

const char *cpu_isa_name(enum cpu_isa isa);        /* "scalar", "avx2", "avx512" */
bool cpu_isa_by_name(const char *name, enum cpu_isa *ret_isa);
bool cpu_isa_runs(enum cpu_isa isa, const struct cpu_flags *flags);
enum cpu_isa cpu_isa_best(const struct cpu_flags *flags);

/* Fills the table C-first and overwrites it weakest to strongest up to `isa`; the caller has checked cpu_isa_runs. */
void cpu_ops_init(struct ops *ret_ops, enum cpu_isa isa, const struct cpu_flags *flags);

/* ---- what the processor can do at best: loops that only read memory, or only multiply in registers ---- */

enum peak_kind { PEAK_FMA, PEAK_BF16, PEAK_INT8, PEAK_COUNT }; /* multiply-adds of float32, bfloat16, int8 */

enum { PEAK_READ_STEP = 256, PEAK_STREAMS_MAX = 16 };

struct cpu_peak {
    /* Reads `bytes`, a multiple of streams * PEAK_READ_STEP, as `streams` equal parts in step. */
    void (*read)(const void *data, size_t bytes, uint32_t streams);
    /* Computes for so many rounds and returns the operations done, two for a multiply-add; NULL: no such units. */
    double (*compute[PEAK_COUNT])(uint64_t rounds);
    const char *name[PEAK_COUNT]; /* of the units: "avx2", "vnni", "amx"; NULL: none */
};

/* The strongest loops up to `isa`; the caller has checked cpu_isa_runs. */
void cpu_peak_init(struct cpu_peak *ret_peak, enum cpu_isa isa, const struct cpu_flags *flags);

/* The BLAS behind ops.gemm, loaded when a program is about to compute bulk rows. Stays loaded until the program ends. */
struct cpu_blas {
    void *library;
    const char *path;           /* as asked of the system */
    const char *config, *core;  /* its version and build, the processors it picked kernels for */
};

/* Loads OpenBLAS and connects it with ops. `callers` threads may then use ops.gemm at the same time: 128 MiB of address space
 * are mapped for each, of which only what a product touches becomes memory. Sets environment variables of OpenBLAS that are not
 * set, so other threads must not read the environment meanwhile. -ENOENT: it is not installed. */
int cpu_blas_open(struct cpu_blas *ret, struct ops *ops, const struct cpu_flags *flags, uint32_t callers, struct error *e);

/* Sets round-to-nearest with FTZ and DAZ off in the calling thread; numerics.md. Called by every worker. */
void cpu_float_mode_set(void);
/* True if the calling thread is in that mode. */
bool cpu_float_mode_ok(void);

#endif
