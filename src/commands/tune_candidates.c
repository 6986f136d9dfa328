/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: tune_candidates.h. Must not know: measuring. */
#include "src/commands/tune_candidates.h"

#include <stdio.h>
#include <string.h>

#include "common/attr.h"
#include "common/intmath.h"

static bool is_fixed(const struct settings *s, const char *setting)
{
    char flag[32];
    snprintf(flag, sizeof(flag), "--%s", setting);
    return s->source[settings_find_flag(flag)] > SOURCE_PROFILE;
}

static void add(struct tune_list *l, const struct settings *s, const char *setting, const char *value, enum tune_goal goal)
{
    if (is_fixed(s, setting) || l->n == TUNE_CANDIDATES_MAX) {
        return;
    }
    struct tune_candidate *c = &l->of[l->n++];
    *c = (struct tune_candidate){.setting = setting, .goal = goal};
    snprintf(c->value, sizeof(c->value), "%s", value);
}

static void add_number(struct tune_list *l, const struct settings *s, const char *setting, uint32_t value, enum tune_goal goal)
{
    char text[12];
    snprintf(text, sizeof(text), "%u", value);
    add(l, s, setting, text, goal);
}

/* All cores, all but one for the rest of the system, half of them: memory may be the limit before the cores are. */
static void add_threads(struct tune_list *l, const struct settings *s, const struct tune_facts *f)
{
    uint32_t most = f->auto_threads, numbers[] = {most - 1, most / 2};
    enum tune_goal goal = f->decodes ? TUNE_DECODE : TUNE_PROMPT;
    if (f->threads != most) {
        add(l, s, "threads", "auto", goal);
    }
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        if (numbers[i] > 0 && numbers[i] != f->threads && (i == 0 || numbers[i] != numbers[0])) {
            add_number(l, s, "threads", numbers[i], goal);
        }
    }
}

static void add_decode(struct tune_list *l, const struct settings *s, const struct tune_facts *f)
{
    static const char *const streaming[][2] = {{"prefetch", "off"}, {"prefetch", "on"}, {"prefetch", "auto"}, {"expert-ram", "auto"}, {"io", "pread"}};
    static const char *const drafts[] = {"off", "1", "2", "auto"};
    for (size_t i = 0; f->streams && i < ARRAY_LEN(streaming); i++) {
        add(l, s, streaming[i][0], streaming[i][1], TUNE_DECODE);
    }
    for (size_t i = 0; f->drafts && i < ARRAY_LEN(drafts); i++) {
        add(l, s, "mtp", drafts[i], TUNE_DECODE);
    }
    if (f->nodes > 1) {
        add(l, s, "numa", f->spread ? "off" : "on", TUNE_DECODE);
    }
}

/* Chunks are never longer than the prompt; rows of up to 8 are no bulk rows, which have two ways to be multiplied. */
static void add_prompt(struct tune_list *l, const struct settings *s, const struct tune_facts *f)
{
    static const uint32_t chunks[] = {256, 512, 1024};
    for (size_t i = 0; i < ARRAY_LEN(chunks); i++) {
        if (min_u32(chunks[i], f->prompt_n) != min_u32(s->ubatch, f->prompt_n)) {
            add_number(l, s, "ubatch", chunks[i], TUNE_PROMPT);
        }
    }
    if (min_u32(s->ubatch, f->prompt_n) > 8) {
        add(l, s, "bulk", "own", TUNE_PROMPT);
        add(l, s, "bulk", "blas", TUNE_PROMPT);
    }
}

/* Without those that the start has already. */
static void drop_current(struct tune_list *l, const struct settings *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < l->n; i++) {
        char flag[32];
        struct str now = {0};
        snprintf(flag, sizeof(flag), "--%s", l->of[i].setting);
        settings_typed(s, (uint32_t)settings_find_flag(flag), &now);
        if (now.failed || strcmp(now.data, l->of[i].value) != 0) {
            l->of[n++] = l->of[i];
        }
        str_deinit(&now);
    }
    l->n = n;
}

void tune_candidates(const struct tune_facts *f, const struct settings *start, struct tune_list *ret)
{
    struct tune_list l = {.n = 0};
    add_threads(&l, start, f);
    if (f->decodes) {
        add_decode(&l, start, f);
    }
    if (f->prompt_n > 0) {
        add_prompt(&l, start, f);
    }
    drop_current(&l, start);
    *ret = l;
}
