/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the door to the BLAS. Must not know: which rows are bulk. */
#ifndef SLUICE_CPU_GEMM_H
#define SLUICE_CPU_GEMM_H

#include "common/ops.h"

/* Makes the BLAS compute in the calling thread; our pool does the splitting. */
void gemm_init(void);

void gemm_blas(const struct gemm_args *args);

#endif
