/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: fuzzing of event files, line by line. */
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "src/commands/events.h"

static void need(bool ok)
{
    if (!ok) {
        abort();
    }
}

/* Whatever was accepted is calls within their lists, of experts that there are. */
static void check(const struct events *x)
{
    static const uint32_t each[STORE_CALLS] = {[STORE_BEGIN] = 2, [STORE_HINT] = 4};
    size_t batches = 0;
    need(x->n > 0 && x->setting.experts > 0 && x->setting.layers + x->setting.mtp_layers <= EVENTS_LAYERS);
    for (size_t i = 0; i < x->n; i++) {
        const struct event *c = &x->item[i];
        need(c->kind < STORE_CALLS && c->lease < STORE_LEASES && c->first_batch == batches && c->first + (size_t)each[c->kind] * c->n <= x->n_numbers);
        need(i == 0 || c->at_ns >= x->item[i - 1].at_ns + x->item[i - 1].took_ns);
        batches += c->n_batches;
        for (uint32_t k = 0; c->kind == STORE_BEGIN && k < c->n; k++) {
            need(events_has_experts(&x->setting, c->layer) && x->numbers[c->first + 2 * k] < x->setting.experts);
        }
    }
    need(batches == x->n_batches);
    for (size_t i = 0; i < x->n_batches; i++) {
        need(x->batches[i].first + 3 * (size_t)x->batches[i].n <= x->n_numbers);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct events x = {0};
    struct error e = {0};
    struct events_text *t = calloc(1, sizeof(*t));
    char *text = malloc(size + 1);
    int r = 0;
    if (t == NULL || text == NULL) {
        free(t);
        free(text);
        return 0;
    }
    t->events = &x;
    t->name = "events";
    memcpy(text, data, size);
    text[size] = '\0';
    for (char *line = text, *end; r == 0 && line < text + size; line = end + 1) {
        end = line + strcspn(line, "\n");
        *end = '\0';
        r = events_text_line(t, line, &e);
    }
    r = r < 0 ? r : events_text_end(t, &e);
    if (r == 0) {
        check(&x);
    } else if (e.text[0] == '\0') {
        abort(); /* a refusal without a word */
    }
    events_deinit(&x);
    free(t);
    free(text);
    return 0;
}
