/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the files of the folder, written to FOLDER.part, the index last, then renamed. Must not know: block layouts. */
#include "src/commands/synth_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/file.h"
#include "io/file_part.h"
#include "src/commands/synth_config.h"

static const uint64_t shard_limit = UINT64_C(5000000000);

enum text { CONFIG, GENERATION, TOKENIZER, TOKENIZER_CONFIG, INDEX };
static const char *const texts[] = {[CONFIG] = "config.json", [GENERATION] = "generation_config.json", [TOKENIZER] = "tokenizer.json",
                                    [TOKENIZER_CONFIG] = "tokenizer_config.json", [INDEX] = "model.safetensors.index.json"};

static int put(const char *folder, enum text which, const char *text, size_t len, struct error *e)
{
    char *path = file_join(folder, texts[which]);
    int r = path != NULL ? file_write_all(path, text, len, e) : error_nomem(e, texts[which], len);
    free(path);
    return r;
}

static int put_texts(const char *folder, const struct synth_model *m, const struct synth_vocabulary *v, bool fp8, struct error *e)
{
    char *config = NULL, *generation = NULL;
    struct str tokenizer = {0}, tokenizer_config = {0};
    synth_vocabulary_json(v, &tokenizer, &tokenizer_config);
    int r = tokenizer.failed || tokenizer_config.failed ? error_nomem(e, "tokenizer.json", tokenizer.len) : 0;
    r = r < 0 ? r : synth_config_text(m, fp8, &config, &generation, e);
    r = r < 0 ? r : put(folder, CONFIG, config, strlen(config), e);
    r = r < 0 ? r : put(folder, GENERATION, generation, strlen(generation), e);
    r = r < 0 ? r : put(folder, TOKENIZER, tokenizer.data, tokenizer.len, e);
    r = r < 0 ? r : put(folder, TOKENIZER_CONFIG, tokenizer_config.data, tokenizer_config.len, e);
    str_deinit(&tokenizer);
    str_deinit(&tokenizer_config);
    free(config);
    free(generation);
    return r;
}

static bool has_fp8(const struct tensor_list *l)
{
    for (size_t i = 0; i < l->n; i++) {
        if (l->items[i].scales) {
            return true;
        }
    }
    return false;
}

static int fill(const char *folder, const struct synth_model *m, const struct synth_vocabulary *v, struct tensor_list *list,
                const struct output_job *job, struct error *e)
{
    struct output o = {0};
    struct str index = {0};
    int r = output_init_hf(&o, folder, shard_limit, list, &index, e);
    r = r < 0 || job->header_only ? r : output_check_space(folder, output_bytes(&o), e);
    r = r < 0 ? r : put_texts(folder, m, v, has_fp8(list), e);
    r = r < 0 ? r : output_write(&o, job, e);
    r = r < 0 ? r : put(folder, INDEX, index.data, index.len, e);
    for (uint32_t i = 0; r < 0 && i < o.n; i++) {
        unlink(o.files[i].path);
    }
    str_deinit(&index);
    output_deinit(&o);
    return r;
}

/* Everything in it was written here; the shards are gone already. Nothing is allocated: there may be no memory. */
static void remove_folder(const char *folder)
{
    int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = 0; dir >= 0 && i < ARRAY_LEN(texts); i++) {
        unlinkat(dir, texts[i], 0);
    }
    if (dir >= 0) {
        close(dir);
    }
    rmdir(folder);
}

static int make_folder(const char *path, const char *part, struct error *e)
{
    char **names = NULL;
    size_t n = 0;
    if (file_exists(path) && !file_is_folder(path)) {
        return error_set(e, ERROR_USAGE, "%s: is there and is no folder; name a new one", path);
    }
    if (file_is_folder(path)) {
        int r = file_list_folder(path, "", &names, &n, e);
        file_free_list(names, n);
        if (r < 0 || n > 0) {
            return r < 0 ? r : error_set(e, ERROR_USAGE, "%s: is there and has %zu files; name a new folder, or remove it", path, n);
        }
    }
    if (mkdir(part, 0777) != 0) {
        int code = errno;
        return error_set(e, code == EEXIST ? ERROR_USAGE : -code, "%s: %s", part,
                         code == EEXIST ? "is there, left by a run that was killed; remove it" : strerror(code));
    }
    return 0;
}

int synth_folder_write(const char *path, const struct synth_model *m, const struct synth_vocabulary *v, struct tensor_list *list,
                       const struct output_job *job, struct error *e)
{
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/') {
        len--;
    }
    char *folder = strndup(path, len), *part = folder != NULL ? file_part_name(folder) : NULL;
    int r = part != NULL ? make_folder(folder, part, e) : error_nomem(e, "path", len);
    if (r == 0) {
        r = fill(part, m, v, list, job, e);
        r = r < 0 ? r : file_part_publish(folder, e);
        if (r < 0) {
            remove_folder(part);
        }
    }
    free(part);
    free(folder);
    return r;
}
