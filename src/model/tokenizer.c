/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: encoding (special spellings, pre-tokens, merges) and look-ups of a finished tokenizer. Must not know: where it was
 * read from, chat rules. */
#include "src/model/tokenizer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "src/model/tokenizer_build.h"

void token_list_deinit(struct token_list *l)
{
    free(l->ids);
    *l = (struct token_list){ 0 };
}

int token_list_push(struct token_list *l, int32_t id)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 64;
        int32_t *ids = cap > SIZE_MAX / sizeof *ids ? NULL : realloc(l->ids, cap * sizeof *ids);
        if (!ids) {
            return -ENOMEM;
        }
        l->ids = ids;
        l->cap = cap;
    }
    l->ids[l->n++] = id;
    return 0;
}

/* Longest token of the set that starts text; the candidates are a range of the sorted list that each byte narrows. */
static size_t longest_added(const struct tokenizer *t, const struct added_set *set, const char *text, size_t len, int32_t *ret_id)
{
    size_t low = 0, high = set->n, longest = 0;
    for (size_t depth = 0; low < high; depth++) {
        const struct token_entry *first = &t->tokens[set->ids[low]];
        if (first->len == depth) {
            longest = depth;
            *ret_id = set->ids[low++];
        }
        if (depth == len) {
            break;
        }
        unsigned char want = (unsigned char)text[depth];
        for (size_t end = high; low < end;) {
            size_t mid = low + (end - low) / 2;
            if ((unsigned char)t->text.data[t->tokens[set->ids[mid]].offset + depth] < want) {
                low = mid + 1;
            } else {
                end = mid;
            }
        }
        for (size_t begin = low; begin < high;) {
            size_t mid = begin + (high - begin) / 2;
            if ((unsigned char)t->text.data[t->tokens[set->ids[mid]].offset + depth] > want) {
                high = mid;
            } else {
                begin = mid + 1;
            }
        }
    }
    return longest;
}

/* First match of the set in text[from..to), its start or `to`. */
static size_t next_added(const struct tokenizer *t, const struct added_set *set, const char *text, size_t from, size_t to,
                         size_t *ret_len, int32_t *ret_id)
{
    for (size_t i = from; set->n > 0 && i < to; i++) {
        if (set->first[(unsigned char)text[i]] && (*ret_len = longest_added(t, set, text + i, to - i, ret_id)) > 0) {
            return i;
        }
    }
    *ret_len = 0;
    return to;
}

bool tokenizer_next_special(const struct tokenizer *t, struct special_cursor *c, size_t *ret_start, size_t *ret_len, int32_t *ret_id)
{
    if (!c->looked || c->first_start < c->at) {
        c->first_start = next_added(t, &t->added[ADDED_FIRST], c->text, c->at, c->len, &c->first_len, &c->first_id);
        c->looked = true;
    }
    *ret_start = next_added(t, &t->added[ADDED_SECOND], c->text, c->at, c->first_start, ret_len, ret_id);
    if (*ret_start == c->first_start) {
        *ret_len = c->first_len;
        *ret_id = c->first_id;
    }
    c->at = *ret_start + *ret_len;
    return *ret_start < c->len;
}

struct encode_run {
    const struct tokenizer *t;
    struct pretokenizer_scratch pre;
    struct bpe_scratch bpe;
    struct token_list *out;
    struct error *e;
};

static int encode_piece(void *ctx, const char *piece, size_t len)
{
    struct encode_run *run = ctx;
    if (run->t->whole_pieces) {
        int32_t id = tokenizer_find_normal(run->t, piece, len);
        if (id >= 0 && run->t->tokens[id].kind == TOKEN_NORMAL) {
            return token_list_push(run->out, id) < 0 ? error_nomem(run->e, "list of tokens", run->out->n * sizeof(int32_t)) : 0;
        }
    }
    return bpe_encode(&run->t->bpe, &run->bpe, piece, len, run->out, run->e);
}

/* Text without special spellings. A byte that is no UTF-8 is a piece of its own; the text around it is cut as two. */
static int encode_plain(struct encode_run *run, const char *text, size_t len)
{
    while (len > 0) {
        size_t valid = utf8_valid_prefix(text, len);
        int rc = pretokenizer_split(&run->t->pre, &run->pre, text, valid, encode_piece, run, run->e);
        if (rc == 0 && valid < len) {
            rc = bpe_encode(&run->t->bpe, &run->bpe, text + valid++, 1, run->out, run->e);
        }
        if (rc < 0) {
            return rc;
        }
        text += valid;
        len -= valid;
    }
    return 0;
}

static int encode_special(struct encode_run *run, const char *text, size_t len)
{
    struct special_cursor c = { .text = text, .len = len };
    size_t start, special_len, done = 0;
    int32_t id;
    while (tokenizer_next_special(run->t, &c, &start, &special_len, &id)) {
        int rc = encode_plain(run, text + done, start - done);
        if (rc < 0) {
            return rc;
        }
        if (token_list_push(run->out, id) < 0) {
            return error_nomem(run->e, "list of tokens", run->out->n * sizeof(int32_t));
        }
        done = start + special_len;
    }
    return encode_plain(run, text + done, len - done);
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, unsigned flags, struct token_list *out, struct error *e)
{
    struct encode_run run = { .t = t, .out = out, .e = e };
    int rc = pretokenizer_scratch_init(&t->pre, &run.pre, e);
    if (rc == 0) {
        rc = flags & TOKENIZE_SPECIAL ? encode_special(&run, text, len) : encode_plain(&run, text, len);
    }
    pretokenizer_scratch_deinit(&run.pre);
    bpe_scratch_deinit(&run.bpe);
    return rc;
}

const char *tokenizer_token_bytes(const struct tokenizer *t, int32_t id, size_t *ret_len)
{
    if (!tokenizer_has(t, id)) {
        *ret_len = 0;
        return "";
    }
    *ret_len = t->tokens[id].len;
    return t->text.data + t->tokens[id].offset;
}

int32_t tokenizer_special_id(const struct tokenizer *t, const char *spelling)
{
    size_t len = strlen(spelling);
    for (int pass = 0; pass < ADDED_PASSES; pass++) {
        int32_t id;
        if (len > 0 && longest_added(t, &t->added[pass], spelling, len, &id) == len) {
            return id;
        }
    }
    return -1;
}

bool tokenizer_is_special(const struct tokenizer *t, int32_t id) { return tokenizer_has(t, id) && t->tokens[id].kind == TOKEN_CONTROL; }

uint32_t tokenizer_vocab(const struct tokenizer *t) { return t->n; }

bool tokenizer_has(const struct tokenizer *t, int32_t id)
{
    return id >= 0 && (uint32_t)id < t->n && t->tokens[id].kind != TOKEN_NONE;
}

int32_t tokenizer_bos(const struct tokenizer *t) { return t->bos; }

bool tokenizer_adds_bos(const struct tokenizer *t) { return t->adds_bos && t->bos >= 0; }

const int32_t *tokenizer_eos(const struct tokenizer *t, size_t *ret_n)
{
    *ret_n = t->n_eos;
    return t->eos;
}

const char *tokenizer_chat_template(const struct tokenizer *t) { return t->chat_template; }

uint64_t tokenizer_bytes(const struct tokenizer *t)
{
    uint64_t added = t->added[ADDED_FIRST].n + t->added[ADDED_SECOND].n;
    return sizeof *t + t->text.cap + (uint64_t)t->cap * sizeof *t->tokens + (t->index_mask + 1) * sizeof *t->index +
           (t->bpe.mask + 1) * sizeof *t->bpe.slots + added * sizeof(int32_t) + (t->chat_template ? strlen(t->chat_template) + 1 : 0);
}
