/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: gz_lines.h. Must not know: what is in lines. */
#include "src/commands/gz_lines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

static int read_lines(gzFile f, const char *path, char *line, int most, int (*use)(void *ctx, char *line, struct error *e), void *ctx, struct error *e)
{
    int r = 0, code;
    unsigned long long n = 0;
    for (; r == 0 && gzgets(f, line, most) != NULL; n++) {
        size_t len = strlen(line);
        if (len > 0 && line[len - 1] == '\n') {
            line[len - 1] = '\0';
        } else if (!gzeof(f)) {
            return error_set(e, ERROR_FORMAT, "%s: line %llu holds a zero byte or more than %d bytes", path, n + 1, most - 2);
        }
        r = use(ctx, line, e);
    }
    const char *why = gzerror(f, &code);
    if (r == 0 && code == Z_ERRNO) {
        return error_set(e, -EIO, "%s: cannot be read: %s", path, strerror(errno));
    }
    if (r == 0 && code == Z_MEM_ERROR) {
        return error_nomem(e, "decompression", 0);
    }
    if (r == 0 && code != Z_OK && code != Z_STREAM_END) {
        return error_set(e, ERROR_FORMAT, "%s: after line %llu: damaged gzip data: %s", path, n, why);
    }
    return r;
}

int gz_lines_read(const char *path, int most, int (*use)(void *ctx, char *line, struct error *e), void *ctx, struct error *e)
{
    errno = 0;
    gzFile f = gzopen(path, "rbe"); /* plain files as they are */
    if (f == NULL) {
        int code = errno != 0 ? errno : ENOMEM;
        return error_set(e, -code, "%s: %s", path, strerror(code));
    }
    char *line = malloc((size_t)most);
    int r = line == NULL ? error_nomem(e, "a line", (size_t)most) : read_lines(f, path, line, most, use, ctx, e);
    gzclose(f);
    free(line);
    return r;
}
