/* SPDX-License-Identifier: Apache-2.0 */
/* Predictors: recall, token table and fuser against counts made by hand; the file of what was learned, whole and damaged. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/exact.h"
#include "src/tier/fuser.h"
#include "src/tier/learned.h"
#include "src/tier/predict.h"
#include "src/tier/recall.h"
#include "src/tier/token_table.h"

/* ---- recall ---- */

static void test_recall_counts_ranks(void **state)
{
    (void)state;
    struct recall r;
    struct error e = {0};
    /* Ranks: expert 3 first, 0 and 5 equal (0 before 5), then 1, 2, 4. */
    const float scores[6] = {0.5f, 0.3f, 0.2f, 0.9f, 0.1f, 0.5f};
    assert_int_equal(recall_init(&r, 2, 1, 6, 2, &e), 0);
    assert_true(r.budget[0] == 2 && r.budget[1] == 3 && r.budget[2] == 4);
    recall_count(&r, 1, 0, scores, (const int32_t[]){3, 5}, (const float[]){3, 1}); /* ranks 0 and 2 */
    const struct recall_cell *c = recall_at(&r, 1, 0);
    assert_true(c->rows == 1 && c->hits[0] == 1 && c->hits[1] == 2 && c->hits[2] == 2);
    assert_float_equal(recall_plain(&r, c, 0), 0.5, 1e-12);
    assert_float_equal(recall_weighted(c, 0), 0.75, 1e-12);
    assert_float_equal(recall_precision(&r, c, 1), 2.0 / 3, 1e-12);
    recall_count(&r, 1, 0, scores, (const int32_t[]){2, 4}, (const float[]){1, 1}); /* ranks 4 and 5 */
    assert_float_equal(recall_plain(&r, c, 2), 0.5, 1e-12);
    assert_true(recall_at(&r, 0, 0)->rows == 0);
    recall_deinit(&r);
}

static void test_recall_budgets_end_at_all_experts(void **state)
{
    (void)state;
    struct recall r;
    struct error e = {0};
    assert_int_equal(recall_init(&r, 1, 1, 4, 3, &e), 0);
    assert_true(r.budget[0] == 3 && r.budget[1] == 4 && r.budget[2] == 4); /* 1.5 times 3 is 5 */
    recall_deinit(&r);
}

/* ---- token table ---- */

static void test_token_table_has_the_shares(void **state)
{
    (void)state;
    enum { VOCAB = 50, LAYERS = 3, EXPERTS = 8, USES = 40000 };
    static uint32_t uses[VOCAB][LAYERS][EXPERTS], all[VOCAB][LAYERS];
    struct token_counts c = {0};
    struct token_table t;
    struct error e = {0};
    uint64_t rng = 1;
    for (uint32_t i = 0; i < USES; i++) {
        rng = rng * 6364136223846793005u + 1442695040888963407u;
        uint32_t token = (uint32_t)(rng >> 40) % (VOCAB - 1), layer = (uint32_t)(rng >> 34) % LAYERS, expert = (uint32_t)(rng >> 37) % EXPERTS;
        uses[token][layer][expert]++;
        all[token][layer]++;
        assert_int_equal(token_counts_add(&c, token, (struct expert_key){(uint16_t)layer, (uint16_t)expert}, &e), 0);
    }
    assert_true(c.room < USES); /* equal ones are joined */
    assert_int_equal(token_table_make(&t, VOCAB, LAYERS, &c, &e), 0);
    for (uint32_t token = 0; token < VOCAB; token++) {
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            float got[EXPERTS] = {0};
            token_table_add_shares(&t, token, layer, got);
            for (uint32_t x = 0; x < EXPERTS; x++) {
                float expected = all[token][layer] > 0 ? (float)uses[token][layer][x] / (float)all[token][layer] : 0; /* the last token is never seen */
                assert_float_equal(got[x], expected, 0);
            }
        }
    }
    token_table_deinit(&t);
    token_counts_deinit(&c);
}

/* ---- fuser ---- */

enum { N = 32, USED = 4 };

static float uniform(uint64_t *rng)
{
    *rng = *rng * 6364136223846793005u + 1442695040888963407u;
    return (float)(*rng >> 40) / (float)(1 << 24);
}

/* One row: the chosen ones are the best of a hidden score; inputs see it with noise. */
static void make_row(uint64_t *rng, const float noise[3], float scores[3][N], int32_t ids[USED])
{
    float hidden[N];
    uint32_t n = 0;
    for (uint32_t x = 0; x < N; x++) {
        hidden[x] = uniform(rng);
        for (uint32_t i = 0; i < 3; i++) {
            scores[i][x] = hidden[x] + noise[i] * (uniform(rng) + uniform(rng) - 1);
        }
    }
    for (uint32_t x = 0; x < N; x++) {
        uint32_t better = 0;
        for (uint32_t y = 0; y < N; y++) {
            better += hidden[y] > hidden[x] || (hidden[y] == hidden[x] && y < x);
        }
        if (better < USED) {
            ids[n++] = (int32_t)x;
        }
    }
}

static void test_fuser_beats_its_inputs_and_is_calibrated(void **state)
{
    (void)state;
    const float noise[3] = {0.2f, 0.25f, 10}; /* two views of the truth, one of nothing */
    struct fuser *f = NULL;
    struct error e = {0};
    struct recall r;
    float scores[3][N], chances[2][N];
    int32_t ids[USED];
    uint64_t rng = 7;
    double said = 0, was = 0;
    const float weights[USED] = {1, 1, 1, 1};
    const struct fuser_options o = {.layers = 1, .experts = N, .used = USED, .inputs = 3, .stages = 2, .reads = {5, 7}};
    assert_int_equal(fuser_create(&o, &f, &e), 0);
    assert_int_equal(recall_init(&r, 5, 1, N, USED, &e), 0);
    for (uint32_t row = 0; row < 6000; row++) {
        make_row(&rng, noise, scores, ids);
        const struct fuser_row in = {.scores = {scores[0], scores[1], scores[2]}};
        fuser_chances(f, 0, &in, chances[0]);
        for (uint32_t i = 0; row >= 2000 && i < 3; i++) {
            recall_count(&r, i, 0, scores[i], ids, weights);
        }
        for (uint32_t s = 0; row >= 2000 && s < 2; s++) {
            recall_count(&r, 3 + s, 0, chances[s], ids, weights);
        }
        for (uint32_t x = 0, k = 0; row >= 2000 && x < N; x++) {
            bool is = k < USED && (uint32_t)ids[k] == x;
            k += is;
            if (chances[1][x] > 0.4f && chances[1][x] < 0.6f) {
                said += (double)chances[1][x];
                was += is;
            }
        }
        fuser_learn(f, 0, &in, ids);
    }
    double got[5];
    for (uint32_t i = 0; i < 5; i++) {
        got[i] = recall_plain(&r, recall_at(&r, i, 0), 0);
    }
    assert_true(got[0] > got[1] && got[1] > got[2] + 0.2);
    assert_true(got[3] > got[0] - 0.02); /* noise beside it does no harm */
    assert_true(got[4] > got[0] + 0.03); /* a second view helps */
    assert_true(was > 500 && fabs(said / was - 1) < 0.1);
    recall_deinit(&r);
    fuser_destroy(f);
}

static void test_fuser_knows_nothing_at_first(void **state)
{
    (void)state;
    struct fuser *f = NULL;
    struct error e = {0};
    float chances[N], scores[N];
    const struct fuser_options o = {.layers = 2, .experts = N, .used = USED, .inputs = 1, .stages = 1, .reads = {1}};
    const struct fuser_row nothing = {0}, some = {.scores = {scores}};
    assert_int_equal(fuser_create(&o, &f, &e), 0);
    for (uint32_t x = 0; x < N; x++) {
        scores[x] = (float)x;
    }
    fuser_chances(f, 1, &some, chances);
    assert_float_equal(chances[0], (float)USED / N, 1e-6);
    assert_float_equal(chances[N - 1], (float)USED / N, 1e-6);
    fuser_learn(f, 1, &some, (const int32_t[]){28, 29, 30, 31});
    fuser_chances(f, 1, &nothing, chances);
    assert_float_equal(chances[0], chances[N - 1], 0);
    fuser_destroy(f);
}

/* ---- kept ---- */

static const struct fuser_options kept_options = {.layers = 1, .experts = N, .used = USED, .inputs = 3, .stages = 2, .reads = {5, 7}};

/* Learns from so many rows; mean squared error of the second stage's chances before each was learned. */
static double learn_rows(struct fuser *f, uint64_t rng, const float noise[3], uint32_t rows)
{
    float scores[3][N], chances[2][N];
    int32_t ids[USED];
    double square = 0;
    for (uint32_t row = 0; row < rows; row++) {
        make_row(&rng, noise, scores, ids);
        const struct fuser_row in = {.scores = {scores[0], scores[1], scores[2]}};
        fuser_chances(f, 0, &in, chances[0]);
        for (uint32_t x = 0, k = 0; x < N; x++) {
            bool is = k < USED && (uint32_t)ids[k] == x;
            k += is;
            square += ((double)chances[1][x] - is) * ((double)chances[1][x] - is);
        }
        fuser_learn(f, 0, &in, ids);
    }
    return square / (rows * (double)N);
}

/* Of a fuser that has learned from so many rows; the caller frees. */
static unsigned char *saved_after(const float noise[3], uint32_t rows, size_t *ret_bytes)
{
    struct fuser *f = NULL;
    assert_int_equal(fuser_create(&kept_options, &f, NULL), 0);
    learn_rows(f, 11, noise, rows);
    unsigned char *data = malloc(*ret_bytes = fuser_state_bytes(f));
    assert_non_null(data);
    fuser_save(f, data);
    fuser_destroy(f);
    return data;
}

static void test_fuser_goes_on_where_another_one_ended(void **state)
{
    (void)state;
    const float noise[3] = {0.2f, 0.25f, 10};
    struct fuser *one = NULL, *two = NULL, *none = NULL;
    size_t bytes;
    unsigned char *data = saved_after(noise, 40, &bytes);
    assert_int_equal(fuser_create(&kept_options, &one, NULL), 0);
    assert_int_equal(fuser_create(&kept_options, &two, NULL), 0);
    assert_int_equal(fuser_create(&kept_options, &none, NULL), 0);
    learn_rows(one, 11, noise, 40);
    assert_int_equal(fuser_load(two, data, bytes), 40);
    double has_seen = learn_rows(one, 12, noise, 30), was_told = learn_rows(two, 12, noise, 30);
    assert_true(fabs(has_seen / was_told - 1) < 1e-4);
    assert_true(was_told < 0.8 * learn_rows(none, 12, noise, 30));
    fuser_destroy(one);
    fuser_destroy(two);
    fuser_destroy(none);
    free(data);
}

/* Another text, in which another input is the good one. */
static void test_what_was_kept_gives_way(void **state)
{
    (void)state;
    const float then[3] = {0.2f, 10, 10}, now[3] = {10, 0.2f, 10};
    struct fuser *stale = NULL, *loaded = NULL, *none = NULL;
    size_t bytes;
    unsigned char *data = saved_after(then, 4000, &bytes);
    assert_int_equal(fuser_create(&kept_options, &stale, NULL), 0);
    assert_int_equal(fuser_create(&kept_options, &loaded, NULL), 0);
    assert_int_equal(fuser_create(&kept_options, &none, NULL), 0);
    learn_rows(stale, 11, then, 4000);
    assert_int_equal(fuser_load(loaded, data, bytes), 64);
    learn_rows(stale, 12, now, 256);
    learn_rows(loaded, 12, now, 256);
    learn_rows(none, 12, now, 256);
    double old = learn_rows(stale, 13, now, 256), kept = learn_rows(loaded, 13, now, 256), fresh = learn_rows(none, 13, now, 256);
    assert_true(kept < 0.8 * old && kept < 1.15 * fresh);
    fuser_destroy(stale);
    fuser_destroy(loaded);
    fuser_destroy(none);
    free(data);
}

static void test_bytes_of_no_fuser_change_nothing(void **state)
{
    (void)state;
    const float noise[3] = {0.2f, 0.25f, 10}, nan = (float)NAN, below = -1;
    struct fuser_options other = kept_options;
    struct fuser *f = NULL, *none = NULL;
    size_t bytes;
    unsigned char *data = saved_after(noise, 100, &bytes);
    assert_int_equal(fuser_create(&kept_options, &f, NULL), 0);
    assert_int_equal(fuser_create(&kept_options, &none, NULL), 0);
    other.reads[0] = 7;
    struct fuser *differs = NULL;
    assert_int_equal(fuser_create(&other, &differs, NULL), 0);
    assert_int_equal(fuser_load(differs, data, bytes), -EINVAL);
    assert_int_equal(fuser_load(f, data, bytes - 4), -EINVAL);
    memcpy(data + bytes - 4, &nan, 4);
    assert_int_equal(fuser_load(f, data, bytes), -EINVAL);
    memcpy(data + bytes - 4, &below, 4);
    assert_int_equal(fuser_load(f, data, bytes), -EINVAL);
    assert_true(learn_rows(f, 12, noise, 30) == learn_rows(none, 12, noise, 30));
    fuser_destroy(f);
    fuser_destroy(none);
    fuser_destroy(differs);
    free(data);
}

/* ---- what was learned ---- */

static const struct learned_shape shape = {.fingerprint = "0123456789abcdef", .vocab = 7, .layers = 3, .experts = 8, .first_layer = 1, .inputs = 4};

static void make_learned(struct learned *l)
{
    struct token_counts c = {0};
    struct error e = {0};
    assert_int_equal(learned_init(l, &shape, NULL, &e), 0);
    for (uint32_t i = 0; i < shape.layers * shape.experts; i++) {
        l->popularity[i] = (float)i;
    }
    for (uint32_t i = 0; i < LEARNED_PROBES * learned_probe_rows(&shape) * shape.inputs; i++) {
        l->probe_weight[i] = float_to_half((float)i / 16);
    }
    for (uint32_t i = 0; i < LEARNED_PROBES * learned_probe_rows(&shape); i++) {
        l->probe_bias[i] = (float)i / 3;
    }
    for (uint16_t k = 0; k < 5; k++) {
        assert_int_equal(token_counts_add(&c, 3u + k % 2, (struct expert_key){2, (uint16_t)(k + 1)}, &e), 0);
    }
    assert_int_equal(token_table_make(&l->table, shape.vocab, shape.layers, &c, &e), 0);
    token_counts_deinit(&c);
}

static void refuse(const char *path, const struct learned_shape *s, const char *text)
{
    struct learned l;
    struct error e = {0};
    assert_true(learned_read(&l, s, path, NULL, &e) < 0);
    if (strstr(e.text, text) == NULL || strstr(e.text, path) == NULL) {
        fail_msg("\"%s\" without \"%s\"", e.text, text);
    }
}

static void test_learned_file(void **state)
{
    (void)state;
    struct learned l, got;
    struct error e = {0};
    char path[] = "learned-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    make_learned(&l);
    assert_int_equal(learned_write(&l, path, &e), 0);
    assert_int_equal(learned_read(&got, &shape, path, NULL, &e), 0);
    size_t rows = LEARNED_PROBES * learned_probe_rows(&shape);
    assert_memory_equal(got.popularity, l.popularity, shape.layers * shape.experts * sizeof(float));
    assert_memory_equal(got.probe_weight, l.probe_weight, rows * shape.inputs * sizeof(uint16_t));
    assert_memory_equal(got.probe_bias, l.probe_bias, rows * sizeof(float));
    float share[8] = {0};
    token_table_add_shares(&got.table, 4, 2, share); /* experts 2 and 4 */
    assert_true(share[2] == 0.5f && share[4] == 0.5f && share[1] == 0);
    learned_deinit(&got);

    struct learned_shape other = shape;
    other.fingerprint[0] = 'f';
    refuse(path, &other, "another model");
    other = shape;
    other.experts = 16;
    refuse(path, &other, "popularity");
    other = shape;
    other.inputs = 6;
    refuse(path, &other, "probe.weight");
    struct learned_shape more = shape;
    l.shape.inputs = 0; /* a file without probes */
    assert_int_equal(learned_write(&l, path, &e), 0);
    assert_int_equal(learned_read(&got, &more, path, NULL, &e), 0);
    assert_true(got.probe_weight == NULL && got.probe_bias == NULL && got.shape.inputs == 0);
    learned_deinit(&got);
    l.shape.inputs = shape.inputs;
    l.table.begin[1] = 3;
    assert_int_equal(learned_write(&l, path, &e), 0);
    refuse(path, &shape, "table.begin does not rise");
    l.table.begin[1] = 0;
    l.table.expert[0] = 8;
    assert_int_equal(learned_write(&l, path, &e), 0);
    refuse(path, &shape, "an expert that is not there");
    l.table.expert[0] = 1;
    l.popularity[5] = NAN;
    assert_int_equal(learned_write(&l, path, &e), 0);
    refuse(path, &shape, "popularity holds");
    assert_int_equal(truncate(path, 700), 0);
    refuse(path, &shape, "the file is cut");
    unlink(path);
    refuse(path, &shape, "No such file");
    close(fd);
    learned_deinit(&l);
}

/* ---- all together ---- */

/* One layer of 8 experts in 4 groups of 2 of which 2 are used; texts alternate between two sets of experts. */
static void test_predict_counts_what_was_known_before(void **state)
{
    (void)state;
    struct predict *p = NULL;
    struct error e = {0};
    const struct predict_options o = {.layers = 1, .experts = 8, .used = 2, .groups = 4, .groups_used = 2, .first_position = 1};
    const int32_t sets[2][2] = {{0, 1}, {6, 7}};
    const float weights[2] = {1, 1};
    assert_int_equal(predict_create(&o, &p, &e), 0);
    predict_begin(p);
    for (uint32_t i = 0; i < 100; i++) {
        float scores[8] = {0};
        scores[sets[i % 2][0]] = scores[sets[i % 2][1]] = 1; /* this one is always right */
        predict_scores(p, PREDICT_GATE, 0, i, scores);
        predict_route(p, 0, i, sets[i % 2], weights);
        predict_token(p, i, 5);
    }
    const struct recall *r = predict_recall(p);
    assert_true(recall_at(r, PREDICT_GATE, 0)->rows == 99);
    assert_float_equal(recall_plain(r, recall_at(r, PREDICT_GATE, 0), 0), 1, 0);
    assert_float_equal(recall_plain(r, recall_at(r, PREDICT_PREVIOUS, 0), 0), 0, 0); /* always the other set */
    assert_true(recall_plain(r, recall_at(r, PREDICT_PREVIOUS, 0), 2) > 0.95);      /* popularity decides the rest */
    assert_true(recall_at(r, PREDICT_TABLE, 0)->rows == 0 && recall_at(r, PREDICT_SHADOW, 0)->rows == 0);
    assert_true(recall_plain(r, recall_at(r, PREDICTORS + LEAD_LAYER, 0), 0) > 0.95);
    const struct predict_calibration *c = predict_calibration(p, LEAD_LAYER);
    uint64_t n = 0, used = 0;
    for (uint32_t i = 0; i < PREDICT_BINS; i++) {
        n += c->n[i];
        used += c->used[i];
    }
    assert_true(n == 99 * 8 && used == 99 * 2);
    predict_destroy(p);
}

enum { EXPERTS = 16 };

/* Two equal predictors, one of which is also asked on the way. */
struct asked {
    struct predict *p[2];
    double square[LEADS]; /* of chances asked for, off from what was used */
};

/* Scores that say something of experts 2 * set and 2 * set + 1 of layer 1, for both. */
static void tell(struct asked *a, uint64_t *rng, enum predictor which, uint32_t position, uint32_t set)
{
    float scores[EXPERTS];
    for (uint32_t x = 0; x < EXPERTS; x++) {
        scores[x] = uniform(rng) + (x / 2 == set ? 0.5f : 0);
    }
    predict_scores(a->p[0], which, 1, position, scores);
    predict_scores(a->p[1], which, 1, position, scores);
}

static void ask(struct asked *a, enum lead lead, uint32_t position, int32_t token, uint32_t set)
{
    const float *chances = predict_chances(a->p[0], lead, 1, position, token);
    for (uint32_t x = 0; position >= 20 && x < EXPERTS; x++) {
        double off = (double)chances[x] - (x / 2 == set);
        a->square[lead] += off * off;
    }
}

/* Chances that are asked for before a token is complete - one token ahead: before the one before it is - are those that are counted
 * for their lead in the end, and asking changes nothing that is learned. */
static void test_chances_on_the_way_are_those_that_count(void **state)
{
    (void)state;
    struct asked a = {0};
    struct error e = {0};
    struct learned l;
    struct token_counts c = {0};
    const struct learned_shape s = {.fingerprint = "0123456789abcdef", .vocab = 8, .layers = 2, .experts = EXPERTS};
    uint64_t rng = 3;
    assert_int_equal(learned_init(&l, &s, NULL, &e), 0);
    for (uint32_t t = 0; t < 8; t++) {
        assert_int_equal(token_counts_add(&c, t, (struct expert_key){1, (uint16_t)(2 * t)}, &e), 0);
    }
    assert_int_equal(token_table_make(&l.table, s.vocab, s.layers, &c, &e), 0);
    const struct predict_options o = {.layers = 2, .experts = EXPERTS, .used = 2, .groups = 1, .groups_used = 1, .learned = &l, .first_position = 20};
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(predict_create(&o, &a.p[i], &e), 0);
    }
    for (uint32_t t = 0, before = 0, set = 0; t <= 300; t++) {
        set = uniform(&rng) < 0.6f ? set : (uint32_t)(uniform(&rng) * 8); /* often what the token before used */
        uint32_t token = uniform(&rng) < 0.7f ? set : (uint32_t)(uniform(&rng) * 8);
        tell(&a, &rng, PREDICT_PROBE_DRAFT, t, set);
        if (t < 300) {
            ask(&a, LEAD_TOKEN, t, -1, set);
        }
        for (uint32_t i = 0; i < 2 && t > 0; i++) {
            predict_token(a.p[i], t - 1, (int32_t)before);
        }
        if (t < 300) {
            ask(&a, LEAD_START, t, (int32_t)token, set);
            tell(&a, &rng, PREDICT_GATE, t, set);
            ask(&a, LEAD_LAYER, t, (int32_t)token, set);
            for (uint32_t i = 0; i < 2; i++) {
                predict_route(a.p[i], 1, t, (const int32_t[]){(int32_t)(2 * set), (int32_t)(2 * set + 1)}, (const float[]){1, 1});
            }
        }
        before = token;
    }
    for (uint32_t lead = 0; lead < LEADS; lead++) {
        double square = predict_calibration(a.p[0], (enum lead)lead)->square;
        assert_true(square == predict_calibration(a.p[1], (enum lead)lead)->square && square > 0);
        if (a.square[lead] > 0) {
            assert_float_equal(a.square[lead] / square, 1, lead == LEAD_TOKEN ? 0.01 : 1e-6); /* one token ahead there is one less to learn from */
        }
    }
    assert_true(a.square[LEAD_TOKEN] > a.square[LEAD_START] && a.square[LEAD_START] > a.square[LEAD_LAYER]);
    for (uint32_t i = 0; i < 2; i++) {
        predict_destroy(a.p[i]);
    }
    token_counts_deinit(&c);
    learned_deinit(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recall_counts_ranks),
        cmocka_unit_test(test_recall_budgets_end_at_all_experts),
        cmocka_unit_test(test_token_table_has_the_shares),
        cmocka_unit_test(test_fuser_beats_its_inputs_and_is_calibrated),
        cmocka_unit_test(test_fuser_knows_nothing_at_first),
        cmocka_unit_test(test_fuser_goes_on_where_another_one_ended),
        cmocka_unit_test(test_what_was_kept_gives_way),
        cmocka_unit_test(test_bytes_of_no_fuser_change_nothing),
        cmocka_unit_test(test_learned_file),
        cmocka_unit_test(test_predict_counts_what_was_known_before),
        cmocka_unit_test(test_chances_on_the_way_are_those_that_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
