/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: writing at places: direct where whole blocks are, through the page cache at their edges. Must not know: what is
 * written. A page is written either way, never both: the edges of neighbouring ranges meet in the cache. */
#include "io/file_part.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/intmath.h"

char *file_part_name(const char *path)
{
    static const char suffix[] = ".part";
    size_t len = strlen(path);
    char *name = malloc(len + sizeof(suffix));
    if (name != NULL) {
        memcpy(name, path, len);
        memcpy(name + len, suffix, sizeof(suffix));
    }
    return name;
}

static int failed(const char *path, const char *what, int code, struct error *e)
{
    return error_set(e, -code, "%s: cannot %s: %s", path, what, strerror(code));
}

/* File systems that cannot reserve tell when they are full. */
static int reserve(const struct file_part *f, struct error *e)
{
    if (f->bytes > 0 && fallocate(f->fd, 0, 0, (off_t)f->bytes) != 0 && errno != EOPNOTSUPP && errno != ENOSYS) {
        return failed(f->path, "reserve its space", errno, e);
    }
    return ftruncate(f->fd, (off_t)f->bytes) == 0 ? 0 : failed(f->path, "set its size", errno, e);
}

static int check_size(const struct file_part *f, struct error *e)
{
    struct stat st;
    if (fstat(f->fd, &st) != 0) {
        return failed(f->part, "stat", errno, e);
    }
    if ((uint64_t)st.st_size != f->bytes) {
        return error_set(e, ERROR_FORMAT, "%s: has %llu bytes, an interrupted run would have left %llu; remove it to start again", f->part,
                         (unsigned long long)st.st_size, (unsigned long long)f->bytes);
    }
    return 0;
}

int file_part_open(struct file_part *f, const char *path, uint64_t bytes, bool resume, struct error *e)
{
    *f = (struct file_part){.path = strdup(path), .part = file_part_name(path), .fd = -1, .direct_fd = -1, .bytes = bytes};
    if (f->path == NULL || f->part == NULL) {
        file_part_close(f);
        return error_nomem(e, "path", strlen(path));
    }
    f->fd = open(f->part, O_RDWR | O_CLOEXEC | (resume ? 0 : O_CREAT | O_TRUNC), 0666);
    int r = f->fd >= 0 ? 0 : failed(f->part, resume ? "open" : "create", errno, e);
    if (r == 0) {
        r = resume ? check_size(f, e) : reserve(f, e);
        if (r < 0 && !resume) {
            unlink(f->part);
        }
    }
    if (r < 0) {
        file_part_close(f);
        return r;
    }
    f->direct_fd = open(f->part, O_WRONLY | O_CLOEXEC | O_DIRECT);
    return 0;
}

static int write_with(const struct file_part *f, int fd, uint64_t offset, const char *data, size_t bytes, struct error *e)
{
    while (bytes > 0) {
        ssize_t n = pwrite(fd, data, bytes, (off_t)offset);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && errno == EINVAL && fd != f->fd) { /* direct writes are refused after all, or this remainder is */
            fd = f->fd;
            continue;
        }
        if (n <= 0) {
            return failed(f->path, "write", n < 0 ? errno : EIO, e);
        }
        data += n;
        offset += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return 0;
}

int file_part_write(const struct file_part *f, uint64_t offset, const void *data, size_t bytes, struct error *e)
{
    const char *p = data;
    uint64_t first = align_up_u64(offset, FILE_PART_ALIGN), last = align_down_u64(offset + bytes, FILE_PART_ALIGN);
    bool whole = f->direct_fd >= 0 && last > first && ((uintptr_t)p + (size_t)(first - offset)) % FILE_PART_ALIGN == 0;
    if (!whole) {
        return write_with(f, f->fd, offset, p, bytes, e);
    }
    size_t head = (size_t)(first - offset), body = (size_t)(last - first);
    int r = write_with(f, f->fd, offset, p, head, e);
    r = r < 0 ? r : write_with(f, f->direct_fd, first, p + head, body, e);
    return r < 0 ? r : write_with(f, f->fd, last, p + head + body, bytes - head - body, e);
}

int file_part_sync(const struct file_part *f, struct error *e)
{
    return fdatasync(f->fd) == 0 ? 0 : failed(f->path, "sync", errno, e);
}

void file_part_close(struct file_part *f)
{
    if (f->part != NULL && f->fd >= 0) {
        close(f->fd);
    }
    if (f->part != NULL && f->direct_fd >= 0) {
        close(f->direct_fd);
    }
    free(f->path);
    free(f->part);
    *f = (struct file_part){.fd = -1, .direct_fd = -1};
}

/* Without an allocation: the way out of a run that found no memory. False: the path is too long for the system. */
static bool part_in(const char *path, char *out, size_t room)
{
    int len = snprintf(out, room, "%s.part", path);
    return len > 0 && (size_t)len < room;
}

int file_part_publish(const char *path, struct error *e)
{
    char part[PATH_MAX];
    return part_in(path, part, sizeof(part)) && rename(part, path) == 0 ? 0 : failed(path, "put in place", errno != 0 ? errno : ENAMETOOLONG, e);
}

void file_part_remove(const char *path)
{
    char part[PATH_MAX];
    if (part_in(path, part, sizeof(part))) {
        unlink(part);
    }
}
