/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what `sluice tune` found, as a profile. Must not know: how it was found. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/attr.h"
#include "common/intmath.h"
#include "sluice/sluice.h"
#include "src/commands/build_version.h"
#include "src/commands/tune.h"

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

/* Text of a profile: one line of UTF-8, cut to fit. */
static void put_text(char *out, size_t room, const char *text)
{
    snprintf(out, room, "%s", text);
    text_one_line(out);
    out[utf8_valid_prefix(out, strlen(out))] = '\0';
}

/* Four digits: more would not be there again. */
static double rounded(double value)
{
    char text[32];
    double back = 0;
    snprintf(text, sizeof(text), "%.4g", value);
    return parse_double(text, &back) ? back : value;
}

static void round_rates(struct machine *m)
{
    double *const rates[] = {&m->ram_read_gb_s, &m->fma_gop_s, &m->bf16_gop_s, &m->int8_gop_s, &m->nvme_read_gb_s};
    for (size_t i = 0; i < ARRAY_LEN(rates); i++) {
        *rates[i] = rounded(*rates[i]);
    }
}

/* Where it differs from the default; what names a file of this computer stays out. */
static int add_setting(struct profile *p, const struct settings *s, const struct settings *defaults, uint32_t index, struct error *e)
{
    const struct setting_info *info = settings_info(index);
    struct str value = {0}, usual = {0};
    settings_typed(s, index, &value);
    settings_typed(defaults, index, &usual);
    int r = value.failed || usual.failed ? error_nomem(e, "settings", sizeof(*p)) : 0;
    bool differs = r == 0 && strcmp(value.data, usual.data) != 0 && (info->value == NULL || (strcmp(info->value, "PATH") != 0 && strcmp(info->value, "FILE") != 0 && strncmp(info->value, "DIR", 3) != 0));
    struct profile_setting *one = &p->setting[p->n_settings];
    if (differs && value.len >= sizeof(one->value)) {
        r = error_set(e, ERROR_USAGE, "--%s %s: longer than the %zu bytes that a profile takes", info->name, value.data, sizeof(one->value) - 1);
    } else if (differs) {
        one->index = index;
        strcpy(one->value, value.data);
        p->n_settings++;
    }
    str_deinit(&value);
    str_deinit(&usual);
    return r;
}

static int add_settings(struct profile *p, const struct settings *s, struct error *e)
{
    struct settings defaults;
    int r = settings_init(&defaults, e);
    if (r < 0) {
        return r;
    }
    for (uint32_t i = 0; r == 0 && i < settings_count(); i++) {
        r = add_setting(p, s, &defaults, i, e);
    }
    settings_deinit(&defaults);
    return r;
}

static void add_result(const struct tune_options *o, const struct tune_result *r, const char *date, struct profile *p)
{
    const struct tune_record *record = &r->record;
    uint64_t uses = record->hits + record->misses;
    struct profile_result *one = &p->result[p->n_results++];
    put_text(one->model, sizeof(one->model), name_of(o->settings.model));
    put_text(one->command, sizeof(one->command), o->command);
    snprintf(one->version, sizeof(one->version), "%s (%s)", SLUICE_VERSION, build_version());
    snprintf(one->date, sizeof(one->date), "%s", date);
    one->decode_tok_s = rounded(tune_speed(record, TUNE_DECODE));
    one->prefill_tok_s = rounded(tune_speed(record, TUNE_PROMPT));
    if (record->misses > 0 && record->hits > 0 && record->expert_share > 0 && record->expert_share < 1) {
        one->expert_share = fmin(rounded(record->expert_share), 0.9999);
        one->hit_ratio = fmin(rounded((double)record->hits / (double)uses), 0.9999); /* 1 would say that nothing is missed */
    }
}

int tune_profile(const struct tune_options *o, const struct tune_result *r, const char *date, struct profile *ret, struct error *e)
{
    struct profile p = {.has_machine = true, .machine = r->machine};
    const char *name = name_of(o->out);
    size_t len = strlen(name) - strlen(".yaml");
    if (len == 0 || len >= sizeof(p.name)) {
        return error_set(e, ERROR_USAGE, "-o %s: expected a file name of 1 to %zu bytes before .yaml", o->out, sizeof(p.name) - 1);
    }
    memcpy(p.name, name, len);
    char text[sizeof(p.description)];
    snprintf(text, sizeof(text), "Tuned by measuring, for %.200s on %.60s.", name_of(o->settings.model),
             r->machine.cpu[0] != '\0' ? r->machine.cpu : "an unknown processor");
    put_text(p.description, sizeof(p.description), text);
    round_rates(&p.machine);
    p.machine.limit[LIMIT_AVAILABLE] = min_u64(machine_memory(&r->machine, NULL), r->machine.memory_total);
    p.machine.nodes = min_u32(min_u32(r->machine.nodes, r->machine.cores), MACHINE_NODES); /* some have memory alone */
    int rc = add_settings(&p, &r->best, e);
    if (rc == 0) {
        add_result(o, r, date, &p);
        *ret = p;
    }
    return rc;
}

int tune_profile_text(const struct tune_options *o, const struct profile *p, struct str *out, struct error *e)
{
    struct profile *back = malloc(sizeof(*back));
    int r = back == NULL ? error_nomem(e, "profile", sizeof(*back)) : profile_write(p, out, e);
    r = r < 0 ? r : profile_parse(out->data, out->len, o->out, back, e);
    free(back);
    return r;
}
