/* SPDX-License-Identifier: Apache-2.0 */
/* Mixed prompts for a time, with a small part of the experts in RAM: memory, threads and descriptors stay level, and a text that comes
 * again gives the same bits. usage: soak MODEL SECONDS */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/run/harness.h"

enum { TEXTS = 12, LONGEST = 700, ANSWER = 24, WARM_UP = TEXTS };

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Sum over the bits of all logits that a text and its greedy answer give. */
static uint64_t run_text(struct sluice_engine *g, uint32_t text)
{
    static const size_t lengths[TEXTS] = {1, 3, 8, 9, 40, 130, 513, 2, 700, 64, 17, 300};
    struct sluice_model_info info;
    int32_t tokens[LONGEST];
    uint64_t sum = 0;
    sluice_engine_info(g, &info);
    harness_tokens(text + 1, info.vocab, tokens, lengths[text]);
    struct sluice_session *s = NULL;
    struct sluice_error e = {0};
    if (sluice_session_create(g, NULL, &s, &e) != 0) {
        fprintf(stderr, "session: %s\n", e.text);
        exit(1);
    }
    harness_feed(s, tokens, lengths[text]);
    for (int i = 0; i < ANSWER; i++) {
        const float *logits = sluice_session_logits(s);
        int32_t best = 0;
        for (uint32_t x = 0; x < info.vocab; x++) {
            uint32_t bits;
            memcpy(&bits, &logits[x], sizeof(bits));
            sum = sum * 0x9e3779b97f4a7c15u + bits;
            best = logits[x] > logits[best] ? (int32_t)x : best;
        }
        harness_feed(s, &best, 1);
    }
    sluice_session_destroy(s);
    return sum;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: soak MODEL SECONDS\n");
        return 2;
    }
    struct sluice_engine *g = harness_open(argv[1], "expert-ram", "10%", "threads", "2", "ctx", "1024", "bulk", "own", NULL);
    uint64_t sums[TEXTS];
    struct harness_level first = {0}, last = {0};
    double end = seconds_now() + strtod(argv[2], NULL);
    uint32_t texts = 0;
    for (; texts < 2 * TEXTS || seconds_now() < end; texts++) {
        uint64_t sum = run_text(g, texts % TEXTS);
        if (texts >= TEXTS && sum != sums[texts % TEXTS]) {
            fprintf(stderr, "text %u of round %u gives other bits than the first time\n", texts % TEXTS, texts / TEXTS);
            return 1;
        }
        sums[texts % TEXTS] = sum;
        last = harness_level();
        first = texts == WARM_UP ? last : first;
    }
    printf("%u texts; RSS %ld to %ld KiB, threads %ld to %ld, descriptors %ld to %ld\n", texts, first.rss_kb, last.rss_kb, first.threads, last.threads, first.descriptors,
           last.descriptors);
    sluice_engine_close(g);
    return harness_is_level(&first, &last) ? 0 : 1;
}
