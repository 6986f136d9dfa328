/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: mirror.h. Must not know: what is in the files. */
#include "io/mirror.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/intmath.h"
#include "io/container_build.h"
#include "io/shard_name.h"

enum {
    BLOCK = 1 << 20,      /* headers are compared so much at a time */
    SAMPLES = 16,         /* places of a file where weights are compared: models of one shape differ in nothing else */
    SAMPLE_BYTES = 4096,
};

/* Two files while they are compared. */
struct pair {
    const struct file *own, *copy;
    char *own_bytes, *copy_bytes; /* [BLOCK] */
};

/* First byte of `file` that belongs to a tensor. */
static uint64_t header_bytes(const struct container *c, uint32_t file)
{
    uint64_t least = c->files[file].size;
    for (size_t i = 0; i < c->n_tensors; i++) {
        least = c->tensors[i].file == file ? min_u64(least, c->tensors[i].offset) : least;
    }
    return least;
}

/* 1: the same bytes; 0: *ret_at is the first that differs; negative: a read failed. */
static int same(const struct pair *p, uint64_t offset, size_t bytes, uint64_t *ret_at, struct error *e)
{
    int r = file_read_at(p->own, offset, p->own_bytes, bytes, e);
    r = r < 0 ? r : file_read_at(p->copy, offset, p->copy_bytes, bytes, e);
    size_t i = 0;
    while (r == 0 && i < bytes && p->own_bytes[i] == p->copy_bytes[i]) {
        i++;
    }
    *ret_at = offset + i;
    return r < 0 ? r : i == bytes;
}

static int same_header(const struct pair *p, uint64_t bytes, uint64_t *ret_at, struct error *e)
{
    int r = 1;
    for (uint64_t at = 0; at < bytes && r == 1; at += BLOCK) {
        r = same(p, at, (size_t)min_u64(BLOCK, bytes - at), ret_at, e);
    }
    return r;
}

static int same_samples(const struct pair *p, uint64_t begin, uint64_t *ret_at, struct error *e)
{
    uint64_t left = p->own->size - begin, bytes = min_u64(SAMPLE_BYTES, left);
    int r = 1;
    for (uint64_t i = 0; i < SAMPLES && bytes > 0 && r == 1; i++) {
        r = same(p, begin + (left - bytes) / (SAMPLES - 1) * i, (size_t)bytes, ret_at, e);
    }
    return r;
}

/* What is wrong with a copy is noted in b. */
static void compare(struct container_build *b, const struct pair *p, uint64_t header)
{
    struct error failed = {0};
    uint64_t at = 0;
    if (p->own->device == p->copy->device && p->own->inode == p->copy->inode) {
        container_build_problem(b, p->copy->path, "is the model's own file, not a copy of it");
        return;
    }
    for (uint32_t i = 0; i < p->own->n_copies; i++) {
        const struct file *other = &p->own->copies[i];
        if (other->device == p->copy->device && other->inode == p->copy->inode) {
            container_build_problem(b, p->copy->path, "is the same file as %s of another mirror: name each folder once", other->path);
            return;
        }
    }
    if (p->own->size != p->copy->size) {
        container_build_problem(b, p->copy->path, "has %llu bytes, the model's file has %llu; copy it again", (unsigned long long)p->copy->size,
                                (unsigned long long)p->own->size);
        return;
    }
    int header_same = same_header(p, header, &at, &failed);
    int r = header_same == 1 ? same_samples(p, header, &at, &failed) : header_same;
    if (r < 0) {
        container_build_problem(b, p->copy->path, "%s", failed.text);
    } else if (r == 0) {
        container_build_problem(b, p->copy->path, "%s from the model's file at byte %llu: not a copy of it, or damaged",
                                header_same ? "weights differ" : "the header differs", (unsigned long long)at);
    }
}

static int open_copies(struct container_build *b, const struct container *c, struct error *e)
{
    struct pair p = {.own_bytes = malloc(BLOCK), .copy_bytes = malloc(BLOCK)};
    int r = p.own_bytes != NULL && p.copy_bytes != NULL ? 0 : error_nomem(e, "comparing files", 2 * BLOCK);
    for (uint32_t i = 0; i < c->n_files && r == 0; i++) {
        char *path = file_join(b->c->path, shard_base_name(c->files[i].path));
        r = path != NULL ? container_build_open(b, path) : error_nomem(e, "file name", strlen(b->c->path));
        free(path);
        if (r == 1) {
            p.own = &c->files[i];
            p.copy = &b->c->files[b->c->n_files - 1];
            compare(b, &p, header_bytes(c, i));
            r = 0;
        }
    }
    free(p.own_bytes);
    free(p.copy_bytes);
    return r < 0 ? r : container_build_verdict(b);
}

/* Gives each file of c its copy. */
static int hang_on(struct container *c, struct file *copies, struct error *e)
{
    for (uint32_t i = 0; i < c->n_files; i++) {
        struct file *f = &c->files[i], *grown = realloc(f->copies, (f->n_copies + 1) * sizeof(*grown));
        if (grown == NULL) {
            return error_nomem(e, "list of copies", sizeof(*grown));
        }
        f->copies = grown;
        f->copies[f->n_copies++] = copies[i];
        copies[i] = (struct file){0};
    }
    return 0;
}

static int open_one(struct container *c, char *folder, struct error *e)
{
    static const struct container_options options;
    struct container mirror = {.path = folder, .folder = folder};
    struct container_build b;
    if (!file_is_folder(folder)) {
        return error_set(e, ERROR_USAGE, "--model-mirror %s: no such folder; name the one that holds a copy of the model's files", folder);
    }
    int r = container_build_init(&b, &mirror, &options, c->n_files, e);
    r = r < 0 ? r : open_copies(&b, c, e);
    if (r == ERROR_FORMAT) {
        error_prefix(e, r, "--model-mirror");
    }
    r = r < 0 ? r : hang_on(c, mirror.files, e);
    for (uint32_t i = 0; mirror.files != NULL && i < mirror.n_files; i++) {
        file_close(&mirror.files[i]);
    }
    container_build_deinit(&b);
    free(mirror.files);
    free(mirror.names);
    return r;
}

int mirror_open(struct container *c, const char *folders, struct error *e)
{
    int r = 0;
    for (const char *at = folders; *at != '\0' && r == 0;) {
        size_t len = strcspn(at, ",");
        char *folder = strndup(at, len);
        if (folder == NULL) {
            return error_nomem(e, "folder name", len);
        }
        if (c->files[0].n_copies == MIRRORS_MAX) {
            r = error_set(e, ERROR_USAGE, "--model-mirror %s: more than %d folders; leave some out", folders, MIRRORS_MAX);
        } else if (len > 0) {
            r = open_one(c, folder, e);
        }
        free(folder);
        at += len + (at[len] == ',');
    }
    return r;
}

void mirror_note(const struct container *c, uint32_t i, char *out, uint32_t out_bytes)
{
    const struct file *own = &c->files[0], *copy = &own->copies[i];
    out[0] = '\0';
    if (own->device == copy->device) {
        int len = (int)(shard_base_name(copy->path) - copy->path);
        snprintf(out, out_bytes, "mirror %.*s: on the same device as the model; it serves when a read fails, and makes nothing faster", len, copy->path);
    }
}
