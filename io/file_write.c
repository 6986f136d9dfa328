/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: writing a file whole or not at all. Must not know: what is written. */
#include "io/file_write.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>


enum { WRITE_BUFFER = 1 << 20 };

static int write_failed(struct file_writer *w, struct error *e, const char *what)
{
    int code = errno != 0 ? -errno : -EIO;
    return error_set(e, code, "%s: %s failed after %llu bytes: %s; nothing was left behind", w->path, what,
                     (unsigned long long)(w->size - w->used), strerror(-code));
}

int file_writer_init(struct file_writer *w, const char *path, struct error *e)
{
    *w = (struct file_writer){.fd = -1};
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) { /* the rename would replace a device or pipe */
        return error_set(e, ERROR_USAGE, "%s: is no regular file; name a new file to write to", path);
    }
    size_t len = strlen(path);
    w->path = malloc(len + 1);
    w->buffer = malloc(WRITE_BUFFER);
    char *tmp = malloc(len + sizeof ".tmp");
    if (w->path == NULL || w->buffer == NULL || tmp == NULL) {
        free(tmp);
        return error_nomem(e, "write buffer", WRITE_BUFFER);
    }
    memcpy(w->path, path, len + 1);
    memcpy(tmp, path, len);
    memcpy(tmp + len, ".tmp", sizeof ".tmp");
    w->fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (w->fd < 0) {
        int code = -errno;
        error_set(e, code, "%s: cannot create: %s", tmp, strerror(-code));
        free(tmp);
        return code;
    }
    w->tmp = tmp;
    return 0;
}

static int write_out(struct file_writer *w, const char *data, size_t bytes, struct error *e)
{
    for (size_t done = 0; done < bytes;) {
        errno = 0;
        ssize_t n = write(w->fd, data + done, bytes - done);
        if (n <= 0) {
            if (n < 0 && errno == EINTR) {
                continue;
            }
            return write_failed(w, e, "writing");
        }
        done += (size_t)n;
    }
    return 0;
}

static int flush(struct file_writer *w, struct error *e)
{
    int r = write_out(w, w->buffer, w->used, e);
    if (r == 0) {
        w->used = 0;
    }
    return r;
}

int file_writer_append(struct file_writer *w, const void *data, size_t bytes, struct error *e)
{
    if (bytes > WRITE_BUFFER - w->used) {
        int r = flush(w, e);
        if (r < 0) {
            return r;
        }
    }
    if (bytes >= WRITE_BUFFER) {
        int r = write_out(w, data, bytes, e);
        if (r < 0) {
            return r;
        }
    } else if (bytes > 0) {
        memcpy(w->buffer + w->used, data, bytes);
        w->used += bytes;
    }
    w->size += bytes;
    return 0;
}

int file_writer_zeros(struct file_writer *w, uint64_t bytes, struct error *e)
{
    static const char zeros[4096];
    while (bytes > 0) {
        size_t n = bytes < sizeof zeros ? (size_t)bytes : sizeof zeros;
        int r = file_writer_append(w, zeros, n, e);
        if (r < 0) {
            return r;
        }
        bytes -= n;
    }
    return 0;
}

static void remove_tmp(struct file_writer *w)
{
    if (w->fd >= 0) {
        close(w->fd);
        w->fd = -1;
    }
    if (w->tmp != NULL) {
        unlink(w->tmp);
        free(w->tmp);
        w->tmp = NULL;
    }
}

int file_writer_finish(struct file_writer *w, struct error *e)
{
    int r = flush(w, e);
    if (r == 0 && fsync(w->fd) != 0) {
        r = write_failed(w, e, "fsync");
    }
    if (r == 0) {
        int closed = close(w->fd);
        w->fd = -1;
        if (closed != 0) {
            r = write_failed(w, e, "close");
        }
    }
    if (r == 0 && rename(w->tmp, w->path) != 0) {
        r = write_failed(w, e, "rename");
    }
    if (r < 0) {
        remove_tmp(w);
        return r;
    }
    free(w->tmp);
    w->tmp = NULL;
    return 0;
}

void file_writer_deinit(struct file_writer *w)
{
    remove_tmp(w);
    free(w->path);
    free(w->buffer);
    *w = (struct file_writer){.fd = -1};
}
