/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the fuzz target of the safetensors header and index parsers, which change the text they are given. */
#include <stdlib.h>
#include <string.h>

#include "io/safetensors.h"
#include "tests/fuzz/fuzz.h"

static char *copy(const uint8_t *data, size_t size)
{
    char *text = malloc(size + (size == 0));
    if (text == NULL) {
        abort();
    }
    memcpy(text, data, size);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct safetensors_header h;
    struct safetensors_index x;
    struct error e;
    char *text = copy(data, size);
    if (safetensors_parse(text, size, &h, &e) == 0) {
        safetensors_header_deinit(&h);
    } else {
        free(text);
    }
    text = copy(data, size);
    if (safetensors_index_parse(text, size, &x, &e) == 0) {
        safetensors_index_deinit(&x);
    } else {
        free(text);
    }
    return 0;
}
