/* SPDX-License-Identifier: Apache-2.0 */
/* The public C API in one page: open a model, feed a prompt, print what follows.
 *
 * usage: minimal MODEL PROMPT [TOKENS]
 * build: cc minimal.c $(pkg-config --cflags --libs sluice) */
#include <sluice/sluice.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int generate(struct sluice_engine *engine, const char *prompt, long n, struct sluice_error *e)
{
    const struct sluice_tokenizer *t = sluice_engine_tokenizer(engine);
    if (t == NULL) {
        fprintf(stderr, "the model has no tokenizer\n");
        return SLUICE_FAILED;
    }
    struct sluice_session *session = NULL;
    struct sluice_sampler *sampler = NULL;
    struct sluice_sampling sampling;
    sluice_sampling_init(&sampling);
    sampling.temperature = 0.0f; /* greedy */
    int32_t *ids = NULL;
    size_t n_ids = 0;
    unsigned flags = sluice_tokenizer_adds_bos(t) ? SLUICE_BOS : 0;
    int r = sluice_tokenize(t, prompt, strlen(prompt), flags, &ids, &n_ids, e);
    r = r ? r : sluice_session_create(engine, NULL, &session, e);
    r = r ? r : sluice_sampler_create(engine, &sampling, &sampler, e);
    r = r ? r : sluice_session_feed(session, ids, n_ids, e);
    for (long i = 0; r == SLUICE_OK && i < n; i++) {
        struct sluice_choice choice;
        r = sluice_sample(sampler, session, &choice, NULL, 0, e);
        if (r != SLUICE_OK || sluice_engine_is_end(engine, choice.token)) {
            break;
        }
        size_t len = 0;
        const char *bytes = sluice_token_bytes(t, choice.token, &len);
        fwrite(bytes, 1, len, stdout);
        r = sluice_session_feed(session, &choice.token, 1, e);
    }
    printf("\n");
    sluice_free(ids);
    sluice_sampler_destroy(sampler);
    sluice_session_destroy(session);
    return r;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: %s MODEL PROMPT [TOKENS]\n", argv[0]);
        return SLUICE_USAGE;
    }
    struct sluice_error e = { 0 };
    struct sluice_engine *engine = NULL;
    struct sluice_options *options = sluice_options_create();
    if (options == NULL) {
        fprintf(stderr, "out of memory\n");
        return SLUICE_FAILED;
    }
    int r = sluice_options_set(options, "model", argv[1], &e);
    r = r ? r : sluice_engine_open(options, NULL, NULL, &engine, &e);
    r = r ? r : generate(engine, argv[2], argc > 3 ? atol(argv[3]) : 32, &e);
    if (r != SLUICE_OK) {
        fprintf(stderr, "%s\n", e.text);
    }
    sluice_engine_close(engine);
    sluice_options_destroy(options);
    return r;
}
