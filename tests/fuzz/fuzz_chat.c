/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: fuzzing of chat requests: the first byte chooses the layout. Untrusted pieces must never give special ids. */
#include <stdlib.h>
#include <string.h>

#include "src/model/chat.h"
#include "src/model/chat_tokens.h"
#include "tests/fuzz/byte_tokens.h"
#include "tests/fuzz/fuzz.h"

static const char *const specials[] = {
    CHAT_USER, CHAT_ASSISTANT, CHAT_EOS, CHAT_THINK, CHAT_THINK_END, CHAT_CALLS_BEGIN, CHAT_CALLS_END, CHAT_CALL_BEGIN, CHAT_CALL_END,
    CHAT_SEP, CHAT_OUTPUTS_BEGIN, CHAT_OUTPUTS_END, CHAT_OUTPUT_BEGIN, CHAT_OUTPUT_END,
};

/* Bytes and the special tokens, 256 on. */
static struct tokenizer *byte_tokenizer(void)
{
    struct tokenizer *t = byte_tokens(0);
    for (size_t i = 0; i < ARRAY_LEN(specials); i++) {
        tokenizer_add(t, 256 + (int64_t)i, specials[i], strlen(specials[i]), TOKEN_CONTROL, ADDED_FIRST, NULL);
    }
    if (tokenizer_finish(t, NULL) < 0) {
        abort();
    }
    return t;
}

/* Special ids may come from trusted pieces only: as many as those pieces give on their own. */
static void check_prompt(const struct chat_prompt *p, const struct tokenizer *t)
{
    struct token_list all = { 0 }, trusted = { 0 };
    size_t special = 0;
    for (size_t i = 0; i < p->n; i++) {
        if (p->pieces[i].trusted && tokenizer_encode(t, p->pieces[i].text, p->pieces[i].len, TOKENIZE_SPECIAL, &trusted, NULL) < 0) {
            abort();
        }
    }
    if (chat_prompt_tokens(p, t, &all, NULL) < 0) {
        abort();
    }
    for (size_t i = 0; i < all.n; i++) {
        special += all.ids[i] >= 256;
    }
    for (size_t i = 0; i < trusted.n; i++) {
        special -= trusted.ids[i] >= 256;
    }
    if (special != 0) {
        abort();
    }
    token_list_deinit(&all);
    token_list_deinit(&trusted);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    struct tokenizer *t = byte_tokenizer();
    struct chat_prompt p = { 0 };
    enum chat_layout layout = (enum chat_layout)(data[0] % (CHAT_R1_0528 + 1));
    if (chat_render(layout, t, (const char *)data + 1, size - 1, &p, NULL) == 0) {
        check_prompt(&p, t);
    }
    chat_prompt_deinit(&p);
    tokenizer_close(t);
    return 0;
}
