/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the words and the JSON of `sluice check`. Must not know: how tensors are read. */
#include "src/commands/check_report.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/intmath.h"
#include "io/file.h"
#include "src/base/json_text.h"
#include "src/commands/arguments.h"
#include "src/model/names.h"

enum { EARLIER_LIMIT = 256 << 20, PRINT_BYTES = 17 };

/* Name -> fingerprint text of an earlier --json output. */
static int read_earlier(const char *path, json_t **ret, struct error *e)
{
    char *text;
    size_t len;
    int r = file_read_all(path, EARLIER_LIMIT, &text, &len, e);
    if (r != 0) {
        return r;
    }
    json_t *root = NULL, *map = json_object();
    struct error failed = { 0 };
    r = json_text_parse(text, len, 0, &root, &failed);
    free(text);
    if (r < 0) {
        json_decref(map);
        return error_set(e, r, "%s: is no output of `sluice check --json`: %s", path, failed.text);
    }
    const json_t *tensors = json_object_get(root, "tensors");
    for (size_t i = 0; map != NULL && i < json_array_size(tensors); i++) {
        const json_t *entry = json_array_get(tensors, i);
        const char *name = json_string_value(json_object_get(entry, "name"));
        json_t *print = json_object_get(entry, "fingerprint");
        if (name == NULL || !json_is_string(print) || json_object_set(map, name, print) != 0) {
            json_decref(map);
            map = NULL;
        }
    }
    bool usable = map != NULL && json_is_array(tensors);
    json_decref(root);
    if (!usable) {
        json_decref(map);
        return error_set(e, ERROR_FORMAT, "%s: is no output of `sluice check --json`: expected an object with tensors, each "
                         "with name and fingerprint", path);
    }
    *ret = map;
    return 0;
}

int check_report_init(struct check_report *r, bool json, const char *against, struct error *e)
{
    *r = (struct check_report){ .json = json };
    json_t *map = NULL;
    int code = against != NULL ? read_earlier(against, &map, e) : 0;
    r->earlier = map;
    return code;
}

void check_report_deinit(struct check_report *r)
{
    json_decref(r->earlier);
    str_deinit(&r->tensors);
    str_deinit(&r->problems);
    str_deinit(&r->stored);
    *r = (struct check_report){ 0 };
}

void check_problem(struct check_report *r, const char *fmt, ...)
{
    char text[1600];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    text_one_line(text);
    if (r->json) {
        str_puts(&r->problems, r->n_problems > 0 ? ",\n" : "");
        str_json(&r->problems, text, strlen(text));
    } else {
        str_printf(&r->problems, "WRONG: %s\n", text);
    }
    if (r->n_problems++ == 0) {
        snprintf(r->first, sizeof(r->first), "%.1199s", text);
    }
}

/* "layer 3, expert 7, row 4, columns 32..63": where a block lies, counted as the tensor's dimensions say. */
static void place_text(const struct container *c, const struct tensor *t, const struct scan *s, char *out, size_t out_bytes)
{
    uint64_t cols = t->n_dims > 0 ? t->dims[t->n_dims - 1] : 1, elems = scan_block_elems(s);
    uint64_t per_row = max_u64(cols / elems, 1), row = s->first_bad / per_row, col = s->first_bad % per_row * elems;
    int32_t layer = names_layer(t->name);
    size_t len = 0;
    out[0] = '\0';
    if (layer >= 0) {
        len += (size_t)snprintf(out, out_bytes, "layer %d, ", layer);
    }
    const char *expert = strstr(t->name, ".experts.");
    if (expert != NULL) {
        len += (size_t)snprintf(out + len, out_bytes - len, "expert %lu, ", strtoul(expert + 9, NULL, 10));
    } else if (c->kind == CONTAINER_GGUF && t->n_dims == 3) {
        bool is_stack = strstr(t->name, "_exps.") != NULL;
        len += (size_t)snprintf(out + len, out_bytes - len, "%s %" PRIu64 ", ", is_stack ? "expert" : "head", row / t->dims[1]);
        row %= t->dims[1];
    }
    len += (size_t)snprintf(out + len, out_bytes - len, "row %" PRIu64 ", column %" PRIu64, row, col);
    if (elems > 1) {
        snprintf(out + len, out_bytes - len, "..%" PRIu64, col + elems - 1);
    }
}

static void find_problems(struct check_report *r, const struct container *c, const struct tensor *t, const struct check_tensor *x,
                          const char *print)
{
    const char *path = c->files[t->file].path;
    if (x->read_status != 0) {
        check_problem(r, "%s: tensor %s: reading failed at offset %" PRIu64 ": %s; check the drive, copy the file again", path,
                      t->name, x->failed_at, strerror(-x->read_status));
        return;
    }
    if (x->scan.bad > 0) {
        char place[160];
        place_text(c, t, &x->scan, place, sizeof(place));
        check_problem(r, "%s: tensor %s (%s): %" PRIu64 " bad blocks, the first is block %" PRIu64 " (%s): %s; download the "
                      "file again or use another conversion", path, t->name, t->type_name, x->scan.bad, x->scan.first_bad, place,
                      x->scan.what);
    }
    const json_t *earlier = r->earlier != NULL ? json_object_get(r->earlier, t->name) : NULL;
    if (r->earlier != NULL && earlier == NULL) {
        check_problem(r, "%s: tensor %s is not in the earlier report", path, t->name);
    } else if (earlier != NULL) {
        r->n_compared++;
        if (strcmp(json_string_value(earlier), print) != 0) {
            check_problem(r, "%s: tensor %s has fingerprint %s, the earlier report says %s: the file was altered", path, t->name,
                          print, json_string_value(earlier));
        }
    }
}

static void fold(struct check_report *r, const struct tensor *t, uint64_t fingerprint)
{
    uint8_t bytes[8];
    for (unsigned i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (uint8_t)(fingerprint >> 8 * i);
    }
    r->whole = XXH3_64bits_withSeed(t->name, strlen(t->name), r->whole);
    r->whole = XXH3_64bits_withSeed(bytes, sizeof(bytes), r->whole);
}

void check_add(struct check_report *r, const struct container *c, const struct check_tensor *results)
{
    for (size_t i = 0; i < c->n_tensors; i++) {
        const struct tensor *t = &c->tensors[i];
        const struct check_tensor *x = &results[i];
        char print[PRINT_BYTES];
        snprintf(print, sizeof(print), "%016" PRIx64, x->fingerprint);
        if (x->read_status == 0 && r->json) {
            str_printf(&r->tensors, "%s\n{\"name\": ", r->n_tensors > 0 ? "," : "");
            str_json(&r->tensors, t->name, strlen(t->name));
            str_printf(&r->tensors, ", \"fingerprint\": \"%s\", \"bytes\": %" PRIu64 ", \"bad_blocks\": %" PRIu64 "}", print,
                       t->bytes, x->scan.bad);
        } else if (x->read_status == 0) {
            str_printf(&r->tensors, "%s %12" PRIu64 "  %s\n", print, t->bytes, t->name);
        }
        r->n_tensors += x->read_status == 0;
        r->bytes += t->bytes;
        fold(r, t, x->fingerprint);
        find_problems(r, c, t, x, print);
    }
}

void check_stored(struct check_report *r, const char *path, bool written)
{
    if (r->json) {
        str_puts(&r->stored, r->stored.len > 0 ? ", {\"path\": " : "{\"path\": ");
        str_json(&r->stored, path, strlen(path));
        str_printf(&r->stored, ", \"written\": %s}", written ? "true" : "false");
    } else {
        str_printf(&r->stored, written ? "fingerprints written to %s\n" : "compared with %s\n", path);
    }
}

static const char *text_of(const struct str *s) { return s->data != NULL ? s->data : ""; }

int check_finish(struct check_report *r, struct error *e)
{
    size_t n_earlier = json_object_size(r->earlier);
    if (r->n_compared < n_earlier) {
        check_problem(r, "%zu tensors of the earlier report are not in this checkpoint", n_earlier - r->n_compared);
    }
    struct str out = { 0 };
    const char *tensors = text_of(&r->tensors), *problems = text_of(&r->problems), *stored = text_of(&r->stored);
    out.failed = r->tensors.failed || r->problems.failed || r->stored.failed;
    if (r->json) {
        str_printf(&out, "{\"ok\": %s, \"fingerprint\": \"%016" PRIx64 "\", \"bytes\": %" PRIu64 ", \"problems\": [",
                   r->n_problems == 0 ? "true" : "false", r->whole, r->bytes);
        str_printf(&out, "%s],\n\"stored\": [%s],\n\"tensors\": [", problems, stored);
        str_puts(&out, tensors);
        str_puts(&out, "]}\n");
    } else {
        str_puts(&out, tensors);
        str_printf(&out, "%016" PRIx64 " %12" PRIu64 "  the whole checkpoint, %u tensors\n", r->whole, r->bytes, r->n_tensors);
        str_puts(&out, stored);
        str_puts(&out, r->n_problems > 0 ? problems : r->earlier != NULL ? "all good, as in the earlier report\n" : "all good\n");
    }
    int code = arguments_print(&out, e);
    str_deinit(&out);
    if (code == 0 && r->n_problems > 0) {
        code = error_set(e, ERROR_FORMAT, "%u %s: %s", r->n_problems,
                         r->n_problems == 1 ? "problem" : "problems, the first", r->first);
    }
    return code;
}
