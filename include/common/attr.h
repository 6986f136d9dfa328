/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: compiler attributes and the only compiler #if of the project. Knows nothing of sluice. */
#ifndef SLUICE_COMMON_ATTR_H
#define SLUICE_COMMON_ATTR_H

#if defined(__GNUC__) || defined(__clang__)
#define ATTR_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define ATTR_UNUSED __attribute__((unused))
#define ATTR_ALIGNED(n) __attribute__((aligned(n)))
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#else
#define ATTR_PRINTF(fmt, args)
#define ATTR_UNUSED
#define ATTR_ALIGNED(n)
#define LIKELY(x) (x)
#define UNLIKELY(x) (x)
#endif

/* A function of include/common that kernels on the GPU call too. */
#ifdef __CUDACC__
#define ATTR_HOST_DEVICE __host__ __device__
#else
#define ATTR_HOST_DEVICE
#endif

#if defined(__x86_64__)
#define CPU_RELAX() __builtin_ia32_pause() /* in spinning loops */
#elif defined(__aarch64__)
#define CPU_RELAX() __asm__ volatile("yield")
#else
#define CPU_RELAX() ((void)0)
#endif

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

#endif
