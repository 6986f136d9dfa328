/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: reading of tests/data/spec/<name>.json. Knows nothing of kernels. */
#include "tests/unit/cpu/spec_data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

static void *from_hex(const char *path, const char *hex, size_t *ret_len)
{
    size_t len = strlen(hex) / 2;
    uint8_t *bytes = malloc(len + 1);
    for (size_t i = 0; bytes != NULL && i < len; i++) {
        if (sscanf(hex + 2 * i, "%2hhx", &bytes[i]) != 1) {
            free(bytes);
            bytes = NULL;
        }
    }
    if (bytes == NULL) {
        fprintf(stderr, "%s: no memory, or not a hex string: %.32s...\n", path, hex);
        abort();
    }
    *ret_len = len;
    return bytes;
}

size_t spec_data_each(const char *path, void (*check)(const struct spec_blocks *entry, void *user), void *user)
{
    json_error_t error;
    json_t *root = json_load_file(path, 0, &error);
    if (root == NULL) {
        fprintf(stderr, "%s:%d: %s\n", path, error.line, error.text);
        abort();
    }
    const char *name;
    json_t *value;
    size_t count = 0;
    json_object_foreach(root, name, value)
    {
        const char *blocks, *values;
        if (json_unpack_ex(value, &error, 0, "{s:s, s:s}", "blocks_hex", &blocks, "values_f32_hex", &values) != 0) {
            fprintf(stderr, "%s: %s: %s\n", path, name, error.text);
            abort();
        }
        struct spec_blocks entry = {.name = name};
        size_t values_bytes;
        entry.bytes = from_hex(path, blocks, &entry.bytes_len);
        entry.values = from_hex(path, values, &values_bytes);
        entry.values_len = values_bytes / sizeof(float);
        check(&entry, user);
        free(entry.bytes);
        free(entry.values);
        count++;
    }
    json_decref(root);
    return count;
}
