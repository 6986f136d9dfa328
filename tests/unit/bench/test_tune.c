/* SPDX-License-Identifier: Apache-2.0 */
/* What wins, what is tried and what is written, from samples and facts that are known. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "common/attr.h"
#include "src/commands/tune.h"

/* ---- judging ---- */

static struct tune_pairs pairs_of(const double best[3], const double trial[3], double other)
{
    struct tune_pairs p = {.n = 3};
    for (int i = 0; i < 3; i++) {
        p.best[i] = (struct tune_sample){{best[i], 100}};
        p.trial[i] = (struct tune_sample){{trial[i], 100 * other}};
    }
    return p;
}

static void assert_verdict(const double best[3], const double trial[3], double other, enum tune_verdict expected)
{
    const struct tune_pairs p = pairs_of(best, trial, other);
    assert_int_equal(tune_judge(&p, TUNE_DECODE).verdict, expected);
}

static void verdicts(void **state)
{
    (void)state;
    const double flat[] = {10, 10, 10}, drifting[] = {10, 20, 5};
    assert_verdict(flat, (double[]){10.5, 10.5, 10.5}, 1, TUNE_WINS);
    assert_verdict(flat, (double[]){10.29, 10.29, 10.29}, 1, TUNE_NO_FASTER);
    assert_verdict(flat, (double[]){9, 9, 9}, 1, TUNE_NO_FASTER);
    assert_verdict(flat, (double[]){10.1, 10.5, 11.5}, 1, TUNE_UNCERTAIN);
    assert_verdict(flat, (double[]){10.5, 10.5, 10.5}, 0.98, TUNE_WINS);
    assert_verdict(flat, (double[]){10.5, 10.5, 10.5}, 0.96, TUNE_SLOWS_OTHER);
    assert_verdict(flat, (double[]){10.5, 10.5, 10.5}, 0, TUNE_WINS); /* the other was not measured */
    /* a machine that halves and doubles its speed: only neighbours are compared */
    assert_verdict(drifting, (double[]){11, 22, 5.5}, 1, TUNE_WINS);
    assert_verdict(drifting, (double[]){10, 20, 5}, 1, TUNE_NO_FASTER);
}

static void figures(void **state)
{
    (void)state;
    const struct tune_pairs p = pairs_of((double[]){10, 10, 20}, (double[]){11, 12, 26}, 0.5);
    const struct tune_judgement j = tune_judge(&p, TUNE_DECODE);
    assert_float_equal(j.ratio, 1.2, 1e-12);
    assert_float_equal(j.spread, 0.1, 1e-12);
    assert_float_equal(j.other, 0.5, 1e-12);
}

/* Whatever pairs follow, a trial that is given up could not have won. */
static void hopeless_never_wins(void **state)
{
    (void)state;
    for (int a = 90; a <= 120; a += 3) {
        for (int b = 90; b <= 120; b += 3) {
            for (int c = 90; c <= 120; c += 3) {
                const struct tune_pairs p = pairs_of((double[]){100, 100, 100}, (double[]){a, b, c}, 1);
                assert_true(!tune_hopeless(&p, TUNE_DECODE) || tune_judge(&p, TUNE_DECODE).verdict != TUNE_WINS);
                assert_int_equal(tune_hopeless(&p, TUNE_DECODE), a <= 100 || b <= 100 || c <= 100);
            }
        }
    }
}

/* ---- candidates ---- */

/* "threads=3 threads=2 ..." */
static void assert_tried(const struct tune_facts *f, const struct settings *s, const char *expected)
{
    struct tune_list l;
    struct str out = {0};
    tune_candidates(f, s, &l);
    for (uint32_t i = 0; i < l.n; i++) {
        struct settings copy;
        assert_int_equal(settings_copy(s, &copy, NULL), 0);
        assert_int_equal(settings_set(&copy, l.of[i].setting, l.of[i].value, SOURCE_FLAG, NULL), 0); /* all are settings with valid values */
        settings_deinit(&copy);
        str_printf(&out, "%s%s=%s", i > 0 ? " " : "", l.of[i].setting, l.of[i].value);
    }
    assert_string_equal(out.data != NULL ? out.data : "", expected);
    str_deinit(&out);
}

static void only_what_can_matter(void **state)
{
    struct settings *s = *state;
    struct tune_facts f = {.threads = 8, .auto_threads = 8, .nodes = 1, .prompt_n = 2048, .decodes = true};
    assert_tried(&f, s, "threads=7 threads=4 ubatch=256 ubatch=1024 bulk=own bulk=blas");
    f.prompt_n = 0;
    assert_tried(&f, s, "threads=7 threads=4");
    f.prompt_n = 300; /* chunks of 512 and of 1024 would be the same */
    assert_tried(&f, s, "threads=7 threads=4 ubatch=256 bulk=own bulk=blas");
    f = (struct tune_facts){.threads = 1, .auto_threads = 1, .nodes = 1, .decodes = true, .drafts = true};
    assert_tried(&f, s, "mtp=off mtp=1 mtp=2");
    f = (struct tune_facts){.threads = 2, .auto_threads = 2, .nodes = 2, .spread = true, .decodes = true, .streams = true};
    assert_tried(&f, s, "threads=1 prefetch=off prefetch=on io=pread numa=off");
    f.spread = false;
    f.decodes = false;
    f.prompt_n = 8;
    assert_tried(&f, s, "threads=1");
}

static void what_was_given_stays(void **state)
{
    struct settings *s = *state;
    const struct tune_facts f = {.threads = 4, .auto_threads = 8, .nodes = 1, .prompt_n = 2048, .decodes = true, .streams = true};
    settings_set(s, "threads", "4", SOURCE_PROFILE, NULL);
    settings_set(s, "expert-ram", "30%", SOURCE_PROFILE, NULL);
    settings_set(s, "ubatch", "256", SOURCE_FLAG, NULL);
    settings_set(s, "bulk", "blas", SOURCE_ENV, NULL);
    settings_set(s, "prefetch", "off", SOURCE_PROFILE, NULL);
    assert_tried(&f, s, "threads=auto threads=7 prefetch=on prefetch=auto expert-ram=auto io=pread");
}

/* ---- the profile ---- */

static struct tune_result *result_of(struct settings *s)
{
    struct tune_result *r = calloc(1, sizeof(*r));
    assert_non_null(r);
    strcpy(r->machine.cpu, "a processor");
    r->machine.cores = 4;
    r->machine.nodes = 1;
    r->machine.memory_total = UINT64_C(64) << 30;
    for (int i = 0; i < LIMIT_COUNT; i++) {
        r->machine.limit[i] = UINT64_C(48) << 30;
    }
    r->machine.ram_read_gb_s = 70;
    r->best = *s;
    r->record = (struct tune_record){.sample = {{{4, 90}}, {{5, 100}}, {{9, 80}}}, .n = 3, .expert_share = 0.25, .hits = 600, .misses = 400};
    return r;
}

static void profile_reads_back(void **state)
{
    struct settings *s = *state;
    settings_set(s, "model", "/folder/of/mine/v3.gguf", SOURCE_FLAG, NULL);
    settings_set(s, "heat", "/folder/of/mine/heat", SOURCE_FLAG, NULL);
    settings_set(s, "model-mirror", "/folder/of/mine,/another", SOURCE_FLAG, NULL);
    settings_set(s, "ram", "1500M", SOURCE_PROFILE, NULL);
    settings_set(s, "threads", "3", SOURCE_FLAG, NULL);
    settings_set(s, "ubatch", "512", SOURCE_FLAG, NULL); /* the default */
    struct tune_result *r = result_of(s);
    struct profile *p = calloc(1, sizeof(*p)), *back = calloc(1, sizeof(*back));
    struct str text = {0};
    struct error e = {0};
    const struct tune_options o = {.settings = *s, .out = "here/my-box.yaml", .command = "sluice tune -m v3.gguf -o my-box.yaml"};
    assert_non_null(p);
    assert_non_null(back);
    assert_int_equal(tune_profile(&o, r, "2026-11-30", p, &e), 0);
    assert_int_equal(tune_profile_text(&o, p, &text, &e), 0);
    assert_int_equal(profile_parse(text.data, text.len, "x", back, &e), 0);
    assert_null(strstr(text.data, "/folder"));
    assert_string_equal(back->name, "my-box");
    assert_true(back->has_machine);
    assert_int_equal(back->machine.limit[LIMIT_AVAILABLE], UINT64_C(48) << 30);
    assert_int_equal(back->n_settings, 2);
    assert_string_equal(settings_info(back->setting[0].index)->name, "ram");
    assert_string_equal(back->setting[0].value, "1500M");
    assert_string_equal(back->setting[1].value, "3");
    assert_int_equal(back->n_results, 1);
    assert_string_equal(back->result[0].model, "v3.gguf");
    assert_string_equal(back->result[0].command, o.command);
    assert_float_equal(back->result[0].decode_tok_s, 5, 0); /* medians */
    assert_float_equal(back->result[0].prefill_tok_s, 90, 0);
    assert_float_equal(back->result[0].expert_share, 0.25, 0);
    assert_float_equal(back->result[0].hit_ratio, 0.6, 1e-15);
    str_deinit(&text);
    free(back);
    free(p);
    free(r);
}

static void impossible_profiles_are_refused(void **state)
{
    struct settings *s = *state;
    settings_set(s, "model", "v3.gguf", SOURCE_FLAG, NULL);
    struct tune_result *r = result_of(s);
    struct profile *p = calloc(1, sizeof(*p));
    struct str text = {0};
    struct error e = {0};
    struct tune_options o = {.settings = *s, .out = ".yaml", .command = "c"};
    assert_non_null(p);
    assert_int_equal(tune_profile(&o, r, "2026-11-30", p, &e), ERROR_USAGE);
    o.out = "my box.yaml";
    assert_int_equal(tune_profile(&o, r, "2026-11-30", p, &e), 0);
    assert_int_equal(tune_profile_text(&o, p, &text, &e), ERROR_USAGE);
    assert_non_null(strstr(e.text, "name: my box"));
    str_deinit(&text);
    settings_set(s, "ram", "65G", SOURCE_FLAG, NULL); /* more than the machine has */
    r->best = *s;
    o.out = "b.yaml";
    assert_int_equal(tune_profile(&o, r, "2026-11-30", p, &e), 0);
    assert_int_equal(tune_profile_text(&o, p, &text, &e), ERROR_USAGE);
    assert_non_null(strstr(e.text, "ram: 65G"));
    str_deinit(&text);
    free(p);
    free(r);
}

static int setup(void **state)
{
    struct settings *s = malloc(sizeof(*s));
    *state = s;
    return s == NULL ? -1 : settings_init(s, NULL);
}

static int teardown(void **state)
{
    settings_deinit(*state);
    free(*state);
    return 0;
}

#define WITH_SETTINGS(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(verdicts), cmocka_unit_test(figures), cmocka_unit_test(hopeless_never_wins), WITH_SETTINGS(only_what_can_matter),
        WITH_SETTINGS(what_was_given_stays), WITH_SETTINGS(profile_reads_back), WITH_SETTINGS(impossible_profiles_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
