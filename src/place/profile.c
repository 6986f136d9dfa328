/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: reading a profile: YAML by libyaml, whose nodes know their lines, checked against the table of keys.
 * Must not know: single keys, but where two of them contradict each other. */
#include "src/place/profile.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <yaml.h>

#include "common/attr.h"
#include "src/place/profile_schema.h"

struct reader {
    yaml_document_t *doc;
    const char *where;
    struct profile *profile;
    struct settings *settings; /* with those of the profile */
    struct error *e;
};

/* A key on the way down, for messages. */
struct label {
    char text[96]; /* "machine: gpus[0]: vram" */
};

static const yaml_node_t *node_at(const struct reader *r, int index) { return yaml_document_get_node(r->doc, index); }

static int ATTR_PRINTF(3, 4) refuse(const struct reader *r, const yaml_node_t *at, const char *fmt, ...)
{
    char text[1200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    text_one_line(text);
    return error_set(r->e, ERROR_USAGE, "%s:%zu: %s", r->where, at->start_mark.line + 1, text);
}

static struct label label_add(const struct label *parent, const char *name)
{
    struct label l;
    snprintf(l.text, sizeof(l.text), "%.60s%s%.32s", parent->text, parent->text[0] != '\0' ? ": " : "", name);
    return l;
}

/* Text of a plain or quoted value that is not empty. */
static int read_scalar(const struct reader *r, const yaml_node_t *node, const struct label *l, const char **ret)
{
    if (node->type != YAML_SCALAR_NODE) {
        return refuse(r, node, "%s: found %s, expected one value", l->text, node->type == YAML_MAPPING_NODE ? "keys with values" : "a list");
    }
    const char *text = (const char *)node->data.scalar.value;
    if (node->data.scalar.length == 0) {
        return refuse(r, node, "%s: has no value; give one, or leave the key out", l->text);
    }
    if (memchr(text, '\0', node->data.scalar.length) != NULL) {
        return refuse(r, node, "%s: holds a zero byte", l->text);
    }
    *ret = text;
    return 0;
}

static int read_key(const struct reader *r, const yaml_node_t *node, const struct label *parent, const char **ret)
{
    struct label l = label_add(parent, "a key");
    return read_scalar(r, node, &l, ret);
}

/* ---- values ---- */

/* U+0080 to U+009F count: some terminals obey them. */
static bool is_control(const char *at)
{
    unsigned char c = (unsigned char)at[0], next = (unsigned char)at[1];
    return (c < 0x20 && c != '\n') || c == 0x7f || (c == 0xc2 && next < 0xa0);
}

/* Lines of a folded or literal value become one. */
static int read_text(const struct reader *r, const yaml_node_t *node, const struct label *l, const char *text, const struct profile_key *key, char *out)
{
    size_t n = strlen(text);
    while (n > 0 && strchr(" \n", text[n - 1]) != NULL) {
        n--;
    }
    if (n == 0 || n >= key->room) {
        return refuse(r, node, "%s: has %zu bytes, expected 1 to %zu", l->text, n, key->room - 1);
    }
    for (size_t i = 0; i < n; i++) {
        if (is_control(text + i)) {
            return refuse(r, node, "%s: holds a control character at byte %zu", l->text, i);
        }
        out[i] = text[i] == '\n' ? ' ' : text[i];
    }
    out[n] = '\0';
    return 0;
}

static bool is_name(const char *text)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    return text[0] != '.' && text[strspn(text, allowed)] == '\0';
}

static bool is_date(const char *text)
{
    unsigned year, month, day;
    char rest;
    return strlen(text) == 10 && text[strspn(text, "0123456789-")] == '\0' &&
           sscanf(text, "%4u-%2u-%2u%c", &year, &month, &day, &rest) == 3 && month >= 1 && month <= 12 && day >= 1 && day <= 31;
}

/* Of any unit: what follows from it stays finite. */
#define RATE_MAX 1e15

/* What was expected, or NULL when the text is a value of the kind and stored. */
static const char *store_number(enum profile_kind kind, const char *text, void *at)
{
    uint64_t n;
    double d;
    switch (kind) {
    case PROFILE_COUNT:
        if (!parse_u64(text, &n) || n < 1 || n > 65536) {
            return "a whole number from 1 to 65536";
        }
        *(uint32_t *)at = (uint32_t)n;
        return NULL;
    case PROFILE_SIZE:
        if (!parse_size(text, &n) || n == 0) {
            return "a size above 0 such as 64G or 512M";
        }
        *(uint64_t *)at = n;
        return NULL;
    case PROFILE_RATE:
        if (!parse_double(text, &d) || !(d > 0 && d <= RATE_MAX)) {
            return "a number above 0, or no such key where it is unknown";
        }
        *(double *)at = d;
        return NULL;
    default:
        if (!parse_double(text, &d) || !(d >= 0 && d <= 1)) {
            return "a share from 0 to 1";
        }
        *(double *)at = d;
        return NULL;
    }
}

static int read_one(const struct reader *r, const yaml_node_t *node, const struct label *l, const struct profile_key *key, void *at)
{
    const char *text = "", *expected = NULL;
    int rc = read_scalar(r, node, l, &text);
    if (rc < 0) {
        return rc;
    }
    switch (key->kind) {
    case PROFILE_NAME:
        expected = is_name(text) ? NULL : "letters, digits, '-', '_' and '.'";
        break;
    case PROFILE_DATE:
        expected = is_date(text) ? NULL : "a date such as 2026-11-30";
        break;
    case PROFILE_TEXT:
        break;
    default:
        expected = store_number(key->kind, text, at);
        return expected == NULL ? 0 : refuse(r, node, "%s: %.60s: expected %s", l->text, text, expected);
    }
    return expected == NULL ? read_text(r, node, l, text, key, at) : refuse(r, node, "%s: %.60s: expected %s", l->text, text, expected);
}

/* ---- settings ---- */

/* Names of files and folders of one computer. */
static bool is_of_one_computer(const char *name)
{
    static const char *const names[] = {"model", "mtp-from", "model-mirror", "heat", "profile", "machine"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

static int read_setting(const struct reader *r, const yaml_node_t *key, const yaml_node_t *node, const struct label *parent, struct profile_setting *ret)
{
    const char *name = "", *value = "";
    int rc = read_key(r, key, parent, &name);
    if (rc < 0) {
        return rc;
    }
    struct label l = label_add(parent, name);
    rc = read_scalar(r, node, &l, &value);
    if (rc < 0) {
        return rc;
    }
    if (is_of_one_computer(name)) {
        return refuse(r, key, "%s: a profile is for many computers and names no file; give it as --%s", l.text, name);
    }
    if (strlen(value) >= sizeof(ret->value)) {
        return refuse(r, node, "%s: has %zu bytes, expected at most %zu", l.text, strlen(value), sizeof(ret->value) - 1);
    }
    struct error told = {0};
    rc = settings_set(r->settings, name, value, SOURCE_PROFILE, &told);
    if (rc < 0) {
        return rc == ERROR_USAGE ? refuse(r, key, "%s: %s", parent->text, told.text) : error_set(r->e, rc, "%s", told.text);
    }
    char flag[64];
    snprintf(flag, sizeof(flag), "--%s", name); /* known, so it is short */
    ret->index = (uint32_t)settings_find_flag(flag);
    strcpy(ret->value, value);
    return 0;
}

static int read_settings(const struct reader *r, const yaml_node_t *node, const struct label *l)
{
    struct profile *p = r->profile;
    if (node->type != YAML_MAPPING_NODE) {
        return refuse(r, node, "%s: expected names of settings with values, such as \"ctx: 8192\"", l->text);
    }
    for (const yaml_node_pair_t *pair = node->data.mapping.pairs.start; pair < node->data.mapping.pairs.top; pair++) {
        const yaml_node_t *key = node_at(r, pair->key);
        struct profile_setting one = {0};
        int rc = read_setting(r, key, node_at(r, pair->value), l, &one);
        if (rc < 0) {
            return rc;
        }
        for (uint32_t i = 0; i < p->n_settings; i++) {
            if (p->setting[i].index == one.index) {
                return refuse(r, key, "%s: %s is given twice", l->text, settings_info(one.index)->name);
            }
        }
        p->setting[p->n_settings++] = one; /* each of the registry at most once: there is room */
    }
    return 0;
}

/* ---- keys by the table ---- */

static int refuse_key(const struct reader *r, const yaml_node_t *at, const struct profile_section *s, const struct label *l)
{
    const char *names[SETTING_COUNT_MAX] = {NULL};
    struct str list = {0};
    for (size_t i = 0; i < s->n; i++) {
        names[i] = s->keys[i].name;
        str_printf(&list, "%s%s", i > 0 ? ", " : "", names[i]);
    }
    const char *near = nearest_name((const char *)at->data.scalar.value, names);
    int rc = near != NULL ? refuse(r, at, "%s: unknown key; did you mean %s?", l->text, near)
                          : refuse(r, at, "%s: unknown key, expected one of: %s", l->text, list.failed ? "" : list.data);
    str_deinit(&list);
    return rc;
}

static int read_map(const struct reader *r, const yaml_node_t *node, const struct profile_section *s, const struct label *parent, void *base);

static int read_list(const struct reader *r, const yaml_node_t *node, const struct label *l, const struct profile_key *key, void *base)
{
    uint32_t *n = (uint32_t *)(void *)((char *)base + key->counter);
    if (node->type != YAML_SEQUENCE_NODE) {
        return refuse(r, node, "%s: expected a list: lines that begin with \"- \"", l->text);
    }
    for (const yaml_node_item_t *item = node->data.sequence.items.start; item < node->data.sequence.items.top; item++) {
        const yaml_node_t *at = node_at(r, *item);
        if (*n == key->room) {
            return refuse(r, at, "%s: has more than %zu entries", l->text, key->room);
        }
        struct label one;
        snprintf(one.text, sizeof(one.text), "%.80s[%u]", l->text, *n);
        int rc = read_map(r, at, key->section, &one, (char *)base + key->offset + *n * key->item);
        if (rc < 0) {
            return rc;
        }
        ++*n;
    }
    return 0;
}

static int read_value(const struct reader *r, const yaml_node_t *node, const struct label *l, const struct profile_key *key, void *base)
{
    switch (key->kind) {
    case PROFILE_MAP:
        *(bool *)((char *)base + key->counter) = true;
        return read_map(r, node, key->section, l, base);
    case PROFILE_LIST:
        return read_list(r, node, l, key, base);
    case PROFILE_SETTINGS:
        return read_settings(r, node, l);
    default:
        return read_one(r, node, l, key, (char *)base + key->offset);
    }
}

/* Keys of one section into the struct at `base`. */
static int read_map(const struct reader *r, const yaml_node_t *node, const struct profile_section *s, const struct label *parent, void *base)
{
    uint64_t seen = 0;
    const char *colon = parent->text[0] != '\0' ? ": " : "";
    if (node->type != YAML_MAPPING_NODE) {
        return refuse(r, node, "%s%sexpected keys with values, such as \"%s: ...\"", parent->text, colon, s->keys[0].name);
    }
    for (const yaml_node_pair_t *pair = node->data.mapping.pairs.start; pair < node->data.mapping.pairs.top; pair++) {
        const yaml_node_t *at = node_at(r, pair->key);
        const char *name = "";
        size_t i = 0;
        int rc = read_key(r, at, parent, &name);
        if (rc < 0) {
            return rc;
        }
        struct label l = label_add(parent, name);
        while (i < s->n && strcmp(s->keys[i].name, name) != 0) {
            i++;
        }
        if (i == s->n) {
            return refuse_key(r, at, s, &l);
        }
        if ((seen >> i & 1) != 0) {
            return refuse(r, at, "%s: is given twice", l.text);
        }
        seen |= UINT64_C(1) << i;
        rc = read_value(r, node_at(r, pair->value), &l, &s->keys[i], base);
        if (rc < 0) {
            return rc;
        }
    }
    for (size_t i = 0; i < s->n; i++) {
        if (s->keys[i].required && (seen >> i & 1) == 0) {
            return refuse(r, node, "%s%s%s is missing", parent->text, colon, s->keys[i].name);
        }
    }
    return 0;
}

/* ---- what contradicts itself ---- */

/* Value of a key of a mapping that has been read; the mapping itself where it has none. */
static const yaml_node_t *value_of(const struct reader *r, const yaml_node_t *map, const char *name)
{
    for (const yaml_node_pair_t *pair = map->data.mapping.pairs.start; pair < map->data.mapping.pairs.top; pair++) {
        if (strcmp((const char *)node_at(r, pair->key)->data.scalar.value, name) == 0) {
            return node_at(r, pair->value);
        }
    }
    return map;
}

static int check_machine(const struct reader *r, const yaml_node_t *map)
{
    const struct machine *m = &r->profile->machine;
    char have[24], more[24];
    if (m->limit[LIMIT_AVAILABLE] > m->memory_total) {
        return refuse(r, value_of(r, map, "memory_available"), "machine: memory_available: %s is more than the %s of memory_total",
                      format_bytes(more, m->limit[LIMIT_AVAILABLE]), format_bytes(have, m->memory_total));
    }
    if (m->nodes > m->cores || m->nodes > MACHINE_NODES) {
        return refuse(r, value_of(r, map, "nodes"), "machine: nodes: %u, expected at most %d and at most one for each of the %u cores", m->nodes, MACHINE_NODES, m->cores);
    }
    if (m->nvme_depth > MACHINE_DEPTH_MAX) {
        return refuse(r, value_of(r, map, "nvme_depth"), "machine: nvme_depth: %u, expected 1 to %d", m->nvme_depth, MACHINE_DEPTH_MAX);
    }
    if (m->nvme_chunk > 0 && (m->nvme_chunk < MACHINE_CHUNK_LEAST || m->nvme_chunk > MACHINE_CHUNK_MOST)) {
        return refuse(r, value_of(r, map, "nvme_chunk"), "machine: nvme_chunk: %s, expected 64K to 16M", format_bytes(have, m->nvme_chunk));
    }
    return 0;
}

static int check_budgets(const struct reader *r, const yaml_node_t *map)
{
    const struct settings *s = r->settings;
    const struct
    {
        const char *name;
        double bytes;
    } budgets[] = {{"ram", (double)s->ram}, {"expert-ram", s->expert_ram.unit == AMOUNT_BYTES ? s->expert_ram.value : 0}};
    char have[24];
    for (size_t i = 0; i < ARRAY_LEN(budgets); i++) {
        if (budgets[i].bytes > (double)r->profile->machine.memory_total) {
            const yaml_node_t *at = value_of(r, map, budgets[i].name);
            return refuse(r, at, "settings: %s: %s is more than the %s of the machine", budgets[i].name, at->data.scalar.value,
                          format_bytes(have, r->profile->machine.memory_total));
        }
    }
    return 0;
}

static int check_results(const struct reader *r, const yaml_node_t *list)
{
    for (uint32_t i = 0; i < r->profile->n_results; i++) {
        const struct profile_result *one = &r->profile->result[i];
        if ((one->expert_share > 0) != (one->hit_ratio > 0) || (one->expert_share < 1 && one->hit_ratio == 1)) {
            return refuse(r, node_at(r, list->data.sequence.items.start[i]),
                          "results[%u]: hit_ratio goes with the expert_share it was measured at, and is below 1 where that is", i);
        }
    }
    return 0;
}

static int read_root(const struct reader *r, const yaml_node_t *root)
{
    static const struct label top = {""};
    struct profile *p = r->profile;
    int rc = read_map(r, root, &profile_root, &top, p);
    if (rc == 0 && p->has_machine) {
        p->machine.nodes += p->machine.nodes == 0;
        machine_number_nodes(&p->machine);
        rc = check_machine(r, value_of(r, root, "machine"));
        rc = rc < 0 || p->n_settings == 0 ? rc : check_budgets(r, value_of(r, root, "settings"));
    }
    return rc < 0 || p->n_results == 0 ? rc : check_results(r, value_of(r, root, "results"));
}

/* ---- YAML ---- */

/* Errors of bytes have an offset, the others a mark. */
static size_t line_of_problem(const yaml_parser_t *y, const char *text, size_t len)
{
    if (y->error != YAML_READER_ERROR) {
        return y->problem_mark.line + 1;
    }
    size_t line = 1;
    for (size_t i = 0; i < len && i < y->problem_offset; i++) {
        line += text[i] == '\n';
    }
    return line;
}

static int load(yaml_parser_t *y, yaml_document_t *doc, const char *text, size_t len, const char *where, struct error *e)
{
    if (yaml_parser_load(y, doc)) {
        return 0;
    }
    if (y->error == YAML_MEMORY_ERROR) {
        return error_nomem(e, "profile", len);
    }
    return error_set(e, ERROR_USAGE, "%s:%zu: this is not YAML: %s", where, line_of_problem(y, text, len), y->problem != NULL ? y->problem : "unknown problem");
}

static int read_document(yaml_document_t *doc, const char *where, struct profile *ret, struct error *e)
{
    struct settings settings;
    yaml_node_t *root = yaml_document_get_root_node(doc);
    if (root == NULL) {
        return error_set(e, ERROR_USAGE, "%s:1: is empty; a profile has at least a name", where);
    }
    int rc = settings_init(&settings, e);
    if (rc < 0) {
        return rc;
    }
    const struct reader r = {.doc = doc, .where = where, .profile = ret, .settings = &settings, .e = e};
    rc = read_root(&r, root);
    settings_deinit(&settings);
    return rc;
}

/* What follows the first document must be nothing. */
static int check_end(yaml_parser_t *y, const char *text, size_t len, const char *where, struct error *e)
{
    yaml_document_t doc;
    int rc = load(y, &doc, text, len, where, e);
    if (rc < 0) {
        return rc;
    }
    const yaml_node_t *more = yaml_document_get_root_node(&doc);
    if (more != NULL) {
        rc = error_set(e, ERROR_USAGE, "%s:%zu: a second document begins; a profile is one", where, more->start_mark.line + 1);
    }
    yaml_document_delete(&doc);
    return rc;
}

int profile_parse(const char *text, size_t len, const char *where, struct profile *ret, struct error *e)
{
    struct profile p = {0};
    yaml_parser_t y;
    yaml_document_t doc;
    if (!yaml_parser_initialize(&y)) {
        return error_nomem(e, "profile", len);
    }
    yaml_parser_set_input_string(&y, (const unsigned char *)text, len);
    int rc = load(&y, &doc, text, len, where, e);
    if (rc == 0) {
        rc = read_document(&doc, where, &p, e);
        yaml_document_delete(&doc);
        rc = rc < 0 ? rc : check_end(&y, text, len, where, e);
    }
    yaml_parser_delete(&y);
    if (rc == 0) {
        *ret = p;
    }
    return rc;
}

struct hits profile_hits(const struct profile *p)
{
    for (uint32_t i = 0; p != NULL && i < p->n_results; i++) {
        const struct profile_result *one = &p->result[i];
        if (one->hit_ratio > 0 && one->expert_share < 1) {
            return hits_measured(one->expert_share, one->hit_ratio);
        }
    }
    return (struct hits){0};
}

int profile_apply(const struct profile *p, struct settings *s, struct error *e)
{
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < p->n_settings; i++) {
        rc = settings_set(s, settings_info(p->setting[i].index)->name, p->setting[i].value, SOURCE_PROFILE, e);
    }
    return rc;
}
