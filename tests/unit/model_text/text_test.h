/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what the tokenizer and chat tests share. Must not know: what is tested. */
#ifndef SLUICE_TESTS_TEXT_TEST_H
#define SLUICE_TESTS_TEXT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

#include "src/model/tokenizer.h"

#define V3_FOLDER TEST_DATA "/deepseek-v3-tokenizer"
#define TINY_FOLDER TEST_DATA "/tokenizer"

json_t *test_json(const char *path);
struct tokenizer *test_open(const char *folder);
struct token_list test_encode(const struct tokenizer *t, const char *text, size_t len, unsigned flags);
void test_same_ids(const json_t *want, const struct token_list *got, const char *text);
uint32_t test_random(uint32_t *state);

#endif
