/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: two reports on the time of steps, through the public API. Must not know: kernels.
 *   ttft  seconds of a prompt of 1, 2, ... tokens, and where one more token costs most (nowhere more than 1.5 times)
 *   rows  seconds of a step with one row of each of 1, 2, 4, 8 sequences, beside the weights that it reads
 * With one thread times are processor seconds, so that other programs disturb little; else they are the clock's. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sluice/sluice.h"

enum { LARGEST = 512, SEQUENCES = 8, PAST = 12 };

struct bench {
    struct sluice_engine *engine;
    struct sluice_model_info info;
    unsigned repeats;
    clockid_t clock;
    uint32_t state;
};

static void check(int r, const struct sluice_error *e)
{
    if (r != 0) {
        fprintf(stderr, "steps: %s\n", e->text);
        exit(r < 0 ? 1 : r);
    }
}

static double now(const struct bench *b)
{
    struct timespec t;
    clock_gettime(b->clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int32_t random_token(struct bench *b)
{
    b->state = b->state * 1664525u + 1013904223u;
    return (int32_t)((b->state >> 8) % b->info.vocab);
}

/* ---- time to the first token ---- */

static double prompt_seconds(struct bench *b, const int32_t *tokens, size_t n)
{
    struct sluice_session *s;
    struct sluice_error e;
    check(sluice_session_create(b->engine, NULL, &s, &e), &e);
    double start = now(b);
    check(sluice_session_feed(s, tokens, n, &e), &e);
    double seconds = now(b) - start;
    sluice_session_destroy(s);
    return seconds;
}

static void report_ttft(struct bench *b, uint32_t largest)
{
    int32_t tokens[LARGEST];
    double best[LARGEST + 1];
    uint32_t worst = 1;
    for (uint32_t i = 0; i < largest; i++) {
        tokens[i] = random_token(b);
        best[i + 1] = 1e30;
    }
    for (unsigned k = 0; k < b->repeats; k++) { /* one pass after the other: a disturbance hits neighbours alike */
        for (uint32_t n = 1; n <= largest; n++) {
            double seconds = prompt_seconds(b, tokens, n);
            best[n] = seconds < best[n] ? seconds : best[n];
        }
    }
    for (uint32_t n = 1; n <= largest; n++) {
        printf("%4u tokens %10.3f ms %8.2f tok/s\n", n, 1e3 * best[n], n / best[n]);
        worst = n < largest && best[n + 1] / best[n] > best[worst + 1] / best[worst] ? n : worst;
    }
    printf("largest step: %u -> %u tokens, %.2f times (least of %u passes)\n", worst, worst + 1, best[worst + 1] / best[worst], b->repeats);
}

/* ---- rows of several sequences ---- */

static double step_seconds(struct bench *b, struct sluice_session *const *sessions, uint32_t n, uint64_t *ret_bytes)
{
    struct sluice_feed feeds[SEQUENCES];
    int32_t tokens[SEQUENCES];
    struct sluice_step *step;
    struct sluice_error e;
    for (uint32_t i = 0; i < n; i++) {
        tokens[i] = random_token(b);
        feeds[i] = (struct sluice_feed){.session = sessions[i], .tokens = &tokens[i], .n = 1};
    }
    uint64_t before = sluice_engine_counter(b->engine, "weights.bytes");
    double start = now(b);
    check(sluice_step_open(b->engine, feeds, n, &step, &e), &e);
    check(sluice_step_run(step, sluice_step_layers_left(step), &e), &e);
    check(sluice_step_commit(step, &e), &e);
    double seconds = now(b) - start;
    *ret_bytes = sluice_engine_counter(b->engine, "weights.bytes") - before;
    return seconds;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void report_rows(struct bench *b)
{
    enum { MOST = 64 };
    struct sluice_session *sessions[SEQUENCES];
    struct sluice_error e;
    double one = 0, one_bytes = 0;
    for (int i = 0; i < SEQUENCES; i++) {
        int32_t past[PAST];
        for (int k = 0; k < PAST; k++) {
            past[k] = random_token(b);
        }
        check(sluice_session_create(b->engine, NULL, &sessions[i], &e), &e);
        check(sluice_session_feed(sessions[i], past, PAST, &e), &e);
    }
    for (uint32_t n = 1; n <= SEQUENCES; n *= 2) {
        double seconds[MOST], bytes = 0;
        unsigned repeats = b->repeats < MOST ? b->repeats : MOST;
        for (unsigned k = 0; k < repeats; k++) {
            uint64_t read;
            seconds[k] = step_seconds(b, sessions, n, &read);
            bytes += (double)read / repeats;
        }
        qsort(seconds, repeats, sizeof(*seconds), by_size);
        one = n == 1 ? seconds[repeats / 2] : one;
        one_bytes = n == 1 ? bytes : one_bytes;
        printf("%u rows: %9.3f ms a step (least %.3f, %u steps), %5.2f times one row; weights %8.3f GB, %5.2f times; %6.2f GB/s\n", n,
               1e3 * seconds[repeats / 2], 1e3 * seconds[0], repeats, seconds[repeats / 2] / one, 1e-9 * bytes, bytes / one_bytes,
               1e-9 * bytes / seconds[repeats / 2]);
    }
    for (int i = 0; i < SEQUENCES; i++) {
        sluice_session_destroy(sessions[i]);
    }
}

int main(int argc, char **argv)
{
    struct bench b = {.state = 1};
    struct sluice_error e;
    bool ttft = argc > 1 && strcmp(argv[1], "ttft") == 0, rows = argc > 1 && strcmp(argv[1], "rows") == 0;
    if (argc < 4 || (!ttft && !rows)) {
        fprintf(stderr, "usage: steps ttft|rows MODEL THREADS [REPEATS [LARGEST PROMPT]]\n");
        return 2;
    }
    int repeats = argc > 4 ? atoi(argv[4]) : 3, largest = argc > 5 ? atoi(argv[5]) : 130;
    b.repeats = repeats < 1 ? 1 : (unsigned)repeats;
    b.clock = strcmp(argv[3], "1") == 0 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC;
    struct sluice_options *o = sluice_options_create();
    if (o == NULL) {
        return 1;
    }
    check(sluice_options_set(o, "model", argv[2], &e), &e);
    check(sluice_options_set(o, "threads", argv[3], &e), &e);
    check(sluice_options_set(o, "ctx", "2048", &e), &e);
    check(sluice_engine_open(o, NULL, NULL, &b.engine, &e), &e);
    sluice_options_destroy(o);
    sluice_engine_info(b.engine, &b.info);
    if (ttft) {
        report_ttft(&b, largest < 2 || largest > LARGEST ? LARGEST : (uint32_t)largest);
    } else {
        report_rows(&b);
    }
    sluice_engine_close(b.engine);
    return 0;
}
