/* SPDX-License-Identifier: Apache-2.0 */
/* Ceilings with a clock that the test moves: what is called, how samples become rates, refusals, cancelling. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/attr.h"
#include "src/run/probe_drive.h"
#include "src/run/probe_rates.h"

/* Every look at it takes ten milliseconds. */
static uint64_t ticking(void *ctx) { return atomic_fetch_add((_Atomic uint64_t *)ctx, 10000000) + 10000000; }

struct bench {
    struct topology topology;
    _Atomic uint64_t now;
    atomic_int cancel;
    struct rates_options options;
};

static struct bench *bench_create(uint32_t threads)
{
    struct bench *b = calloc(1, sizeof(*b));
    struct error e = {0};
    assert_non_null(b);
    assert_int_equal(topology_read(&b->topology, &e), 0);
    b->topology.l3_bytes = 1 << 20; /* a small buffer */
    b->options = (struct rates_options){.topology = &b->topology, .threads = threads, .isa = CPU_SCALAR, .memory = 32 << 20,
                                        .clock = {ticking, &b->now}, .cancel = &b->cancel};
    return b;
}

static void test_samples(void **state)
{
    (void)state;
    struct rate r = rate_of((double[]){3, 1, 2, 10}, 4);
    assert_float_equal(r.best, 10, 0);
    assert_float_equal(r.median, 2.5, 0);
    assert_float_equal(r.worst, 1, 0);
    assert_int_equal(r.samples, 4);
    r = rate_of((double[]){7, 5, 6}, 3);
    assert_float_equal(r.median, 6, 0);
    r = rate_of(NULL, 0);
    assert_float_equal(r.best, 0, 0);
}

static void count(void *ctx, uint32_t worker) { atomic_fetch_add(&((atomic_int *)ctx)[worker], 1); }

static void test_each_worker_once(void **state)
{
    (void)state;
    struct bench *b = bench_create(1000); /* more than there are cores */
    struct rates *r;
    struct error e = {0};
    assert_int_equal(rates_create(&b->options, &r, &e), 0);
    uint32_t n = rates_threads(r);
    assert_int_equal(n, b->topology.cores);
    atomic_int *calls = calloc(n, sizeof(*calls));
    assert_non_null(calls);
    for (int i = 0; i < 100; i++) {
        assert_true(rates_time(r, RATES_ALL, count, calls) > 0);
    }
    assert_true(rates_time(r, RATES_ONE, count, calls) > 0);
    for (uint32_t w = 0; w < n; w++) {
        assert_int_equal(calls[w], 100 + (w == 0));
    }
    for (uint32_t w = 0; w < n; w++) { /* parts are of one size, and touched */
        size_t bytes;
        const unsigned char *part = rates_part(r, w, &bytes);
        assert_int_equal(bytes * n, rates_buffer_bytes(r));
        assert_int_equal(part[bytes - 1], 1);
    }
    assert_int_equal(rates_count(r, RATES_ALL), n);
    assert_int_equal(rates_count(r, RATES_ONE), 1);
    assert_int_equal(rates_count(r, 77), 0); /* no such node */
    uint32_t of_nodes = 0;
    for (uint32_t k = 0; k < b->topology.nodes; k++) {
        of_nodes += rates_count(r, (int)k);
    }
    assert_int_equal(of_nodes, n);
    free(calls);
    rates_destroy(r);
    free(b);
}

/* One worker looks at the clock before and after: a sample is ten milliseconds. */
static void test_rates_of_a_known_clock(void **state)
{
    (void)state;
    struct bench *b = bench_create(1);
    struct rates *r;
    struct error e = {0};
    assert_int_equal(rates_create(&b->options, &r, &e), 0);
    struct rate got;
    struct read_way way;
    /* All of the buffer takes 10 ms, so the 2 ms of a short sample are 6 of 32 pieces of 1 MiB; they take 10 ms as well. */
    assert_int_equal(rates_buffer_bytes(r), 32 << 20);
    assert_int_equal(rates_read_way(r, RATES_ONE, &way, &e), 0);
    assert_float_equal(way.bytes_s, (6 << 20) / 0.01, 1);
    assert_int_equal(way.streams[0], 1);
    assert_int_equal(way.streams[1], 2);
    for (int i = 0; i < 2; i++) { /* less than a piece, more than the buffer: 1 and 70 pieces */
        assert_float_equal(rates_read_once(r, RATES_ONE, 4, 31 << 20, i == 0 ? 5 : 70.5 * (1 << 20)), (i == 0 ? 1 : 70) * (1 << 20) / 0.01, 1);
    }
    const struct {
        double seconds;
        uint32_t samples, pieces; /* of such a rate in 50 ms or in what is left after 30 ms, in three at least */
    } asked[] = {{0, 3, 1}, {0.1, 3, 14}, {0.3, 5, 30}, {100, RATES_SAMPLES_MAX, 30}};
    for (size_t i = 0; i < sizeof(asked) / sizeof(*asked); i++) {
        uint64_t start = atomic_load(&b->now);
        assert_int_equal(rates_read(r, RATES_ONE, asked[i].seconds, &got, &e), 0);
        assert_int_equal(got.samples, asked[i].samples);
        assert_int_equal(atomic_load(&b->now) - start, (1 + 15 + asked[i].samples) * UINT64_C(20000000)); /* all, five counts three times, these */
        assert_float_equal(got.best, asked[i].pieces * (1 << 20) / 0.01, 1);
        assert_float_equal(got.worst, got.best, 1);
    }

    double operations = 4 * rates_peak(r)->compute[PEAK_FMA](100); /* a slice of 100 rounds takes 10 ms as well */
    assert_int_equal(rates_compute(r, PEAK_FMA, RATES_ONE, 0.1, &got, &e), 0);
    assert_float_equal(got.best, operations / 0.01, 1);
    assert_int_equal(rates_compute(r, PEAK_BF16, RATES_ONE, 0.1, &got, &e), 0); /* the scalar set has none */
    assert_int_equal(got.samples, 0);

    struct machine m = {0};
    assert_int_equal(rates_machine(r, &m, &e), 0);
    assert_int_equal(m.rate_threads, 1);
    assert_true(m.ram_read_gb_s > 0 && m.thread_read_gb_s > 0 && m.fma_gop_s > 0 && m.int8_gop_s > 0);
    assert_float_equal(m.bf16_gop_s, 0, 0);

    atomic_store(&b->cancel, 1);
    assert_int_equal(rates_read(r, RATES_ONE, 0.5, &got, &e), ERROR_INTERRUPTED);
    assert_int_equal(rates_read_way(r, RATES_ONE, &way, &e), ERROR_INTERRUPTED);
    assert_int_equal(rates_compute(r, PEAK_INT8, RATES_ONE, 0.1, &got, &e), ERROR_INTERRUPTED);
    assert_int_equal(rates_machine(r, &m, &e), ERROR_INTERRUPTED);
    rates_destroy(r);
    free(b);
}

/* The strongest loops the processor has do as many operations a round as their units say. */
static void test_peaks_of_this_processor(void **state)
{
    (void)state;
    struct cpu_flags flags;
    struct cpu_peak best, scalar;
    cpu_detect(&flags);
    cpu_peak_init(&best, cpu_isa_best(&flags), &flags);
    cpu_peak_init(&scalar, CPU_SCALAR, &flags);
    for (int k = 0; k < PEAK_COUNT; k++) {
        assert_true((best.compute[k] == NULL) == (best.name[k] == NULL));
        if (best.compute[k] != NULL) {
            assert_float_equal(best.compute[k](20), 20 * best.compute[k](1), 0.5);
        }
        if (scalar.compute[k] != NULL) {
            assert_true(best.compute[k](1) >= scalar.compute[k](1));
        }
    }
    char data[16 * PEAK_READ_STEP] = {0};
    for (uint32_t streams = 1; streams <= PEAK_STREAMS_MAX; streams *= 2) {
        best.read(data, sizeof(data), streams);
        scalar.read(data, sizeof(data), streams);
    }
}

static void test_too_little_memory(void **state)
{
    (void)state;
    struct bench *b = bench_create(1);
    struct rates *r;
    struct error e = {0};
    b->topology.l3_bytes = UINT64_C(32) << 20;
    b->options.memory = 100 << 20; /* half of eight caches are 128 MiB */
    assert_int_equal(rates_create(&b->options, &r, &e), ERROR_DOES_NOT_FIT);
    assert_non_null(strstr(e.text, "100.00 MiB"));
    assert_non_null(strstr(e.text, "128.00 MiB"));
    free(b);
}

static void test_fewest_reads_in_flight(void **state)
{
    (void)state;
    static const struct {
        double rates[6];
        size_t chosen;
    } cases[] = {
        {{1, 2, 3, 4, 5, 6}, 5}, {{5.81, 5.83, 6, 5.9, 6, 6}, 1}, {{6, 1, 1, 1, 1, 1}, 0}, {{0, 0, 0, 0, 0, 0}, 0}, {{1, 5.8, 5.82, 5.82, 6, 5}, 2},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct drive_way ways[6] = {0};
        for (size_t k = 0; k < 6; k++) {
            ways[k].rate.best = cases[i].rates[k];
        }
        assert_ptr_equal(drive_way_choose(ways, 6), &ways[cases[i].chosen]);
    }
}

static void test_drive(void **state)
{
    (void)state;
    _Atomic uint64_t now = 0;
    atomic_int cancel = 0;
    char path[] = "rates-XXXXXX", why[160];
    struct drive_options o = {.path = path, .seconds = 1, .clock = {ticking, &now}, .cancel = &cancel};
    struct drive_way got = {.rate.best = 7};
    struct error e = {0};
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 1 << 20), 0);
    assert_int_equal(probe_drive(&o, &got, why, sizeof(why), &e), 0);
    assert_float_equal(got.rate.best, 0, 0);
    assert_non_null(strstr(why, "too small"));

    assert_int_equal(ftruncate(fd, 64 << 20), 0); /* holes: no drive is kept busy */
    assert_int_equal(probe_drive(&o, &got, why, sizeof(why), &e), 0);
    assert_true(got.rate.best > 0 || why[0] != '\0'); /* some file systems refuse O_DIRECT */
    if (got.rate.best > 0) {
        assert_int_equal(got.rate.samples, 3);
        assert_in_range(got.depth, 8, 64);
        assert_in_range(got.chunk, 256 << 10, 2 << 20);
        atomic_store(&cancel, 1);
        assert_int_equal(probe_drive(&o, &got, why, sizeof(why), &e), ERROR_INTERRUPTED);
    }
    close(fd);
    unlink(path);
    assert_true(probe_drive(&o, &got, why, sizeof(why), &e) < 0);
    assert_non_null(strstr(e.text, path));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_samples),           cmocka_unit_test(test_each_worker_once),
        cmocka_unit_test(test_rates_of_a_known_clock), cmocka_unit_test(test_peaks_of_this_processor),
        cmocka_unit_test(test_too_little_memory), cmocka_unit_test(test_fewest_reads_in_flight),
        cmocka_unit_test(test_drive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
