/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what people read on stderr: messages, log lines, the progress line, colours. Must not know: commands. */
#ifndef SLUICE_CLI_TERM_H
#define SLUICE_CLI_TERM_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "src/base/str.h"
#include "sluice/sluice.h"

struct term {
    pthread_mutex_t lock;
    enum sluice_log_level level; /* lines above it are dropped */
    bool live;                   /* stderr is a terminal: progress lines */
    bool colour;                 /* and colours are wanted */
    bool on_line;                /* a progress line is showing */
    double shown;                /* seconds at which it was written */
};

void term_init(struct term *t);
void term_deinit(struct term *t);

/* "sluice: TEXT" with its level's colour. */
void term_print(struct term *t, enum sluice_log_level level, const char *fmt, ...) ATTR_PRINTF(3, 4);
/* Prints the error and returns its status. */
int term_fail(struct term *t, const struct sluice_error *e);
/* Sets and prints an error of the command itself; returns `status`. */
int term_refuse(struct term *t, int status, const char *fmt, ...) ATTR_PRINTF(3, 4);

/* Hooks of sluice_engine_open; ctx is the struct term. */
void term_log(void *ctx, enum sluice_log_level level, const char *line);
void term_progress(void *ctx, uint64_t done, uint64_t total, double seconds);
/* "WHAT DONE/TOTAL" while a prompt is computed. */
void term_count(struct term *t, const char *what, uint64_t done, uint64_t total, double seconds);
/* Takes the progress line away. */
void term_clear(struct term *t);

/* Dim text for people in interactive use; empty strings without colours. */
const char *term_dim(const struct term *t);
const char *term_plain(const struct term *t);

/* Fills *e (which may be NULL); returns status. */
int cli_fail(struct sluice_error *e, int status, const char *fmt, ...) ATTR_PRINTF(3, 4);

#endif
