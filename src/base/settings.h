/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: every setting of an engine in one struct, its registry (name, flag, environment name, type, default, allowed
 * values, help) and the only getenv of the project. A setting nobody reads does not exist.
 * Must not know: what a setting does. */
#ifndef SLUICE_BASE_SETTINGS_H
#define SLUICE_BASE_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "src/base/str.h"

enum setting_source { SOURCE_DEFAULT, SOURCE_PROFILE, SOURCE_ENV, SOURCE_FLAG, SOURCE_API };

/* A budget of an expert cache: bytes, per cent of all experts, or a number of experts. */
enum amount_unit { AMOUNT_AUTO, AMOUNT_BYTES, AMOUNT_PERCENT, AMOUNT_EXPERTS };
struct amount {
    enum amount_unit unit;
    double value;
};

enum {
    SETTINGS_MAX_GPUS = 8,
    SETTING_COUNT_MAX = 64,
    SETTINGS_DRAFTS_MOST = 8, /* --mtp N */
    SETTINGS_DRAFTS_AUTO = 3, /* most of --mtp auto: deeper drafts are seldom right */
};

/* Values; 0 or NULL means "auto" where the registry says so. Strings are owned by the struct. */
struct settings {
    char *model;             /* -m, --model: path */
    char *mtp_from;          /* --mtp-from: path */
    char *model_mirror;      /* --model-mirror: folders with copies of the model's files, "DIR[,DIR]" */
    uint64_t ram;            /* --ram: bytes the process may use; 0: what the machine allows */
    uint64_t vram[SETTINGS_MAX_GPUS];
    struct amount expert_ram, expert_vram;
    uint32_t threads;        /* -t, --threads; 0 auto */
    uint32_t ubatch;         /* -ub, --ubatch: rows of a prompt chunk; default 512 */
    uint32_t context;        /* -c, --ctx: positions; 0: chosen by the plan */
    uint32_t parallel;       /* -np, --parallel: sessions that can hold a full context at once; default 1 */
    char *kv_type;           /* -ctk, --cache-type-k: f32 bf16 f16 q8_0 */
    char *activations;       /* --activations: int8 f32 */
    char *isa;               /* --isa: auto scalar avx2 avx512 */
    char *numa;              /* --numa: auto on off, or numbers of nodes: "0,1" */
    char *io;                /* --io: auto uring pread mmap */
    uint64_t io_limit;       /* --io-limit: bytes per second; 0 none */
    char *merge;             /* --merge on off */
    char *prefetch;          /* --prefetch: auto off ghost on */
    char *mtp;               /* --mtp: auto off on, or drafts per token: settings_drafts */
    char *gpu;               /* --gpu: auto none (N,N: not in this build) */
    char *heat;              /* --heat FILE: popularity of experts, read at open and written at close */
    char *profile;           /* --profile FILE, or a name */
    char *bulk;              /* --bulk: auto blas own */
    char *reuse;             /* --reuse: off aligned all; default all */
    char *expert_groups;     /* --expert-groups: auto off; off reproduces files read without group routing */
    char *pre_tokenizer;     /* --pre-tokenizer NAME: overrides an unknown tokenizer.ggml.pre; auto */
    char *machine;           /* --machine FILE: plan for a recorded machine (plan only) */
    enum setting_source source[SETTING_COUNT_MAX]; /* by registry index */
};

struct setting_info {
    const char *name;   /* "cache-type-k": --NAME, SLUICE_NAME upper-cased with '_' */
    const char *short_flag; /* "-ctk" or NULL */
    const char *value;  /* "SIZE", "N", "f32|bf16|f16|q8_0": shown in help */
    const char *default_text;
    const char *help;
};

/* Registry, for help, completion and tests. */
uint32_t settings_count(void);
const struct setting_info *settings_info(uint32_t index);

int settings_init(struct settings *s, struct error *e); /* defaults */
void settings_deinit(struct settings *s);
int settings_copy(const struct settings *from, struct settings *ret, struct error *e);

/* Drafts that --mtp lets ride behind a token: 0 (off) to SETTINGS_DRAFTS_MOST. *ret_governed: at most so many (auto), else always. */
uint32_t settings_drafts(const struct settings *s, bool *ret_governed);

/* By name ("threads"). ERROR_USAGE with the allowed values, or "not in this build". A stronger source wins over a
 * weaker one, equal sources: the last. */
int settings_set(struct settings *s, const char *name, const char *value, enum setting_source source, struct error *e);

/* The same with a number. What a command decides itself is SOURCE_FLAG too: no profile changes it. */
int settings_set_number(struct settings *s, const char *name, uint64_t value, enum setting_source source, struct error *e);

/* Index of a flag as typed ("--threads", "-t", "-ctk"), or -1. */
int settings_find_flag(const char *flag);

/* Reads SLUICE_*; an unknown SLUICE_ name is ERROR_USAGE with the nearest known one. */
int settings_read_environment(struct settings *s, struct error *e);

/* Current value as text, for reports. */
void settings_value(const struct settings *s, uint32_t index, struct str *out);

/* The same as it may be typed: settings_set takes it back to an equal value. "none" for a path that was not given. */
void settings_typed(const struct settings *s, uint32_t index, struct str *out);

const char *setting_source_name(enum setting_source source);

/* Value of another environment variable (HOME, XDG_*, NO_COLOR): the one getenv site. */
const char *settings_environment(const char *name);

#endif
