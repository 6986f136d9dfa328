/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: sums per class of weights. Must not know: files, flags. */
#include "src/commands/inspect_class.h"


enum weight_class {
    CLASS_EMBED,
    CLASS_NORMS,
    CLASS_ATTENTION,
    CLASS_ROUTER,
    CLASS_DENSE,
    CLASS_SHARED,
    CLASS_EXPERTS,
    CLASS_MTP,
    CLASS_COUNT,
};

static const char *const class_names[CLASS_COUNT] = {
    "embedding and head", "norms and biases", "attention", "router", "dense layers", "shared experts", "routed experts",
    "MTP projection",
};

struct class_sum {
    uint64_t weights, bytes;
    uint64_t of_type[FORMAT_COUNT]; /* weights */
};

static enum weight_class class_of(enum role role)
{
    if (role_is_vector(role)) {
        return CLASS_NORMS;
    }
    switch (role) {
    case ROLE_GATE:
    case ROLE_UP:
    case ROLE_DOWN:
        return CLASS_DENSE;
    case ROLE_ROUTER:
        return CLASS_ROUTER;
    case ROLE_SHARED_GATE:
    case ROLE_SHARED_UP:
    case ROLE_SHARED_DOWN:
        return CLASS_SHARED;
    case ROLE_MTP_EH:
        return CLASS_MTP;
    default:
        return CLASS_ATTENTION;
    }
}

static void add(struct class_sum *sum, const struct weight_ref *ref)
{
    if (ref->rows == 0) {
        return;
    }
    uint64_t n = (uint64_t)ref->rows * ref->cols;
    sum->weights += n;
    sum->bytes += ref->bytes + (ref->scale != NULL ? ref->scale->bytes : 0);
    sum->of_type[ref->format] += n;
}

static void sum_all(const struct weights *w, struct class_sum *sums)
{
    add(&sums[CLASS_EMBED], &w->embed);
    add(&sums[CLASS_NORMS], &w->final_norm);
    if (!w->shape.tied_head) {
        add(&sums[CLASS_EMBED], &w->head);
    }
    for (uint32_t l = 0; l < shape_all_layers(&w->shape); l++) {
        const struct layer_refs *layer = &w->layers[l];
        for (unsigned role = 0; role < ROLE_COUNT; role++) {
            add(&sums[class_of((enum role)role)], &layer->role[role]);
        }
        for (uint32_t i = 0; layer->experts != NULL && i < w->shape.experts; i++) {
            add(&sums[CLASS_EXPERTS], &layer->experts[i].gate);
            add(&sums[CLASS_EXPERTS], &layer->experts[i].up);
            add(&sums[CLASS_EXPERTS], &layer->experts[i].down);
        }
    }
}

static double bits(const struct class_sum *s) { return 8.0 * (double)s->bytes / (double)s->weights; }

void inspect_classes_json(struct str *out, const struct weights *w)
{
    struct class_sum sums[CLASS_COUNT] = { 0 };
    const char *comma = "";
    sum_all(w, sums);
    for (unsigned c = 0; c < CLASS_COUNT; c++) {
        if (sums[c].weights == 0) {
            continue;
        }
        str_printf(out, "%s{\"class\": \"%s\", \"weights\": %llu, \"bytes\": %llu, \"bits\": %.4f, \"types\": {", comma,
                   class_names[c], (unsigned long long)sums[c].weights, (unsigned long long)sums[c].bytes, bits(&sums[c]));
        comma = "";
        for (unsigned f = 0; f < FORMAT_COUNT; f++) {
            if (sums[c].of_type[f] > 0) {
                str_printf(out, "%s\"%s\": %.4f", comma, weight_format_info((enum weight_format)f)->name,
                           (double)sums[c].of_type[f] / (double)sums[c].weights);
                comma = ", ";
            }
        }
        str_puts(out, "}}");
        comma = ", ";
    }
}

void inspect_classes_text(struct str *out, const struct weights *w)
{
    struct class_sum sums[CLASS_COUNT] = { 0 };
    char size[24];
    sum_all(w, sums);
    str_puts(out, "\nclass                     weights        bytes   bits  types\n");
    for (unsigned c = 0; c < CLASS_COUNT; c++) {
        if (sums[c].weights == 0) {
            continue;
        }
        str_printf(out, "%-20s %12llu %12s %6.2f ", class_names[c], (unsigned long long)sums[c].weights,
                   format_bytes(size, sums[c].bytes), bits(&sums[c]));
        for (unsigned f = 0; f < FORMAT_COUNT; f++) {
            if (sums[c].of_type[f] > 0) {
                str_printf(out, " %s %.0f%%", weight_format_info((enum weight_format)f)->name,
                           100.0 * (double)sums[c].of_type[f] / (double)sums[c].weights);
            }
        }
        str_puts(out, "\n");
    }
}
