/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: path_hint.h. Must not know: models. */
#include "src/model/path_hint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/file.h"
#include "src/base/str.h"

static void add(struct error *e, const char *what, const char *folder, const char *name, const char *end)
{
    const char *slash = folder[0] == '\0' || folder[strlen(folder) - 1] == '/' ? "" : "/";
    size_t len = strlen(e->text);
    snprintf(e->text + len, sizeof(e->text) - len, "; %s%s%s%s%s", what, folder, name[0] != '\0' ? slash : "", name, end);
    text_one_line(e->text);
}

/* `at`: the part of path that is not there, in the folder before it. */
static void hint(char *path, char *at, struct error *e)
{
    char **names;
    size_t n;
    at[strcspn(at, "/")] = '\0';
    char *name = strdup(at);
    *at = '\0';
    const char *near = NULL;
    if (name != NULL && file_list_folder(path[0] != '\0' ? path : ".", "", &names, &n, NULL) == 0) {
        const char **list = calloc(n + 1, sizeof(*list));
        for (size_t i = 0; list != NULL && i < n; i++) {
            list[i] = names[i];
        }
        near = list != NULL ? nearest_name(name, list) : NULL;
        if (near != NULL) {
            add(e, "did you mean ", path, near, "?");
        }
        free(list);
        file_free_list(names, n);
    }
    if (near == NULL) {
        add(e, "there is no such name in ", path[0] != '\0' ? path : "the current folder", "", "");
    }
    free(name);
}

int path_hint(const char *path, int code, struct error *e)
{
    char *copy = e != NULL ? strdup(path) : NULL, *at = copy;
    while (at != NULL && *at != '\0') {
        char *end = at + strspn(at, "/");
        end += strcspn(end, "/");
        char kept = *end;
        *end = '\0';
        bool there = file_exists(copy);
        *end = kept;
        if (!there) {
            hint(copy, at + strspn(at, "/"), e);
            break;
        }
        at = end;
    }
    free(copy);
    return code;
}
