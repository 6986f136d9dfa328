/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what a timeline refuses and survives, through the public API: limits, wrong ids, full page pools, damaged and
 * foreign saved files, the sampler's mask, cancel, the scripted model, and that the token loop allocates nothing.
 * usage: timeline GOLDEN DEMO */
#undef NDEBUG
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/run/harness.h"

/* Linked with --wrap: every allocation of ours comes through here. */
void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);

static unsigned long allocations;

void *__wrap_malloc(size_t n)
{
    allocations++;
    return __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    allocations++;
    return __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    allocations++;
    return __real_realloc(p, n);
}

static struct sluice_session *session_with(struct sluice_engine *g, bool mtp, bool draft)
{
    struct sluice_session *s = NULL;
    struct sluice_error e;
    assert(sluice_session_create(g, &(struct sluice_session_options){.mtp = mtp, .draft = draft}, &s, &e) == 0);
    return s;
}

static struct sluice_session *open_session(struct sluice_engine *g, bool mtp) { return session_with(g, mtp, false); }

static void contains(const struct sluice_error *e, int status, const char *text)
{
    if (e->status != status || !strstr(e->text, text)) {
        fprintf(stderr, "expected status %d and \"%s\", got %d: %s\n", status, text, e->status, e->text);
        abort();
    }
}

static void refusals(const char *model)
{
    struct sluice_engine *g = harness_open(model, "ctx", "64", "ubatch", "16", "threads", "1", NULL);
    struct sluice_session *s = open_session(g, false), *other = open_session(g, false);
    struct sluice_error e = {0};
    int32_t ids[80] = {0};
    assert(sluice_session_feed(s, ids, 65, &e) != 0);
    contains(&e, SLUICE_FAILED, "65 tokens do not fit: the timeline holds 0 of 64 positions");
    ids[3] = 1 << 20;
    assert(sluice_session_feed(s, ids, 5, &e) != 0);
    contains(&e, SLUICE_FAILED, "token 1048576 at index 3 is not an id");
    ids[3] = -1;
    assert(sluice_session_feed(s, ids, 5, &e) != 0 && sluice_session_length(s) == 0);
    ids[3] = 0;
    assert(sluice_session_feed(s, ids, 64, &e) == 0 && sluice_session_feed(s, ids, 1, &e) != 0);
    contains(&e, SLUICE_FAILED, "holds 64 of 64");
    assert(sluice_session_feed(other, ids, 1, &e) != 0);
    contains(&e, SLUICE_DOES_NOT_FIT, "KV pool: all 1 pages");
    assert(sluice_session_length(other) == 0);
    struct sluice_session *none;
    assert(sluice_session_create(g, &(struct sluice_session_options){.mtp = true, .draft = true}, &none, &e) == SLUICE_USAGE);
    contains(&e, SLUICE_USAGE, "set mtp or draft, not both");
    assert(sluice_session_rollback(s, 65, &e) != 0);
    contains(&e, SLUICE_FAILED, "rollback to position 65 of a timeline of 64");
    assert(sluice_session_rollback(s, 0, &e) == 0 && sluice_session_feed(other, ids, 1, &e) == 0);
    struct sluice_step *step;
    assert(sluice_step_open(g, &(struct sluice_feed){other, ids, 16, true}, 1, &step, &e) != 0); /* 1 + 16 crosses a chunk */
    contains(&e, SLUICE_FAILED, "a bulk chunk ends at the next multiple of 16");
    assert(sluice_step_open(g, &(struct sluice_feed){other, ids, 2, false}, 1, &step, &e) == 0);
    assert(sluice_session_feed(other, ids, 1, &e) != 0 && sluice_session_rollback(other, 0, &e) != 0);
    contains(&e, SLUICE_FAILED, "part of an open step");
    assert(sluice_step_commit(step, &e) != 0); /* layers are left; the step is gone */
    assert(sluice_session_length(other) == 1 && sluice_session_feed(other, ids, 1, &e) == 0);
    sluice_session_destroy(other);
    sluice_session_destroy(s);
    sluice_engine_close(g);
}

static void write_file(const char *path, const unsigned char *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert(f && fwrite(data, 1, n, f) == n && fclose(f) == 0);
}

/* Every damaged copy of a saved session is refused with a message that names the file; the engine goes on. */
static void saved_files(const char *model, const char *foreign)
{
    struct sluice_engine *g = harness_open(model, "threads", "1", NULL), *h = harness_open(foreign, "threads", "1", NULL);
    struct sluice_session *s = open_session(g, false), *back = NULL;
    struct sluice_error e = {0};
    int32_t ids[70];
    char path[] = "/tmp/sluice-timeline-XXXXXX";
    int fd = mkstemp(path);
    assert(fd >= 0);
    close(fd);
    harness_tokens(3, 300, ids, 70);
    harness_feed(s, ids, 70);
    assert(sluice_session_save(s, path, &e) == 0);
    FILE *f = fopen(path, "rb");
    assert(f && fseek(f, 0, SEEK_END) == 0);
    size_t n = (size_t)ftell(f);
    unsigned char *data = malloc(n);
    assert(data && fseek(f, 0, SEEK_SET) == 0 && fread(data, 1, n, f) == n && fclose(f) == 0);
    assert(sluice_session_restore(h, path, NULL, &back, &e) != 0);
    contains(&e, SLUICE_FAILED, "another model or KV type");
    for (size_t i = 0; i < 60; i++) {
        write_file(path, data, n * i / 60);
        assert(sluice_session_restore(g, path, NULL, &back, &e) != 0);
        contains(&e, SLUICE_FAILED, path);
        size_t at = (n - 1) * i / 59;
        data[at] ^= 0x40;
        write_file(path, data, n);
        assert(sluice_session_restore(g, path, NULL, &back, &e) != 0);
        contains(&e, at < 8 ? SLUICE_USAGE : SLUICE_FAILED, path); /* without its first bytes it may be anybody's file */
        data[at] ^= 0x40;
    }
    write_file(path, data, n);
    assert(sluice_session_restore(g, path, NULL, &back, &e) == 0 && sluice_session_length(back) == 70);
    assert(sluice_session_save(s, "/nonexistent/folder/file", &e) != 0);
    contains(&e, SLUICE_FAILED, "/nonexistent/folder/file");
    unlink(path);
    free(data);
    sluice_session_destroy(back);
    sluice_session_destroy(s);
    sluice_engine_close(h);
    sluice_engine_close(g);
}

static void only_seven(void *ctx, const struct sluice_session *s, uint32_t *allowed)
{
    (void)ctx;
    (void)s;
    memset(allowed, 0, 8);
    allowed[0] = 1u << 7;
    memset(allowed + 1, 0, (4096 / 32 - 1) * sizeof(*allowed));
}

static void script(const char *demo)
{
    char path[] = "/tmp/sluice-timeline-XXXXXX.script.json", text[600];
    int fd = mkstemps(path, 12);
    assert(fd >= 0);
    int n = snprintf(text, sizeof(text), "{\"tokenizer\": \"%s\", \"vocab\": 4096, \"context\": 100, \"tokens\": [5, 6, 700, 8], \"delay_ms\": 1}", demo);
    assert(write(fd, text, (size_t)n) == n);
    close(fd);
    volatile int cancel = 0;
    struct sluice_options *o = sluice_options_create();
    struct sluice_engine *g = NULL;
    struct sluice_error e;
    assert(sluice_options_set(o, "model", path, &e) == 0 && sluice_engine_open(o, NULL, &cancel, &g, &e) == 0);
    struct sluice_session *s = open_session(g, false);
    struct sluice_sampling p;
    struct sluice_sampler *sampler, *masked;
    sluice_sampling_init(&p);
    assert(sluice_sampler_create(g, &p, &sampler, &e) == 0);
    p.mask = only_seven;
    assert(sluice_sampler_create(g, &p, &masked, &e) == 0);
    struct sluice_choice c;
    assert(sluice_sample(sampler, s, &c, NULL, 0, &e) == SLUICE_USAGE);
    static const int32_t want[] = {5, 6, 700, 8, 8};
    int32_t next = 3;
    for (size_t i = 0; i < 5; i++) {
        harness_feed(s, &next, 1);
        assert(sluice_sample(sampler, s, &c, NULL, 0, &e) == 0 && c.token == want[i]);
        next = c.token;
        assert(sluice_sample(masked, s, &c, NULL, 0, &e) == 0 && c.token == 7);
    }
    cancel = 1;
    assert(sluice_session_feed(s, &next, 1, &e) == SLUICE_INTERRUPTED && sluice_session_length(s) == 5);
    cancel = 0;
    assert(sluice_session_feed(s, &next, 1, &e) == 0);
    sluice_sampler_destroy(masked);
    sluice_sampler_destroy(sampler);
    sluice_session_destroy(s);
    sluice_engine_close(g);
    sluice_options_destroy(o);
    unlink(path);
}

static void set_flag(void *ctx, uint32_t layer, uint32_t position, const int32_t *ids, const float *weights)
{
    (void)layer, (void)position, (void)ids, (void)weights;
    *(volatile int *)ctx = 1;
}

/* Cancelled between router and experts: such a step cannot go on, even when the flag is gone. */
static void half_a_layer(const char *model)
{
    volatile int cancel = 0;
    struct sluice_options *o = sluice_options_create();
    struct sluice_session_options with = {.hooks = {.on_route = set_flag, .ctx = (void *)&cancel}};
    struct sluice_engine *g = NULL;
    struct sluice_session *s = NULL;
    struct sluice_step *step;
    struct sluice_error e;
    int32_t id = 3;
    assert(sluice_options_set(o, "model", model, &e) == 0 && sluice_engine_open(o, NULL, &cancel, &g, &e) == 0);
    assert(sluice_session_create(g, &with, &s, &e) == 0);
    assert(sluice_step_open(g, &(struct sluice_feed){.session = s, .tokens = &id, .n = 1}, 1, &step, &e) == 0);
    assert(sluice_step_run(step, UINT32_MAX, &e) == SLUICE_INTERRUPTED);
    cancel = 0;
    assert(sluice_step_run(step, UINT32_MAX, &e) != 0);
    contains(&e, SLUICE_FAILED, "abort the step");
    assert(sluice_step_commit(step, &e) != 0 && sluice_session_length(s) == 0);
    sluice_session_destroy(s);
    sluice_engine_close(g);
    sluice_options_destroy(o);
}

/* Invariant 3: nothing is allocated between tokens, in exact and bulk rows, with the MTP layer for every row or for drafts. */
static void no_allocation(const char *model, bool draft)
{
    struct sluice_engine *g = harness_open(model, "threads", "2", "ubatch", "32", "mtp", "2", NULL);
    struct sluice_session *s = session_with(g, !draft, draft);
    struct sluice_sampling p;
    struct sluice_sampler *sampler;
    struct sluice_error e;
    struct sluice_choice c;
    int32_t ids[200];
    sluice_sampling_init(&p);
    assert(sluice_sampler_create(g, &p, &sampler, &e) == 0);
    harness_tokens(5, 300, ids, 200);
    unsigned long before = allocations;
    for (size_t i = 0; i < 200; i += 40) {
        harness_feed(s, ids + i, 39);
        assert(sluice_sample(sampler, s, &c, NULL, 0, &e) == 0);
        harness_feed(s, ids + i + 39, 1);
    }
    if (allocations != before) {
        fprintf(stderr, "%lu allocations in the token loop\n", allocations - before);
        abort();
    }
    sluice_sampler_destroy(sampler);
    sluice_session_destroy(s);
    sluice_engine_close(g);
}

int main(int argc, char **argv)
{
    char v3[600], fp8[600];
    assert(argc == 3);
    snprintf(v3, sizeof(v3), "%s/v3-f32", argv[1]);
    snprintf(fp8, sizeof(fp8), "%s/v3-fp8", argv[1]);
    refusals(v3);
    saved_files(v3, fp8);
    script(argv[2]);
    half_a_layer(v3);
    no_allocation(fp8, false);
    no_allocation(fp8, true);
    return 0;
}
