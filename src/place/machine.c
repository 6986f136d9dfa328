/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: facts about a machine to and from JSON, and which memory limit binds. Fields: docs/plan.md.
 * Must not know: how they are found (src/run/probe) or what follows from them. */
#include "src/place/machine.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "common/intmath.h"
#include "src/base/json_text.h"

/* `key` is the name in recorded machines, `name` the one for people. */
static const struct {
    const char *key, *name;
} limits[LIMIT_COUNT] = {
    [LIMIT_AVAILABLE] = {"available", "MemAvailable"},
    [LIMIT_CGROUP] = {"cgroup", "cgroup memory limit"},
    [LIMIT_NUMA] = {"numa", "allowed NUMA nodes"},
    [LIMIT_ADDRESS_SPACE] = {"address_space", "RLIMIT_AS"},
    [LIMIT_SETTING] = {"setting", "--ram"},
};

enum field_kind { FIELD_TEXT, FIELD_COUNT, FIELD_REAL, FIELD_SIZE, FIELD_NODES, FIELD_NODE_SIZES };

static const struct field {
    const char *key;
    enum field_kind kind;
    size_t offset;
} fields[] = {
    {"cpu", FIELD_TEXT, offsetof(struct machine, cpu)},
    {"cores", FIELD_COUNT, offsetof(struct machine, cores)},
    {"nodes", FIELD_COUNT, offsetof(struct machine, nodes)},
    {"cgroup_cpus", FIELD_REAL, offsetof(struct machine, cgroup_cpus)},
    {"node_available", FIELD_NODE_SIZES, 0},
    {"memory_total", FIELD_SIZE, offsetof(struct machine, memory_total)},
    {"rate_threads", FIELD_COUNT, offsetof(struct machine, rate_threads)},
    {"ram_read_gb_s", FIELD_REAL, offsetof(struct machine, ram_read_gb_s)},
    {"thread_read_gb_s", FIELD_REAL, offsetof(struct machine, thread_read_gb_s)},
    {"node_read_gb_s", FIELD_NODES, 0},
    {"fma_gop_s", FIELD_REAL, offsetof(struct machine, fma_gop_s)},
    {"bf16_gop_s", FIELD_REAL, offsetof(struct machine, bf16_gop_s)},
    {"int8_gop_s", FIELD_REAL, offsetof(struct machine, int8_gop_s)},
    {"thread_fma_gop_s", FIELD_REAL, offsetof(struct machine, thread_fma_gop_s)},
    {"thread_bf16_gop_s", FIELD_REAL, offsetof(struct machine, thread_bf16_gop_s)},
    {"thread_int8_gop_s", FIELD_REAL, offsetof(struct machine, thread_int8_gop_s)},
    {"decode_read_gb_s", FIELD_REAL, offsetof(struct machine, decode_read_gb_s)},
    {"nvme_read_gb_s", FIELD_REAL, offsetof(struct machine, nvme_read_gb_s)},
    {"nvme_depth", FIELD_COUNT, offsetof(struct machine, nvme_depth)},
    {"nvme_chunk", FIELD_SIZE, offsetof(struct machine, nvme_chunk)},
};

const char *memory_limit_name(enum memory_limit l) { return (unsigned)l < LIMIT_COUNT ? limits[l].name : "no limit"; }

/* Bytes as a number, or as text like "64G". */
static bool read_size(const json_t *v, uint64_t *ret)
{
    if (json_is_integer(v) && json_integer_value(v) >= 0) {
        *ret = (uint64_t)json_integer_value(v);
        return true;
    }
    return json_is_string(v) && parse_size(json_string_value(v), ret);
}

/* Of any unit: what follows from it stays finite, and so valid JSON. */
#define RATE_MAX 1e15

static bool read_rate(const json_t *v, double *ret)
{
    if (!json_is_number(v) || !(json_number_value(v) >= 0 && json_number_value(v) <= RATE_MAX)) {
        return false;
    }
    *ret = json_number_value(v);
    return true;
}

static int read_nodes(const json_t *v, const char *where, struct machine *m, struct error *e)
{
    bool good = json_is_array(v) && json_array_size(v) <= MACHINE_NODES;
    m->nodes_measured = good ? (uint32_t)json_array_size(v) : 0;
    for (uint32_t i = 0; good && i < m->nodes_measured; i++) {
        good = read_rate(json_array_get(v, i), &m->node_read_gb_s[i]);
    }
    return good ? 0 : error_set(e, ERROR_FORMAT, "%s: field \"node_read_gb_s\" has to be a list of at most %d numbers from 0 to 1e15", where, MACHINE_NODES);
}

static int read_node_sizes(const json_t *v, const char *where, struct machine *m, struct error *e)
{
    bool good = json_is_array(v) && json_array_size(v) <= WEIGHT_NODES_MAX;
    for (uint32_t i = 0; good && i < json_array_size(v); i++) {
        good = read_size(json_array_get(v, i), &m->node_available[i]);
    }
    return good ? 0 : error_set(e, ERROR_FORMAT, "%s: field \"node_available\" has to be a list of at most %d sizes, as numbers or as text like \"64G\"", where, WEIGHT_NODES_MAX);
}

static int read_field(const struct field *f, const json_t *v, const char *where, struct machine *m, struct error *e)
{
    void *at = (char *)m + f->offset;
    switch (f->kind) {
    case FIELD_TEXT:
        if (json_is_string(v)) {
            snprintf(m->cpu, sizeof(m->cpu), "%s", json_string_value(v));
            text_one_line(m->cpu);
            return 0;
        }
        return error_set(e, ERROR_FORMAT, "%s: field \"%s\" has to be text", where, f->key);
    case FIELD_COUNT:
        if (json_is_integer(v) && json_integer_value(v) >= 1 && json_integer_value(v) <= 65536) {
            *(uint32_t *)at = (uint32_t)json_integer_value(v);
            return 0;
        }
        return error_set(e, ERROR_FORMAT, "%s: field \"%s\" has to be a whole number from 1 to 65536", where, f->key);
    case FIELD_REAL:
        if (read_rate(v, at)) {
            return 0;
        }
        return error_set(e, ERROR_FORMAT, "%s: field \"%s\" has to be a number from 0 to 1e15 (0: unknown)", where, f->key);
    case FIELD_NODES:
        return read_nodes(v, where, m, e);
    case FIELD_NODE_SIZES:
        return read_node_sizes(v, where, m, e);
    case FIELD_SIZE:
        break;
    }
    if (!read_size(v, at)) {
        return error_set(e, ERROR_FORMAT, "%s: field \"%s\" has to be bytes, as a number or as text like \"64G\"", where, f->key);
    }
    return 0;
}

static int read_limits(json_t *object, const char *where, struct machine *m, struct error *e)
{
    if (!json_is_object(object)) {
        return error_set(e, ERROR_FORMAT, "%s: field \"limits\" has to be an object of bytes", where);
    }
    const char *key;
    json_t *v;
    json_object_foreach (object, key, v) {
        int l = 0;
        while (l < LIMIT_COUNT && strcmp(limits[l].key, key) != 0) {
            l++;
        }
        if (l == LIMIT_COUNT) {
            return error_set(e, ERROR_FORMAT, "%s: unknown limit \"%.40s\", known: available, cgroup, numa, address_space, setting",
                             where, key);
        }
        if (!read_size(v, &m->limit[l])) {
            return error_set(e, ERROR_FORMAT, "%s: limit \"%s\" has to be bytes, as a number or as text like \"64G\"", where, key);
        }
    }
    return 0;
}

static int read_object(json_t *root, const char *where, struct machine *m, struct error *e)
{
    const char *key;
    json_t *v;
    json_object_foreach (root, key, v) {
        if (strcmp(key, "limits") == 0) {
            int r = read_limits(v, where, m, e);
            if (r < 0) {
                return r;
            }
            continue;
        }
        size_t i = 0;
        while (i < ARRAY_LEN(fields) && strcmp(fields[i].key, key) != 0) {
            i++;
        }
        if (i == ARRAY_LEN(fields)) {
            return error_set(e, ERROR_FORMAT, "%s: unknown field \"%.40s\"; the fields are listed in docs/plan.md", where, key);
        }
        int r = read_field(&fields[i], v, where, m, e);
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

int machine_from_json(const char *text, size_t len, const char *where, struct machine *ret, struct error *e)
{
    json_t *root = NULL;
    int r = json_text_parse(text, len, JSON_REJECT_DUPLICATES, &root, e);
    if (r < 0) {
        return error_prefix(e, r, "%s", where);
    }
    struct machine m = {.cores = 1, .nodes = 1};
    r = json_is_object(root) ? read_object(root, where, &m, e)
                                 : error_set(e, ERROR_FORMAT, "%s: a recorded machine is one JSON object", where);
    json_decref(root);
    if (r < 0) {
        return r;
    }
    machine_number_nodes(&m);
    if (machine_memory(&m, NULL) == 0) {
        return error_set(e, ERROR_FORMAT, "%s: no memory limit given: \"limits\" needs at least \"available\"", where);
    }
    *ret = m;
    return 0;
}

void machine_number_nodes(struct machine *m)
{
    for (uint32_t i = 0; i < min_u32(m->nodes, WEIGHT_NODES_MAX); i++) {
        m->node_number[i] = (int)i;
    }
}

void machine_to_json(const struct machine *m, struct str *out)
{
    str_puts(out, "{\"cpu\": ");
    str_json(out, m->cpu, strlen(m->cpu));
    str_printf(out, ", \"cores\": %u, \"nodes\": %u, \"cgroup_cpus\": %.17g, \"memory_total\": %llu, \"limits\": {", m->cores, m->nodes,
               m->cgroup_cpus, (unsigned long long)m->memory_total);
    const char *separator = "";
    for (int l = 0; l < LIMIT_COUNT; l++) {
        if (m->limit[l] > 0) {
            str_printf(out, "%s\"%s\": %llu", separator, limits[l].key, (unsigned long long)m->limit[l]);
            separator = ", ";
        }
    }
    str_puts(out, "}");
    for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
        const struct field *f = &fields[i];
        if (f->kind == FIELD_REAL && f->offset != offsetof(struct machine, cgroup_cpus)) {
            str_printf(out, ", \"%s\": %.17g", f->key, *(const double *)((const char *)m + f->offset));
        }
    }
    if (m->rate_threads > 0) {
        str_printf(out, ", \"rate_threads\": %u", m->rate_threads);
    }
    if (m->nvme_depth > 0) {
        str_printf(out, ", \"nvme_depth\": %u, \"nvme_chunk\": %llu", m->nvme_depth, (unsigned long long)m->nvme_chunk);
    }
    for (uint32_t i = 0; i < m->nodes_measured; i++) {
        str_printf(out, "%s%.17g", i == 0 ? ", \"node_read_gb_s\": [" : ", ", m->node_read_gb_s[i]);
    }
    str_puts(out, m->nodes_measured > 0 ? "]" : "");
    uint32_t known = 0;
    while (known < min_u32(m->nodes, WEIGHT_NODES_MAX) && m->node_available[known] > 0) {
        str_printf(out, "%s%llu", known == 0 ? ", \"node_available\": [" : ", ", (unsigned long long)m->node_available[known]);
        known++;
    }
    str_puts(out, known > 0 ? "]}" : "}");
}

uint64_t machine_memory(const struct machine *m, enum memory_limit *ret_which)
{
    enum memory_limit which = LIMIT_AVAILABLE;
    uint64_t least = 0;
    for (int l = 0; l < LIMIT_COUNT; l++) {
        if (m->limit[l] > 0 && (least == 0 || m->limit[l] < least)) {
            least = m->limit[l];
            which = (enum memory_limit)l;
        }
    }
    if (ret_which != NULL) {
        *ret_which = which;
    }
    return least;
}
