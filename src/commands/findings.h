/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: a list of findings - fine, worth knowing, or in the way - and its two forms. Must not know: what is found. */
#ifndef SLUICE_COMMANDS_FINDINGS_H
#define SLUICE_COMMANDS_FINDINGS_H

#include "src/base/str.h"

enum finding_level { FINDING_OK, FINDING_NOTE, FINDING_PROBLEM };

enum { FINDINGS_MAX = 64 };

struct finding {
    enum finding_level level;
    const char *topic; /* static string */
    char text[240];
    char advice[240];  /* what to do, or empty */
};

struct findings {
    struct finding item[FINDINGS_MAX];
    uint32_t n, problems;
};

/* Adds one without advice. */
void findings_add(struct findings *f, enum finding_level level, const char *topic, const char *fmt, ...) ATTR_PRINTF(4, 5);
/* Says what to do about the last one. */
void findings_advise(struct findings *f, const char *fmt, ...) ATTR_PRINTF(2, 3);

void findings_text(const struct findings *f, struct str *out);
void findings_json(const struct findings *f, struct str *out); /* a list */

#endif
