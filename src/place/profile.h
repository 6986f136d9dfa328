/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: a profile - how a model is spread over a kind of machine, as people share it - to and from YAML (docs/profiles.md).
 * Must not know: where profiles lie, what a setting does. */
#ifndef SLUICE_PLACE_PROFILE_H
#define SLUICE_PLACE_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "src/base/settings.h"
#include "src/base/str.h"
#include "src/place/hits.h"
#include "src/place/machine.h"

enum { PROFILE_BYTES_MAX = 1 << 20, PROFILE_GPUS_MAX = 16, PROFILE_RESULTS_MAX = 16 };

struct profile_gpu {
    char name[64];
    uint64_t vram;      /* bytes */
    double read_gb_s, pcie_gb_s; /* own memory; from the host. 0: unknown */
};

struct profile_setting {
    uint32_t index; /* in the registry of settings */
    char value[64]; /* valid, as typed */
};

/* What was reached with the settings. The engine does not read it. */
struct profile_result {
    char model[128], command[256], version[64], date[12]; /* date: YYYY-MM-DD */
    double decode_tok_s, prefill_tok_s; /* 0: not measured */
    double expert_share, hit_ratio;     /* of the experts in the cache; of the uses of experts that found theirs there; 0: not measured */
};

/* Holds no pointers: copied by assignment. */
struct profile {
    char name[64]; /* of a file without its .yaml */
    char description[600];
    bool has_machine;
    struct machine machine; /* the fields that docs/profiles.md lists */
    uint32_t n_gpus, n_settings, n_results;
    struct profile_gpu gpu[PROFILE_GPUS_MAX];
    struct profile_setting setting[SETTING_COUNT_MAX];
    struct profile_result result[PROFILE_RESULTS_MAX];
};

/* ERROR_USAGE with "where:LINE: key: what is wrong" for anything but a whole, possible profile; -ENOMEM. */
int profile_parse(const char *text, size_t len, const char *where, struct profile *ret, struct error *e);

/* Appends YAML that parses to an equal profile; strings have to be UTF-8. -ENOMEM. */
int profile_write(const struct profile *p, struct str *out, struct error *e);

/* Through the first result that has a hit ratio; as published where none has, or p is NULL. */
struct hits profile_hits(const struct profile *p);

/* Puts the settings into *s as SOURCE_PROFILE: where the environment or a flag has set one, that stays. */
int profile_apply(const struct profile *p, struct settings *s, struct error *e);

#endif
