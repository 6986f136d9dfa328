/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the 256 byte tokens every fuzzed tokenizer starts with. Must not know: what else is in it. */
#ifndef TESTS_FUZZ_BYTE_TOKENS_H
#define TESTS_FUZZ_BYTE_TOKENS_H

#include <stdlib.h>

#include "src/model/tokenizer_build.h"

/* Ids 0..255 are the bytes; room for `merges`. */
static inline struct tokenizer *byte_tokens(size_t merges)
{
    struct tokenizer *t = NULL;
    if (tokenizer_create(512, merges, &t, NULL) < 0) {
        abort();
    }
    for (int id = 0, next = 0x100; id < 256; id++) {
        bool plain = (id >= 0x21 && id <= 0x7e) || (id >= 0xa1 && id != 0xad);
        int c = plain ? id : next++;
        char text[2] = { (char)(c < 0x80 ? c : 0xc0 | c >> 6), (char)(0x80 | (c & 0x3f)) };
        tokenizer_add(t, id, text, c < 0x80 ? 1 : 2, TOKEN_NORMAL, 0, NULL);
    }
    return t;
}

#endif
