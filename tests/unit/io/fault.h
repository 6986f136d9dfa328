/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: reads that fail on command. Must not know: who reads. */
#ifndef TESTS_UNIT_IO_FAULT_H
#define TESTS_UNIT_IO_FAULT_H

/* From the n-th read from now on (1: the next), `times` of them fail with this errno; 0: none. With FAULT_SHORT as errno they
 * return half of what was asked (rounded up), with FAULT_END nothing; with FAULT_LATE they take two milliseconds longer. Counted are
 * calls of pread, copies out of mappings (process_vm_readv) and answers of io_uring. */
enum { FAULT_SHORT = -1, FAULT_END = -2, FAULT_LATE = -3 };
void fault_read(int n, int times, int error);
int fault_count(void); /* faults that happened since */
int fault_calls(void); /* reads since */

/* Calls of pread and copies wait until it is off again; io_uring's answers wait for reader_collect anyway. */
void fault_hold(int on);
int fault_holding(void); /* calls that wait */

/* Submissions to io_uring from the n-th on (1: the next) are refused with this errno, `times` of them; 0: none. */
void fault_submit(int n, int times, int error);

/* One read, or submission, of so many fails from now on, by one of these errnos; which and how follows from the number of the call.
 * 0: none any more. `kinds` [n] is borrowed. */
void fault_reads_at_random(int one_in, const int *kinds, int n);
void fault_submissions_at_random(int one_in, const int *kinds, int n);
int fault_submissions(void); /* those that failed since */

/* Every read and submission takes so much longer. */
void fault_slow(int us);

#endif
