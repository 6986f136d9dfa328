/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: tests of the public API as a program outside the tree sees it: sluice.h and nothing else.
 * usage: test_api DEMO_MODEL CHAT_MODEL */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sluice/sluice.h>

struct paths {
    const char *demo, *chat;
};

static struct sluice_engine *open_model(const char *path)
{
    struct sluice_error e = { 0 };
    struct sluice_engine *engine = NULL;
    struct sluice_options *o = sluice_options_create();
    assert_non_null(o);
    assert_int_equal(sluice_options_set(o, "model", path, &e), SLUICE_OK);
    assert_int_equal(sluice_options_set(o, "ctx", "128", &e), SLUICE_OK);
    assert_int_equal(sluice_options_set(o, "threads", "2", &e), SLUICE_OK);
    if (sluice_engine_open(o, NULL, NULL, &engine, &e) != SLUICE_OK) {
        fail_msg("%s", e.text);
    }
    sluice_options_destroy(o);
    return engine;
}

static void test_options(void **state)
{
    (void)state;
    struct sluice_error e = { 0 };
    struct sluice_options *o = sluice_options_create();
    assert_non_null(o);
    assert_int_equal(sluice_options_set(o, "thread", "2", &e), SLUICE_USAGE);
    assert_non_null(strstr(e.text, "threads"));
    assert_int_equal(sluice_options_set(o, "threads", "many", &e), SLUICE_USAGE);
    assert_int_equal(sluice_options_set(o, "threads", "many", NULL), SLUICE_USAGE);
    struct sluice_engine *engine = NULL;
    assert_int_equal(sluice_engine_open(o, NULL, NULL, &engine, &e), SLUICE_USAGE); /* no model */
    assert_int_equal(sluice_options_set(o, "model", "/nonexistent/model", &e), SLUICE_OK);
    assert_int_equal(sluice_engine_open(o, NULL, NULL, &engine, &e), SLUICE_FAILED);
    assert_non_null(strstr(e.text, "/nonexistent/model"));
    assert_null(engine);
    sluice_options_destroy(o);
    sluice_options_destroy(NULL);
    sluice_engine_close(NULL);
    assert_string_equal(sluice_version(), SLUICE_VERSION);
}

/* Weights of the demo model, 24.6 MiB, found on memory nodes; of huge pages no more than that. */
static void test_memory_report(void **state)
{
    const struct paths *p = *state;
    struct sluice_engine *engine = open_model(p->demo);
    char *json = sluice_engine_memory_json(engine);
    assert_non_null(json);
    unsigned long long asked, found, huge, sum = 0;
    int node;
    const char *at = strstr(json, "\"placement\": [");
    assert_non_null(at);
    bool known = strstr(at, "null") == NULL; /* this system may not tell */
    for (at = strstr(at, "{\"node\""); known && at != NULL; at = strstr(at + 1, "{\"node\"")) {
        assert_int_equal(sscanf(at, "{\"node\": %d, \"asked\": %llu, \"found\": %llu, \"huge\": %llu}", &node, &asked, &found, &huge), 4);
        assert_true(huge <= found);
        sum += found;
    }
    assert_true(!known || (sum > 24000000 && sum < 27000000));
    free(json);
    sluice_engine_close(engine);
}

static void test_cancelled_open(void **state)
{
    const struct paths *p = *state;
    struct sluice_error e = { 0 };
    struct sluice_engine *engine = NULL;
    volatile int cancel = 1;
    struct sluice_options *o = sluice_options_create();
    assert_non_null(o);
    assert_int_equal(sluice_options_set(o, "model", p->demo, &e), SLUICE_OK);
    assert_int_equal(sluice_engine_open(o, NULL, &cancel, &engine, &e), SLUICE_INTERRUPTED);
    assert_null(engine);
    sluice_options_destroy(o);
}

static void test_timeline(void **state)
{
    const struct paths *p = *state;
    struct sluice_engine *engine = open_model(p->demo);
    struct sluice_model_info info;
    struct sluice_error e = { 0 };
    sluice_engine_info(engine, &info);
    assert_int_equal(info.context, 128);
    struct sluice_session *a = NULL, *b = NULL;
    assert_int_equal(sluice_session_create(engine, NULL, &a, &e), SLUICE_OK);
    assert_null(sluice_session_logits(a));
    const int32_t prompt[] = { 0, 2563, 339, 263, 2139 };
    assert_int_equal(sluice_session_feed(a, prompt, 5, &e), SLUICE_OK);
    assert_int_equal(sluice_session_length(a), 5);
    assert_memory_equal(sluice_session_tokens(a), prompt, sizeof(prompt));
    size_t bytes = info.vocab * sizeof(float);
    float *first = malloc(bytes);
    assert_non_null(first);
    memcpy(first, sluice_session_logits(a), bytes);

    assert_int_equal(sluice_session_fork(a, NULL, &b, &e), SLUICE_OK);
    assert_int_equal(sluice_session_feed(a, (int32_t[]){ 585, 75 }, 2, &e), SLUICE_OK);
    assert_memory_equal(sluice_session_logits(b), first, bytes); /* a fork does not see it */
    assert_int_equal(sluice_session_rollback(a, 4, &e), SLUICE_OK);
    assert_null(sluice_session_logits(a));
    assert_int_equal(sluice_session_feed(a, prompt + 4, 1, &e), SLUICE_OK);
    assert_memory_equal(sluice_session_logits(a), first, bytes); /* all rows are exact: same bits */

    int32_t many[200] = { 0 };
    assert_int_equal(sluice_session_feed(a, many, 200, &e), SLUICE_FAILED);
    assert_non_null(strstr(e.text, "200"));
    assert_non_null(strstr(e.text, "128"));
    assert_int_equal(sluice_session_feed(a, (int32_t[]){ 1 << 30 }, 1, &e), SLUICE_FAILED);
    assert_int_equal(sluice_session_length(a), 5);
    free(first);
    sluice_session_destroy(b);
    sluice_session_destroy(a);
    sluice_session_destroy(NULL);
    sluice_engine_close(engine);
}

static void test_sampling(void **state)
{
    const struct paths *p = *state;
    struct sluice_engine *engine = open_model(p->demo);
    struct sluice_error e = { 0 };
    struct sluice_session *s = NULL;
    assert_int_equal(sluice_session_create(engine, NULL, &s, &e), SLUICE_OK);
    struct sluice_sampling sampling;
    sluice_sampling_init(&sampling);
    sampling.seed = 3;
    struct sluice_sampler *sampler = NULL, *clone = NULL;
    assert_int_equal(sluice_sampler_create(engine, &sampling, &sampler, &e), SLUICE_OK);
    struct sluice_choice x, y, top[4];
    assert_int_not_equal(sluice_sample(sampler, s, &x, NULL, 0, &e), SLUICE_OK); /* nothing to follow */
    assert_int_equal(sluice_session_feed(s, (int32_t[]){ 0, 2563 }, 2, &e), SLUICE_OK);
    assert_int_equal(sluice_sample(sampler, s, &x, top, 4, &e), SLUICE_OK);
    assert_true(x.logprob <= top[0].logprob && top[0].logprob >= top[3].logprob && top[0].logprob < 0.0f);
    assert_int_equal(sluice_sampler_clone(sampler, &clone, &e), SLUICE_OK);
    sluice_sampler_destroy(sampler);
    assert_int_equal(sluice_sample(clone, s, &y, NULL, 0, &e), SLUICE_OK);
    assert_int_equal(x.token, y.token);
    sluice_sampler_destroy(clone);
    sampling.top_p = 2.0f;
    assert_int_equal(sluice_sampler_create(engine, &sampling, &sampler, &e), SLUICE_USAGE);
    assert_non_null(strstr(e.text, "top_p"));
    sluice_sampler_destroy(NULL);
    sluice_session_destroy(s);
    sluice_engine_close(engine);
}

static void test_tokenizer_and_chat(void **state)
{
    const struct paths *p = *state;
    struct sluice_error e = { 0 };
    struct sluice_tokenizer *t = NULL;
    assert_int_equal(sluice_tokenizer_open(p->chat, NULL, &t, &e), SLUICE_OK);
    assert_string_equal(sluice_chat_layout(t), "plain");
    int32_t *ids = NULL;
    size_t n = 0, len = 0;
    char *bytes = NULL;
    static const char text[] = "nul \0 and \xff";
    assert_int_equal(sluice_tokenize(t, text, sizeof(text) - 1, SLUICE_BOS, &ids, &n, &e), SLUICE_OK);
    assert_true(n > 1 && sluice_token_is_special(t, ids[0]));
    assert_int_equal(sluice_detokenize(t, ids + 1, n - 1, &bytes, &len, &e), SLUICE_OK);
    assert_int_equal(len, sizeof(text) - 1);
    assert_memory_equal(bytes, text, len);
    sluice_free(bytes);
    sluice_free(ids);
    static const char request[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}], \"add_generation_prompt\": true}";
    char *prompt = NULL;
    assert_int_equal(sluice_chat_text(t, NULL, request, sizeof(request) - 1, &prompt, &len, &e), SLUICE_OK);
    assert_non_null(strstr(prompt, "hi"));
    sluice_free(prompt);
    assert_int_equal(sluice_chat_text(t, "nosuch", request, sizeof(request) - 1, &prompt, &len, &e), SLUICE_USAGE);
    assert_int_not_equal(sluice_chat_text(t, NULL, "{", 1, &prompt, &len, &e), SLUICE_OK);
    sluice_tokenizer_close(t);
    assert_int_not_equal(sluice_tokenizer_open("/nonexistent", NULL, &t, &e), SLUICE_OK);
    sluice_tokenizer_close(NULL);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        return 2;
    }
    struct paths paths = { argv[1], argv[2] };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options),
        cmocka_unit_test_prestate(test_cancelled_open, &paths),
        cmocka_unit_test_prestate(test_memory_report, &paths),
        cmocka_unit_test_prestate(test_timeline, &paths),
        cmocka_unit_test_prestate(test_sampling, &paths),
        cmocka_unit_test_prestate(test_tokenizer_and_chat, &paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
