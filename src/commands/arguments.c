/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: arguments.h. Must not know: what a command does. */
#include "src/commands/arguments.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/attr.h"
#include "src/base/foreign.h"

/* Settings that decide what is read; any other would be one nobody reads. */
static const char *const settings_read[] = { "model", "mtp-from", "mtp", "expert-groups" };

enum { NAMES_MOST = 80 }; /* flags to suggest one of: settings and those of a command */

static bool setting_named(const char *name, bool all)
{
    for (size_t i = 0; !all && i < ARRAY_LEN(settings_read); i++) {
        if (strcmp(name, settings_read[i]) == 0) {
            return true;
        }
    }
    return all;
}

static const char *setting_of_flag(const char *flag, bool all)
{
    int index = settings_find_flag(flag);
    const char *name = index >= 0 ? settings_info((uint32_t)index)->name : NULL;
    return name != NULL && setting_named(name, all) ? name : NULL;
}

static const struct argument *find_own(const struct argument *own, const char *flag)
{
    for (; own->flag != NULL; own++) {
        if (strcmp(own->flag, flag) == 0) {
            return own;
        }
    }
    return NULL;
}

/* As src/cli/args.c says it. */
int arguments_refuse(const char *flag, const struct argument *own, bool all, struct error *e)
{
    const char *names[NAMES_MOST + 1] = {NULL}, *advice = foreign_flag_advice(flag);
    size_t n = 0;
    if (advice != NULL) {
        return error_set(e, ERROR_USAGE, "%s: sluice has no such flag: %s", flag, advice);
    }
    for (; own->flag != NULL && n < NAMES_MOST; own++) {
        if (own->flag[1] == '-') {
            names[n++] = own->flag + 2;
        }
    }
    for (uint32_t i = 0; i < settings_count() && n < NAMES_MOST; i++) {
        if (setting_named(settings_info(i)->name, all)) {
            names[n++] = settings_info(i)->name;
        }
    }
    const char *near = nearest_name(flag + strspn(flag, "-"), names);
    if (near != NULL) {
        return error_set(e, ERROR_USAGE, "unknown flag %s; did you mean --%s?", flag, near);
    }
    return error_set(e, ERROR_USAGE, flag[0] == '-' ? "unknown flag %s; --help lists them" : "unexpected argument %s; --help shows what it takes", flag);
}

static int read_flag(char **argv, const struct argument *own, bool all, struct settings *s, int *ret_taken, struct error *e)
{
    const struct argument *mine = find_own(own, argv[0]);
    const char *setting = setting_of_flag(argv[0], all);
    if (mine != NULL && mine->present != NULL) {
        *mine->present = true;
        *ret_taken = 1;
        return 0;
    }
    if (mine == NULL && setting == NULL) {
        return arguments_refuse(argv[0], own, all, e);
    }
    if (argv[1] == NULL) {
        return error_set(e, ERROR_USAGE, "%s needs a value; --help shows which", argv[0]);
    }
    *ret_taken = 2;
    if (mine != NULL) {
        *mine->text = argv[1];
        return 0;
    }
    return settings_set(s, setting, argv[1], SOURCE_FLAG, e);
}

static int read_flags(int argc, char **argv, const struct argument *own, bool all, struct settings *s, bool *ret_help, struct error *e)
{
    int r = settings_read_environment(s, e), taken = 1;
    *ret_help = false;
    for (int i = 1; r == 0 && i < argc && !*ret_help; i += taken) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            *ret_help = true;
        } else {
            r = read_flag(argv + i, own, all, s, &taken, e);
        }
    }
    return r;
}

int arguments_read_all(int argc, char **argv, const struct argument *own, struct settings *s, bool *ret_help, struct error *e)
{
    return read_flags(argc, argv, own, true, s, ret_help, e);
}

int arguments_read_few(int argc, char **argv, const struct argument *own, struct settings *s, bool *ret_help, struct error *e)
{
    return read_flags(argc, argv, own, false, s, ret_help, e);
}

int arguments_read(int argc, char **argv, const struct argument *own, struct settings *s, bool *ret_help, struct error *e)
{
    int r = arguments_read_few(argc, argv, own, s, ret_help, e);
    if (r == 0 && !*ret_help && s->model == NULL) {
        r = error_set(e, ERROR_USAGE, "no model given: -m PATH; --help shows examples");
    }
    return r;
}

struct bind_options arguments_bind(const struct settings *s)
{
    bool governed;
    return (struct bind_options){
        .path = s->model,
        .mtp_from = s->mtp_from,
        .mtp = settings_drafts(s, &governed) > 0,
        .group_routing = strcmp(s->expert_groups, "off") != 0,
    };
}

int arguments_print(struct str *s, struct error *e)
{
    size_t len = 0;
    bool failed = s->failed;
    char *text = str_take(s, &len);
    if (failed || text == NULL) {
        free(text);
        return error_nomem(e, "report", len);
    }
    bool ok = fwrite(text, 1, len, stdout) == len && fflush(stdout) == 0;
    int code = errno;
    free(text);
    return ok ? 0 : error_set(e, -code, "standard output: %s; the report is cut", strerror(code));
}

int arguments_finish(const char *command, int code, const struct error *e)
{
    if (code < 0 && e->text[0] != '\0') {
        fprintf(stderr, "sluice %s: %s\n", command, e->text);
    }
    return error_exit_status(code);
}
