/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the entry point every fuzz target has, called by libFuzzer or by replay_main.c. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
