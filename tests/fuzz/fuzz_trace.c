/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: fuzzing of routing traces, line by line. */
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "src/commands/trace_csv.h"

/* Whatever was accepted is whole positions of known experts. */
static void check(const struct trace *t)
{
    if (t->n_rows == 0 || t->n_layers == 0 || t->n_rows % t->n_layers != 0 || t->used == 0 || t->windows == 0) {
        abort();
    }
    for (size_t row = 0; row < t->n_rows; row++) {
        if (t->rows[row].layer != t->layers[row % t->n_layers] || t->rows[row].shadow + t->rows[row].n_shadow > t->n_shadow) {
            abort();
        }
        for (uint32_t k = 0; k < t->used; k++) {
            if (trace_ids(t, row)[k] >= t->experts) {
                abort();
            }
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct trace t = {0};
    struct error e = {0};
    struct trace_csv *c = calloc(1, sizeof(*c));
    char *text = malloc(size + 1);
    int r = 0;
    if (c == NULL || text == NULL) {
        free(c);
        free(text);
        return 0;
    }
    c->trace = &t;
    c->name = "trace";
    memcpy(text, data, size);
    text[size] = '\0';
    for (char *line = text, *end; r == 0 && line < text + size; line = end + 1) {
        end = line + strcspn(line, "\n");
        *end = '\0';
        r = trace_csv_line(c, line, &e);
    }
    r = r < 0 ? r : trace_csv_end(c, &e);
    if (r == 0) {
        check(&t);
    } else if (e.text[0] == '\0') {
        abort(); /* a refusal without a word */
    }
    trace_deinit(&t);
    free(c);
    free(text);
    return 0;
}
