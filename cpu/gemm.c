/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: float GEMM of bulk rows by OpenBLAS. Must not know: which rows are bulk. */
#include "cpu/gemm.h"

#include <cblas.h>

#include "common/intmath.h"
#include "cpu/cpu.h"

/* Exported by every build of OpenBLAS, declared by no header. */
void *blas_memory_alloc(int kind);
void blas_memory_free(void *buffer);

enum { BUFFERS_MAX = 128 }; /* what OpenBLAS keeps without a list on the side */

/* OpenBLAS maps a work buffer when it is first needed, outside its lock and at an address it computes itself: two threads whose
 * first products overlap are given one buffer, and both results are wrong (0.3.21: one start in fifty with two threads). So
 * one thread has all of them mapped. */
void cpu_gemm_prepare(uint32_t callers)
{
    void *buffers[BUFFERS_MAX];
    uint32_t n = min_u32(callers, BUFFERS_MAX);
    for (uint32_t i = 0; i < n; i++) {
        buffers[i] = blas_memory_alloc(0);
    }
    for (uint32_t i = 0; i < n; i++) {
        blas_memory_free(buffers[i]);
    }
}

void gemm_init(void) { openblas_set_num_threads(1); }

void gemm_blas(const struct gemm_args *args)
{
    if (args->m == 0 || args->n == 0) {
        return;
    }
    cblas_sgemm(CblasRowMajor, CblasNoTrans, args->b_rows_are_outputs ? CblasTrans : CblasNoTrans, (blasint)args->m,
                (blasint)args->n, (blasint)args->k, args->alpha, args->x, (blasint)args->x_stride, args->b,
                (blasint)args->b_stride, args->beta, args->y, (blasint)args->y_stride);
}
