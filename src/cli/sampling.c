/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: sampling flags to a sampler. Must not know: generation. */
#include "src/cli/sampling.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "src/base/clock.h"
#include "src/base/str.h"
#include "src/cli/term.h"

void sampling_init(struct sampling *s)
{
    *s = (struct sampling){ .seed = -1 };
    sluice_sampling_init(&s->value);
    s->top_k = s->value.top_k;
    s->window = s->value.penalty_window;
}

void sampling_deinit(struct sampling *s)
{
    free(s->bias);
    s->bias = NULL;
    s->value.n_bias = 0;
}

static int push_bias(struct sampling *s, int32_t token, float add, struct sluice_error *e)
{
    uint32_t n = s->value.n_bias;
    if ((n & (n - 1)) == 0) { /* grows at powers of two */
        struct sluice_bias *grown = realloc(s->bias, ((size_t)n * 2 + 1) * sizeof(*grown));
        if (grown == NULL) {
            return cli_fail(e, SLUICE_FAILED, "out of memory");
        }
        s->bias = grown;
    }
    s->bias[s->value.n_bias++] = (struct sluice_bias){ token, add };
    return SLUICE_OK;
}

int sampling_add_bias(void *ctx, const char *text, struct sluice_error *e)
{
    char *end;
    size_t digits = strspn(text, "0123456789");
    unsigned long id = strtoul(text, &end, 10);
    double add = 0.0;
    bool never = digits > 0 && strcmp(end, "-inf") == 0;
    if (digits == 0 || digits > 9 || (*end != '+' && *end != '-') || (!never && (!parse_double(end + (*end == '+'), &add) || fabs(add) > 1e30))) {
        return cli_fail(e, SLUICE_USAGE, "--logit-bias %s: expected a token id and a signed number, such as 42-1.5, 42+3 or 42-inf", text);
    }
    return push_bias(ctx, (int32_t)id, never ? -INFINITY : (float)add, e);
}

int sampling_finish(struct sampling *s, struct sluice_error *e)
{
    if (s->top_k < 0 || s->top_k > INT32_MAX) {
        return cli_fail(e, SLUICE_USAGE, "--top-k %lld: expected a number of at least 0 (0: all)", (long long)s->top_k);
    }
    if (s->window < 0 || s->window > INT32_MAX) {
        return cli_fail(e, SLUICE_USAGE, "--repeat-last-n %lld: expected a number of at least 0 (0: all)", (long long)s->window);
    }
    if (s->seed < -1) {
        return cli_fail(e, SLUICE_USAGE, "--seed %lld: expected a number of at least 0, or -1 (random)", (long long)s->seed);
    }
    if (s->seed == -1) {
        uint32_t random = 0;
        if (getrandom(&random, sizeof(random), GRND_NONBLOCK) != (ssize_t)sizeof(random)) {
            struct clock clock = clock_system();
            random = (uint32_t)clock_now_ns(&clock);
        }
        s->seed = random;
    }
    s->value.top_k = (int32_t)s->top_k;
    s->value.penalty_window = (uint32_t)s->window;
    s->value.seed = (uint64_t)s->seed;
    s->value.bias = s->bias;
    return sluice_sampling_check(&s->value, e);
}

int sampling_open(struct sampling *s, const struct sluice_engine *engine, struct sluice_sampler **ret, struct sluice_error *e)
{
    struct sluice_model_info info;
    sluice_engine_info(engine, &info);
    uint32_t own = s->value.n_bias; /* the flags' */
    int r = SLUICE_OK;
    for (uint32_t id = 0; s->ignore_eos && r == SLUICE_OK && id < info.vocab; id++) {
        r = sluice_engine_is_end(engine, (int32_t)id) ? push_bias(s, (int32_t)id, -INFINITY, e) : SLUICE_OK;
    }
    s->value.bias = s->bias;
    r = r != SLUICE_OK ? r : sluice_sampler_create(engine, &s->value, ret, e);
    s->value.n_bias = own;
    return r;
}
