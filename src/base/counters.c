/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: looking counters up by name. Must not know: what is counted. */
#include "src/base/counters.h"

#include <stddef.h>
#include <string.h>

const struct counter *counters_find(const struct counters *c, const char *name)
{
    for (uint32_t i = 0; i < c->n; i++) {
        if (strcmp(c->item[i].name, name) == 0) {
            return &c->item[i];
        }
    }
    return NULL;
}

struct counter *counters_register(struct counters *c, const char *name, const char *help)
{
    const struct counter *found = counters_find(c, name);
    if (found != NULL) {
        return &c->item[found - c->item];
    }
    if (c->n == COUNTERS_MAX) {
        return NULL;
    }
    struct counter *added = &c->item[c->n++];
    added->name = name;
    added->help = help;
    atomic_init(&added->value, 0);
    return added;
}
