/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: reads that fail on command. Must not know: who reads. */
#ifndef TESTS_UNIT_IO_FAULT_H
#define TESTS_UNIT_IO_FAULT_H

/* From the n-th pread from now on (1: the next), `times` of them fail with this errno; 0: none. With
 * FAULT_SHORT as errno they return half of what was asked (rounded up), with FAULT_END nothing. */
enum { FAULT_SHORT = -1, FAULT_END = -2 };
void fault_pread(int n, int times, int error);
int fault_count(void); /* faults that happened since */

#endif
