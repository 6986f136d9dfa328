/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: finding the tokenizer of whatever -m names. Must not know: what is in it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "io/container.h"
#include "src/model/path_hint.h"
#include "src/model/tokenizer.h"

static bool has_file(const char *folder, const char *name)
{
    char *path = file_join(folder, name);
    bool found = path && file_exists(path);
    free(path);
    return found;
}

/* tokenizer.json carries its patterns itself, so a name chosen by the user would have no effect: refused. */
static int open_folder(const char *folder, const char *pre_override, struct tokenizer **ret, struct error *e)
{
    if (pre_override && strcmp(pre_override, "auto") != 0) {
        return error_set(e, ERROR_USAGE, "--pre-tokenizer %s: %s/tokenizer.json has its own patterns; the flag is for GGUF files", pre_override, folder);
    }
    return tokenizer_open_folder(folder, ret, e);
}

/* A GGUF without tokenizer keys may have a tokenizer.json beside it. */
int tokenizer_open(const char *path, const char *pre_override, struct tokenizer **ret, struct error *e)
{
    if (file_is_folder(path) && has_file(path, "tokenizer.json")) {
        return open_folder(path, pre_override, ret, e);
    }
    struct container *c = NULL;
    int rc = container_open(path, &(struct container_options){ .allow_header_only = true }, &c, e);
    if (rc < 0) {
        return rc == -ENOENT ? path_hint(path, rc, e) : rc;
    }
    if (c->kind == CONTAINER_GGUF && (gguf_find(&c->meta, "tokenizer.ggml.model") || !has_file(c->folder, "tokenizer.json"))) {
        rc = tokenizer_open_gguf(&c->meta, path, pre_override, ret, e);
    } else {
        rc = open_folder(c->folder, pre_override, ret, e);
    }
    container_close(c);
    return rc;
}
