/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: check_stored.h. Must not know: reading. */
#include "src/commands/check_stored.h"

#include <stdlib.h>

static void compare_tensor(struct check_report *r, const struct fingerprints *f, const struct container *c, const struct tensor *t,
                           const struct check_tensor *x)
{
    uint32_t parts = fingerprints_parts(c, t);
    for (uint32_t k = 0; k < parts && x->read_status == 0; k++) {
        struct error told = { 0 };
        if (fingerprints_check_value(f, &c->files[t->file], t->offset + t->bytes / parts * k, t->name, x->parts[k], &told) < 0) {
            check_problem(r, "%s", told.text);
        }
    }
}

int check_stored_compare(struct check_report *r, const struct container *c, const struct check_tensor *results, struct error *e)
{
    struct fingerprints *f = NULL;
    struct error told = { 0 };
    struct container *one = (struct container *)(uintptr_t)c;
    if (fingerprints_open(&one, 1, &f, &told) < 0) {
        check_problem(r, "%s", told.text);
        return 0;
    }
    if (f == NULL) {
        return 0;
    }
    for (size_t i = 0; i < c->n_tensors; i++) {
        compare_tensor(r, f, c, &c->tensors[i], &results[i]);
    }
    fingerprints_close(f);
    char *path = fingerprints_path(c);
    if (path == NULL) {
        return error_nomem(e, "path", 0);
    }
    check_stored(r, path, false);
    free(path);
    return 0;
}

int check_stored_write(struct check_report *r, const struct container *c, const struct check_tensor *results, struct error *e)
{
    char *path = fingerprints_path(c);
    const uint64_t **values = calloc(c->n_tensors + 1, sizeof(*values));
    int code = path != NULL && values != NULL ? 0 : error_nomem(e, "fingerprints", c->n_tensors * sizeof(*values));
    for (size_t i = 0; code == 0 && i < c->n_tensors; i++) {
        values[i] = results[i].parts;
    }
    if (code == 0 && r->n_problems > 0) {
        check_problem(r, "%s: not written: only a model without problems gets fingerprints", path);
    } else if (code == 0) {
        code = fingerprints_write(c, values, e);
        if (code == 0) {
            check_stored(r, path, true);
        }
    }
    free(values);
    free(path);
    return code;
}
