/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: fuzzing of tokenizer files and of texts. The first byte chooses: a tokenizer.json, a split pattern and a text, or a
 * text for a small byte-level tokenizer whose encoding must decode to the text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/fuzz/byte_tokens.h"
#include "tests/fuzz/fuzz.h"

static void fuzz_file(const char *text, size_t len)
{
    char folder[] = "/tmp/sluice-fuzz-XXXXXX", path[64];
    if (!mkdtemp(folder)) {
        abort();
    }
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(text, 1, len, f) != len || fclose(f) != 0) {
        abort();
    }
    struct tokenizer *t = NULL;
    struct token_list ids = { 0 };
    if (tokenizer_open_folder(folder, &t, NULL) == 0) {
        tokenizer_encode(t, text, len, TOKENIZE_SPECIAL, &ids, NULL);
    }
    token_list_deinit(&ids);
    tokenizer_close(t);
    unlink(path);
    rmdir(folder);
}

static int count_bytes(void *ctx, const char *piece, size_t len)
{
    (void)piece;
    *(size_t *)ctx += len;
    return len > 0 ? 0 : -1;
}

/* Pattern and text are separated by a NUL; the pieces of a text must make up the text. */
static void fuzz_pattern(const char *data, size_t len)
{
    size_t pattern_len = strnlen(data, len), total = 0;
    const char *text = data + pattern_len;
    size_t text_len = utf8_valid_prefix(text, len - pattern_len);
    struct pretokenizer p = { 0 };
    struct pretokenizer_scratch s = { 0 };
    if (utf8_valid_prefix(data, pattern_len) == pattern_len && pretokenizer_add(&p, data, pattern_len, NULL) == 0 &&
        pretokenizer_scratch_init(&p, &s, NULL) == 0 && pretokenizer_split(&p, &s, text, text_len, count_bytes, &total, NULL) == 0 &&
        total != text_len) {
        abort();
    }
    pretokenizer_scratch_deinit(&s);
    pretokenizer_deinit(&p);
}

static struct tokenizer *bytes_and_pairs(void)
{
    struct tokenizer *t = byte_tokens(8);
    tokenizer_add(t, 256, "aa", 2, TOKEN_NORMAL, 0, NULL);
    tokenizer_add(t, 257, "aaa", 3, TOKEN_NORMAL, 0, NULL);
    tokenizer_add(t, 258, "<x>", 3, TOKEN_CONTROL, ADDED_FIRST, NULL);
    tokenizer_add(t, 259, "<x><x", 5, TOKEN_ADDED, ADDED_SECOND, NULL);
    tokenizer_add_merge_text(t, 0, "a aa", 4, NULL);
    tokenizer_add_merge_text(t, 1, "a a", 3, NULL);
    if (tokenizer_finish(t, NULL) < 0 || pretokenizer_add_named(&t->pre, "deepseek-v3", 11, NULL) < 0) {
        abort();
    }
    return t;
}

static void fuzz_text(const char *text, size_t len)
{
    struct tokenizer *t = bytes_and_pairs();
    for (unsigned flags = 0; flags <= TOKENIZE_SPECIAL; flags++) {
        struct token_list ids = { 0 };
        size_t at = 0, n;
        if (tokenizer_encode(t, text, len, flags, &ids, NULL) < 0) {
            abort();
        }
        for (size_t i = 0; i < ids.n; i++) {
            const char *bytes = tokenizer_token_bytes(t, ids.ids[i], &n);
            if (n > len - at || memcmp(bytes, text + at, n) != 0 || (flags == 0 && ids.ids[i] >= 258)) {
                abort();
            }
            at += n;
        }
        if (at != len) {
            abort();
        }
        token_list_deinit(&ids);
    }
    tokenizer_close(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const targets[])(const char *, size_t) = { fuzz_file, fuzz_pattern, fuzz_text };
    if (size > 0) {
        targets[data[0] % ARRAY_LEN(targets)]((const char *)data + 1, size - 1);
    }
    return 0;
}
