/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: filling a tokenizer: the byte map, the index of token texts, merges, sets of added tokens. Must not know: file
 * formats, encoding. */
#include "src/model/tokenizer_build.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

int tokenizer_create(size_t tokens, size_t merges, struct tokenizer **ret, struct error *e)
{
    if (tokens > TOKENIZER_MAX_TOKENS || merges > TOKENIZER_MAX_TOKENS) {
        return error_set(e, ERROR_FORMAT, "%zu tokens and %zu merges, at most %d of each are supported", tokens, merges, TOKENIZER_MAX_TOKENS);
    }
    struct tokenizer *t = calloc(1, sizeof *t);
    if (!t) {
        return error_nomem(e, "tokenizer", sizeof *t);
    }
    t->bos = -1;
    t->index_mask = 1023;
    while (t->index_mask + 1 < 2 * tokens) {
        t->index_mask = 2 * t->index_mask + 1;
    }
    t->index = malloc((t->index_mask + 1) * sizeof *t->index);
    int rc = t->index ? bpe_init(&t->bpe, merges, e) : error_nomem(e, "index of tokens", (t->index_mask + 1) * sizeof *t->index);
    if (rc < 0) {
        tokenizer_close(t);
        return rc;
    }
    memset(t->index, 0xff, (t->index_mask + 1) * sizeof *t->index);
    *ret = t;
    return 0;
}

void tokenizer_close(struct tokenizer *t)
{
    if (!t) {
        return;
    }
    str_deinit(&t->text);
    free(t->tokens);
    free(t->index);
    bpe_deinit(&t->bpe);
    pretokenizer_deinit(&t->pre);
    for (int pass = 0; pass < ADDED_PASSES; pass++) {
        free(t->added[pass].ids);
    }
    free(t->chat_template);
    free(t);
}

/* The character of a byte is the byte itself where it is printable, else U+0100 on: 68 of them in rising order. */
static int byte_of_character(uint32_t c)
{
    if ((c >= 0x21 && c <= 0x7e) || (c >= 0xa1 && c <= 0xac) || (c >= 0xae && c <= 0xff)) {
        return (int)c;
    }
    if (c < 0x100 || c > 0x143) {
        return -1;
    }
    c -= 0x100;
    return (int)(c <= 0x20 ? c : c <= 0x42 ? c - 0x21 + 0x7f : 0xad);
}

/* Bytes of a text in byte-map characters (all below U+0800); false, with nothing appended, if it has another character. */
static bool append_mapped(struct str *out, const char *text, size_t len)
{
    size_t before = out->len;
    for (size_t i = 0; i < len;) {
        unsigned char c = (unsigned char)text[i++];
        uint32_t character = c;
        if (c >= 0xc0 && i < len) {
            character = (c & 0x1fu) << 6 | ((unsigned char)text[i++] & 0x3fu);
        }
        int byte = c >= 0xe0 || (c >= 0x80 && c < 0xc0) ? -1 : byte_of_character(character);
        if (byte < 0) {
            out->len = before;
            return false;
        }
        char b = (char)byte;
        str_append(out, &b, 1);
    }
    return true;
}

static size_t find_index(const struct tokenizer *t, const char *bytes, size_t len)
{
    for (size_t i = XXH3_64bits(bytes, len) & t->index_mask;; i = (i + 1) & t->index_mask) {
        int32_t id = t->index[i];
        if (id < 0 || (t->tokens[id].len == len && memcmp(t->text.data + t->tokens[id].offset, bytes, len) == 0)) {
            return i;
        }
    }
}

int32_t tokenizer_find_normal(const struct tokenizer *t, const char *bytes, size_t len) { return t->index[find_index(t, bytes, len)]; }

static int grow_tokens(struct tokenizer *t, uint32_t n, struct error *e)
{
    if (n > t->cap) {
        uint32_t cap = n + n / 2 + 256;
        struct token_entry *tokens = realloc(t->tokens, cap * sizeof *tokens);
        if (!tokens) {
            return error_nomem(e, "table of tokens", cap * sizeof *tokens);
        }
        memset(tokens + t->cap, 0, (cap - t->cap) * sizeof *tokens);
        t->tokens = tokens;
        t->cap = cap;
    }
    t->n = n > t->n ? n : t->n;
    return 0;
}

static int shown(size_t len) { return len > 80 ? 80 : (int)len; }

static int add_normal(struct tokenizer *t, int32_t id, const char *text, size_t len, struct error *e)
{
    struct token_entry *entry = &t->tokens[id];
    if (entry->kind != TOKEN_NONE) {
        return error_set(e, ERROR_FORMAT, "tokens '%.*s' and '%.*s' both have id %d", shown(entry->len), t->text.data + entry->offset,
                         shown(len), text, id);
    }
    *entry = (struct token_entry){ .offset = (uint32_t)t->text.len, .kind = TOKEN_NORMAL };
    bool mapped = append_mapped(&t->text, text, len);
    if (!mapped) {
        str_append(&t->text, text, len);
    }
    if (t->text.failed || t->text.len > UINT32_MAX) {
        return error_nomem(e, "texts of tokens", t->text.len);
    }
    entry->len = (uint32_t)(t->text.len - entry->offset);
    if (!mapped) {
        return 0; /* merging never makes it, so it need not be found */
    }
    size_t slot = find_index(t, t->text.data + entry->offset, entry->len);
    if (t->index[slot] >= 0) {
        return error_set(e, ERROR_FORMAT, "token '%.*s' has ids %d and %d", shown(len), text, t->index[slot], id);
    }
    if (++t->indexed > t->index_mask) {
        return error_set(e, ERROR_FORMAT, "more tokens than announced");
    }
    t->index[slot] = id;
    return 0;
}

static int add_added(struct tokenizer *t, int32_t id, const char *text, size_t len, enum token_kind kind, int pass, struct error *e)
{
    struct token_entry *entry = &t->tokens[id];
    if (len == 0 || len > TOKENIZER_MAX_ADDED_BYTES) {
        return error_set(e, ERROR_FORMAT, "added token %d has %zu bytes, expected 1 to %d", id, len, TOKENIZER_MAX_ADDED_BYTES);
    }
    if (entry->kind == TOKEN_NONE) {
        entry->offset = (uint32_t)t->text.len;
        entry->len = (uint32_t)len;
        str_append(&t->text, text, len);
        if (t->text.failed || t->text.len > UINT32_MAX) {
            return error_nomem(e, "texts of tokens", t->text.len);
        }
    } else if (entry->kind != TOKEN_NORMAL || entry->len != len || memcmp(t->text.data + entry->offset, text, len) != 0) {
        return error_set(e, ERROR_FORMAT, "added token '%.*s' has id %d, which is '%.*s'", shown(len), text, id, shown(entry->len),
                         t->text.data + entry->offset);
    }
    entry->kind = (uint8_t)kind;
    entry->pass = (uint8_t)pass;
    t->added[pass].n++;
    return 0;
}

int tokenizer_add(struct tokenizer *t, int64_t id, const char *text, size_t len, enum token_kind kind, int pass, struct error *e)
{
    if (id < 0 || id >= TOKENIZER_MAX_TOKENS) {
        return error_set(e, ERROR_FORMAT, "token '%.*s' has id %lld, expected 0 to %d", shown(len), text, (long long)id,
                         TOKENIZER_MAX_TOKENS - 1);
    }
    int rc = grow_tokens(t, (uint32_t)id + 1, e);
    if (rc < 0) {
        return rc;
    }
    return kind == TOKEN_NORMAL ? add_normal(t, (int32_t)id, text, len, e) : add_added(t, (int32_t)id, text, len, kind, pass, e);
}

/* Parts are mapped into the free end of the text buffer, which is taken back afterwards. */
int tokenizer_add_merge(struct tokenizer *t, uint32_t rank, const char *left, size_t left_len, const char *right, size_t right_len,
                        struct error *e)
{
    size_t base = t->text.len;
    int32_t ids[3] = { -1, -1, -1 };
    if (append_mapped(&t->text, left, left_len) && !t->text.failed) {
        size_t middle = t->text.len;
        if (append_mapped(&t->text, right, right_len) && !t->text.failed) {
            ids[0] = tokenizer_find_normal(t, t->text.data + base, middle - base);
            ids[1] = tokenizer_find_normal(t, t->text.data + middle, t->text.len - middle);
            ids[2] = tokenizer_find_normal(t, t->text.data + base, t->text.len - base);
        }
    }
    t->text.len = base;
    if (t->text.failed) {
        return error_nomem(e, "merges", base);
    }
    if (ids[0] < 0 || ids[1] < 0 || ids[2] < 0) {
        return error_set(e, ERROR_FORMAT, "merge %u '%.*s %.*s': %s is not in the vocabulary", rank, shown(left_len), left,
                         shown(right_len), right, ids[0] < 0 ? "the left part" : ids[1] < 0 ? "the right part" : "the result");
    }
    if (t->tokens[ids[2]].kind == TOKEN_CONTROL) {
        return error_set(e, ERROR_FORMAT, "merge %u makes the control token %d, so ordinary text could forge it", rank, ids[2]);
    }
    bpe_add_merge(&t->bpe, ids[0], ids[1], rank, ids[2]);
    return 0;
}

int tokenizer_add_merge_text(struct tokenizer *t, uint32_t rank, const char *text, size_t len, struct error *e)
{
    const char *space = memchr(text, ' ', len);
    if (!space) {
        return error_set(e, ERROR_FORMAT, "merge %u '%.*s' has no space", rank, shown(len), text);
    }
    return tokenizer_add_merge(t, rank, text, (size_t)(space - text), space + 1, len - (size_t)(space - text) - 1, e);
}

static int compare_tokens(const void *a, const void *b, void *ctx)
{
    const struct tokenizer *t = ctx;
    const struct token_entry *x = &t->tokens[*(const int32_t *)a], *y = &t->tokens[*(const int32_t *)b];
    int order = memcmp(t->text.data + x->offset, t->text.data + y->offset, x->len < y->len ? x->len : y->len);
    return order ? order : (x->len > y->len) - (x->len < y->len);
}

static int build_added(struct tokenizer *t, int pass, struct error *e)
{
    struct added_set *set = &t->added[pass];
    if (set->n == 0) {
        return 0;
    }
    set->ids = malloc(set->n * sizeof *set->ids);
    if (!set->ids) {
        return error_nomem(e, "added tokens", set->n * sizeof *set->ids);
    }
    size_t n = 0;
    for (uint32_t id = 0; id < t->n; id++) {
        if (t->tokens[id].kind >= TOKEN_ADDED && t->tokens[id].pass == pass) {
            set->ids[n++] = (int32_t)id;
            set->first[(unsigned char)t->text.data[t->tokens[id].offset]] = true;
        }
    }
    qsort_r(set->ids, n, sizeof *set->ids, compare_tokens, t);
    for (size_t i = 1; i < n; i++) {
        if (compare_tokens(&set->ids[i - 1], &set->ids[i], t) == 0) {
            const struct token_entry *twice = &t->tokens[set->ids[i]];
            return error_set(e, ERROR_FORMAT, "added token '%.*s' has ids %d and %d", shown(twice->len), t->text.data + twice->offset,
                             set->ids[i - 1], set->ids[i]);
        }
    }
    return 0;
}

int tokenizer_finish(struct tokenizer *t, struct error *e)
{
    for (int byte = 0; byte < 256; byte++) {
        char c = (char)byte;
        int32_t id = tokenizer_find_normal(t, &c, 1);
        if (id < 0 || t->tokens[id].kind == TOKEN_CONTROL) {
            return error_set(e, ERROR_FORMAT, "byte 0x%02x has no token: not a byte-level vocabulary", byte);
        }
        t->bpe.byte_id[byte] = id;
    }
    int rc = 0;
    for (int pass = 0; pass < ADDED_PASSES && rc == 0; pass++) {
        rc = build_added(t, pass, e);
    }
    return rc;
}

int32_t tokenizer_find(const struct tokenizer *t, const char *text, size_t len)
{
    for (uint32_t id = 0; id < t->n; id++) {
        const struct token_entry *entry = &t->tokens[id];
        if (entry->kind != TOKEN_NONE && entry->len == len && memcmp(t->text.data + entry->offset, text, len) == 0) {
            return (int32_t)id;
        }
    }
    return -1;
}

int tokenizer_add_eos(struct tokenizer *t, int64_t id, struct error *e)
{
    if (id < 0 || id > INT32_MAX || !tokenizer_has(t, (int32_t)id)) {
        return error_set(e, ERROR_FORMAT, "end token %lld is not in the vocabulary", (long long)id);
    }
    for (size_t i = 0; i < t->n_eos; i++) {
        if (t->eos[i] == id) {
            return 0;
        }
    }
    if (t->n_eos == TOKENIZER_MAX_EOS) {
        return error_set(e, ERROR_FORMAT, "more than %d end tokens", TOKENIZER_MAX_EOS);
    }
    t->eos[t->n_eos++] = (int32_t)id;
    return 0;
}
