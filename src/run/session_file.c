/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: a timeline on disk: header, tokens, states, logits, KV pages, checksum. Written beside the target and renamed, so an
 * old file stays whole. Must not know: chats. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "src/base/str.h"
#include "src/run/draft.h"

enum { SESSION_VERSION = 1 };
static const char session_magic[8] = "SLUICE-K";

/* Little-endian on disk like the rest of the project's files. */
struct session_header {
    char magic[8]; /* "SLUICE-K" */
    uint32_t version, kv_type;
    char fingerprint[40]; /* of the model */
    uint32_t length, mtp_rows, pages, state_valid, logits_valid;
    uint32_t pending; /* states before the last one: of positions whose MTP rows are still to be made up */
    uint64_t page_bytes, bytes; /* of the whole file, checksum included */
};

struct session_stream {
    FILE *file;
    XXH3_state_t *hash;
    bool failed;
};

static void put(struct session_stream *s, const void *data, size_t bytes)
{
    XXH3_64bits_update(s->hash, data, bytes);
    s->failed |= fwrite(data, 1, bytes, s->file) != bytes;
}

static bool get(struct session_stream *s, void *data, size_t bytes)
{
    if (fread(data, 1, bytes, s->file) != bytes) {
        return false;
    }
    XXH3_64bits_update(s->hash, data, bytes);
    return true;
}

/* Pages a timeline has outside of steps: what an open step took beyond them is not saved. */
static uint32_t file_pages(uint32_t length) { return (uint32_t)ceil_div_u64(length, KV_PAGE); }

static uint64_t file_bytes(const struct engine *g, uint32_t length, uint32_t pending)
{
    return sizeof(struct session_header) + 4ull * length + (pending + 1) * (4ull * g->shape->hidden) + 4ull * g->shape->vocab + file_pages(length) * (uint64_t)g->kv.page_bytes + 8;
}

static void write_body(const struct session *s, struct session_stream *out)
{
    const struct engine *g = s->engine;
    struct session_header h = {
        .version = SESSION_VERSION, .kv_type = g->kv.layout.type, .length = s->length, .mtp_rows = s->mtp_rows,
        .pages = file_pages(s->length), .state_valid = s->state_valid, .logits_valid = s->logits_valid, .page_bytes = g->kv.page_bytes,
        .pending = draft_pending(s), .bytes = file_bytes(g, s->length, draft_pending(s)),
    };
    memcpy(h.magic, session_magic, sizeof(h.magic));
    memcpy(h.fingerprint, g->fingerprint, sizeof(g->fingerprint));
    put(out, &h, sizeof(h));
    put(out, s->tokens, s->length * sizeof(*s->tokens));
    for (uint32_t i = 0; i < h.pending; i++) {
        put(out, draft_state(s, s->mtp_rows + i), g->shape->hidden * sizeof(*s->state));
    }
    put(out, s->state, g->shape->hidden * sizeof(*s->state));
    if (s->logits_valid) {
        put(out, s->logits, g->shape->vocab * sizeof(*s->logits));
    } else {
        static const float zero[256];
        for (uint32_t i = 0; i < g->shape->vocab; i += ARRAY_LEN(zero)) {
            put(out, zero, min_u32(ARRAY_LEN(zero), g->shape->vocab - i) * sizeof(float));
        }
    }
    for (uint32_t k = 0; k < h.pages; k++) {
        put(out, kv_page_rows(s->kv.pool, s->kv.page[k], 0), g->kv.page_bytes);
    }
    uint64_t sum = XXH3_64bits_digest(out->hash);
    out->failed |= fwrite(&sum, 1, sizeof(sum), out->file) != sizeof(sum);
}

/* Whatever is there and is no session stays untouched: a mistyped path must not cost a file. */
static int check_target(const char *path, struct error *e)
{
    struct stat st;
    if (stat(path, &st) != 0) {
        return 0; /* what is wrong but for its absence is said by open() */
    }
    char magic[sizeof(session_magic)];
    FILE *f = S_ISREG(st.st_mode) && st.st_size > 0 ? fopen(path, "rbe") : NULL;
    bool ours = S_ISREG(st.st_mode) && (f == NULL || (fread(magic, 1, sizeof(magic), f) == sizeof(magic) && memcmp(magic, session_magic, sizeof(magic)) == 0));
    if (f) {
        fclose(f);
    }
    return ours ? 0 : error_set(e, ERROR_USAGE, "%s: is no session file and is left as it is; choose another path", path);
}

int session_save(const struct session *s, const char *path, struct error *e)
{
    struct session_stream out = {.hash = XXH3_createState()};
    struct str tmp = {0};
    str_printf(&tmp, "%s.tmp", path);
    int r = out.hash && !tmp.failed ? check_target(path, e) : error_nomem(e, "session file", 1024);
    if (r == 0) {
        XXH3_64bits_reset(out.hash);
        out.file = fopen(tmp.data, "wbe");
        r = out.file ? 0 : error_set(e, -errno, "%s: cannot write the session: %s", path, strerror(errno));
    }
    if (r == 0) {
        write_body(s, &out);
        int err = out.failed || fflush(out.file) != 0 || fsync(fileno(out.file)) != 0 ? errno : 0;
        if (fclose(out.file) != 0 || err != 0 || rename(tmp.data, path) != 0) {
            err = err ? err : errno;
            r = error_set(e, -(err ? err : EIO), "%s: cannot write the session (%llu bytes): %s; free space or choose another path", path, (unsigned long long)file_bytes(s->engine, s->length, draft_pending(s)), strerror(err ? err : EIO));
            unlink(tmp.data);
        }
    }
    XXH3_freeState(out.hash);
    str_deinit(&tmp);
    return r;
}

static int check_header(const struct engine *g, const struct session_header *h, uint64_t size, const char *path, struct error *e)
{
    if (h->version != SESSION_VERSION) {
        return error_set(e, ERROR_FORMAT, "%s: session file of version %u, this build reads %d", path, h->version, SESSION_VERSION);
    }
    if (memcmp(h->fingerprint, g->fingerprint, sizeof(g->fingerprint)) != 0 || h->kv_type != (uint32_t)g->kv.layout.type || h->page_bytes != g->kv.page_bytes) {
        return error_set(e, ERROR_FORMAT, "%s: saved by another model or KV type (its fingerprint is not %s); open it with the model, -ctk and MTP layer (--mtp off: none) it was saved with", path, g->fingerprint);
    }
    if (h->length > g->context) {
        return error_set(e, ERROR_FORMAT, "%s: holds %u positions, the context here is %u; start with a larger -c", path, h->length, g->context);
    }
    uint64_t want = h->pending < DRAFT_STATES ? file_bytes(g, h->length, h->pending) : 0;
    bool rows = h->mtp_rows <= h->length && (h->pending == 0 || (uint64_t)h->mtp_rows + h->pending + 1 == h->length);
    if (h->pages != file_pages(h->length) || !rows || h->bytes != size || size != want) {
        return error_set(e, ERROR_FORMAT, "%s: %llu bytes, expected %llu: the file is cut or damaged", path, (unsigned long long)size, (unsigned long long)want);
    }
    return 0;
}

static int read_body(struct session *s, struct session_stream *in, const struct session_header *h, const char *path, struct error *e)
{
    const struct engine *g = s->engine;
    uint64_t sum = 0;
    int r = kv_table_prepare(&s->kv, 0, h->length, e);
    if (r < 0) {
        return r;
    }
    if (s->draft) {
        s->draft->first_state = h->length;
    }
    bool ok = get(in, s->tokens, h->length * sizeof(*s->tokens));
    for (uint32_t i = 0; i <= h->pending && ok; i++) { /* the last one stays in s->state */
        ok = get(in, s->state, g->shape->hidden * sizeof(*s->state));
        if (ok && h->length > 0 && (i < h->pending || h->state_valid != 0)) {
            draft_keep(s, h->length - 1 - h->pending + i, s->state, 0, 1);
        }
    }
    ok = ok && get(in, s->logits, g->shape->vocab * sizeof(*s->logits));
    for (uint32_t k = 0; k < h->pages && ok; k++) {
        ok = get(in, kv_page_rows(s->kv.pool, s->kv.page[k], 0), g->kv.page_bytes);
    }
    uint64_t want = XXH3_64bits_digest(in->hash);
    if (!ok || fread(&sum, 1, sizeof(sum), in->file) != sizeof(sum) || sum != want) {
        return error_set(e, ERROR_FORMAT, "%s: checksum %016llx, expected %016llx: the file is damaged", path, (unsigned long long)sum, (unsigned long long)want);
    }
    for (uint32_t i = 0; i < h->length; i++) {
        if (s->tokens[i] < 0 || (uint32_t)s->tokens[i] >= g->shape->vocab) {
            return error_set(e, ERROR_FORMAT, "%s: token %d at position %u is no id of this model", path, (int)s->tokens[i], i);
        }
    }
    s->length = h->length;
    s->mtp_rows = h->mtp_rows;
    s->state_valid = h->state_valid != 0;
    s->logits_valid = h->logits_valid != 0;
    draft_check(s);
    return 0;
}

static int restore_from(struct engine *g, struct session_stream *in, const char *path, const struct session_hooks *hooks, enum session_mtp mtp, struct session **ret, struct error *e)
{
    struct session_header h;
    struct session *s;
    off_t size = fseeko(in->file, 0, SEEK_END) == 0 ? ftello(in->file) : -1;
    if (size < 0 || fseeko(in->file, 0, SEEK_SET) != 0 || !get(in, &h, sizeof(h))) {
        return error_set(e, ERROR_FORMAT, "%s: %lld bytes, shorter than a session header (%zu)", path, (long long)size, sizeof(h));
    }
    int r = check_header(g, &h, (uint64_t)size, path, e);
    if (r == 0 && mtp == SESSION_MTP_ALL && h.length > 0 && h.mtp_rows + 1 != h.length) {
        r = error_set(e, ERROR_FORMAT, "%s: saved without MTP rows", path);
    }
    r = r < 0 ? r : session_create(g, hooks, mtp, &s, e);
    if (r < 0) {
        return r;
    }
    r = read_body(s, in, &h, path, e);
    if (r < 0) {
        session_destroy(s);
        return r;
    }
    *ret = s;
    return 0;
}

int session_restore(struct engine *g, const char *path, const struct session_hooks *hooks, enum session_mtp mtp, struct session **ret, struct error *e)
{
    int r = check_target(path, e);
    if (r < 0) {
        return r;
    }
    struct session_stream in = {.hash = XXH3_createState(), .file = fopen(path, "rbe")};
    r = in.hash ? 0 : error_nomem(e, "session file", 1024);
    if (r == 0 && !in.file) {
        r = error_set(e, -errno, "%s: cannot read the session: %s", path, strerror(errno));
    }
    if (r == 0) {
        XXH3_64bits_reset(in.hash);
        r = restore_from(g, &in, path, hooks, mtp, ret, e);
    }
    if (in.file) {
        fclose(in.file);
    }
    XXH3_freeState(in.hash);
    return r;
}
