/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: a profile as YAML, by the table of keys. Must not know: single keys. */
#include <stdio.h>
#include <string.h>

#include <yaml.h>

#include "src/place/profile.h"
#include "src/place/profile_schema.h"

struct writer {
    yaml_emitter_t emitter;
    bool failed;
};

/* Takes the event; `made`: it exists. */
static void emit(struct writer *w, int made, yaml_event_t *event)
{
    if (!made) {
        w->failed = true;
    } else if (w->failed) {
        yaml_event_delete(event);
    } else {
        w->failed = !yaml_emitter_emit(&w->emitter, event);
    }
}

static void put(struct writer *w, const char *text)
{
    yaml_event_t event;
    emit(w, yaml_scalar_event_initialize(&event, NULL, NULL, (const yaml_char_t *)text, (int)strlen(text), 1, 1, YAML_ANY_SCALAR_STYLE), &event);
}

static void map_start(struct writer *w)
{
    yaml_event_t event;
    emit(w, yaml_mapping_start_event_initialize(&event, NULL, NULL, 1, YAML_BLOCK_MAPPING_STYLE), &event);
}

static void map_end(struct writer *w)
{
    yaml_event_t event;
    emit(w, yaml_mapping_end_event_initialize(&event), &event);
}

static void put_size(struct writer *w, uint64_t bytes)
{
    static const char units[] = {'T', 'G', 'M', 'K'};
    char text[32];
    for (unsigned i = 0; i < sizeof(units); i++) {
        unsigned shift = 40 - 10 * i;
        if (bytes % (UINT64_C(1) << shift) == 0) {
            snprintf(text, sizeof(text), "%llu%c", (unsigned long long)(bytes >> shift), units[i]);
            put(w, text);
            return;
        }
    }
    snprintf(text, sizeof(text), "%llu", (unsigned long long)bytes);
    put(w, text);
}

/* As few digits as read back the same. */
static void put_double(struct writer *w, double value)
{
    char text[40];
    double back;
    snprintf(text, sizeof(text), "%.15g", value);
    if (!parse_double(text, &back) || back < value || back > value) {
        snprintf(text, sizeof(text), "%.17g", value);
    }
    put(w, text);
}

static void put_settings(struct writer *w, const struct profile_setting *s, uint32_t n)
{
    map_start(w);
    for (uint32_t i = 0; i < n; i++) {
        put(w, settings_info(s[i].index)->name);
        put(w, s[i].value);
    }
    map_end(w);
}

static bool is_absent(const struct profile_key *key, const char *base)
{
    switch (key->kind) {
    case PROFILE_COUNT:
        return *(const uint32_t *)(const void *)(base + key->offset) == 0;
    case PROFILE_SIZE:
        return *(const uint64_t *)(const void *)(base + key->offset) == 0;
    case PROFILE_RATE:
    case PROFILE_SHARE:
        return !(*(const double *)(const void *)(base + key->offset) > 0);
    case PROFILE_MAP:
        return !*(const bool *)(base + key->counter);
    case PROFILE_LIST:
    case PROFILE_SETTINGS:
        return *(const uint32_t *)(const void *)(base + key->counter) == 0;
    default:
        return base[key->offset] == '\0';
    }
}

static void put_map(struct writer *w, const struct profile_section *s, const char *base);

static void put_list(struct writer *w, const struct profile_key *key, const char *base)
{
    yaml_event_t event;
    uint32_t n = *(const uint32_t *)(const void *)(base + key->counter);
    emit(w, yaml_sequence_start_event_initialize(&event, NULL, NULL, 1, YAML_BLOCK_SEQUENCE_STYLE), &event);
    for (uint32_t i = 0; i < n; i++) {
        put_map(w, key->section, base + key->offset + i * key->item);
    }
    emit(w, yaml_sequence_end_event_initialize(&event), &event);
}

static void put_value(struct writer *w, const struct profile_key *key, const char *base)
{
    const void *at = base + key->offset;
    char text[24];
    switch (key->kind) {
    case PROFILE_COUNT:
        snprintf(text, sizeof(text), "%u", *(const uint32_t *)at);
        put(w, text);
        break;
    case PROFILE_SIZE:
        put_size(w, *(const uint64_t *)at);
        break;
    case PROFILE_RATE:
    case PROFILE_SHARE:
        put_double(w, *(const double *)at);
        break;
    case PROFILE_MAP:
        put_map(w, key->section, base);
        break;
    case PROFILE_LIST:
        put_list(w, key, base);
        break;
    case PROFILE_SETTINGS:
        put_settings(w, at, *(const uint32_t *)(const void *)(base + key->counter));
        break;
    default:
        put(w, at);
    }
}

static void put_map(struct writer *w, const struct profile_section *s, const char *base)
{
    map_start(w);
    for (size_t i = 0; i < s->n; i++) {
        if (!is_absent(&s->keys[i], base)) {
            put(w, s->keys[i].name);
            put_value(w, &s->keys[i], base);
        }
    }
    map_end(w);
}

static int append(void *out, unsigned char *data, size_t n)
{
    str_append(out, (const char *)data, n);
    return !((struct str *)out)->failed;
}

int profile_write(const struct profile *p, struct str *out, struct error *e)
{
    struct writer w = {.failed = false};
    yaml_event_t event;
    if (!yaml_emitter_initialize(&w.emitter)) {
        return error_nomem(e, "profile", sizeof(*p));
    }
    yaml_emitter_set_output(&w.emitter, append, out);
    yaml_emitter_set_unicode(&w.emitter, 1);
    yaml_emitter_set_width(&w.emitter, -1); /* folds nothing */
    emit(&w, yaml_stream_start_event_initialize(&event, YAML_UTF8_ENCODING), &event);
    emit(&w, yaml_document_start_event_initialize(&event, NULL, NULL, NULL, 1), &event);
    put_map(&w, &profile_root, (const char *)p);
    emit(&w, yaml_document_end_event_initialize(&event, 1), &event);
    emit(&w, yaml_stream_end_event_initialize(&event), &event);
    yaml_emitter_delete(&w.emitter);
    return w.failed || out->failed ? error_nomem(e, "profile", sizeof(*p)) : 0;
}
