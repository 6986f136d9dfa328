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
#include "common/intmath.h"
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

/* All of them awake at once, however few processors there are. */
static struct pool *pool_of(uint32_t workers, const uint32_t *node)
{
    struct pool *p = NULL;
    struct pool_options o = { .workers = workers, .node = node, .at_once = workers };
    assert_int_equal(pool_create(&o, &p, NULL), 0);
    return p;
}

static void every_task_once(void **state)
{
    (void)state;
    static const uint32_t counts[] = { 0, 1, 2, 3, 7, 64, TASKS };
    for (uint32_t workers = 1; workers <= 9; workers += 2) {
        struct pool *p = pool_of(workers, NULL);
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

/* Three stages on three nodes. A task of a later stage waits for all of the one before: the sums are wrong if anything
 * it reads is not there. */
enum { STAGES = 3, NODES = 3, STAGE_TASKS = 40 };

struct stage_job {
    uint32_t count[STAGES][NODES];
    uint32_t seen[STAGES * STAGE_TASKS]; /* plain, as above */
    uint64_t sum[STAGES * STAGE_TASKS];  /* of all results of the stage before, and 1 */
    _Atomic uint32_t done[STAGES];
    uint32_t first[STAGES + 1];
    bool waits;
};

static void stage_task(void *ctx, uint32_t task, uint32_t worker)
{
    struct stage_job *j = ctx;
    uint32_t s = 0;
    (void)worker;
    while (task >= j->first[s + 1]) {
        s++;
    }
    j->seen[task]++;
    j->sum[task] = 1;
    if (s > 0 && j->waits) {
        uint32_t before = j->first[s] - j->first[s - 1];
        pool_wait_count(&j->done[s - 1], before);
        for (uint32_t t = j->first[s - 1]; t < j->first[s]; t++) {
            j->sum[task] += j->sum[t];
        }
    }
    atomic_fetch_add_explicit(&j->done[s], 1, memory_order_release);
}

static void run_stages(struct pool *p, const uint32_t (*count)[NODES], bool waits)
{
    struct stage_job j = { .waits = waits };
    uint64_t expect[STAGES] = { 1 };
    memcpy(j.count, count, sizeof(j.count));
    for (uint32_t s = 0; s < STAGES; s++) {
        j.first[s + 1] = j.first[s] + count[s][0] + count[s][1] + count[s][2];
        expect[s] = s == 0 || !waits ? 1 : 1 + expect[s - 1] * (j.first[s] - j.first[s - 1]);
    }
    pool_run_job(p, &(struct pool_job){ .fn = stage_task, .ctx = &j, .stages = STAGES, .nodes = NODES, .count = j.count[0] });
    for (uint32_t s = 0; s < STAGES; s++) {
        assert_int_equal(j.done[s], j.first[s + 1] - j.first[s]);
        for (uint32_t t = j.first[s]; t < j.first[s + 1]; t++) {
            assert_int_equal(j.seen[t], 1);
            assert_int_equal(j.sum[t], expect[s]);
        }
    }
}

static void stages_wait_for_earlier_ones(void **state)
{
    (void)state;
    static const uint32_t node[7] = { 0, 1, 2, 0, 1, 2, 5 }; /* the last one's node is not in the job */
    static const uint32_t lone[4] = { 2, 2, 2, 2 };          /* nodes 0 and 1 have no workers */
    static const uint32_t counts[][STAGES][NODES] = {
        { { 13, 13, 13 }, { 5, 20, 1 }, { 10, 0, 3 } },
        { { 0, 0, 39 }, { 0, 1, 0 }, { 39, 0, 0 } },
        { { 0, 0, 0 }, { 0, 0, 0 }, { 1, 1, 1 } },
        { { 1, 0, 0 }, { 0, 0, 0 }, { 0, 0, 0 } },
        { { 1, 1, 1 }, { 1, 1, 1 }, { 1, 1, 1 } },
    };
    for (uint32_t workers = 1; workers <= 7; workers += 2) {
        struct pool *p = pool_of(workers, node), *q = pool_of(min_u32(workers, 4), lone);
        for (int round = 0; round < 200; round++) {
            const uint32_t (*count)[NODES] = counts[(size_t)round % ARRAY_LEN(counts)];
            run_stages(p, count, round % 3 != 0);
            run_stages(q, count, true);
        }
        pool_destroy(p);
        pool_destroy(q);
    }
}

/* A worker starts with its own node's tasks and helps others only then. */
struct own_job {
    uint32_t by[64]; /* worker of each task */
    _Atomic uint32_t arrived;
};

static void own_task(void *ctx, uint32_t task, uint32_t worker)
{
    struct own_job *j = ctx;
    j->by[task] = worker;
    if (task % 32 == 0) { /* the first task of a node: the other node's has begun too, so each has its own worker */
        atomic_fetch_add_explicit(&j->arrived, 1, memory_order_release);
        while (atomic_load_explicit(&j->arrived, memory_order_acquire) < 2) {
            sched_yield();
        }
    }
}

static void own_node_first(void **state)
{
    (void)state;
    static const uint32_t node[2] = { 1, 0 };
    struct pool *p = pool_of(2, node);
    for (int round = 0; round < 50; round++) {
        struct own_job j = { 0 };
        pool_run_job(p, &(struct pool_job){ .fn = own_task, .ctx = &j, .stages = 1, .nodes = 2, .count = (uint32_t[]){ 32, 32 } });
        assert_int_equal(j.by[0], 1);
        assert_int_equal(j.by[32], 0);
    }
    pool_destroy(p);
}

/* More workers than may run at once: the rest sleeps on, and everything is done. */
static void surplus_workers_sleep(void **state)
{
    (void)state;
    struct pool *p = NULL;
    struct pool_options o = { .workers = 8, .at_once = 2 };
    assert_int_equal(pool_create(&o, &p, NULL), 0);
    for (int round = 0; round < 200; round++) {
        struct job j = { .workers = 8 };
        pool_run(p, TASKS, mark, &j);
        for (uint32_t t = 0; t < TASKS; t++) {
            assert_int_equal(j.seen[t], 1);
        }
    }
    pool_destroy(p);
}

static void runs_after_sleeping(void **state)
{
    (void)state;
    struct pool *p = pool_of(2, NULL);
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
    struct pool *p = pool_of(4, NULL);
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
    assert_int_equal(pool_pin_errno(p), EINVAL);
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
        cmocka_unit_test(every_task_once), cmocka_unit_test(stages_wait_for_earlier_ones),
        cmocka_unit_test(own_node_first), cmocka_unit_test(surplus_workers_sleep), cmocka_unit_test(runs_after_sleeping),
        cmocka_unit_test(waits_for_the_slowest), cmocka_unit_test(pins_blocks_signals_and_starts_each),
        cmocka_unit_test(failures_leak_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
