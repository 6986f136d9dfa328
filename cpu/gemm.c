/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: float GEMM of bulk rows by OpenBLAS. Must not know: which rows are bulk. */
#include "cpu/gemm.h"

#include <cblas.h>

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
