/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: findings.h. Must not know: what is found. */
#include "src/commands/findings.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const level_names[] = {[FINDING_OK] = "ok", [FINDING_NOTE] = "note", [FINDING_PROBLEM] = "problem"};

void findings_add(struct findings *f, enum finding_level level, const char *topic, const char *fmt, ...)
{
    if (f->n == FINDINGS_MAX) {
        return;
    }
    struct finding *x = &f->item[f->n++];
    *x = (struct finding){.level = level, .topic = topic};
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(x->text, sizeof(x->text), fmt, ap);
    va_end(ap);
    text_one_line(x->text);
    f->problems += level == FINDING_PROBLEM;
}

void findings_advise(struct findings *f, const char *fmt, ...)
{
    struct finding *x = &f->item[f->n - 1];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(x->advice, sizeof(x->advice), fmt, ap);
    va_end(ap);
    text_one_line(x->advice);
}

void findings_text(const struct findings *f, struct str *out)
{
    for (uint32_t i = 0; i < f->n; i++) {
        const struct finding *x = &f->item[i];
        str_printf(out, "%-8s %-12s %s\n", level_names[x->level], x->topic, x->text);
        if (x->advice[0] != '\0') {
            str_printf(out, "%-21s -> %s\n", "", x->advice);
        }
    }
}

static void field(struct str *out, const char *key, const char *value)
{
    str_printf(out, "\"%s\": ", key);
    str_json(out, value, strlen(value));
}

void findings_json(const struct findings *f, struct str *out)
{
    str_puts(out, "[");
    for (uint32_t i = 0; i < f->n; i++) {
        const struct finding *x = &f->item[i];
        str_puts(out, i == 0 ? "\n    {" : ",\n    {");
        field(out, "level", level_names[x->level]);
        str_puts(out, ", ");
        field(out, "topic", x->topic);
        str_puts(out, ", ");
        field(out, "text", x->text);
        str_puts(out, ", ");
        field(out, "advice", x->advice);
        str_puts(out, "}");
    }
    str_puts(out, f->n > 0 ? "\n  ]" : "]");
}
