/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: an event file played through the store of experts itself (src/tier/store.h), without memory for them and without a drive.
 * Must not know: how results are shown. */
#ifndef SLUICE_COMMANDS_EVENTS_PLAY_H
#define SLUICE_COMMANDS_EVENTS_PLAY_H

#include "io/reader_model.h"
#include "src/commands/events.h"

/* What was recorded, arrivals included. Counters as of events_counters; those of the drive are not played. A store that does
 * something else than the engine's did is an error that names the call. */
int events_play(const struct events *x, uint64_t ret_counted[EVENTS_COUNTERS], struct error *e);

enum events_hints { EVENTS_OFF, EVENTS_ON, EVENTS_AUTO, EVENTS_HINTS }; /* --prefetch; the first two: none, or all that were recorded */
extern const char *const events_hints_names[EVENTS_HINTS];

struct events_setup {
    uint32_t cached; /* experts that stay */
    enum events_hints hints;
    struct drive_model drive;
    uint64_t limit;  /* as --io-limit */
    double expert_ns; /* what computing an expert takes; below 0: as recorded, in each visit the same for all its experts */
    double layer_ns, ask_ns; /* between visits; asking what to hint, which EVENTS_OFF does not; below 0: as recorded */
    const volatile int *cancel;
};

struct events_outcome {
    uint64_t counted[EVENTS_COUNTERS];
    double seconds, waiting; /* waiting: for experts that were not there */
};

/* The same visits on a clock of their own; Refuses files in which leases overlap. */
int events_play_clocked(const struct events *x, const struct events_setup *s, struct events_outcome *ret, struct error *e);

/* Bytes per second that the drive gave while somebody waited for it; 0: nobody did. */
uint64_t events_drive_rate(const struct events *x);

/* What computing an expert took, on average. */
double events_expert_ns(const struct events *x);

/* Of the recorded run. */
struct events_outcome events_recorded(const struct events *x);

/* Rows of the first layer with experts: tokens. */
double events_tokens(const struct events *x);

/* First layer with experts. */
uint32_t events_first_layer(const struct events *x);

/* Experts of all layers. */
uint64_t events_experts(const struct events *x);

#endif
