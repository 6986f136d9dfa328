/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: harness.h. */
#undef NDEBUG
#include "tests/run/harness.h"

#include <assert.h>
#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail(const char *what, const char *text)
{
    fprintf(stderr, "%s: %s\n", what, text);
    abort();
}

struct sluice_engine *harness_open(const char *model, ...)
{
    struct sluice_error e;
    struct sluice_engine *g = NULL;
    struct sluice_options *o = sluice_options_create();
    const char *name, *value;
    va_list ap;
    assert(o && sluice_options_set(o, "model", model, &e) == 0);
    assert(sluice_options_set(o, "bulk", "own", &e) == 0); /* auto measures, and bits depend on its choice */
    va_start(ap, model);
    while ((name = va_arg(ap, const char *)) != NULL) {
        value = va_arg(ap, const char *);
        if (sluice_options_set(o, name, value, &e) != 0) {
            fail(name, e.text);
        }
    }
    va_end(ap);
    if (sluice_engine_open(o, NULL, NULL, &g, &e) != 0) {
        fail(model, e.text);
    }
    sluice_options_destroy(o);
    return g;
}

static void keep_logits(void *ctx, uint32_t position, const float *logits)
{
    struct recording *r = ctx;
    if (position >= r->capacity) {
        r->capacity = position < 64 ? 128 : position * 2;
        r->logits = realloc(r->logits, (size_t)r->capacity * r->vocab * sizeof(float));
        assert(r->logits);
    }
    memcpy(r->logits + (size_t)position * r->vocab, logits, r->vocab * sizeof(float));
    r->n = position + 1;
}

static struct sluice_session *open_session(struct sluice_engine *g, struct recording *r, bool draft)
{
    struct sluice_session *s = NULL;
    struct sluice_model_info info;
    struct sluice_error e;
    struct sluice_session_options o = {.hooks = {.on_logits = keep_logits, .ctx = r}, .draft = draft};
    sluice_engine_info(g, &info);
    r->vocab = info.vocab;
    if (sluice_session_create(g, &o, &s, &e) != 0) {
        fail("session", e.text);
    }
    return s;
}

struct sluice_session *harness_session(struct sluice_engine *g, struct recording *r) { return open_session(g, r, false); }

struct sluice_session *harness_drafting_session(struct sluice_engine *g, struct recording *r) { return open_session(g, r, true); }

struct sluice_session *harness_fork(struct sluice_session *s, struct recording *r)
{
    struct sluice_session *ret = NULL;
    struct sluice_error e;
    struct sluice_session_options o = {.hooks = {.on_logits = keep_logits, .ctx = r}, .draft = true};
    if (sluice_session_fork(s, &o, &ret, &e) != 0) {
        fail("fork", e.text);
    }
    return ret;
}

void harness_feed(struct sluice_session *s, const int32_t *tokens, size_t n)
{
    struct sluice_error e;
    if (sluice_session_feed(s, tokens, n, &e) != 0) {
        fail("feed", e.text);
    }
}

void recording_equal(const struct recording *a, const struct recording *b, uint32_t first, uint32_t n, const char *what)
{
    assert(a->vocab == b->vocab && a->n >= first + n && b->n >= first + n);
    for (uint32_t p = first; p < first + n; p++) {
        const float *x = a->logits + (size_t)p * a->vocab, *y = b->logits + (size_t)p * b->vocab;
        for (uint32_t v = 0; v < a->vocab; v++) {
            if (memcmp(&x[v], &y[v], sizeof(float)) != 0) {
                fprintf(stderr, "%s: position %u, id %u: %.9g and %.9g\n", what, p, v, (double)x[v], (double)y[v]);
                abort();
            }
        }
    }
}

void recording_deinit(struct recording *r)
{
    free(r->logits);
    memset(r, 0, sizeof(*r));
}

void harness_tokens(uint32_t seed, uint32_t vocab, int32_t *ret, size_t n)
{
    uint64_t x = seed * 0x9E3779B97F4A7C15u + 1;
    for (size_t i = 0; i < n; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        ret[i] = i == 0 ? 0 : (int32_t)((x >> 33) % vocab);
    }
}

/* ---- what a process holds ---- */

enum { SLACK_KB = 4096 };

static long field_of_status(const char *name)
{
    char line[256];
    long value = 0;
    FILE *f = fopen("/proc/self/status", "re");
    while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
        if (strncmp(line, name, strlen(name)) == 0) {
            value = strtol(line + strlen(name), NULL, 10);
        }
    }
    if (f != NULL) {
        fclose(f);
    }
    return value;
}

static long count_descriptors(void)
{
    long n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d != NULL && readdir(d) != NULL) {
        n++;
    }
    if (d != NULL) {
        closedir(d);
    }
    return n;
}

struct harness_level harness_level(void) { return (struct harness_level){field_of_status("VmRSS:"), field_of_status("Threads:"), count_descriptors()}; }

bool harness_is_level(const struct harness_level *first, const struct harness_level *last)
{
    return last->rss_kb <= first->rss_kb + SLACK_KB && last->threads == first->threads && last->descriptors == first->descriptors;
}
