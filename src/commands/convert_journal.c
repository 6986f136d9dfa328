/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the journal's text and the fingerprint in it. Must not know: how data is made. */
#include "src/commands/convert_journal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "io/file.h"
#include "io/shard_name.h"
#include "src/base/json_text.h"

enum { JOURNAL_LIMIT = 4096 };

static int add_source(XXH3_state_t *hash, const struct file *f, struct error *e)
{
    struct stat st;
    if (fstat(f->fd, &st) != 0) {
        return error_set(e, -errno, "%s: cannot stat: %s", f->path, strerror(errno));
    }
    const int64_t facts[3] = {(int64_t)st.st_size, (int64_t)st.st_mtim.tv_sec, (int64_t)st.st_mtim.tv_nsec};
    const char *name = shard_base_name(f->path);
    XXH3_64bits_update(hash, name, strlen(name) + 1);
    XXH3_64bits_update(hash, facts, sizeof(facts));
    return 0;
}

int convert_journal_init(struct convert_journal *j, const char *out, const struct weights *w, const struct output *o, struct error *e)
{
    struct str path = {0};
    XXH3_state_t *hash = XXH3_createState();
    size_t len;
    str_printf(&path, "%s.journal", out);
    *j = (struct convert_journal){.path = str_take(&path, &len)};
    if (j->path == NULL || hash == NULL) {
        XXH3_freeState(hash);
        convert_journal_deinit(j);
        return error_nomem(e, "journal", strlen(out));
    }
    int r = 0;
    XXH3_64bits_reset(hash);
    for (uint32_t i = 0; i < w->n_containers; i++) {
        for (uint32_t k = 0; r == 0 && k < w->containers[i]->n_files; k++) {
            r = add_source(hash, &w->containers[i]->files[k], e);
        }
    }
    for (uint32_t i = 0; i < o->n; i++) {
        XXH3_64bits_update(hash, o->files[i].header.data, o->files[i].header.len);
    }
    j->fingerprint = XXH3_64bits_digest(hash);
    XXH3_freeState(hash);
    if (r < 0) {
        convert_journal_deinit(j);
    }
    return r;
}

void convert_journal_deinit(struct convert_journal *j)
{
    free(j->path);
    *j = (struct convert_journal){0};
}

int convert_journal_read(const struct convert_journal *j, struct output_place *ret, struct error *e)
{
    char *text = NULL;
    size_t len = 0;
    json_t *root = NULL;
    if (!file_exists(j->path)) {
        return 0;
    }
    int r = file_read_all(j->path, JOURNAL_LIMIT, &text, &len, e);
    r = r < 0 ? r : json_text_parse(text, len, 0, &root, e);
    free(text);
    if (r < 0) {
        return error_prefix(e, r, "%s", j->path);
    }
    const char *fingerprint = json_string_value(json_object_get(root, "fingerprint"));
    json_int_t tensor = json_integer_value(json_object_get(root, "tensor")), at = json_integer_value(json_object_get(root, "at"));
    bool same = fingerprint != NULL && strtoull(fingerprint, NULL, 16) == j->fingerprint && tensor >= 0 && at >= 0;
    json_decref(root);
    if (!same) {
        return error_set(e, ERROR_USAGE, "%s: left by a run of another source or with other options; give that command again to finish it, or "
                         "--force to start over", j->path);
    }
    *ret = (struct output_place){(size_t)tensor, (uint64_t)at};
    return 1;
}

int convert_journal_write(void *ctx, const struct output_place *done, struct error *e)
{
    const struct convert_journal *j = ctx;
    struct str text = {0};
    str_printf(&text, "{\"fingerprint\": \"%016llx\", \"tensor\": %zu, \"at\": %llu}\n", (unsigned long long)j->fingerprint, done->tensor,
               (unsigned long long)done->at);
    int r = text.failed ? error_nomem(e, "journal", 0) : file_write_all(j->path, text.data, text.len, e);
    str_deinit(&text);
    return r;
}

void convert_journal_remove(const struct convert_journal *j) { unlink(j->path); }
