/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what tests of the public API share: opening a model with settings, feeding, the bits of every logit, and what a process holds. */
#ifndef SLUICE_TESTS_RUN_HARNESS_H
#define SLUICE_TESTS_RUN_HARNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sluice/sluice.h"

/* name, value, name, value, ..., NULL; a failure ends the test with the message. */
struct sluice_engine *harness_open(const char *model, ...);

/* Logits of a timeline, kept by a hook: [n, vocab], row p belongs to position p. */
struct recording {
    float *logits;
    uint32_t vocab, n, capacity;
};

struct sluice_session *harness_session(struct sluice_engine *g, struct recording *r);
struct sluice_session *harness_drafting_session(struct sluice_engine *g, struct recording *r); /* with option draft */
struct sluice_session *harness_fork(struct sluice_session *s, struct recording *r); /* drafts as well */
void harness_feed(struct sluice_session *s, const int32_t *tokens, size_t n);

/* Fails unless rows [first, first + n) are the same bits (NaN never passes: commit refuses it). */
void recording_equal(const struct recording *a, const struct recording *b, uint32_t first, uint32_t n, const char *what);
void recording_deinit(struct recording *r);

/* Token ids of a fixed pseudo-random text, below `vocab`, the first one 0. */
void harness_tokens(uint32_t seed, uint32_t vocab, int32_t *ret, size_t n);

/* What this process holds now. */
struct harness_level {
    long rss_kb, threads, descriptors;
};
struct harness_level harness_level(void);

/* No thread or descriptor more or less, and at most 4 MiB more memory. */
bool harness_is_level(const struct harness_level *first, const struct harness_level *last);

#endif
