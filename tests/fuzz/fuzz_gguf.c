/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the fuzz target of the GGUF header parser and the metadata look-ups. */
#include "io/gguf.h"
#include "tests/fuzz/fuzz.h"

static void look_up_all(const struct gguf_meta *m)
{
    for (size_t i = 0; i < m->n; i++) {
        const char *key = m->values[i].key;
        struct error e;
        uint64_t u;
        double f;
        bool flag;
        struct gguf_string s;
        gguf_get_u64(m, key, &u, &e);
        gguf_get_f64(m, key, &f, &e);
        gguf_get_bool(m, key, &flag, &e);
        gguf_get_string(m, key, &s, &e);
        gguf_array_i64(&m->values[i], m->values[i].count / 2);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint64_t file_sizes[] = {size, (uint64_t)size * 1000 + 1}; /* a whole file, and the first piece of one */
    for (size_t i = 0; i < ARRAY_LEN(file_sizes); i++) {
        struct gguf_header h;
        struct error e;
        if (gguf_parse(data, size, file_sizes[i], &h, &e) == 0) {
            look_up_all(&h.meta);
            gguf_header_deinit(&h);
        }
    }
    return 0;
}
