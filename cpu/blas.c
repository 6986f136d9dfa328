/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: OpenBLAS, loaded at run time: float GEMM of bulk rows. Must not know: which rows are bulk. */
#include <cblas.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>

#include "common/attr.h"
#include "common/intmath.h"
#include "cpu/cpu.h"
#include "cpu/ref.h"

typedef void sgemm_fn(enum CBLAS_ORDER, enum CBLAS_TRANSPOSE, enum CBLAS_TRANSPOSE, blasint, blasint, blasint, float, const float *,
                      blasint, const float *, blasint, float, float *, blasint);
typedef void set_threads_fn(int);
typedef char *text_fn(void);
/* Exported by every build, declared by no header. */
typedef void *memory_alloc_fn(int kind);
typedef void memory_free_fn(void *buffer);

enum { BUFFERS_MAX = 128 }; /* what OpenBLAS keeps without a list on the side */

/* The threaded build by its own path, then whatever the system names. */
static void *open_library(const char **ret_path)
{
    static const char *const paths[] = {BLAS_LIBRARY, "libopenblas.so.0"};
    void *library = NULL;
    for (size_t i = 0; i < ARRAY_LEN(paths) && library == NULL; i++) {
        library = dlopen(paths[i], RTLD_NOW | RTLD_LOCAL);
        *ret_path = paths[i];
    }
    return library;
}

/* OpenBLAS maps a work buffer when it is first needed, outside its lock and at an address it computes itself: two threads whose
 * first products overlap are given one buffer, and both results are wrong (0.3.21: one start in fifty with two threads). So
 * one thread has all of them mapped. */
static void map_buffers(void *library, uint32_t callers)
{
    memory_alloc_fn *alloc = (memory_alloc_fn *)dlsym(library, "blas_memory_alloc");
    memory_free_fn *release = (memory_free_fn *)dlsym(library, "blas_memory_free");
    void *buffers[BUFFERS_MAX];
    uint32_t n = alloc != NULL && release != NULL ? min_u32(callers, BUFFERS_MAX) : 0;
    for (uint32_t i = 0; i < n; i++) {
        buffers[i] = alloc(0);
    }
    for (uint32_t i = 0; i < n; i++) {
        release(buffers[i]);
    }
}

static const char *text_of(void *library, const char *name)
{
    text_fn *fn = (text_fn *)dlsym(library, name);
    return fn != NULL ? fn() : "unknown";
}

int cpu_blas_open(struct cpu_blas *ret, struct ops *ops, const struct cpu_flags *flags, uint32_t callers, struct error *e)
{
    /* 0.3.21 takes processors that are newer than itself for very old ones, and its AVX-512 kernels are wrong on some: its AVX2
     * kernels are the ones that every processor with AVX2 runs right. A value that is set already stays. */
    if (flags->avx2) {
        setenv("OPENBLAS_CORETYPE", "Haswell", 0);
    }
    setenv("OPENBLAS_NUM_THREADS", "1", 0);
    struct cpu_blas b = {0};
    b.library = open_library(&b.path);
    if (b.library == NULL) {
        return error_set(e, -ENOENT, "OpenBLAS cannot be loaded (%s); install libopenblas0-pthread, or give -ub 8, which needs none", dlerror());
    }
    set_threads_fn *set_threads = (set_threads_fn *)dlsym(b.library, "openblas_set_num_threads");
    sgemm_fn *sgemm = (sgemm_fn *)dlsym(b.library, "cblas_sgemm");
    if (set_threads == NULL || sgemm == NULL) {
        dlclose(b.library);
        return error_set(e, -ENOENT, "%s: no OpenBLAS with a C interface; install libopenblas0-pthread, or give -ub 8, which needs none", b.path);
    }
    set_threads(1); /* our pool does the splitting */
    map_buffers(b.library, callers);
    b.config = text_of(b.library, "openblas_get_config");
    b.core = text_of(b.library, "openblas_get_corename");
    ops->blas_sgemm = (void (*)(void))sgemm;
    *ret = b;
    return 0;
}

void gemm_blas(const struct ops *ops, const struct gemm_args *args)
{
    if (args->m == 0 || args->n == 0) {
        return;
    }
    ((sgemm_fn *)ops->blas_sgemm)(CblasRowMajor, CblasNoTrans, args->b_rows_are_outputs ? CblasTrans : CblasNoTrans, (blasint)args->m,
                                  (blasint)args->n, (blasint)args->k, args->alpha, args->x, (blasint)args->x_stride, args->b,
                                  (blasint)args->b_stride, args->beta, args->y, (blasint)args->y_stride);
}
