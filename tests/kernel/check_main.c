/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the program that checks every kernel of every instruction set against the scalar definition, to the bit, and
 * the definition against doubles; with --bench, its rates. Must not know: what a kernel computes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cpu/cpu.h"
#include "tests/kernel/check.h"

static const char usage[] =
    "usage: check_kernels [--seed N] [--cases N] [--isa NAME] [--only TEXT] [--bench]\n"
    "Compares all kernels of the instruction sets this machine has with the scalar ones; exit status 1 on a difference.\n"
    "--only runs what has TEXT in \"operation variant\", such as \"matvec q4_k\".\n";

struct options {
    struct check check;
    bool all_isas;
    enum cpu_isa isa;
};

static bool parse(int argc, char **argv, struct options *o)
{
    for (int i = 1; i < argc; i++) {
        bool has_value = i + 1 < argc;
        if (strcmp(argv[i], "--bench") == 0) {
            o->check.bench = true;
        } else if (strcmp(argv[i], "--seed") == 0 && has_value) {
            o->check.seed = strtoull(argv[++i], NULL, 0);
        } else if (strcmp(argv[i], "--cases") == 0 && has_value) {
            o->check.cases = (unsigned)strtoul(argv[++i], NULL, 0);
        } else if (strcmp(argv[i], "--only") == 0 && has_value) {
            o->check.only = argv[++i];
        } else if (strcmp(argv[i], "--isa") == 0 && has_value && cpu_isa_by_name(argv[i + 1], &o->isa)) {
            o->all_isas = false;
            i++;
        } else {
            return false;
        }
    }
    return true;
}

static void run_table(struct check *c)
{
    check_matvec(c);
    check_bulk(c);
    check_vector(c);
    check_attention(c);
    check_router(c);
    check_gemm(c);
}

/* With AMX and without it: a table has the faster one only. */
static void run_bf16(struct check *c, struct cpu_flags flags)
{
    const struct ops *best = c->ops;
    struct ops ops;
    if (best->bf16_units == NULL) {
        printf("SKIPPED bulk_bf16: this processor has no AVX-512 with BF16; those kernels and AMX are NOT checked here\n");
        return;
    }
    check_bulk_bf16(c);
    if (!flags.amx_bf16) {
        printf("SKIPPED bulk_bf16 amx: %s; it is NOT checked here\n", flags.amx_refused != 0 ? "refused by the system" : "this processor does not have it");
        return;
    }
    flags.amx_bf16 = false;
    cpu_ops_init(&ops, CPU_AVX512, &flags);
    c->ops = &ops;
    check_bulk_bf16(c);
    c->ops = best;
}

int main(int argc, char **argv)
{
    struct options o = {.check = {.seed = (uint64_t)time(NULL), .cases = 60}, .all_isas = true};
    struct cpu_flags flags;
    struct ops ref;
    struct cpu_blas blas;
    struct error e = {0};
    if (!parse(argc, argv, &o)) {
        fputs(usage, stderr);
        return 2;
    }
    cpu_detect(&flags);
    cpu_float_mode_set();
    cpu_ops_init(&ref, CPU_SCALAR, &flags);
    if (cpu_blas_open(&blas, &ref, &flags, 1, &e) < 0) {
        printf("SKIPPED gemm: %s\n", e.text);
    }
    printf("seed %llu, processor \"%s\", best instruction set %s%s\n", (unsigned long long)o.check.seed, flags.brand,
           cpu_isa_name(cpu_isa_best(&flags)), flags.avx512_vnni ? " with VNNI" : "");
    for (int i = 0; i < CPU_ISA_COUNT; i++) {
        enum cpu_isa isa = (enum cpu_isa)i;
        struct ops ops;
        if (!o.all_isas && isa != o.isa) {
            continue;
        }
        if (!cpu_isa_runs(isa, &flags)) {
            printf("SKIPPED %s: this processor does not have it; its kernels are NOT checked here\n", cpu_isa_name(isa));
            continue;
        }
        cpu_ops_init(&ops, isa, &flags);
        ops.blas_sgemm = ref.blas_sgemm;
        o.check.ref = &ref;
        o.check.ops = isa == CPU_SCALAR ? &ref : &ops;
        run_table(&o.check);
        if (isa == CPU_AVX512) {
            run_bf16(&o.check, flags);
        }
    }
    check_deinit(&o.check);
    printf("%u slots failed\n", o.check.failures);
    return o.check.failures != 0;
}
