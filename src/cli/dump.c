/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the safetensors writer: 8 bytes of header length, JSON, rows at their places. Must not know: what arrays mean. */
#include "src/cli/dump.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/str.h"
#include "src/cli/term.h"

struct dump {
    int fd;
    int failure; /* negative errno of the first failed write */
    char *path, *partial; /* partial NULL: written in place, or committed */
    struct dump_array *arrays;
    uint32_t n;
    uint64_t header_bytes; /* the 8 of the length included; stays when arrays get shorter: padded with spaces */
    uint64_t data_bytes;
};

static int write_at(int fd, const void *data, size_t len, uint64_t offset)
{
    const char *p = data;
    while (len > 0) {
        ssize_t n = pwrite(fd, p, len, (off_t)offset);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return n < 0 ? -errno : -EIO;
        }
        p += n;
        len -= (size_t)n;
        offset += (uint64_t)n;
    }
    return 0;
}

static void render_header(const struct dump *d, struct str *out)
{
    str_puts(out, "{");
    for (uint32_t i = 0; i < d->n; i++) {
        const struct dump_array *a = &d->arrays[i];
        str_printf(out, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%" PRIu64 ",%" PRIu64 "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", i == 0 ? "" : ",", a->name,
                   a->integers ? "I32" : "F32", a->rows, a->cols, a->offset, a->offset + a->rows * a->cols * 4);
    }
    str_puts(out, "}");
}

/* Also at commit: fewer rows make a shorter text, spaces fill the rest. */
static int write_header(struct dump *d)
{
    struct str text = { 0 };
    render_header(d, &text);
    if (d->header_bytes == 0) {
        d->header_bytes = 8 + (text.len + 7) / 8 * 8;
    }
    while (!text.failed && text.len < d->header_bytes - 8) {
        str_puts(&text, " ");
    }
    unsigned char length[8];
    for (int i = 0; i < 8; i++) {
        length[i] = (unsigned char)((d->header_bytes - 8) >> (8 * i));
    }
    int r = text.failed ? -ENOMEM : write_at(d->fd, length, sizeof(length), 0);
    if (r == 0) {
        r = write_at(d->fd, text.data, text.len, 8);
    }
    str_deinit(&text);
    return r;
}

static int place_arrays(struct dump *d)
{
    for (uint32_t i = 0; i < d->n; i++) {
        uint64_t cells, bytes;
        d->arrays[i].offset = d->data_bytes;
        if (__builtin_mul_overflow(d->arrays[i].rows, d->arrays[i].cols, &cells) || __builtin_mul_overflow(cells, (uint64_t)4, &bytes) || __builtin_add_overflow(d->data_bytes, bytes, &d->data_bytes) || d->data_bytes > INT64_MAX / 2) {
            return -EFBIG;
        }
    }
    return 0;
}

static int open_target(struct dump *d)
{
    struct stat st;
    if (stat(d->path, &st) == 0 && !S_ISREG(st.st_mode)) {
        d->fd = open(d->path, O_WRONLY | O_CLOEXEC);
        return d->fd < 0 ? -errno : 0;
    }
    if (asprintf(&d->partial, "%s.%ld.tmp", d->path, (long)getpid()) < 0) {
        d->partial = NULL;
        return -ENOMEM;
    }
    d->fd = open(d->partial, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (d->fd < 0) {
        int r = -errno;
        free(d->partial);
        d->partial = NULL;
        return r;
    }
    return 0;
}

static int reserve_space(struct dump *d)
{
    if (d->partial == NULL || d->data_bytes == 0) {
        return 0;
    }
    int r = posix_fallocate(d->fd, 0, (off_t)(d->header_bytes + d->data_bytes));
    return r == ENOSPC || r == EFBIG ? -r : 0; /* others: the file system cannot; writing will show */
}

static int report(const struct dump *d, int failure, struct sluice_error *e)
{
    char size[24];
    return cli_fail(e, SLUICE_FAILED, "%s: cannot write the dump of %s: %s", d->path, format_bytes(size, d->header_bytes + d->data_bytes), strerror(-failure));
}

int dump_create(const char *path, const struct dump_array *arrays, uint32_t n, bool reserve, struct dump **ret, struct sluice_error *e)
{
    struct dump *d = calloc(1, sizeof(*d));
    if (d == NULL) {
        return cli_fail(e, SLUICE_FAILED, "out of memory");
    }
    d->fd = -1;
    d->n = n;
    d->path = strdup(path);
    d->arrays = malloc(n * sizeof(*arrays));
    if (d->path == NULL || d->arrays == NULL) {
        dump_destroy(d);
        return cli_fail(e, SLUICE_FAILED, "out of memory");
    }
    memcpy(d->arrays, arrays, n * sizeof(*arrays));
    int r = place_arrays(d);
    if (r == 0) {
        r = open_target(d);
    }
    if (r == 0) {
        r = write_header(d);
    }
    if (r == 0 && reserve) {
        r = reserve_space(d);
    }
    if (r < 0) {
        report(d, r, e);
        dump_destroy(d);
        return SLUICE_FAILED;
    }
    *ret = d;
    return SLUICE_OK;
}

void dump_row(struct dump *d, uint32_t array, uint64_t row, const void *values)
{
    const struct dump_array *a = &d->arrays[array];
    if (d->failure == 0 && row < a->rows) {
        d->failure = write_at(d->fd, values, a->cols * 4, d->header_bytes + a->offset + row * a->cols * 4);
    }
}

int dump_check(const struct dump *d, struct sluice_error *e) { return d->failure == 0 ? SLUICE_OK : report(d, d->failure, e); }

void dump_shorten(struct dump *d, uint64_t rows)
{
    struct dump_array *last = &d->arrays[d->n - 1];
    if (rows < last->rows) {
        last->rows = rows;
        d->data_bytes = last->offset + rows * last->cols * 4;
    }
}

int dump_commit(struct dump *d, struct sluice_error *e)
{
    int r = d->failure;
    if (r == 0) {
        r = write_header(d);
    }
    if (r == 0 && d->partial != NULL) {
        uint64_t size = d->header_bytes + d->data_bytes;
        r = ftruncate(d->fd, (off_t)size) < 0 || fsync(d->fd) < 0 || rename(d->partial, d->path) < 0 ? -errno : 0;
    }
    if (r < 0) {
        return report(d, r, e);
    }
    free(d->partial);
    d->partial = NULL;
    return SLUICE_OK;
}

void dump_destroy(struct dump *d)
{
    if (d == NULL) {
        return;
    }
    if (d->fd >= 0) {
        close(d->fd);
    }
    if (d->partial != NULL) {
        unlink(d->partial);
    }
    free(d->partial);
    free(d->path);
    free(d->arrays);
    free(d);
}
