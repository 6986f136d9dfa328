/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: tests of thread.h; also run under TSan. */
#include "tests/unit/base/fail.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "common/attr.h"
#include "src/base/thread.h"

enum { TASKS = 777 };

struct job {
    uint32_t seen[TASKS]; /* plain: every task is run once, by one worker */
    atomic_uint bad_worker;
    uint32_t workers;
};

static void mark(void *ctx, uint32_t task, uint32_t worker)
{
    struct job *j = ctx;
    j->seen[task]++;
    if (worker >= j->workers) {
        atomic_fetch_add(&j->bad_worker, 1);
    }
}

static void every_task_once(void **state)
{
    (void)state;
    static const uint32_t counts[] = { 0, 1, 2, 3, 7, 64, TASKS };
    for (uint32_t workers = 1; workers <= 9; workers += 2) {
        struct pool *p = NULL;
        struct pool_options o = { .workers = workers };
        assert_int_equal(pool_create(&o, &p, NULL), 0);
        assert_int_equal(pool_workers(p), workers);
        for (int round = 0; round < 200; round++) {
            uint32_t n = counts[(size_t)round % ARRAY_LEN(counts)];
            struct job j = { .workers = workers };
            pool_run(p, n, mark, &j);
            for (uint32_t t = 0; t < TASKS; t++) {
                assert_int_equal(j.seen[t], t < n);
            }
            assert_int_equal(j.bad_worker, 0);
        }
        pool_destroy(p);
    }
    pool_destroy(NULL);
}

static void runs_after_sleeping(void **state)
{
    (void)state;
    struct pool *p = NULL;
    struct pool_options o = { .workers = 2 };
    assert_int_equal(pool_create(&o, &p, NULL), 0);
    for (int i = 0; i < 20; i++) {
        nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL); /* far beyond the spinning */
        struct job j = { .workers = 2 };
        pool_run(p, TASKS, mark, &j);
        assert_int_equal(j.seen[TASKS - 1], 1);
    }
    pool_destroy(p);
}

static void slow_task(void *ctx, uint32_t task, uint32_t worker)
{
    (void)worker;
    if (task != 0) {
        nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
    }
    ((uint32_t *)ctx)[task] = task + 1;
}

static void waits_for_the_slowest(void **state)
{
    (void)state;
    struct pool *p = NULL;
    struct pool_options o = { .workers = 4 };
    assert_int_equal(pool_create(&o, &p, NULL), 0);
    uint32_t out[5] = { 0 };
    pool_run(p, 5, slow_task, out);
    for (uint32_t t = 0; t < 5; t++) {
        assert_int_equal(out[t], t + 1);
    }
    pool_destroy(p);
}

struct started {
    pthread_t thread[4];
    sigset_t mask[4];
    int cpus[4];
};

static void note_start(void *ctx, uint32_t worker)
{
    struct started *s = ctx;
    s->thread[worker] = pthread_self();
    pthread_sigmask(SIG_SETMASK, NULL, &s->mask[worker]);
    cpu_set_t set;
    pthread_getaffinity_np(pthread_self(), sizeof(set), &set);
    s->cpus[worker] = CPU_COUNT(&set);
}

static void pins_blocks_signals_and_starts_each(void **state)
{
    (void)state;
    cpu_set_t before, after;
    pthread_getaffinity_np(pthread_self(), sizeof(before), &before);
    int cpu = 0;
    while (!CPU_ISSET((unsigned)cpu, &before)) {
        cpu++;
    }
    int cpus[4] = { cpu, cpu, cpu, -1 }; /* the last is refused */
    struct started s = { 0 };
    struct pool *p = NULL;
    struct pool_options o = { .workers = 4, .cpus = cpus, .on_start = note_start, .ctx = &s };
    assert_int_equal(pool_create(&o, &p, NULL), 0);
    assert_int_equal(pool_unpinned(p), 1);
    assert_true(pthread_equal(s.thread[0], pthread_self()));
    for (int w = 1; w < 4; w++) {
        assert_false(pthread_equal(s.thread[w], pthread_self()));
        assert_true(sigismember(&s.mask[w], SIGINT) == 1);
    }
    for (int w = 0; w < 3; w++) {
        assert_int_equal(s.cpus[w], 1);
    }
    assert_true(sigismember(&s.mask[0], SIGINT) == 0);
    pool_destroy(p);
    pthread_getaffinity_np(pthread_self(), sizeof(after), &after);
    assert_true(CPU_EQUAL(&before, &after)); /* the creator is as it was */
}

static void failures_leak_nothing(void **state)
{
    (void)state;
    struct error e = { 0 };
    struct pool *p = NULL;
    struct pool_options o = { .workers = 4 };
    for (int n = 1; n <= 2; n++) {
        fail_allocation(n);
        assert_int_equal(pool_create(&o, &p, &e), -ENOMEM);
    }
    fail_allocation(0);
    for (int n = 1; n <= 3; n++) {
        fail_thread(n);
        assert_int_equal(pool_create(&o, &p, &e), -EAGAIN);
        assert_non_null(strstr(e.text, "of 4"));
    }
    o.workers = 0;
    assert_int_equal(pool_create(&o, &p, &e), ERROR_USAGE);
    assert_null(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_task_once), cmocka_unit_test(runs_after_sleeping),
        cmocka_unit_test(waits_for_the_slowest), cmocka_unit_test(pins_blocks_signals_and_starts_each),
        cmocka_unit_test(failures_leak_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
