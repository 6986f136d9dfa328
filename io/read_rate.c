/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: read_rate.h. Must not know: what is read. */
#include "io/read_rate.h"

#include "common/intmath.h"

/* What time without reads earns at most: as much as a late wake-up may cost. */
enum { NS = 1000000000, SLACK_NS = 1000000 };

uint64_t read_rate_wait_ns(const struct read_rate *r)
{
    if (r->limit == 0) {
        return 0;
    }
    uint64_t now = clock_now_ns(&r->clock);
    uint64_t paid = atomic_load(&r->paid_ns);
    return paid > now ? paid - now : 0;
}

void read_rate_take(struct read_rate *r, uint64_t bytes)
{
    if (r->limit == 0) {
        return;
    }
    uint64_t now = clock_now_ns(&r->clock), least = now > SLACK_NS ? now - SLACK_NS : 0, paid = atomic_load(&r->paid_ns);
    while (!atomic_compare_exchange_weak(&r->paid_ns, &paid, max_u64(paid, least) + bytes * NS / r->limit)) {
    }
}
