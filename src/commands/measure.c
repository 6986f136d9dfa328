/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: measure.h. Must not know: reports. */
#include "src/commands/measure.h"

#include <stdlib.h>

#include "common/intmath.h"
#include "src/run/probe.h"
#include "src/run/probe_drive.h"

/* The flag is written by another thread as a plain int; lock-free atomics of int share its layout. */
static const atomic_int *flag_of(const volatile int *cancel) { return (const atomic_int *)(const volatile void *)cancel; }

int measure_begin(const struct machine *m, const struct topology *t, uint32_t threads, enum cpu_isa isa, uint64_t memory,
                  const volatile int *cancel, struct rates **ret, struct error *e)
{
    char why[120];
    uint64_t least = machine_memory(m, NULL) / 4;
    const struct rates_options o = {
        .topology = t,
        .threads = threads > 0 ? threads : probe_threads(m, why, sizeof(why)),
        .isa = isa,
        .memory = memory > 0 ? min_u64(memory, least) : least,
        .clock = clock_system(),
        .cancel = flag_of(cancel),
    };
    return rates_create(&o, ret, e);
}

int measure_drive(const char *path, const volatile int *cancel, struct machine *m, struct error *e)
{
    char why[160];
    struct drive_way found = {0};
    const struct drive_options o = {.path = path, .seconds = 2, .clock = clock_system(), .cancel = flag_of(cancel)};
    int r = probe_drive(&o, &found, why, sizeof(why), e);
    m->nvme_read_gb_s = 1e-9 * found.rate.best;
    m->nvme_depth = found.depth;
    m->nvme_chunk = found.chunk;
    return r;
}

int measure_machine(const char *drive, uint32_t threads, const volatile int *cancel, struct machine *m, struct error *e)
{
    struct topology *t = malloc(sizeof(*t));
    struct rates *rates = NULL;
    struct cpu_flags flags;
    if (t == NULL) {
        return error_nomem(e, "topology", sizeof(*t));
    }
    cpu_detect(&flags);
    int r = topology_read(t, e);
    r = r < 0 ? r : measure_begin(m, t, threads, cpu_isa_best(&flags), 0, cancel, &rates, e);
    r = r < 0 ? r : rates_machine(rates, m, e);
    rates_destroy(rates);
    free(t);
    return r == 0 && drive != NULL ? measure_drive(drive, cancel, m, e) : r;
}
