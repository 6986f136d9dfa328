/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: parsing argv by a table, and the help text. Must not know: what a flag does. */
#include "src/cli/args.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/foreign.h"
#include "src/base/settings.h"
#include "src/base/str.h"
#include "src/cli/term.h"

static const struct arg *find_arg(const struct args_spec *spec, const char *flag)
{
    for (size_t i = 0; i < spec->n; i++) {
        const struct arg *a = &spec->args[i];
        if (strcmp(flag, a->name) == 0 || (a->alias != NULL && strcmp(flag, a->alias) == 0)) {
            return a;
        }
    }
    return NULL;
}

static bool is_flag(const struct args_spec *spec, const char *text)
{
    return text[0] == '-' && (find_arg(spec, text) != NULL || (spec->settings && settings_find_flag(text) >= 0) ||
                              strcmp(text, "--help") == 0);
}

static int refuse_unknown(const struct args_spec *spec, const char *flag, struct sluice_error *e)
{
    const char *advice = foreign_flag_advice(flag);
    if (advice != NULL) {
        return cli_fail(e, SLUICE_USAGE, "%s: sluice has no such flag: %s", flag, advice);
    }
    size_t room = spec->n + settings_count() + 1, n = 0;
    const char **names = calloc(room, sizeof(*names));
    if (names == NULL) {
        return cli_fail(e, SLUICE_FAILED, "out of memory");
    }
    for (size_t i = 0; i < spec->n; i++) {
        names[n++] = spec->args[i].name + 2;
    }
    for (uint32_t i = 0; spec->settings && i < settings_count(); i++) {
        names[n++] = settings_info(i)->name;
    }
    const char *near = nearest_name(flag + strspn(flag, "-"), names);
    free(names);
    if (near != NULL) {
        return cli_fail(e, SLUICE_USAGE, "unknown flag %s; did you mean --%s?", flag, near);
    }
    return cli_fail(e, SLUICE_USAGE, "unknown flag %s; sluice %s --help lists them", flag, spec->command);
}

static bool parse_int(const char *text, int64_t *ret)
{
    uint64_t v;
    bool negative = text[0] == '-';
    if (!parse_u64(text + negative, &v) || v > INT64_MAX) {
        return false;
    }
    *ret = negative ? -(int64_t)v : (int64_t)v;
    return true;
}

static int store(const struct arg *a, const char *flag, const char *value, struct sluice_error *e)
{
    double d;
    switch (a->kind) {
    case ARG_SWITCH:
        *(bool *)a->target = true;
        return SLUICE_OK;
    case ARG_TEXT:
        *(const char **)a->target = value;
        return SLUICE_OK;
    case ARG_INT:
        return parse_int(value, a->target) ? SLUICE_OK : cli_fail(e, SLUICE_USAGE, "%s %s: expected a whole number", flag, value);
    case ARG_FLOAT:
        if (!parse_double(value, &d) || d > 1e30 || d < -1e30) {
            return cli_fail(e, SLUICE_USAGE, "%s %s: expected a number", flag, value);
        }
        *(float *)a->target = (float)d;
        return SLUICE_OK;
    default:
        return a->call(a->target, value, e);
    }
}

/* One flag, its value in the same word (after '=') or the next. Moves *index past the value. */
static int parse_flag(const struct args_spec *spec, int argc, char **argv, int *index, struct sluice_options *options, struct sluice_error *e)
{
    char *word = argv[*index], *value = NULL;
    char *equals = strchr(word, '=');
    char flag[64];
    size_t len = equals != NULL ? (size_t)(equals - word) : strlen(word);
    if (len >= sizeof(flag)) {
        return cli_fail(e, SLUICE_USAGE, "unknown flag %.60s...; sluice %s --help lists them", word, spec->command);
    }
    memcpy(flag, word, len);
    flag[len] = '\0';
    const struct arg *a = find_arg(spec, flag);
    int setting = a == NULL && spec->settings ? settings_find_flag(flag) : -1;
    if (a == NULL && setting < 0) {
        return refuse_unknown(spec, flag, e);
    }
    if (a != NULL && a->kind == ARG_SWITCH) {
        return equals == NULL ? store(a, flag, NULL, e) : cli_fail(e, SLUICE_USAGE, "%s takes no value", flag);
    }
    if (equals != NULL) {
        value = equals + 1;
    } else if (*index + 1 < argc && !is_flag(spec, argv[*index + 1])) {
        value = argv[++*index];
    } else {
        return cli_fail(e, SLUICE_USAGE, "%s: the value is missing; expected %s %s", flag, flag, a != NULL ? a->value : settings_info((uint32_t)setting)->value);
    }
    return a != NULL ? store(a, flag, value, e) : sluice_options_set(options, settings_info((uint32_t)setting)->name, value, e);
}

static void print_flag(const char *name, const char *alias, const char *value, const char *help, const char *standard)
{
    char left[80];
    snprintf(left, sizeof(left), "%s%s%s%s%s", alias != NULL ? alias : "", alias != NULL ? ", " : "", name, value != NULL ? " " : "", value != NULL ? value : "");
    printf("  %-34s %s", left, help);
    printf(standard != NULL ? " [%s]\n" : "\n", standard);
}

static void print_help(const struct args_spec *spec)
{
    printf("usage: sluice %s %s\n\n%s\n\nflags:\n", spec->command, spec->usage, spec->summary);
    for (size_t i = 0; i < spec->n; i++) {
        const struct arg *a = &spec->args[i];
        print_flag(a->name, a->alias, a->value, a->help, NULL);
    }
    if (spec->settings) {
        printf("\nmodel and machine (each also as SLUICE_NAME in the environment):\n");
        for (uint32_t i = 0; i < settings_count(); i++) {
            const struct setting_info *s = settings_info(i);
            char name[48];
            snprintf(name, sizeof(name), "--%s", s->name);
            print_flag(name, s->short_flag, s->value, s->help, s->default_text);
        }
    }
    printf("\nexamples:\n%s", spec->examples);
}

int args_parse(const struct args_spec *spec, int argc, char **argv, struct sluice_options *options, bool *ret_help, struct sluice_error *e)
{
    *ret_help = false;
    bool flags = true;
    const char *rest = NULL;
    for (int i = 1; i < argc; i++) {
        if (flags && strcmp(argv[i], "--") == 0) {
            flags = false;
        } else if (flags && (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)) {
            print_help(spec);
            *ret_help = true;
            return SLUICE_OK;
        } else if (flags && argv[i][0] == '-' && argv[i][1] != '\0') {
            int r = parse_flag(spec, argc, argv, &i, options, e);
            if (r != SLUICE_OK) {
                return r;
            }
        } else if (spec->positional == NULL || rest != NULL) {
            return cli_fail(e, SLUICE_USAGE, "unexpected argument %s; sluice %s --help shows what it takes", argv[i], spec->command);
        } else {
            rest = argv[i];
        }
    }
    if (spec->positional != NULL) {
        *spec->positional = rest;
    }
    return SLUICE_OK;
}
