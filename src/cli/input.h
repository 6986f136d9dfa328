/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what a command reads from files, stdin and the command line: bytes, JSON, token lists. Reading stops at the cancel
 * flag. Must not know: what they are for. */
#ifndef SLUICE_CLI_INPUT_H
#define SLUICE_CLI_INPUT_H

#include <jansson.h>
#include <stdint.h>

#include "sluice/sluice.h"
#include "src/base/str.h"
#include "src/cli/signals.h"

struct ids {
    int32_t *item; /* [n], malloc'd */
    size_t n, cap;
};
void ids_deinit(struct ids *l);
int ids_push(struct ids *l, int32_t id, struct sluice_error *e);
int ids_append(struct ids *l, const int32_t *item, size_t n, struct sluice_error *e);

/* "5,17,23" (spaces and brackets allowed) appended to *l. `what` names the source in messages. */
int ids_parse(const char *text, const char *what, struct ids *l, struct sluice_error *e);
int ids_from_json(const json_t *list, const char *what, struct ids *l, struct sluice_error *e);
/* "[5, 17, 23]" */
void ids_print(struct str *out, const int32_t *item, size_t n);

/* The whole file appended to *out; path "-" is stdin. */
int input_read(struct signals *s, const char *path, struct str *out, struct sluice_error *e);
/* The same parsed; \u0000 is allowed. */
int input_json(struct signals *s, const char *path, json_t **ret, struct sluice_error *e);

#endif
