/* SPDX-License-Identifier: Apache-2.0 */
/* sluice: runs DeepSeek-V3-class mixture-of-experts models. Public C API.
 *
 * An ENGINE is a model ready to run: immutable after open, closed last. A SESSION is one timeline of tokens with its
 * latent KV; sessions share the engine's pages and can be forked, rolled back, saved and restored. A STEP computes the
 * next rows of one or several sessions, layer by layer. All calls on one engine and its sessions come from one thread at
 * a time; only sluice_cancel may be called from any thread or a signal handler.
 *
 * Functions return 0 or one of the status codes below and, when `error` is not NULL, fill it with one line: what (file,
 * tensor, field), found, expected, what to do next. Outputs are written only on success. Strings and arrays returned
 * through `ret_` pointers are freed with sluice_free unless the comment says who owns them. */
#ifndef SLUICE_H
#define SLUICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SLUICE_VERSION "0.1.0"

enum sluice_status {
    SLUICE_OK = 0,
    SLUICE_FAILED = 1,
    SLUICE_USAGE = 2,
    SLUICE_DOES_NOT_FIT = 3,
    SLUICE_INTERRUPTED = 130,
};

struct sluice_error {
    int status;
    char text[1400];
};

void sluice_free(void *p);
const char *sluice_version(void);

/* ---- options: every setting by name, as on the command line without dashes ("ram", "ubatch", "cache-type-k") ---- */

struct sluice_options;
struct sluice_options *sluice_options_create(void); /* defaults; NULL: no memory */
void sluice_options_destroy(struct sluice_options *o);
int sluice_options_set(struct sluice_options *o, const char *name, const char *value, struct sluice_error *error);
/* Takes SLUICE_* from the environment; weaker than sluice_options_set. An unknown name is SLUICE_USAGE. */
int sluice_options_read_environment(struct sluice_options *o, struct sluice_error *error);

/* ---- tokenizer ---- */

struct sluice_tokenizer;
/* `path`: anything -m accepts, or a folder with only tokenizer files. `pre`: pre-tokenizer override or NULL. */
int sluice_tokenizer_open(const char *path, const char *pre, struct sluice_tokenizer **ret, struct sluice_error *error);
void sluice_tokenizer_close(struct sluice_tokenizer *t); /* not for one that belongs to an engine */

enum {
    SLUICE_SPECIAL = 1, /* spellings of special tokens in the text become their ids */
    SLUICE_BOS = 2,     /* put the begin token first, if the tokenizer has one */
};
int sluice_tokenize(const struct sluice_tokenizer *t, const char *text, size_t len, unsigned flags, int32_t **ret_ids, size_t *ret_n, struct sluice_error *error);
/* All bytes of the ids, special tokens spelled out; may end inside a UTF-8 sequence. NUL-terminated as well. */
int sluice_detokenize(const struct sluice_tokenizer *t, const int32_t *ids, size_t n, char **ret_bytes, size_t *ret_len, struct sluice_error *error);
/* Bytes of one token, owned by t; special (control) tokens give their spelling. *ret_len 0 for an id without a token. */
const char *sluice_token_bytes(const struct sluice_tokenizer *t, int32_t id, size_t *ret_len);
bool sluice_token_is_special(const struct sluice_tokenizer *t, int32_t id);
bool sluice_tokenizer_adds_bos(const struct sluice_tokenizer *t); /* plain text starts with BOS in this model */
/* Chat layout in use: "v3", "r1", "v3.1", "plain"; NULL: the model has no template; "unknown". */
const char *sluice_chat_layout(const struct sluice_tokenizer *t);
/* `layout`: a built-in layout name, or NULL for the model's own. `request`: JSON object {"messages": [...],
 * "add_generation_prompt": bool, "tools": [...], "thinking": bool}. */
int sluice_chat_text(const struct sluice_tokenizer *t, const char *layout, const char *request, size_t len, char **ret_text, size_t *ret_len, struct sluice_error *error);
/* The same as ids; message text never yields special ids. */
int sluice_chat_tokens(const struct sluice_tokenizer *t, const char *layout, const char *request, size_t len, int32_t **ret_ids, size_t *ret_n, struct sluice_error *error);

/* ---- engine ---- */

enum sluice_log_level { SLUICE_LOG_ERROR, SLUICE_LOG_WARN, SLUICE_LOG_NOTICE, SLUICE_LOG_INFO, SLUICE_LOG_DEBUG };

struct sluice_open_hooks {
    void (*log)(void *ctx, enum sluice_log_level level, const char *line); /* may be NULL; any thread */
    enum sluice_log_level log_level;
    /* While weights are read: bytes done, bytes in all, seconds since the start. May be NULL. */
    void (*progress)(void *ctx, uint64_t done, uint64_t total, double seconds);
    void *ctx;
};

struct sluice_engine;

/* Plans, refuses what does not fit before a weight is read (SLUICE_DOES_NOT_FIT), loads. `cancel` (may be NULL) is a flag
 * that stops loading within 1 s when it becomes non-zero; the engine keeps the pointer and reads it between layers. */
int sluice_engine_open(const struct sluice_options *o, const struct sluice_open_hooks *hooks, volatile int *cancel, struct sluice_engine **ret, struct sluice_error *error);
void sluice_engine_close(struct sluice_engine *engine); /* all sessions are gone; accepts NULL */

struct sluice_model_info {
    char family[48];
    uint32_t vocab, hidden, layers, mtp_layers, experts, experts_used;
    uint32_t first_moe_layer; /* = layers when there is none */
    uint32_t context;         /* positions a session may hold */
    uint32_t ubatch, threads;
    uint32_t copies;          /* of the model's files that are read, --model-mirror; 0: a scripted model */
    uint32_t read_depth;      /* reads in flight for each of them, the bytes of each, and who says so: "default", "profile" */
    uint64_t read_chunk;
    const char *read_source;
    const char *kv_type, *activations, *isa; /* static strings */
    uint64_t kv_bytes_per_token;
    uint64_t bytes_per_token;   /* weights read per decoded token */
    uint64_t load_bytes;
    double load_seconds;
};
void sluice_engine_info(const struct sluice_engine *engine, struct sluice_model_info *ret);
/* NULL if the model has no tokenizer. Owned by the engine. */
const struct sluice_tokenizer *sluice_engine_tokenizer(const struct sluice_engine *engine);
/* True if `id` ends a generation (config, generation_config, tokenizer, GGUF key). */
bool sluice_engine_is_end(const struct sluice_engine *engine, int32_t id);
/* JSON for people and scripts, freed by the caller: the plan with its purposes; effective settings with their source;
 * counters; what stepped down: list of {what, why}; live bytes of large buffers by purpose; how well experts were named before their
 * layers chose them ("null" where that is not done; not while another thread is in a call of the engine). NULL: no memory. */
char *sluice_engine_plan_json(const struct sluice_engine *engine);
char *sluice_engine_settings_json(const struct sluice_engine *engine);
char *sluice_engine_counters_json(const struct sluice_engine *engine);
char *sluice_engine_steps_down_json(const struct sluice_engine *engine);
char *sluice_engine_memory_json(const struct sluice_engine *engine);
char *sluice_engine_predictions_json(const struct sluice_engine *engine);
/* Value of a counter by name; 0 if there is none. */
uint64_t sluice_engine_counter(const struct sluice_engine *engine, const char *name);

/* ---- session ---- */

/* Called while a step runs, in row order; pointers die on return. All may be NULL. `position` is absolute. Rows of a step
 * that fails later may have been shown, as are, by on_hidden and on_route, rows ahead of a timeline that it then does not
 * reach; on_token alone says that a row has entered the timeline. */
struct sluice_session_hooks {
    void (*on_token)(void *ctx, uint32_t position, int32_t token);                     /* a row enters the timeline */
    void (*on_hidden)(void *ctx, uint32_t layer, uint32_t position, const float *x);   /* [hidden] residual after layer */
    void (*on_route)(void *ctx, uint32_t layer, uint32_t position, const int32_t *ids, const float *weights); /* [experts_used] rising ids */
    void (*on_logits)(void *ctx, uint32_t position, const float *logits);              /* [vocab] of every row, raw */
    void (*on_state)(void *ctx, uint32_t position, const float *h);                    /* [hidden] of every row after the final norm */
    void (*on_mtp)(void *ctx, uint32_t row, const float *logits);                      /* [vocab] MTP row i: predicts token i + 2 */
    void *ctx;
};

struct sluice_session_options {
    struct sluice_session_hooks hooks;
    bool mtp; /* evaluate the MTP layer for every row (needs one in the model and setting mtp not off) */
    /* Behind a token that is fed alone, rows for what the MTP layer takes to follow are computed in the same step, as many as
     * setting mtp says; none where it is off or the model has no such layer. They are ahead of the timeline: it takes one
     * over when its token is fed, and drops them when another one is. Tokens, logits and timelines are the same bits with
     * and without. Not together with mtp; on_mtp is not called. */
    bool draft;
};

struct sluice_session;
int sluice_session_create(struct sluice_engine *engine, const struct sluice_session_options *o, struct sluice_session **ret, struct sluice_error *error);
void sluice_session_destroy(struct sluice_session *s); /* not while part of an open step; accepts NULL */
uint32_t sluice_session_length(const struct sluice_session *s);       /* positions computed */
const int32_t *sluice_session_tokens(const struct sluice_session *s); /* [length] */
/* Raw logits [vocab] of the last position; NULL when the timeline is empty or was rolled back. */
const float *sluice_session_logits(const struct sluice_session *s);

/* Appends tokens and computes them: chunks end at multiples of ubatch; chunks of at most 8 rows are exact rows, larger
 * ones bulk rows (docs/numerics.md). On any failure the timeline is as before the chunk that failed. A prompt longer
 * than the context is refused with both numbers. NaN or Inf logits are an error naming layer and position. */
int sluice_session_feed(struct sluice_session *s, const int32_t *tokens, size_t n, struct sluice_error *error);

/* With option draft: takes over the row ahead whose token this is, without a step (sluice_session_feed of one token does so
 * by itself). False: there is none, so the token is to be fed. For callers that make up steps of several sessions. */
bool sluice_session_advance(struct sluice_session *s, int32_t token);

/* Forgets positions >= length. */
int sluice_session_rollback(struct sluice_session *s, uint32_t length, struct sluice_error *error);
/* Recomputes the last position's logits after a rollback, as an exact row; the cache is not touched. */
int sluice_session_refresh(struct sluice_session *s, struct sluice_error *error);
/* A second timeline with the same past; pages are shared until one of them writes. */
int sluice_session_fork(struct sluice_session *s, const struct sluice_session_options *o, struct sluice_session **ret, struct sluice_error *error);
/* Atomic file with checksum and the model's fingerprint; restore refuses damaged and foreign files by name. */
int sluice_session_save(const struct sluice_session *s, const char *path, struct sluice_error *error);
int sluice_session_restore(struct sluice_engine *engine, const char *path, const struct sluice_session_options *o, struct sluice_session **ret, struct sluice_error *error);

/* ---- step: rows of several sessions at once ---- */

struct sluice_feed {
    struct sluice_session *session; /* each session at most once per step and in one open step; with mtp or draft: refreshed after a rollback */
    const int32_t *tokens;
    uint32_t n;  /* exact: any number up to ubatch; bulk: rows of one chunk. 1 exact row: drafts ride behind it, see option draft */
    bool bulk;   /* bulk rows; false: exact rows */
};

struct sluice_step; /* at most two may be open at once; a feed or refresh is one of them while it runs */
int sluice_step_open(struct sluice_engine *engine, const struct sluice_feed *feeds, uint32_t n, struct sluice_step **ret, struct sluice_error *error);
uint32_t sluice_step_layers_left(const struct sluice_step *step); /* 0: ready to commit */
/* Runs at most n layers. When a layer fails (or is interrupted half way) only abort is left. */
int sluice_step_run(struct sluice_step *step, uint32_t n, struct sluice_error *error);
/* Head, hooks, timelines move on. The step is gone, also on failure (then the timelines are as before). After a step that
 * failed with drafts, the same step carries none: a draft may meet an error that its timeline does not. */
int sluice_step_commit(struct sluice_step *step, struct sluice_error *error);
void sluice_step_abort(struct sluice_step *step); /* timelines are as before */

/* ---- sampling ---- */

struct sluice_bias {
    int32_t token;
    float add;
};

struct sluice_sampling {
    float temperature; /* 0: greedy; default 0.6 */
    int32_t top_k;     /* 0: all */
    float top_p;       /* 1: off; default 0.95 */
    float min_p;       /* 0: off */
    float repetition_penalty; /* 1: off */
    float presence_penalty, frequency_penalty; /* 0: off */
    uint32_t penalty_window;  /* last tokens the penalties look at; default 64, 0: all */
    uint64_t seed;
    const struct sluice_bias *bias; /* [n_bias], copied */
    uint32_t n_bias;
    /* Clears bits of tokens that may not follow: allowed[id / 32] >> (id % 32) & 1. Starts as all real tokens. May be NULL. */
    void (*mask)(void *ctx, const struct sluice_session *s, uint32_t *allowed);
    void *mask_ctx;
};
void sluice_sampling_init(struct sluice_sampling *ret); /* defaults */
/* What needs no model: every range but that of the ids in `bias`. sluice_sampler_create() checks all. */
int sluice_sampling_check(const struct sluice_sampling *sampling, struct sluice_error *error);

struct sluice_sampler;
int sluice_sampler_create(const struct sluice_engine *engine, const struct sluice_sampling *sampling, struct sluice_sampler **ret, struct sluice_error *error);
void sluice_sampler_destroy(struct sluice_sampler *sampler);
int sluice_sampler_clone(const struct sluice_sampler *sampler, struct sluice_sampler **ret, struct sluice_error *error);

struct sluice_choice {
    int32_t token;
    float logprob; /* natural log, of the model's own distribution before any filter */
};
/* Draws the token that follows the session's last position: a function of (logits, timeline, sampling, seed, position) -
 * so rollback needs nothing here. `top` (may be NULL) receives up to n_top most likely tokens. */
int sluice_sample(struct sluice_sampler *sampler, const struct sluice_session *s, struct sluice_choice *ret, struct sluice_choice *top, uint32_t n_top, struct sluice_error *error);

#ifdef __cplusplus
}
#endif

#endif
