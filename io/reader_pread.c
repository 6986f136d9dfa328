/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: reading a step with pread. Must not know: threads, chunks, requests. */
#include <errno.h>
#include <unistd.h>

#include "io/reader_impl.h"

static ssize_t read_step(const struct read_step *s)
{
    ssize_t n = pread(s->fd, s->data, s->bytes, (off_t)s->offset);
    return n < 0 ? -errno : n;
}

static const struct reader_threads_kind pread_kind = {
    .names = {"pread, buffered", "pread, O_DIRECT", "pread, buffered (O_DIRECT refused by the file system)"},
    .read = read_step,
};

int reader_pread_create(const struct reader_options *options, struct reader **ret, struct error *e)
{
    return reader_threads_create(options, &pread_kind, ret, e);
}
