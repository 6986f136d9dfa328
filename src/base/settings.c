/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the registry of settings and how text becomes a value. Must not know: what a setting does. */
#include "src/base/settings.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/attr.h"

enum kind {
    KIND_TEXT,   /* char *, any text */
    KIND_CHOICE, /* char *, one of `values` */
    KIND_COUNT,  /* uint32_t in [min, max] */
    KIND_SIZE,   /* uint64_t */
    KIND_SIZES,  /* uint64_t[SETTINGS_MAX_GPUS] */
    KIND_AMOUNT, /* struct amount */
};

/* A default that is a word ("auto", "none") stands for 0 in numbers. What the program will know but this build cannot do
 * is refused by name: `missing` lists such values of a choice, `missing_numbers` says numbers are among them, and
 * `not_built` leaves nothing but the default and zero. `also` lists values of a choice that go by other names elsewhere. */
struct entry {
    struct setting_info info;
    const char *alias; /* second long flag, or NULL */
    size_t offset;
    enum kind kind;
    uint32_t min, max;
    const char *missing, *also;
    bool numbers, missing_numbers, not_built;
};

#define AT(member) .offset = offsetof(struct settings, member)

static const struct entry entries[] = {
    { { "model", "-m", "PATH", NULL, "model: a Hugging Face folder or shard, or a GGUF file, part or folder" },
      AT(model), .kind = KIND_TEXT },
    { { "mtp-from", NULL, "PATH", NULL, "take the MTP layer from another file or folder" },
      AT(mtp_from), .kind = KIND_TEXT },
    { { "model-mirror", NULL, "DIR[,DIR]", NULL, "folders, on other drives, with copies of the model's files to read from as well" },
      AT(model_mirror), .kind = KIND_TEXT },
    { { "ram", NULL, "SIZE", "auto", "all RAM the process may use" }, AT(ram), .kind = KIND_SIZE },
    { { "vram", NULL, "SIZE[,SIZE]", "auto", "GPU memory the process may use, per GPU" },
      AT(vram), .kind = KIND_SIZES, .not_built = true },
    { { "expert-ram", NULL, "SIZE|N%|Nx", "auto", "RAM for cached experts: bytes, per cent, or number; 0 allowed" },
      AT(expert_ram), .kind = KIND_AMOUNT },
    { { "expert-vram", NULL, "SIZE|N%|Nx", "auto", "GPU memory for cached experts; 0 allowed" },
      AT(expert_vram), .kind = KIND_AMOUNT, .not_built = true },
    { { "threads", "-t", "N", "auto", "worker threads; auto: one per physical core" },
      AT(threads), .kind = KIND_COUNT, .max = 1024 },
    { { "ubatch", "-ub", "N", "512", "rows of a prompt chunk; 8 or less makes every row exact" },
      .alias = "ubatch-size", AT(ubatch), .kind = KIND_COUNT, .min = 1, .max = 65536 },
    { { "ctx", "-c", "N", "auto", "positions of a session" },
      .alias = "ctx-size", AT(context), .kind = KIND_COUNT, .max = INT32_MAX },
    { { "parallel", "-np", "N", "1", "sessions that can hold a full context at once" },
      AT(parallel), .kind = KIND_COUNT, .min = 1, .max = 1024 },
    { { "cache-type-k", "-ctk", "f32|bf16|f16|q8_0", "f16", "type of the latent KV cache" },
      AT(kv_type), .kind = KIND_CHOICE },
    { { "activations", NULL, "int8|f32", "int8", "activations that meet block formats" },
      AT(activations), .kind = KIND_CHOICE },
    { { "isa", NULL, "auto|scalar|avx2|avx512", "auto", "instruction set of the kernels" },
      AT(isa), .kind = KIND_CHOICE },
    { { "numa", NULL, "auto|on|off|N[,N]", "auto", "memory nodes that weights are spread over" },
      AT(numa), .kind = KIND_CHOICE, .also = "distribute|isolate|numactl", .numbers = true },
    { { "io", NULL, "auto|uring|pread|mmap", "auto", "how weights are read: io_uring, or pread threads where the system refuses it" },
      AT(io), .kind = KIND_CHOICE },
    { { "io-limit", NULL, "RATE", "none", "most bytes of weights read per second, such as 500M" },
      AT(io_limit), .kind = KIND_SIZE },
    { { "merge", NULL, "on|off", "on", "join reads of small neighbours in a file" },
      AT(merge), .kind = KIND_CHOICE },
    { { "prefetch", NULL, "auto|off|ghost|on", "auto", "read experts a layer ahead: if it pays, never, only count, always" },
      AT(prefetch), .kind = KIND_CHOICE },
    { { "mtp", NULL, "auto|off|on|N", "auto", "drafts by the MTP layer: as many as pay, none, one, or N <= 8 behind every token" },
      AT(mtp), .kind = KIND_CHOICE, .numbers = true, .max = SETTINGS_DRAFTS_MOST },
    { { "gpu", NULL, "auto|none", "auto", "GPUs to use" },
      AT(gpu), .kind = KIND_CHOICE, .missing_numbers = true },
    { { "heat", NULL, "FILE", NULL, "expert popularity, kept from run to run" },
      AT(heat), .kind = KIND_TEXT },
    { { "profile", NULL, "FILE", NULL, "settings for a kind of machine: a file, or the name of a known one" },
      AT(profile), .kind = KIND_TEXT },
    { { "bulk", NULL, "auto|blas|own", "auto", "matrix products of prompt chunks" },
      AT(bulk), .kind = KIND_CHOICE },
    { { "reuse", NULL, "all|aligned|off", "all", "what a follow-up request keeps of the one before" },
      AT(reuse), .kind = KIND_CHOICE },
    { { "expert-groups", NULL, "auto|off", "auto", "group routing; off reproduces files read without it" },
      AT(expert_groups), .kind = KIND_CHOICE },
    { { "pre-tokenizer", NULL, "NAME", "auto", "instead of an unknown tokenizer.ggml.pre" },
      AT(pre_tokenizer), .kind = KIND_TEXT },
    { { "machine", NULL, "FILE", NULL, "plan for a recorded machine" }, AT(machine), .kind = KIND_TEXT },
};

_Static_assert(ARRAY_LEN(entries) <= SETTING_COUNT_MAX, "settings.source is too short");

uint32_t settings_count(void) { return ARRAY_LEN(entries); }

const struct setting_info *settings_info(uint32_t index)
{
    return index < ARRAY_LEN(entries) ? &entries[index].info : NULL;
}

static bool has_name(const struct entry *en, const char *name)
{
    return strcmp(name, en->info.name) == 0 || (en->alias != NULL && strcmp(name, en->alias) == 0);
}

static int find_name(const char *name)
{
    for (uint32_t i = 0; i < ARRAY_LEN(entries); i++) {
        if (has_name(&entries[i], name)) {
            return (int)i;
        }
    }
    return -1;
}

int settings_find_flag(const char *flag)
{
    if (strncmp(flag, "--", 2) == 0) {
        return find_name(flag + 2);
    }
    for (uint32_t i = 0; i < ARRAY_LEN(entries); i++) {
        if (entries[i].info.short_flag != NULL && strcmp(flag, entries[i].info.short_flag) == 0) {
            return (int)i;
        }
    }
    return -1;
}

enum { ENV_NAME_MAX = 64 };

static void environment_name(const char *name, char out[ENV_NAME_MAX])
{
    size_t n = (size_t)snprintf(out, ENV_NAME_MAX, "SLUICE_%s", name);
    for (size_t i = 0; i < n && i < ENV_NAME_MAX; i++) {
        out[i] = out[i] == '-' ? '_' : out[i] >= 'a' && out[i] <= 'z' ? (char)(out[i] - 32) : out[i];
    }
}

static void *member(struct settings *s, const struct entry *en) { return (char *)s + en->offset; }

static const void *const_member(const struct settings *s, const struct entry *en)
{
    return (const char *)s + en->offset;
}

static bool is_text(const struct entry *en) { return en->kind == KIND_TEXT || en->kind == KIND_CHOICE; }

/* ---- text to value ---- */

struct value {
    uint64_t sizes[SETTINGS_MAX_GPUS];
    struct amount amount;
    uint32_t count;
};

static bool in_list(const char *list, const char *word)
{
    size_t len = strcspn(word, "|");
    if (word[len] != '\0' || word[0] == 'N') { /* N in a list stands for numbers */
        return false;
    }
    for (const char *p = list; p != NULL && len > 0; p = strchr(p, '|'), p = p == NULL ? NULL : p + 1) {
        if (strncmp(p, word, len) == 0 && (p[len] == '|' || p[len] == '\0')) {
            return true;
        }
    }
    return false;
}

/* "0", "1,2": counts separated by commas. */
static bool is_numbers(const char *text)
{
    return text[0] >= '0' && text[0] <= '9' && text[strspn(text, "0123456789,")] == '\0';
}

/* What a choice that takes numbers takes of them: any, or one up to its maximum. */
static bool takes_numbers(const struct entry *en, const char *text)
{
    uint64_t n;
    return en->numbers && is_numbers(text) && (en->max == 0 || (parse_u64(text, &n) && n <= en->max));
}

static bool parse_sizes(const char *text, uint64_t ret[SETTINGS_MAX_GPUS])
{
    for (unsigned n = 0; n < SETTINGS_MAX_GPUS; n++) {
        char one[40];
        size_t len = strcspn(text, ",");
        if (len >= sizeof(one)) {
            return false;
        }
        memcpy(one, text, len);
        one[len] = '\0';
        if (!parse_size(one, &ret[n])) {
            return false;
        }
        if (text[len] == '\0') {
            return true;
        }
        text += len + 1;
    }
    return false;
}

static bool parse_amount(const char *text, struct amount *ret)
{
    size_t len = strlen(text);
    char last = len > 0 ? text[len - 1] : '\0';
    if (last != '%' && last != 'x') {
        uint64_t bytes;
        if (!parse_size(text, &bytes)) {
            return false;
        }
        *ret = (struct amount){ AMOUNT_BYTES, (double)bytes };
        return true;
    }
    char number[40];
    if (len > sizeof(number)) {
        return false;
    }
    memcpy(number, text, len - 1);
    number[len - 1] = '\0';
    if (last == 'x') {
        uint64_t n;
        if (!parse_u64(number, &n) || n > UINT32_MAX) {
            return false;
        }
        *ret = (struct amount){ AMOUNT_EXPERTS, (double)n };
        return true;
    }
    double percent;
    if (!parse_double(number, &percent) || percent < 0 || percent > 100) {
        return false;
    }
    *ret = (struct amount){ AMOUNT_PERCENT, percent };
    return true;
}

static bool parse_number(const struct entry *en, const char *text, struct value *v)
{
    if (en->info.default_text != NULL && strcmp(text, en->info.default_text) == 0 && !is_numbers(text)) {
        return true; /* the word for 0 */
    }
    uint64_t n;
    switch (en->kind) {
    case KIND_COUNT:
        if (!parse_u64(text, &n) || n < en->min || n > en->max) {
            return false;
        }
        v->count = (uint32_t)n;
        return true;
    case KIND_SIZE:
        return parse_size(text, &v->sizes[0]);
    case KIND_SIZES:
        return parse_sizes(text, v->sizes);
    case KIND_AMOUNT:
        return parse_amount(text, &v->amount);
    default:
        return false;
    }
}

static bool value_is_zero(const struct value *v)
{
    uint64_t any = v->count;
    for (unsigned i = 0; i < SETTINGS_MAX_GPUS; i++) {
        any |= v->sizes[i];
    }
    return any == 0 && !(v->amount.value > 0);
}

/* ---- messages ---- */

/* The setting as the user wrote it. */
static void label(const struct entry *en, const char *value, enum setting_source source, char *out, size_t size)
{
    char env[ENV_NAME_MAX];
    switch (source) {
    case SOURCE_ENV:
        environment_name(en->info.name, env);
        snprintf(out, size, "%s=%s", env, value);
        break;
    case SOURCE_FLAG:
        snprintf(out, size, "--%s %s", en->info.name, value);
        break;
    default:
        snprintf(out, size, "%s: %s", en->info.name, value);
    }
}

static int refuse_missing(const struct entry *en, const char *what, struct error *e)
{
    if (en->kind == KIND_CHOICE) {
        return error_set(e, ERROR_USAGE, "%s: not in this build; it takes %s", what, en->info.value);
    }
    const char *only = en->info.default_text;
    return error_set(e, ERROR_USAGE, "%s: not in this build; %s%s", what, only == NULL ? "leave it out" : "it takes ",
                     only == NULL ? "" : only);
}

static int refuse_value(const struct entry *en, const char *what, struct error *e)
{
    switch (en->kind) {
    case KIND_TEXT:
        return error_set(e, ERROR_USAGE, "%s: empty, expected %s", what, en->info.value);
    case KIND_CHOICE:
        if (en->numbers && en->max > 0) {
            return error_set(e, ERROR_USAGE, "%s: unknown value, expected %s, N from 0 to %u", what, en->info.value, en->max);
        }
        return error_set(e, ERROR_USAGE, "%s: unknown value, expected %s", what, en->info.value);
    case KIND_COUNT:
        return error_set(e, ERROR_USAGE, "%s: expected a number from %u to %u%s", what, en->min, en->max,
                         is_numbers(en->info.default_text) ? "" : ", or auto");
    case KIND_AMOUNT:
        return error_set(e, ERROR_USAGE, "%s: expected a size such as 24G, a share such as 25%%, a number of experts "
                         "such as 512x, or auto", what);
    default:
        return error_set(e, ERROR_USAGE, "%s: expected a size such as 24G or 512M%s, or %s", what,
                         en->kind == KIND_SIZES ? " for each of at most 8 GPUs" : "", en->info.default_text);
    }
}

static int check_value(const struct entry *en, const char *text, const char *what, struct value *v, struct error *e)
{
    if (is_text(en)) {
        if (text[0] != '\0' && en->not_built) {
            return refuse_missing(en, what, e);
        }
        bool known = en->kind == KIND_TEXT ? text[0] != '\0'
                                           : in_list(en->info.value, text) || in_list(en->also, text) || takes_numbers(en, text);
        if (!known && (in_list(en->missing, text) || (en->missing_numbers && is_numbers(text)))) {
            return refuse_missing(en, what, e);
        }
        return known ? 0 : refuse_value(en, what, e);
    }
    if (!parse_number(en, text, v)) {
        return refuse_value(en, what, e);
    }
    return en->not_built && !value_is_zero(v) ? refuse_missing(en, what, e) : 0;
}

/* ---- the struct ---- */

static int store_text(char **at, const char *text, struct error *e)
{
    char *copy = strdup(text);
    if (copy == NULL) {
        return error_nomem(e, "setting", strlen(text) + 1);
    }
    free(*at);
    *at = copy;
    return 0;
}

static int store(struct settings *s, const struct entry *en, const char *text, const struct value *v, struct error *e)
{
    void *at = member(s, en);
    switch (en->kind) {
    case KIND_COUNT:
        *(uint32_t *)at = v->count;
        return 0;
    case KIND_SIZE:
        *(uint64_t *)at = v->sizes[0];
        return 0;
    case KIND_SIZES:
        memcpy(at, v->sizes, sizeof(v->sizes));
        return 0;
    case KIND_AMOUNT:
        *(struct amount *)at = v->amount;
        return 0;
    default:
        return store_text(at, text, e);
    }
}

static int set_entry(struct settings *s, uint32_t index, const char *text, enum setting_source source, struct error *e)
{
    const struct entry *en = &entries[index];
    struct value v = { 0 };
    char what[400];
    label(en, text, source, what, sizeof(what));
    int rc = check_value(en, text, what, &v, e);
    if (rc != 0 || source < s->source[index]) {
        return rc;
    }
    rc = store(s, en, text, &v, e);
    if (rc == 0) {
        s->source[index] = source;
    }
    return rc;
}

int settings_init(struct settings *s, struct error *e)
{
    *s = (struct settings){ 0 };
    for (uint32_t i = 0; i < ARRAY_LEN(entries); i++) {
        if (entries[i].info.default_text == NULL) {
            continue;
        }
        int rc = set_entry(s, i, entries[i].info.default_text, SOURCE_DEFAULT, e);
        if (rc != 0) {
            settings_deinit(s);
            return rc;
        }
    }
    return 0;
}

uint32_t settings_drafts(const struct settings *s, bool *ret_governed)
{
    uint64_t n = 0;
    *ret_governed = strcmp(s->mtp, "auto") == 0;
    if (*ret_governed) {
        return SETTINGS_DRAFTS_AUTO;
    }
    return strcmp(s->mtp, "on") == 0 ? 1 : parse_u64(s->mtp, &n) ? (uint32_t)n : 0;
}

void settings_deinit(struct settings *s)
{
    for (uint32_t i = 0; i < ARRAY_LEN(entries); i++) {
        if (is_text(&entries[i])) {
            free(*(char **)member(s, &entries[i]));
        }
    }
    *s = (struct settings){ 0 };
}

int settings_copy(const struct settings *from, struct settings *ret, struct error *e)
{
    struct settings copy = *from;
    for (uint32_t i = 0; i < ARRAY_LEN(entries); i++) {
        if (is_text(&entries[i])) {
            *(char **)member(&copy, &entries[i]) = NULL;
        }
    }
    for (uint32_t i = 0; i < ARRAY_LEN(entries); i++) {
        const char *text = is_text(&entries[i]) ? *(char *const *)const_member(from, &entries[i]) : NULL;
        int rc = text == NULL ? 0 : store_text(member(&copy, &entries[i]), text, e);
        if (rc != 0) {
            settings_deinit(&copy);
            return rc;
        }
    }
    *ret = copy;
    return 0;
}

int settings_set(struct settings *s, const char *name, const char *value, enum setting_source source, struct error *e)
{
    int index = find_name(name);
    if (index >= 0) {
        return set_entry(s, (uint32_t)index, value, source, e);
    }
    const char *names[ARRAY_LEN(entries) + 1] = { NULL };
    for (uint32_t i = 0; i < ARRAY_LEN(entries); i++) {
        names[i] = entries[i].info.name;
    }
    const char *near = nearest_name(name, names);
    return error_set(e, ERROR_USAGE, "unknown setting %s%s%s%s", name, near ? "; did you mean " : "", near ? near : "",
                     near ? "?" : "; sluice --help lists them");
}

int settings_set_number(struct settings *s, const char *name, uint64_t value, enum setting_source source, struct error *e)
{
    char text[24];
    snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
    return settings_set(s, name, text, source, e);
}

/* ---- environment ---- */

extern char **environ;

static int refuse_variable(const char *variable, char (*names)[ENV_NAME_MAX], struct error *e)
{
    const char *list[ARRAY_LEN(entries) + 1] = { NULL };
    for (uint32_t i = 0; i < ARRAY_LEN(entries); i++) {
        list[i] = names[i];
    }
    const char *near = nearest_name(variable, list);
    return error_set(e, ERROR_USAGE, "unknown environment variable %s%s%s%s", variable, near ? "; did you mean " : "",
                     near ? near : "", near ? "?" : "; sluice --help lists the known ones");
}

int settings_read_environment(struct settings *s, struct error *e)
{
    char names[ARRAY_LEN(entries)][ENV_NAME_MAX];
    for (uint32_t i = 0; i < ARRAY_LEN(entries); i++) {
        environment_name(entries[i].info.name, names[i]);
    }
    for (char **var = environ; var != NULL && *var != NULL; var++) {
        const char *equals = strchr(*var, '=');
        if (equals == NULL || strncmp(*var, "SLUICE_", 7) != 0) {
            continue;
        }
        char name[ENV_NAME_MAX];
        snprintf(name, sizeof(name), "%.*s", (int)(equals - *var), *var);
        uint32_t i = 0;
        while (i < ARRAY_LEN(entries) && strcmp(name, names[i]) != 0) {
            i++;
        }
        int rc = i < ARRAY_LEN(entries) ? set_entry(s, i, equals + 1, SOURCE_ENV, e) : refuse_variable(name, names, e);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

const char *settings_environment(const char *name) { return getenv(name); }

/* ---- reports ---- */

/* `typed`: to the byte, as flags take it; else for people. */
static void put_size(struct str *out, uint64_t bytes, bool typed)
{
    static const char units[] = "TGMK";
    char text[24];
    unsigned shift = 40;
    while (shift > 0 && bytes % (UINT64_C(1) << shift) != 0) {
        shift -= 10;
    }
    if (!typed) {
        str_puts(out, format_bytes(text, bytes));
    } else if (shift > 0 && bytes > 0) {
        str_printf(out, "%llu%c", (unsigned long long)(bytes >> shift), units[(40 - shift) / 10]);
    } else {
        str_printf(out, "%llu", (unsigned long long)bytes);
    }
}

static void put_amount(struct str *out, struct amount a, bool typed)
{
    if (a.unit == AMOUNT_PERCENT) {
        str_printf(out, typed ? "%.15g%%" : "%g%%", a.value);
    } else if (a.unit == AMOUNT_EXPERTS) {
        str_printf(out, "%.0fx", a.value);
    } else {
        put_size(out, (uint64_t)a.value, typed);
    }
}

static void put_sizes(struct str *out, const uint64_t *sizes, bool typed)
{
    unsigned n = SETTINGS_MAX_GPUS;
    while (n > 1 && sizes[n - 1] == 0) {
        n--;
    }
    for (unsigned i = 0; i < n; i++) {
        str_puts(out, i > 0 ? "," : "");
        put_size(out, sizes[i], typed);
    }
}

static void put_value(const struct settings *s, uint32_t index, bool typed, struct str *out)
{
    if (index >= ARRAY_LEN(entries)) {
        return;
    }
    const struct entry *en = &entries[index];
    const void *at = const_member(s, en);
    const char *zero = en->info.default_text; /* what 0 is called */
    switch (en->kind) {
    case KIND_TEXT:
    case KIND_CHOICE:
        str_puts(out, *(char *const *)at != NULL ? *(char *const *)at : "none");
        break;
    case KIND_COUNT:
        if (*(const uint32_t *)at == 0) {
            str_puts(out, zero);
        } else {
            str_printf(out, "%u", *(const uint32_t *)at);
        }
        break;
    case KIND_AMOUNT:
        if (((const struct amount *)at)->unit == AMOUNT_AUTO) {
            str_puts(out, zero);
        } else {
            put_amount(out, *(const struct amount *)at, typed);
        }
        break;
    default:
        if (*(const uint64_t *)at == 0) {
            str_puts(out, zero);
        } else if (en->kind == KIND_SIZE) {
            put_size(out, *(const uint64_t *)at, typed);
        } else {
            put_sizes(out, at, typed);
        }
    }
}

void settings_value(const struct settings *s, uint32_t index, struct str *out) { put_value(s, index, false, out); }

void settings_typed(const struct settings *s, uint32_t index, struct str *out) { put_value(s, index, true, out); }

const char *setting_source_name(enum setting_source source)
{
    switch (source) {
    case SOURCE_PROFILE:
        return "profile";
    case SOURCE_ENV:
        return "environment";
    case SOURCE_FLAG:
        return "flag";
    case SOURCE_API:
        return "program";
    default:
        return "default";
    }
}
