/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: read_chunk.h. Must not know: who reads, requests. */
#include "io/read_chunk.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "common/intmath.h"

enum { PAGE = 4096, STALLS = 16 };

bool read_chunk_congruent(const struct file *f, uint64_t offset, const char *data)
{
    return ((uintptr_t)data - offset) % f->direct_align == 0;
}

struct read_step read_chunk_step(const struct read_chunk *c, char *bounce)
{
    uint64_t align = c->file->direct_align, offset = c->offset + c->done, left = c->bytes - c->done;
    struct read_step s = {.fd = c->direct ? c->file->direct_fd : c->file->fd, .offset = offset, .bytes = (size_t)left, .data = c->data + c->done};
    if (!c->direct) {
        return s;
    }
    bool congruent = read_chunk_congruent(c->file, offset, s.data);
    uint64_t begin = align_down_u64(offset, align), end = align_up_u64(offset + left, align);
    bool whole = congruent && begin == offset && end == offset + left;
    if (congruent && begin == offset && (whole || end - begin > READ_BOUNCE)) {
        s.bytes = (size_t)align_down_u64(left, align);
        return s;
    }
    if (congruent && end - begin > READ_BOUNCE) {
        end = begin + align; /* up to where it can go straight into place */
    }
    s.offset = begin;
    s.bytes = (size_t)min_u64(end - begin, READ_BOUNCE);
    s.data = bounce;
    s.skip = (size_t)(offset - begin);
    return s;
}

int read_chunk_answer(struct read_chunk *c, const struct read_step *s, ssize_t n)
{
    if (n == -EINTR) {
        return 1;
    }
    if (n == -EINVAL && c->direct) {
        c->direct = false;
        c->direct_refused = true;
        return 1;
    }
    if (n < 0) {
        return (int)n;
    }
    if ((size_t)n <= s->skip) { /* the end, unless a short read has not come to what is wanted */
        return n > 0 && s->offset + (uint64_t)n < c->file->size && ++c->stalls < STALLS ? 1 : -ENODATA;
    }
    char *to = c->data + c->done;
    uint64_t gained = min_u64((uint64_t)n - s->skip, c->bytes - c->done);
    if (s->data != to) {
        memcpy(to, s->data + s->skip, (size_t)gained);
    }
    c->done += gained;
    if (c->done < c->bytes) {
        return 1;
    }
    int changed = file_changed(c->file);
    c->done = changed < 0 ? 0 : c->done; /* none of it is to be trusted */
    return changed;
}

void read_chunk_finish(const struct read_chunk *c)
{
    if (!c->direct && c->drop_behind && c->done > 0) {
        uint64_t begin = align_down_u64(c->offset, PAGE);
        posix_fadvise(c->file->fd, (off_t)begin, (off_t)(align_up_u64(c->offset + c->done, PAGE) - begin), POSIX_FADV_DONTNEED);
    }
}
