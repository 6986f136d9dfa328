/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: open files for reading and whole small files. Must not know: what is in them. */
#include "io/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/intmath.h"
#include "io/file_write.h"

enum { DIRECT_ALIGN = 4096, READ_AT_ONCE = 1 << 30 };

/* O_DIRECT descriptor, or why there is none. */
static void open_direct(struct file *f)
{
    f->direct_align = DIRECT_ALIGN;
    f->direct_fd = open(f->path, O_RDONLY | O_CLOEXEC | O_DIRECT | O_NONBLOCK);
    if (f->direct_fd < 0) {
        f->direct_errno = errno;
        return;
    }
    struct stat st;
    if (fstat(f->direct_fd, &st) != 0 || st.st_dev != f->device || st.st_ino != f->inode) {
        close(f->direct_fd); /* replaced between the two opens */
        f->direct_fd = -1;
        f->direct_errno = ESTALE;
        return;
    }
    struct statx sx = {0};
    if (statx(f->direct_fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &sx) == 0 && (sx.stx_mask & STATX_DIOALIGN) != 0) {
        if (sx.stx_dio_offset_align == 0) {
            close(f->direct_fd);
            f->direct_fd = -1;
            f->direct_errno = EOPNOTSUPP;
            return;
        }
        f->direct_align = max_u32(f->direct_align, max_u32(sx.stx_dio_offset_align, sx.stx_dio_mem_align));
    }
}

static int64_t changed_ns(const struct stat *st) { return (int64_t)((uint64_t)st->st_mtim.tv_sec * 1000000000u + (uint64_t)st->st_mtim.tv_nsec); }

int file_changed(const struct file *f)
{
    struct stat st;
    if (fstat(f->fd, &st) != 0) {
        return -errno;
    }
    return (uint64_t)st.st_size < f->size ? -ENODATA : changed_ns(&st) != f->changed_ns ? -ESTALE : 0;
}

int file_open(const char *path, struct file *ret, struct error *e)
{
    struct file f = {.direct_fd = -1};
    /* O_NONBLOCK: opening a FIFO would wait for a writer; it means nothing for regular files. */
    f.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (f.fd < 0) {
        int code = -errno;
        return error_set(e, code, "%s: cannot open: %s", path, strerror(-code));
    }
    struct stat st;
    if (fstat(f.fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(f.fd);
        return error_set(e, ERROR_FORMAT, "%s: not a regular file", path);
    }
    f.path = strdup(path);
    if (f.path == NULL) {
        close(f.fd);
        return error_nomem(e, "path", strlen(path) + 1);
    }
    f.size = (uint64_t)st.st_size;
    f.device = st.st_dev;
    f.inode = st.st_ino;
    f.changed_ns = changed_ns(&st);
    open_direct(&f);
    if (f.direct_fd < 0) {
        posix_fadvise(f.fd, 0, 0, POSIX_FADV_RANDOM); /* nothing beyond what is read, which nobody would drop */
    }
    *ret = f;
    return 0;
}

void file_close(struct file *f)
{
    if (f->path == NULL) {
        return;
    }
    close(f->fd);
    if (f->direct_fd >= 0) {
        close(f->direct_fd);
    }
    free(f->path);
    for (uint32_t i = 0; i < f->n_copies; i++) {
        file_close(&f->copies[i]);
    }
    free(f->copies);
    *f = (struct file){0};
}

int file_read_at(const struct file *f, uint64_t offset, void *data, size_t bytes, struct error *e)
{
    for (size_t done = 0; done < bytes;) {
        size_t want = bytes - done < READ_AT_ONCE ? bytes - done : READ_AT_ONCE;
        ssize_t n = pread(f->fd, (char *)data + done, want, (off_t)(offset + done));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            int code = -errno;
            return error_set(e, code, "%s: reading %zu bytes at offset %llu failed: %s; this looks like the disk",
                             f->path, want, (unsigned long long)(offset + done), strerror(-code));
        }
        if (n == 0) {
            return error_set(e, ERROR_FORMAT, "%s: wanted %zu bytes at offset %llu, the file ends after %zu of them; is it complete?",
                             f->path, bytes, (unsigned long long)offset, done);
        }
        done += (size_t)n;
    }
    return 0;
}

int file_read_all(const char *path, size_t limit, char **ret_data, size_t *ret_bytes, struct error *e)
{
    struct file f;
    int r = file_open(path, &f, e);
    if (r < 0) {
        return r;
    }
    char *data = NULL;
    if (f.size > limit) {
        r = error_set(e, ERROR_FORMAT, "%s: has %llu bytes, at most %zu are expected here", path,
                      (unsigned long long)f.size, limit);
    } else if ((data = malloc((size_t)f.size + 1)) == NULL) {
        r = error_nomem(e, path, f.size + 1);
    } else {
        r = file_read_at(&f, 0, data, (size_t)f.size, e);
    }
    if (r < 0) {
        free(data);
    } else {
        data[f.size] = '\0';
        *ret_data = data;
        *ret_bytes = (size_t)f.size;
    }
    file_close(&f);
    return r;
}

int file_write_all(const char *path, const void *data, size_t bytes, struct error *e)
{
    struct file_writer w;
    int r = file_writer_init(&w, path, e);
    if (r == 0) {
        r = file_writer_append(&w, data, bytes, e);
    }
    if (r == 0) {
        r = file_writer_finish(&w, e);
    }
    file_writer_deinit(&w);
    return r;
}

bool file_is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool file_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

static int compare_names(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

bool file_has_suffix(const char *name, const char *suffix)
{
    size_t n = strlen(name), m = strlen(suffix);
    return n >= m && strcmp(name + n - m, suffix) == 0;
}

/* Appends a copy of name; false on no memory. */
static bool names_add(char ***names, size_t *n, size_t *cap, const char *name)
{
    if (*n == *cap) {
        size_t more = *cap == 0 ? 16 : *cap * 2;
        char **grown = realloc(*names, more * sizeof *grown);
        if (grown == NULL) {
            return false;
        }
        *names = grown;
        *cap = more;
    }
    char *copy = strdup(name);
    if (copy == NULL) {
        return false;
    }
    (*names)[(*n)++] = copy;
    return true;
}

void file_free_list(char **names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(names[i]);
    }
    free(names);
}

int file_list_folder(const char *path, const char *suffix, char ***ret_names, size_t *ret_n, struct error *e)
{
    DIR *dir = opendir(path);
    if (dir == NULL) {
        int code = -errno;
        return error_set(e, code, "%s: cannot list: %s", path, strerror(-code));
    }
    char **names = NULL;
    size_t n = 0, cap = 0;
    int r = 0;
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (entry == NULL) {
            if (errno != 0) {
                r = error_set(e, -errno, "%s: cannot list: %s", path, strerror(errno));
            }
            break;
        }
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 && file_has_suffix(entry->d_name, suffix) &&
            !names_add(&names, &n, &cap, entry->d_name)) {
            r = error_nomem(e, "folder listing", n);
            break;
        }
    }
    closedir(dir);
    if (r < 0) {
        file_free_list(names, n);
        return r;
    }
    if (n > 1) {
        qsort(names, n, sizeof *names, compare_names);
    }
    *ret_names = names;
    *ret_n = n;
    return 0;
}

char *file_join(const char *folder, const char *name)
{
    size_t n = strlen(folder), m = strlen(name);
    bool slash = n > 0 && folder[n - 1] != '/';
    char *path = malloc(n + slash + m + 1);
    if (path != NULL) {
        memcpy(path, folder, n);
        if (slash) {
            path[n] = '/';
        }
        memcpy(path + n + slash, name, m + 1);
    }
    return path;
}
