/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: read_queue.h. Must not know: how chunks are read, threads. */
#include "io/read_queue.h"

#include <errno.h>
#include <stdlib.h>

#include "common/intmath.h"

int read_queue_init(struct read_queue *q, const struct reader_options *options, struct error *e)
{
    *q = (struct read_queue){.options = *options, .slots = calloc(options->requests, sizeof(*q->slots)), .flights = calloc(options->depth, sizeof(*q->flights))};
    if (q->slots == NULL || q->flights == NULL) {
        read_queue_deinit(q);
        return error_nomem(e, "reader", options->requests * sizeof(*q->slots));
    }
    q->own = (struct read_rate){.limit = options->limit, .clock = options->clock.now_ns != NULL ? options->clock : clock_system()};
    q->rate = options->budget != NULL ? options->budget : &q->own;
    for (uint32_t i = 0; i < options->requests; i++) {
        q->slots[i].link = q->spare;
        q->spare = &q->slots[i];
    }
    return 0;
}

void read_queue_deinit(struct read_queue *q)
{
    free(q->slots);
    free(q->flights);
    *q = (struct read_queue){0};
}

/* ---- lists ---- */

static void push_last(struct read_list *l, struct read_slot *s)
{
    s->link = NULL;
    if (l->first == NULL) {
        l->first = s;
    } else {
        l->last->link = s;
    }
    l->last = s;
}

static void push_first(struct read_list *l, struct read_slot *s)
{
    s->link = l->first;
    l->last = l->first == NULL ? s : l->last;
    l->first = s;
}

static void take_out(struct read_list *l, struct read_slot *s)
{
    struct read_slot *before = NULL;
    for (struct read_slot *x = l->first; x != s; x = x->link) {
        before = x;
    }
    if (before == NULL) {
        l->first = s->link;
    } else {
        before->link = s->link;
    }
    l->last = l->last == s ? before : l->last;
}

static void push_result(struct read_queue *q, struct read_slot *s)
{
    if (s->in_results) {
        return; /* progress that was not collected yet */
    }
    s->in_results = true;
    s->result_link = NULL;
    if (q->first_result == NULL) {
        q->first_result = s;
    } else {
        q->last_result->result_link = s;
    }
    q->last_result = s;
}

/* ---- requests ---- */

static struct read_list *list_of(struct read_queue *q, const struct read_slot *s) { return &q->waiting[s->request.priority]; }
static uint64_t request_end(const struct read_slot *s) { return s->request.offset + s->request.bytes; }
static bool waits(const struct read_slot *s) { return s->next < s->end; }

/* Nothing that waits is read any more. */
static void cut_short(struct read_queue *q, struct read_slot *s)
{
    if (waits(s)) {
        take_out(list_of(q, s), s);
        s->end = s->next;
    }
}

/* ---- how busy the drive is ---- */

static uint64_t now_ns(const struct read_queue *q) { return clock_now_ns(&q->rate->clock); }

static void begin_demand(struct read_queue *q)
{
    if (q->demands++ == 0) {
        q->demand_since_ns = now_ns(q);
    }
}

static void end_demand(struct read_queue *q)
{
    if (--q->demands == 0) {
        q->load.demand_ns += now_ns(q) - q->demand_since_ns;
    }
}

struct reader_load read_queue_load(const struct read_queue *q)
{
    struct reader_load load = q->load;
    load.demand_ns += q->demands > 0 ? now_ns(q) - q->demand_since_ns : 0;
    return load;
}

/* ---- requests that end ---- */

static void finish_if_done(struct read_queue *q, struct read_slot *s)
{
    if (s->running == 0 && !waits(s)) {
        s->finished = true;
        if (s->request.priority == READ_DEMAND) {
            end_demand(q);
        }
        push_result(q, s);
    }
}

/* The first failure in the file is the one that is told. */
static void fail(struct read_queue *q, struct read_slot *s, const struct file *file, int status, uint64_t at)
{
    if (s->status == 0 || at < s->failed_at) {
        s->status = status;
        s->failed = file;
        s->failed_at = at;
    }
    cut_short(q, s);
}

/* Leading bytes that are there: all that chunks have taken, up to the first that is still in flight. */
static uint64_t leading_bytes(const struct read_queue *q, const struct read_slot *s)
{
    uint64_t at = s->status < 0 ? min_u64(s->next, s->failed_at) : s->next;
    const char *begin = s->request.data, *end = begin + s->request.bytes;
    for (uint32_t i = 0; i < q->options.depth && s->running > 0; i++) {
        const struct read_chunk *c = &q->flights[i].chunk;
        if (q->flights[i].slot != NULL && c->data < end && begin < c->data + c->bytes) {
            at = min_u64(at, max_u64(c->offset, s->request.offset));
        }
    }
    return at - s->request.offset;
}

int read_queue_submit(struct read_queue *q, const struct read_request *request)
{
    struct read_slot *s = q->spare;
    if (s == NULL) {
        return -EAGAIN;
    }
    q->spare = s->link;
    q->open++;
    if (request->priority == READ_DEMAND) {
        begin_demand(q);
    }
    *s = (struct read_slot){.request = *request, .next = request->offset, .end = request->offset + request->bytes};
    if (waits(s)) {
        push_last(list_of(q, s), s);
    } else {
        finish_if_done(q, s);
    }
    return 0;
}

/* A request of which something waits, of priority `first` or less; NULL: none. */
static struct read_slot *find_waiting(struct read_queue *q, int first, uint64_t tag)
{
    for (int p = first; p < READ_PRIORITIES; p++) {
        struct read_slot *s = q->waiting[p].first;
        while (s != NULL && s->request.tag != tag) {
            s = s->link;
        }
        if (s != NULL) {
            return s;
        }
    }
    return NULL;
}

int read_queue_cancel(struct read_queue *q, uint64_t tag)
{
    struct read_slot *s = find_waiting(q, READ_DEMAND, tag);
    if (s == NULL) {
        return -ENOENT;
    }
    fail(q, s, s->request.file, -ECANCELED, s->next);
    finish_if_done(q, s);
    return 0;
}

int read_queue_raise(struct read_queue *q, uint64_t tag)
{
    struct read_slot *s = find_waiting(q, READ_DEMAND + 1, tag);
    if (s == NULL) {
        return -ENOENT;
    }
    take_out(list_of(q, s), s);
    s->request.priority = READ_DEMAND;
    begin_demand(q);
    push_last(list_of(q, s), s);
    return 0;
}

bool read_queue_has_results(const struct read_queue *q) { return q->first_result != NULL; }

bool read_queue_collect(struct read_queue *q, struct read_result *ret)
{
    struct read_slot *s = q->first_result;
    if (s == NULL) {
        return false;
    }
    q->first_result = s->result_link;
    s->in_results = false;
    s->reported = leading_bytes(q, s);
    *ret = (struct read_result){
        .tag = s->request.tag,
        .status = s->finished ? s->status : 0,
        .more = !s->finished,
        .file_offset = s->status == 0 ? s->request.offset : s->failed_at,
        .file = s->finished && s->failed != NULL ? s->failed : s->request.file,
        .bytes = s->reported,
    };
    if (s->finished) {
        q->open--;
        s->link = q->spare;
        q->spare = s;
    }
    return true;
}

/* ---- copies ---- */

static uint32_t copies_of(const struct file *own) { return 1 + own->n_copies; }
static const struct file *copy_of(const struct file *own, uint32_t i) { return i == 0 ? own : &own->copies[i - 1]; }

static bool goes_direct(const struct read_queue *q, const struct file *f, bool direct)
{
    return direct && q->options.direct && f->direct_fd >= 0 && f->direct_align <= READ_BOUNCE;
}

/* copies_of: none but those of the mask. */
static uint32_t choose_copy(const struct read_queue *q, const struct file *own, uint32_t tried)
{
    return own->n_copies == 0 ? tried & 1 : read_copies_choose(&q->copies, copies_of(own), q->options.chunk, tried, now_ns(q));
}

static void begin_copy(struct read_queue *q, const struct read_flight *f)
{
    uint64_t now = now_ns(q);
    read_copies_begin(&q->copies, f->copy, f->chunk.bytes, now);
    read_watch_begin(&q->watch[f->copy], f->chunk.bytes, now);
}

static void end_copy(struct read_queue *q, const struct read_flight *f)
{
    uint64_t done = f->chunk.done - min_u64(f->before, f->chunk.done), now = now_ns(q); /* less than before: all of it was given up */
    q->load.copy_bytes[f->copy] += done;
    read_copies_end(&q->copies, f->copy, f->chunk.bytes, done, now);
    read_watch_end(&q->watch[f->copy], f->chunk.bytes, done, now);
}

/* ---- chunks ---- */

/* Where a chunk that begins at s->next stops: at a multiple of the chunk size; the unaligned edges of a direct read are chunks of
 * their own, so that each is one read. */
static uint64_t stop_of(const struct read_queue *q, const struct read_slot *s, const struct file *f, bool direct)
{
    uint64_t stop = min_u64(s->end, (s->next / q->options.chunk + 1) * q->options.chunk);
    uint64_t align = f->direct_align, begin = align_down_u64(s->next, align);
    if (!direct || align_up_u64(stop, align) - begin <= READ_BOUNCE) {
        return stop;
    }
    if (!read_chunk_congruent(f, s->request.offset, s->request.data)) {
        return min_u64(stop, begin + READ_BOUNCE);
    }
    return begin < s->next ? begin + align : align_down_u64(stop, align);
}

/* What nobody waits for keeps to half of the flights: a demand waits behind no more than that. */
static struct read_flight *free_flight(struct read_queue *q, const struct read_list *l)
{
    uint32_t most = l == &q->waiting[READ_DEMAND] ? q->options.depth : max_u32(q->options.depth / 2, 1);
    for (uint32_t i = 0; i < most; i++) {
        if (q->flights[i].slot == NULL) {
            return &q->flights[i];
        }
    }
    return NULL;
}

static void taken(struct read_queue *q, struct read_slot *s, uint64_t stop)
{
    s->running++;
    if (stop == s->end) {
        take_out(list_of(q, s), s);
    }
    s->next = stop;
}

/* A whole request that goes on where the chunk ends, in the file and in memory, and still fits. */
static bool continues(const struct read_queue *q, const struct file *file, const struct read_chunk *c, const struct read_slot *s)
{
    return s != NULL && !q->options.apart && !s->alone && s->request.file == file && s->next == s->request.offset && s->next == c->offset + c->bytes &&
           s->request.data == c->data + c->bytes && c->bytes + s->request.bytes <= q->options.chunk;
}

static struct read_list *first_waiting(struct read_queue *q)
{
    struct read_list *l = q->waiting;
    while (l < q->waiting + READ_PRIORITIES && l->first == NULL) {
        l++;
    }
    return l < q->waiting + READ_PRIORITIES ? l : NULL;
}

struct read_flight *read_queue_take(struct read_queue *q, bool direct, uint64_t *ret_wait_ns)
{
    struct read_list *l = first_waiting(q);
    struct read_flight *f = l != NULL ? free_flight(q, l) : NULL;
    *ret_wait_ns = f != NULL ? read_rate_wait_ns(q->rate) : 0;
    if (f == NULL || *ret_wait_ns > 0) {
        return NULL;
    }
    struct read_slot *s = l->first, *more = s->link;
    const struct read_request *r = &s->request;
    f->tried = 0;
    f->before = 0;
    f->copy = choose_copy(q, r->file, 0);
    const struct file *file = copy_of(r->file, f->copy);
    direct = goes_direct(q, file, direct);
    uint64_t begin = s->next, stop = stop_of(q, s, file, direct);
    f->slot = s;
    f->chunk = (struct read_chunk){
        .file = file,
        .offset = begin,
        .bytes = stop - begin,
        .data = (char *)r->data + (begin - r->offset),
        .direct = direct,
        .drop_behind = q->options.drop_behind || q->options.direct, /* direct, but refused: no copy stays behind either */
    };
    bool to_end = stop == request_end(s) && !s->alone;
    taken(q, s, stop);
    while (to_end && continues(q, r->file, &f->chunk, more)) {
        struct read_slot *next = more->link;
        f->chunk.bytes += more->request.bytes;
        taken(q, more, more->end);
        s->joined = more;
        s = more;
        more = next;
    }
    read_rate_take(q->rate, f->chunk.bytes);
    begin_copy(q, f);
    return f;
}

bool read_queue_other_copy(struct read_queue *q, struct read_flight *f, int status, bool direct)
{
    const struct file *own = f->slot->request.file;
    struct read_chunk *c = &f->chunk;
    uint32_t n = copies_of(own), other = status == -ECANCELED ? n : choose_copy(q, own, f->tried | 1u << f->copy);
    if (other == n) {
        return false;
    }
    struct reader_fault *fault = &q->fault[f->copy];
    if (fault->n++ == 0) {
        *fault = (struct reader_fault){1, status, c->file, c->offset + c->done};
    }
    end_copy(q, f);
    read_copies_failed(&q->copies, f->copy);
    f->tried |= 1u << f->copy;
    f->copy = other;
    c->done = file_changed(c->file) < 0 ? 0 : c->done; /* what has come is no part of what the other copy has */
    f->before = c->done;
    c->file = copy_of(own, other);
    c->direct = goes_direct(q, c->file, direct);
    c->stalls = 0;
    begin_copy(q, f);
    return true;
}

/* What the chunk brought one of its requests. */
static void book_slot(struct read_queue *q, struct read_slot *s, const struct read_chunk *c, int status, bool shared)
{
    uint64_t got = c->offset + (shared ? 0 : c->done), stop = min_u64(request_end(s), c->offset + c->bytes);
    s->running--;
    if (status < 0 && got < stop) {
        if (shared && s->status == 0) { /* whose bytes failed is not known, nor whether the file was changed: each is read alone */
            s->alone = true;
            s->next = max_u64(max_u64(got, c->offset), s->request.offset);
            push_first(list_of(q, s), s);
        } else {
            fail(q, s, c->file, status, max_u64(got, s->request.offset));
        }
    }
    finish_if_done(q, s);
    if (s->request.progress && !s->finished && leading_bytes(q, s) > s->reported) {
        push_result(q, s);
    }
}

void read_queue_book(struct read_queue *q, struct read_flight *f, int status)
{
    const struct read_chunk c = f->chunk;
    struct read_slot *s = f->slot;
    bool shared = c.offset + c.bytes > request_end(s);
    end_copy(q, f);
    f->slot = NULL;
    q->load.bytes += c.done;
    q->load.demand_bytes += q->demands > 0 ? c.done : 0;
    for (struct read_slot *next; s != NULL && s->request.offset < c.offset + c.bytes; s = next) {
        next = s->joined;
        if (request_end(s) <= c.offset + c.bytes) {
            s->joined = NULL; /* this was the chunk with the end of the request */
        }
        book_slot(q, s, &c, status, shared);
    }
}
