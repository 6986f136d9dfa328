/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: a long prompt leaves in RAM the experts that answers use. usage: stays MODEL */
#undef NDEBUG
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/run/harness.h"

enum { ANSWER = 80, PROMPT = 600, TIMES = 40 };

static struct sluice_session *open_session(struct sluice_engine *g)
{
    struct sluice_session *s = NULL;
    struct sluice_error e;
    assert(sluice_session_create(g, NULL, &s, &e) == 0);
    return s;
}

/* Experts that the last token reads when it is computed again and again: the last time. */
static uint64_t misses_of_last(struct sluice_engine *g, struct sluice_session *s, const int32_t *last)
{
    struct sluice_error e;
    uint64_t before = 0;
    for (int i = 0; i < TIMES; i++) {
        before = sluice_engine_counter(g, "expert.ram.misses");
        assert(sluice_session_rollback(s, ANSWER - 1, &e) == 0);
        harness_feed(s, last, 1);
    }
    return sluice_engine_counter(g, "expert.ram.misses") - before;
}

int main(int argc, char **argv)
{
    assert(argc == 2);
    struct sluice_engine *g = harness_open(argv[1], "expert-ram", "20%", "threads", "2", "ctx", "1024", "parallel", "2", "ubatch", "128", "prefetch", "off", NULL);
    struct sluice_session *answer = open_session(g), *other = open_session(g);
    struct sluice_model_info info;
    struct sluice_error e;
    int32_t tokens[ANSWER], prompt[PROMPT];
    sluice_engine_info(g, &info);
    harness_tokens(3, info.vocab, tokens, ANSWER);
    harness_tokens(4, info.vocab, prompt, PROMPT);
    for (int i = 0; i < ANSWER; i++) {
        harness_feed(answer, &tokens[i], 1);
    }
    assert(misses_of_last(g, answer, &tokens[ANSWER - 1]) == 0);
    uint64_t admitted = sluice_engine_counter(g, "expert.ram.admitted"), missed = sluice_engine_counter(g, "expert.ram.misses");
    harness_feed(other, prompt, PROMPT);
    uint64_t after = sluice_engine_counter(g, "expert.ram.misses");
    assert(after - missed > 10 * info.experts); /* it did read */
    if (sluice_engine_counter(g, "expert.ram.admitted") != admitted) {
        fprintf(stderr, "a prompt let %" PRIu64 " experts in for others\n", sluice_engine_counter(g, "expert.ram.admitted") - admitted);
        abort();
    }
    assert(sluice_session_rollback(answer, ANSWER - 1, &e) == 0);
    harness_feed(answer, &tokens[ANSWER - 1], 1);
    assert(sluice_engine_counter(g, "expert.ram.misses") == after);
    sluice_session_destroy(answer);
    sluice_session_destroy(other);
    sluice_engine_close(g);
    return 0;
}
