/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: reads of experts that fail at random, by the thousand, below a session that goes on: what could be computed has the bits of a
 * run with all experts in RAM; what could not says which file, tensor, layer, expert and byte, and succeeds when it is tried again;
 * threads, descriptors and memory stay level. By a reader that fails, drops and delays whole requests, and by system calls that are
 * refused, cut short, interrupted and slow under io_uring, pread and mmap. usage: faults MODEL COUNT */
#undef NDEBUG
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/attr.h"
#include "src/model/bind.h"
#include "tests/run/harness.h"
#include "tests/unit/io/fault.h"
#include "tests/unit/io/reader_faulty.h"

enum {
    PROMPT = 40, TOKENS = 90, /* two chunks of bulk rows, exact rows, single tokens */
    TRIES = 10000,            /* of one step: more would be bad luck beyond belief */
    AT_ONCE = 4096,           /* failures of one step */
    SLOW_US = 1000, SLOW_S = 2, /* a read of an expert takes less than 100 us */
};

enum below { BELOW_FAULTY, BELOW_URING, BELOW_PREAD, BELOW_MMAP, BELOW_KINDS };
static const char *const io_names[BELOW_KINDS] = {"pread", "uring", "pread", "mmap"};

/* Of a prompt's chunk, which reads nearly all experts, and of a token: most steps fail or not about as often. */
static const struct rates {
    int requests, reads, submissions;
} prompt_rates = {200, 150, 20}, token_rates = {15, 12, 6};

struct test {
    struct sluice_engine *engine;
    struct weights *weights; /* where tensors lie */
    struct recording want;   /* of all experts in RAM */
    int32_t tokens[TOKENS];
    enum below below;
    uint64_t failed, succeeded; /* feeds */
};

/* ---- the reader of whole requests ---- */

/* Of the engine's reader of experts; the one that loads is left alone. */
static struct {
    bool wanted;
    struct reader *reader;
    _Atomic int one_in; /* 0: nothing fails */
    uint64_t random;
    int count, late, dropped;
    uint64_t failed_at[AT_ONCE]; /* bytes of the file, of this step */
    uint32_t n_failed;
    _Atomic bool stop;
    pthread_t thread; /* late reads come when it comes round */
} faulty;

int __real_reader_create(const struct reader_options *options, struct reader **ret, struct error *e);
int __wrap_reader_create(const struct reader_options *options, struct reader **ret, struct error *e);

static uint64_t draw(void)
{
    faulty.random = faulty.random * 6364136223846793005u + 1442695040888963407u;
    return faulty.random >> 33;
}

static bool request_fails(void *ctx, const struct file *file, uint64_t offset, uint64_t bytes, struct faulty_rule *ret)
{
    static const int statuses[] = {0, -ECANCELED, 0, -EIO, 0, -ECANCELED, 0, -ENODATA, 0, -ECANCELED, 0, -EAGAIN}; /* 0: late */
    (void)ctx;
    if (faulty.one_in == 0 || draw() % (uint64_t)faulty.one_in != 0) {
        return false;
    }
    int status = statuses[draw() % ARRAY_LEN(statuses)];
    *ret = (struct faulty_rule){.kind = status == 0 ? FAULTY_LATE : FAULTY_FAIL, .file = file, .at = offset + draw() % bytes, .status = status};
    faulty.count++;
    faulty.late += status == 0;
    faulty.dropped += status == -ECANCELED;
    if (status != 0 && status != -ECANCELED) {
        assert(faulty.n_failed < AT_ONCE);
        faulty.failed_at[faulty.n_failed++] = ret->at;
    }
    return true;
}

int __wrap_reader_create(const struct reader_options *options, struct reader **ret, struct error *e)
{
    if (!faulty.wanted || options->fresh) {
        return __real_reader_create(options, ret, e);
    }
    int r = reader_faulty_create(options, NULL, 0, ret, e);
    assert(r == 0);
    reader_faulty_choose(*ret, request_fails, NULL);
    faulty.reader = *ret;
    return 0;
}

static void *release_late(void *ctx)
{
    (void)ctx;
    while (!faulty.stop) {
        usleep(500);
        reader_faulty_release(faulty.reader);
    }
    return NULL;
}

/* ---- faults ---- */

static void set_rates(const struct test *t, const struct rates *r)
{
    /* Most are made up for: what is short or interrupted is read on; io_uring is asked once more after EAGAIN. */
    static const int of_ring[] = {EIO, FAULT_SHORT, EINTR, EAGAIN, FAULT_SHORT, EINTR, FAULT_END, FAULT_SHORT, EINTR, EAGAIN, FAULT_SHORT, EINTR};
    static const int of_call[] = {EIO, FAULT_SHORT, EINTR, FAULT_END, FAULT_SHORT, EINTR, FAULT_LATE, FAULT_SHORT, EINTR, EAGAIN, FAULT_SHORT, EINTR, FAULT_SHORT, EINTR};
    static const int of_submission[] = {EINTR, EAGAIN, EBUSY, FAULT_LATE};
    faulty.one_in = t->below == BELOW_FAULTY ? r->requests : 0;
    if (t->below == BELOW_URING) {
        fault_reads_at_random(r->reads, of_ring, ARRAY_LEN(of_ring));
        fault_submissions_at_random(r->submissions, of_submission, ARRAY_LEN(of_submission));
    } else if (t->below != BELOW_FAULTY) {
        fault_reads_at_random(r->reads, of_call, ARRAY_LEN(of_call));
    }
}

static void no_faults(void)
{
    faulty.one_in = 0;
    fault_reads_at_random(0, NULL, 0);
    fault_submissions_at_random(0, NULL, 0);
}

static int faults(void) { return faulty.count + fault_count() + fault_submissions(); }

/* ---- what a failure says ---- */

static const struct weight_ref *tensor_of(const struct weights *w, unsigned layer, unsigned expert, const char *name)
{
    assert(layer < shape_all_layers(&w->shape) && w->layers[layer].experts != NULL && expert < w->shape.experts);
    const struct expert_refs *x = &w->layers[layer].experts[expert];
    const struct weight_ref *parts[] = {&x->gate, &x->up, &x->down};
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        size_t n = strlen(parts[i]->name);
        if (strncmp(parts[i]->name, name, n) == 0 && name[n] == ':') {
            return parts[i];
        }
    }
    fprintf(stderr, "no tensor of layer %u, expert %u: %s\n", layer, expert, name);
    abort();
}

static bool has_failed(uint64_t at)
{
    uint32_t i = 0;
    while (i < faulty.n_failed && faulty.failed_at[i] != at) {
        i++;
    }
    return i < faulty.n_failed;
}

/* "FILE: tensor NAME: layer L, expert X: reading at byte B failed: ...", and the byte is one of this tensor, in this file. */
static void check_message(const struct test *t, const struct sluice_error *e)
{
    unsigned layer, expert;
    unsigned long long at;
    const char *name = strstr(e->text, ": tensor "), *where = strstr(e->text, ": layer ");
    if (e->status != SLUICE_FAILED || name == NULL || where == NULL || sscanf(where, ": layer %u, expert %u: reading at byte %llu failed: ", &layer, &expert, &at) != 3) {
        fprintf(stderr, "status %d: %s\n", e->status, e->text);
        abort();
    }
    const struct weight_ref *w = tensor_of(t->weights, layer, expert, name + strlen(": tensor "));
    assert(strncmp(e->text, w->file->path, strlen(w->file->path)) == 0);
    assert(at >= w->offset && at < w->offset + w->bytes);
    assert(t->below != BELOW_FAULTY || has_failed(at));
}

/* ---- sessions that go on ---- */

/* Feeds tokens up to `until`, again after every failure. */
static void feed(struct test *t, struct sluice_session *s, const struct recording *got, uint32_t until)
{
    struct sluice_error e = {0};
    uint32_t n = sluice_session_length(s), tries = 0;
    while (n < until) {
        faulty.n_failed = 0;
        int r = sluice_session_feed(s, t->tokens + n, until - n, &e);
        uint32_t now = sluice_session_length(s);
        assert(now >= n && (r == 0) == (now == until) && ++tries < TRIES);
        recording_equal(&t->want, got, n, now - n, io_names[t->below]);
        n = now;
        t->failed += r != 0;
        t->succeeded += r == 0;
        if (r != 0) {
            check_message(t, &e);
        }
    }
}

static void keep_logits(void *ctx, uint32_t position, const float *logits)
{
    struct recording *r = ctx;
    assert(position < TOKENS);
    memcpy(r->logits + (size_t)position * r->vocab, logits, r->vocab * sizeof(float));
    r->n = position + 1;
}

/* A timeline of all tokens, with rows of drafts or without. */
static void timeline(struct test *t, bool draft)
{
    struct recording got = {.vocab = t->want.vocab, .capacity = TOKENS, .logits = calloc((size_t)TOKENS * t->want.vocab, sizeof(float))};
    struct sluice_session_options o = {.hooks = {.on_logits = keep_logits, .ctx = &got}, .draft = draft};
    struct sluice_session *s = NULL;
    struct sluice_error e;
    assert(got.logits != NULL && sluice_session_create(t->engine, &o, &s, &e) == 0);
    set_rates(t, &prompt_rates);
    feed(t, s, &got, PROMPT);
    set_rates(t, &token_rates);
    for (uint32_t n = PROMPT; n < TOKENS; n++) {
        feed(t, s, &got, n + 1);
    }
    no_faults();
    sluice_session_destroy(s);
    recording_deinit(&got);
}

static struct sluice_engine *open_engine(const char *model, enum below below, const char *experts, const char *prefetch)
{
    return harness_open(model, "expert-ram", experts, "prefetch", prefetch, "io", io_names[below], "threads", "2", "ctx", "128", "ubatch", "16", NULL);
}

/* Tokens of a prompt and of its greedy answer, and their logits. */
static void make_reference(struct test *t, const char *model)
{
    struct sluice_model_info info;
    struct sluice_engine *g = open_engine(model, BELOW_PREAD, "100%", "auto");
    struct sluice_session *s = harness_session(g, &t->want);
    sluice_engine_info(g, &info);
    harness_tokens(7, info.vocab, t->tokens, PROMPT);
    harness_feed(s, t->tokens, PROMPT);
    for (uint32_t n = PROMPT; n < TOKENS; n++) {
        const float *logits = sluice_session_logits(s);
        for (uint32_t x = 0; x < info.vocab; x++) {
            t->tokens[n] = logits[x] > logits[t->tokens[n]] ? (int32_t)x : t->tokens[n];
        }
        harness_feed(s, &t->tokens[n], 1);
    }
    sluice_session_destroy(s);
    sluice_engine_close(g);
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* A drive that is more than ten times slower for a while. */
static void slow_drive(struct test *t)
{
    double end = seconds_now() + SLOW_S;
    fault_slow(SLOW_US);
    while (seconds_now() < end) {
        timeline(t, true);
    }
    fault_slow(0);
}

static void open_below(struct test *t, const char *model, enum below below)
{
    t->below = below;
    t->failed = t->succeeded = 0;
    faulty.wanted = below == BELOW_FAULTY;
    t->engine = open_engine(model, below, "5%", "on");
    if (faulty.wanted) {
        faulty.stop = false;
        assert(pthread_create(&faulty.thread, NULL, release_late, NULL) == 0);
    }
}

static void close_below(struct test *t)
{
    if (faulty.wanted) {
        faulty.stop = true;
        assert(pthread_join(faulty.thread, NULL) == 0);
        reader_faulty_release(faulty.reader); /* the engine waits for what is late */
    }
    sluice_engine_close(t->engine);
}

/* `count` faults at least. */
static void test_below(struct test *t, const char *model, enum below below, int count)
{
    struct sluice_model_info info;
    struct harness_level before = harness_level(), first, last;
    open_below(t, model, below);
    sluice_engine_info(t->engine, &info);
    int begin = faults();
    timeline(t, false);
    first = harness_level();
    for (bool draft = true; faults() - begin < count; draft = !draft) {
        timeline(t, draft);
    }
    if (below != BELOW_FAULTY) {
        slow_drive(t);
    }
    last = harness_level();
    printf("%s%s: %d faults, %llu feeds failed, %llu succeeded; RSS %ld to %ld KiB, threads %ld to %ld, descriptors %ld to %ld\n", io_names[below],
           below == BELOW_FAULTY ? ", whole requests" : "", faults() - begin, (unsigned long long)t->failed, (unsigned long long)t->succeeded, first.rss_kb, last.rss_kb, first.threads,
           last.threads, first.descriptors, last.descriptors);
    assert(faults() - begin >= count && t->failed > 0 && harness_is_level(&first, &last));
    close_below(t);
    last = harness_level();
    assert(last.threads == before.threads && last.descriptors == before.descriptors);
}

int main(int argc, char **argv)
{
    assert(argc == 3);
    struct test t = {0};
    struct error e = {0};
    int count = atoi(argv[2]);
    assert(weights_open(&(struct bind_options){.path = argv[1], .mtp = true}, &t.weights, &e) == 0);
    make_reference(&t, argv[1]);
    for (int below = 0; below < BELOW_KINDS; below++) {
        test_below(&t, argv[1], (enum below)below, (count + BELOW_KINDS - 1) / BELOW_KINDS);
    }
    printf("%d faults; of whole requests %d late, %d dropped\n", faults(), faulty.late, faulty.dropped);
    assert(faults() >= count && faulty.late > 0 && faulty.dropped > 0);
    recording_deinit(&t.want);
    weights_close(t.weights);
    return 0;
}
