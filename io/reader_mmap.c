/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: reading a step out of a mapping of the file. The mapping lives as long as the step, so the page cache can be dropped behind
 * it, and no table of mappings outlives a file. The bytes are copied by the kernel (process_vm_readv on this very process): a page
 * that is not there - the file was cut meanwhile, or the drive failed - is an answer, where a load of our own would be a SIGBUS
 * that no check beforehand can exclude. Must not know: threads, chunks, requests. */
#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/intmath.h"
#include "io/reader_impl.h"

enum { AHEAD = 128 << 10 }; /* bytes of one advice that no device cuts short */

static ssize_t copy(void *to, void *from, size_t bytes)
{
    struct iovec here = {to, bytes}, there = {from, bytes};
    ssize_t n = process_vm_readv(getpid(), &here, 1, &there, 1, 0);
    return n < 0 ? -errno : n;
}

/* What the copy means. Behind the end of a file the last page is zeros and further ones are missing; the size is looked at after
 * the copy, so that a file that was cut before or during it is noticed. */
static ssize_t answer(const struct read_step *s, ssize_t n)
{
    struct stat st;
    if (fstat(s->fd, &st) != 0) {
        return -errno;
    }
    uint64_t left = (uint64_t)st.st_size > s->offset ? (uint64_t)st.st_size - s->offset : 0;
    if (n == -EFAULT) {
        return left == 0 ? 0 : -EIO;
    }
    return n < 0 ? n : (ssize_t)min_u64((uint64_t)n, left);
}

static ssize_t read_step(const struct read_step *s)
{
    uint64_t begin = align_down_u64(s->offset, (uint64_t)sysconf(_SC_PAGESIZE));
    size_t skew = (size_t)(s->offset - begin), bytes = skew + s->bytes;
    char *map = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, s->fd, (off_t)begin);
    if (map == MAP_FAILED) {
        return -errno;
    }
    madvise(map, bytes, MADV_RANDOM); /* nothing beyond, which nobody would drop: a page that a neighbour's read has dropped faults */
    for (size_t at = 0; at < bytes; at += AHEAD) {
        madvise(map + at, min_u64(AHEAD, bytes - at), MADV_WILLNEED); /* else it is read fault by fault */
    }
    ssize_t n = copy(s->data, map + skew, s->bytes);
    munmap(map, bytes);
    return answer(s, n);
}

static const struct reader_threads_kind mmap_kind = {.names = {"mmap", "mmap", "mmap"}, .read = read_step};

int reader_mmap_create(const struct reader_options *options, struct reader **ret, struct error *e)
{
    char from = 1, to = 0;
    ssize_t n = copy(&to, &from, 1);
    if (n < 0) {
        return (int)-n; /* a filter on system calls */
    }
    struct reader_options o = *options;
    o.drop_behind = o.drop_behind || o.direct; /* past the page cache is what the caller wants */
    o.direct = false;
    return reader_threads_create(&o, &mmap_kind, ret, e);
}
