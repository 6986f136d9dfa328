/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what the processor offers and the operating system has enabled. Must not know: kernels. */
#include <asm/prctl.h>
#include <cpuid.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cpu/cpu.h"

struct cpuid_leaf {
    uint32_t eax, ebx, ecx, edx;
};

/* All zero if the processor has no such leaf. */
static struct cpuid_leaf cpuid_leaf(uint32_t leaf, uint32_t subleaf)
{
    struct cpuid_leaf r = {0, 0, 0, 0};
    (void)__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);
    return r;
}

static bool bit(uint32_t word, unsigned index) { return (word >> index) & 1; }

/* Register state that the operating system saves (XCR0); only valid where OSXSAVE is set. */
static uint32_t enabled_state(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static void detect_brand(char ret_brand[64])
{
    memset(ret_brand, 0, 64);
    if (cpuid_leaf(0x80000000u, 0).eax < 0x80000004u) {
        return;
    }
    for (uint32_t i = 0; i < 3; i++) {
        struct cpuid_leaf r = cpuid_leaf(0x80000002u + i, 0);
        memcpy(ret_brand + 16 * (size_t)i, &r, 16);
    }
}

/* Linux gives tile registers to processes that ask, from then on for all their threads. 0 or errno. */
static int ask_for_tiles(void)
{
    enum { TILE_DATA = 18 }; /* number of that register state */
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0 ? 0 : errno;
}

enum { STATE_YMM = 0x06, STATE_ZMM = 0xe6, STATE_TILE = 0x60000 };

void cpu_detect(struct cpu_flags *ret_flags)
{
    struct cpuid_leaf basic = cpuid_leaf(1, 0), extended = cpuid_leaf(7, 0), more = cpuid_leaf(7, 1);
    bool osxsave = bit(basic.ecx, 27);
    uint32_t state = osxsave ? enabled_state() : 0;
    bool ymm = (state & STATE_YMM) == STATE_YMM;
    bool zmm = (state & STATE_ZMM) == STATE_ZMM;
    bool tile = (state & STATE_TILE) == STATE_TILE && bit(extended.edx, 24);
    bool fma = bit(basic.ecx, 12), avx = bit(basic.ecx, 28), f16c = bit(basic.ecx, 29);
    if (extended.eax < 1) {
        more = (struct cpuid_leaf){0, 0, 0, 0};
    }
    memset(ret_flags, 0, sizeof(*ret_flags));
    ret_flags->avx2 = ymm && avx && fma && f16c && bit(extended.ebx, 5) && bit(extended.ebx, 8);
    ret_flags->avx_vnni = ret_flags->avx2 && bit(more.eax, 4);
    ret_flags->avx512 = ret_flags->avx2 && zmm && bit(extended.ebx, 16) && bit(extended.ebx, 17) &&
                        bit(extended.ebx, 30) && bit(extended.ebx, 31);
    ret_flags->avx512_vnni = ret_flags->avx512 && bit(extended.ecx, 11);
    ret_flags->avx512_vbmi = ret_flags->avx512 && bit(extended.ecx, 1);
    ret_flags->avx512_bf16 = ret_flags->avx512 && bit(more.eax, 5);
    ret_flags->amx_refused = tile ? ask_for_tiles() : 0;
    tile = tile && ret_flags->amx_refused == 0;
    ret_flags->amx_int8 = tile && bit(extended.edx, 25);
    ret_flags->amx_bf16 = tile && bit(extended.edx, 22);
    detect_brand(ret_flags->brand);
}
