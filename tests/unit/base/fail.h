/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what every unit test of src/base includes, and the switch that makes the N-th allocation fail. */
#ifndef TESTS_UNIT_BASE_FAIL_H
#define TESTS_UNIT_BASE_FAIL_H

#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* The n-th allocation from now on (1: the next) fails, once; 0: none. Only calls from code under test are counted. */
void fail_allocation(int n);
void fail_thread(int n);      /* the same for pthread_create: EAGAIN */
void fail_madvise(int on);    /* every madvise fails */
int fail_happened(void);      /* true since the last fail_* call if one did fail */

#endif
