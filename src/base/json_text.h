/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: JSON text to a jansson tree, with this project's error codes. Must not know: what the text says. */
#ifndef SLUICE_BASE_JSON_TEXT_H
#define SLUICE_BASE_JSON_TEXT_H

#include <stddef.h>

#include <jansson.h>

#include "common/error.h"

/* flags: jansson's. The caller decrefs the tree. The message has no file name. */
int json_text_parse(const char *text, size_t len, size_t flags, json_t **ret, struct error *e);

/* Text of a value, to be freed; NULL: no memory. */
char *json_text_print(const json_t *value, size_t flags);

#endif
