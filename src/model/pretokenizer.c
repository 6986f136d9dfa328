/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: compiled split patterns and applying them one inside the other. Must not know: vocabularies, pattern names. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "src/model/pretokenizer.h"

#include <errno.h>
#include <pcre2.h>
#include <stdlib.h>

static void *general_malloc(size_t bytes, void *ctx)
{
    (void)ctx;
    return malloc(bytes);
}

static void general_free(void *data, void *ctx)
{
    (void)ctx;
    free(data);
}

void pretokenizer_deinit(struct pretokenizer *p)
{
    for (uint32_t i = 0; i < p->n; i++) {
        pcre2_code_free(p->codes[i]);
    }
    pcre2_general_context_free(p->general);
    *p = (struct pretokenizer){ 0 };
}

static int compile(struct pretokenizer *p, const char *pattern, size_t len, pcre2_code **ret, struct error *e)
{
    pcre2_compile_context *context = pcre2_compile_context_create(p->general);
    if (!context) {
        return error_nomem(e, "pre-tokenizer pattern", len);
    }
    /* Oniguruma: ^ and $ are at lines, and only \n ends one. */
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    int code = 0;
    size_t at = 0;
    *ret = pcre2_compile((PCRE2_SPTR)pattern, len, PCRE2_UTF | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &code, &at, context);
    pcre2_compile_context_free(context);
    if (*ret) {
        return 0;
    }
    if (code == PCRE2_ERROR_HEAP_FAILED) {
        return error_nomem(e, "pre-tokenizer pattern", len);
    }
    char reason[160] = "";
    pcre2_get_error_message(code, (PCRE2_UCHAR *)reason, sizeof reason);
    return error_set(e, ERROR_FORMAT, "%s", reason);
}

/* An empty match would isolate nothing, and its rules differ between the two libraries. */
static int check_compiled(const pcre2_code *code, struct error *e)
{
    uint32_t may_be_empty = 1;
    pcre2_pattern_info(code, PCRE2_INFO_MATCHEMPTY, &may_be_empty);
    return may_be_empty ? error_set(e, ERROR_FORMAT, "it can match an empty text") : 0;
}

int pretokenizer_add(struct pretokenizer *p, const char *pattern, size_t len, struct error *e)
{
    if (p->n == PRETOKENIZER_MAX_SPLITS) {
        return error_set(e, ERROR_FORMAT, "more than %d splits", PRETOKENIZER_MAX_SPLITS);
    }
    if (!p->general && !(p->general = pcre2_general_context_create(general_malloc, general_free, NULL))) {
        return error_nomem(e, "pre-tokenizer", 0);
    }
    struct str translated = { 0 };
    pcre2_code *code = NULL;
    int rc = pretokenizer_translate(pattern, len, &translated, e);
    if (rc == 0 && (rc = compile(p, translated.data, translated.len, &code, e)) == 0) {
        rc = check_compiled(code, e);
    }
    str_deinit(&translated);
    if (rc < 0) {
        pcre2_code_free(code);
        return rc == ERROR_FORMAT ? error_prefix(e, rc, "pattern '%.*s'", len > 200 ? 200 : (int)len, pattern) : rc;
    }
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); /* where the system allows it; matches are the same without */
    p->codes[p->n++] = code;
    return 0;
}

int pretokenizer_scratch_init(const struct pretokenizer *p, struct pretokenizer_scratch *s, struct error *e)
{
    *s = (struct pretokenizer_scratch){ 0 };
    if (p->n == 0) {
        return 0;
    }
    s->match_data = pcre2_match_data_create(1, p->general);
    s->match_context = pcre2_match_context_create(p->general);
    if (!s->match_data || !s->match_context) {
        pretokenizer_scratch_deinit(s);
        return error_nomem(e, "pre-tokenizer", 0);
    }
    return 0;
}

void pretokenizer_scratch_deinit(struct pretokenizer_scratch *s)
{
    pcre2_match_data_free(s->match_data);
    pcre2_match_context_free(s->match_context);
    *s = (struct pretokenizer_scratch){ 0 };
}

static int match_error(int rc, uint32_t level, size_t len, struct error *e)
{
    if (rc == PCRE2_ERROR_NOMEMORY || rc == PCRE2_ERROR_HEAPLIMIT) {
        return error_nomem(e, "matching a pre-tokenizer pattern", len);
    }
    char reason[160] = "";
    pcre2_get_error_message(rc, (PCRE2_UCHAR *)reason, sizeof reason);
    return error_set(e, ERROR_FORMAT, "pre-tokenizer pattern %u gave up on a text of %zu bytes: %s", level + 1, len, reason);
}

struct split_run {
    const struct pretokenizer *p;
    const struct pretokenizer_scratch *s;
    pretokenizer_fn fn;
    void *ctx;
    struct error *e;
};

/* Recurses once per pattern, so at most PRETOKENIZER_MAX_SPLITS deep; each piece is matched as a text of its own. */
static int split_level(const struct split_run *run, uint32_t level, const char *text, size_t len)
{
    if (level == run->p->n) {
        return run->fn(run->ctx, text, len);
    }
    const size_t *match = pcre2_get_ovector_pointer(run->s->match_data);
    size_t done = 0;
    while (done < len) {
        int rc = pcre2_match(run->p->codes[level], (PCRE2_SPTR)text, len, done, PCRE2_NO_UTF_CHECK, run->s->match_data,
                             run->s->match_context);
        if (rc < 0 && rc != PCRE2_ERROR_NOMATCH) {
            return match_error(rc, level, len, run->e);
        }
        size_t start = rc < 0 ? len : match[0], end = rc < 0 ? len : match[1];
        if (start > done && (rc = split_level(run, level + 1, text + done, start - done)) < 0) {
            return rc;
        }
        if (end > start && (rc = split_level(run, level + 1, text + start, end - start)) < 0) {
            return rc;
        }
        done = end;
    }
    return 0;
}

int pretokenizer_split(const struct pretokenizer *p, const struct pretokenizer_scratch *s, const char *text, size_t len,
                       pretokenizer_fn fn, void *ctx, struct error *e)
{
    struct split_run run = { .p = p, .s = s, .fn = fn, .ctx = ctx, .e = e };
    if (p->n > 0) {
        /* A run of one class is walked back character by character: a few steps per byte, or the pattern is not fit. */
        pcre2_set_match_limit(s->match_context, len < UINT32_MAX / 32 ? 1000000 + 16 * (uint32_t)len : UINT32_MAX);
    }
    return len > 0 ? split_level(&run, 0, text, len) : 0;
}
