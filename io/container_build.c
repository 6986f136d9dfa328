/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: gathering files and tensors into a container and telling all that is wrong at once.
 * Must not know: header formats, naming schemes. */
#include "io/container_build.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/intmath.h"
#include "io/shard_name.h"

enum {
    HEADER_ONLY_SLACK = 4096, /* what a cut right behind the header may have kept of the data */
    LIST_BYTES = 1100,        /* of the list fit into an error */
    RUN_NAMED = 3,            /* longer runs of missing files are written as "A to B" */
};

int container_build_init(struct container_build *b, struct container *c, const struct container_options *options, uint32_t expected,
                         struct error *e)
{
    *b = (struct container_build){.c = c, .options = options, .expected = expected, .e = e};
    c->files = calloc(expected, sizeof *c->files);
    c->names = calloc(expected, sizeof(void *));
    return c->names != NULL && c->files != NULL ? 0 : error_nomem(e, "file list", expected * sizeof *c->files);
}

void container_build_deinit(struct container_build *b)
{
    str_deinit(&b->problems);
    free(b->run_first);
    free(b->run_last);
}

static void list_problem(struct container_build *b, const char *text)
{
    if (b->problems.len < LIST_BYTES) {
        str_printf(&b->problems, "%s%s", b->problems.len > 0 ? "; " : "", text);
    }
}

/* Writes the run of missing files into the list. */
static void end_run(struct container_build *b)
{
    struct str s = {0};
    if (b->run == 0) {
        return;
    }
    if (b->run == 1) {
        str_printf(&s, "%s is missing", b->run_first);
    } else {
        str_printf(&s, "%s %s %s are missing", b->run_first, b->run < RUN_NAMED ? "and" : "to", b->run_last);
        if (b->run >= RUN_NAMED) {
            str_printf(&s, " (%u files)", b->run);
        }
    }
    if (!s.failed) {
        list_problem(b, s.data);
    }
    str_deinit(&s);
    free(b->run_first);
    free(b->run_last);
    b->run_first = b->run_last = NULL;
    b->run = 0;
}

static int note_missing(struct container_build *b, const char *path)
{
    char *name = strdup(b->expected == 1 ? path : shard_base_name(path));
    if (name == NULL) {
        return error_nomem(b->e, "file name", strlen(path));
    }
    if (b->run == 0) {
        b->run_first = name;
    } else {
        free(b->run_last);
        b->run_last = name;
    }
    b->run++;
    b->n_problems++;
    return 0;
}

void container_build_problem(struct container_build *b, const char *path, const char *fmt, ...)
{
    char text[1000];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    struct str s = {0};
    end_run(b);
    str_printf(&s, "%s: %s", b->expected == 1 ? path : shard_base_name(path), text);
    if (!s.failed) {
        list_problem(b, s.data);
    }
    str_deinit(&s);
    b->n_problems++;
}

int container_build_failed(struct container_build *b, const char *path, const struct error *failed)
{
    if (failed->code == -ENOMEM) {
        return error_set(b->e, -ENOMEM, "%s", failed->text);
    }
    size_t n = strlen(path);
    bool named = strncmp(failed->text, path, n) == 0 && strncmp(failed->text + n, ": ", 2) == 0;
    container_build_problem(b, path, "%s%s", failed->text + (named ? n + 2 : 0),
                            failed->code == ERROR_FORMAT ? "; get the file again or take another one" : "");
    return 0;
}

/* A checkout without LFS leaves small text files in the place of the models. */
static bool is_lfs_pointer(const struct file *f)
{
    static const char mark[] = "version https://git-lfs";
    char begin[sizeof mark - 1];
    return f->size >= sizeof begin && f->size < 1024 && file_read_at(f, 0, begin, sizeof begin, NULL) == 0 &&
           memcmp(begin, mark, sizeof begin) == 0;
}

int container_build_open(struct container_build *b, const char *path)
{
    struct error failed = {0};
    struct file f;
    int r = file_open(path, &f, &failed);
    if (r == -ENOENT) {
        return note_missing(b, path);
    }
    if (r < 0) {
        return container_build_failed(b, path, &failed);
    }
    end_run(b);
    if (is_lfs_pointer(&f)) {
        container_build_problem(b, path, "is a Git LFS pointer of %llu bytes, not the model; fetch it with: git lfs pull",
                                (unsigned long long)f.size);
        file_close(&f);
        return 0;
    }
    b->c->files[b->c->n_files++] = f;
    return 1;
}

int container_build_tensor(struct container_build *b, const struct tensor *t)
{
    struct container *c = b->c;
    if (c->n_tensors == b->cap_tensors) {
        size_t cap = b->cap_tensors == 0 ? 1024 : b->cap_tensors * 2;
        struct tensor *grown = realloc(c->tensors, cap * sizeof *grown);
        if (grown == NULL) {
            return error_nomem(b->e, "tensor list", cap * sizeof *grown);
        }
        c->tensors = grown;
        b->cap_tensors = cap;
    }
    c->tensors[c->n_tensors] = *t;
    c->tensors[c->n_tensors++].file = c->n_files - 1;
    return 0;
}

void container_build_keep(struct container_build *b, void *block)
{
    void **blocks = b->c->names;
    blocks[b->c->n_files - 1] = block;
}

void container_build_check_ranges(struct container_build *b, size_t first, uint64_t data_start, uint64_t data_end)
{
    struct container *c = b->c;
    const struct file *f = &c->files[c->n_files - 1];
    if (c->n_tensors == first || data_end <= f->size) {
        return;
    }
    bool bare = f->size <= data_start + HEADER_ONLY_SLACK;
    if (bare && b->options->allow_header_only) {
        c->header_only = true;
        return;
    }
    size_t i = first;
    while (c->tensors[i].offset + c->tensors[i].bytes <= f->size) {
        i++;
    }
    const struct tensor *t = &c->tensors[i];
    container_build_problem(b, f->path, "tensor %.200s needs %llu bytes at offset %llu, the file of %llu bytes has %llu of them; %s", t->name,
                            (unsigned long long)t->bytes, (unsigned long long)t->offset, (unsigned long long)f->size,
                            (unsigned long long)(f->size > t->offset ? f->size - t->offset : 0),
                            bare ? "a header without data serves `sluice plan` and `sluice inspect` only; get the whole file to run it"
                                 : "the download is incomplete, or this is a piece of a larger file");
}

int container_build_verdict(struct container_build *b)
{
    end_run(b);
    if (b->n_problems == 0) {
        return 0;
    }
    if (b->problems.failed) {
        return error_nomem(b->e, "error message", b->problems.len);
    }
    if (b->expected == 1) {
        return error_set(b->e, ERROR_FORMAT, "%s", b->problems.data);
    }
    return error_set(b->e, ERROR_FORMAT, "%s: %u of %u files cannot be used: %s%s", b->c->path, b->n_problems, b->expected,
                     b->problems.data, b->problems.len >= LIST_BYTES ? "; and more" : "");
}

size_t container_sets(char **names, size_t n)
{
    size_t sets = 0;
    for (size_t i = 0; i < n; i++) {
        size_t k = 0;
        while (k < sets && !shard_name_same_set(names[k], names[i])) {
            k++;
        }
        if (k == sets) {
            char *swap = names[sets];
            names[sets++] = names[i];
            names[i] = swap;
        }
    }
    return sets;
}
