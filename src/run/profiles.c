/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: profiles.h. Must not know: keys of profiles. */
#include "src/run/profiles.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/file.h"

static const char suffix[] = ".yaml";

enum { FOLDERS = 3, PATH_BYTES = 4096 };

/* Folder of the running program, with '/'; "" when it cannot be found. */
static void program_folder(char out[PATH_BYTES])
{
    ssize_t n = readlink("/proc/self/exe", out, PATH_BYTES - 1);
    out[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(out, '/');
    out[slash != NULL ? slash + 1 - out : 0] = '\0';
}

/* Folders in the order in which they are searched: the user's own; of a build; of an installation. false: there is none. */
static bool folder(unsigned which, struct str *out)
{
    const char *config = settings_environment("XDG_CONFIG_HOME"), *home = settings_environment("HOME");
    char program[PATH_BYTES];
    out->len = 0;
    if (which == 0) {
        bool own = config != NULL && config[0] == '/';
        if (!own && (home == NULL || home[0] != '/')) {
            return false;
        }
        str_printf(out, "%s%s/sluice/profiles", own ? config : home, own ? "" : "/.config");
    } else {
        program_folder(program);
        str_printf(out, "%s%s", program, which == 1 ? "configs" : "../share/sluice/profiles");
    }
    return !out->failed && file_is_folder(out->data);
}

static bool is_path(const char *what) { return strchr(what, '/') != NULL || file_has_suffix(what, suffix); }

static void list_names(const char *in, struct str *out)
{
    char **names;
    size_t n;
    if (file_list_folder(in, suffix, &names, &n, NULL) < 0) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        str_printf(out, "%s%.*s", out->len > 0 ? ", " : "", (int)(strlen(names[i]) - strlen(suffix)), names[i]);
    }
    file_free_list(names, n);
}

static int refuse_name(const char *name, struct error *e)
{
    struct str in = {0}, names = {0};
    for (unsigned i = 0; i < FOLDERS; i++) {
        if (folder(i, &in)) {
            list_names(in.data, &names);
        }
    }
    int r = in.failed || names.failed
                ? error_nomem(e, "names of profiles", names.len)
                : error_set(e, ERROR_USAGE, "--profile %s: no profile has this name; known: %.900s; a file is given as ./NAME or NAME.yaml", name,
                            names.len > 0 ? names.data : "none");
    str_deinit(&in);
    str_deinit(&names);
    return r;
}

/* Path of the first file for a name. */
static int find(const char *name, struct str *ret, struct error *e)
{
    for (unsigned i = 0; i < FOLDERS; i++) {
        if (folder(i, ret)) {
            str_printf(ret, "/%s%s", name, suffix);
            if (!ret->failed && file_exists(ret->data)) {
                return 0;
            }
        }
    }
    return ret->failed ? error_nomem(e, "path of a profile", strlen(name)) : refuse_name(name, e);
}

int profiles_open(const char *what, struct profile *ret, struct error *e)
{
    struct str path = {0};
    char *text;
    size_t len;
    int r = 0;
    if (is_path(what)) {
        str_puts(&path, what);
        r = path.failed ? error_nomem(e, "path of a profile", strlen(what)) : 0;
    } else {
        r = find(what, &path, e);
    }
    r = r < 0 ? r : file_read_all(path.data, PROFILE_BYTES_MAX, &text, &len, e);
    if (r == 0) {
        r = profile_parse(text, len, path.data, ret, e);
        free(text);
    }
    str_deinit(&path);
    return r;
}

int profiles_apply(struct settings *s, struct machine *ret_machine, struct error *e)
{
    if (ret_machine != NULL) {
        *ret_machine = (struct machine){0};
    }
    if (s->profile == NULL) {
        return 0;
    }
    struct profile *p = malloc(sizeof(*p));
    int r = p == NULL ? error_nomem(e, "profile", sizeof(*p)) : profiles_open(s->profile, p, e);
    r = r < 0 ? r : profile_apply(p, s, e);
    if (r == 0 && ret_machine != NULL && p->has_machine) {
        *ret_machine = p->machine;
    }
    free(p);
    return r;
}
