/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the fuzz target of the file of fingerprints, for a model of one stack of four experts and one matrix. */
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>

#include "src/tier/fingerprints_table.h"

enum { PARTS = 5 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[] = "model.gguf", stored[] = "model.gguf.sluice-xxh";
    struct file file = {.path = path, .fd = -1, .direct_fd = -1, .size = 1000};
    struct tensor tensors[] = {
        {.name = "blk.1.ffn_gate_exps.weight", .type_name = "F32", .format = FORMAT_F32, .n_dims = 3, .dims = {4, 2, 8}, .offset = 100, .bytes = 256},
        {.name = "output.weight", .type_name = "F32", .format = FORMAT_F32, .n_dims = 2, .dims = {2, 8}, .offset = 356, .bytes = 64},
    };
    struct container c = {.kind = CONTAINER_GGUF, .path = path, .folder = path, .files = &file, .n_files = 1, .tensors = tensors, .n_tensors = 2};
    struct fingerprint ranges[PARTS];
    struct fingerprint_source source = {.path = stored};
    struct fingerprints f = {.ranges = ranges, .sources = &source, .n_sources = 1};
    struct error e;
    if (fingerprints_parse(&f, &c, (const char *)data, size, &e) == 0) {
        if (f.n != PARTS) {
            abort(); /* accepted means complete */
        }
        fingerprints_sort(&f);
        fingerprints_check_value(&f, &file, 228, tensors[0].name, 7, &e);
        fingerprints_check_value(&f, &file, 356, tensors[1].name, 7, &e);
    }
    return 0;
}
