/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: recognising a layout in a template's text, layout names, a prompt's pieces as text and as tokens. Must not know:
 * how a layout renders messages (chat_render.c). */
#include "src/model/chat.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/str.h"
#include "src/model/chat_tokens.h"

static bool has(const char *text, const char *part) { return strstr(text, part) != NULL; }

enum chat_layout chat_layout_of_template(const char *jinja)
{
    if (!jinja) {
        return CHAT_NONE;
    }
    if (!has(jinja, CHAT_USER) || !has(jinja, CHAT_ASSISTANT) || has(jinja, "DSML")) {
        return CHAT_UNKNOWN;
    }
    if (has(jinja, CHAT_CALLS_BEGIN)) {
        if (has(jinja, "not thinking") || has(jinja, "set thinking")) {
            return CHAT_V31;
        }
        if (has(jinja, CHAT_ASSISTANT CHAT_THINK)) {
            return CHAT_R1;
        }
        return has(jinja, "split('" CHAT_THINK_END "')") ? CHAT_R1_0528 : CHAT_V3;
    }
    bool bare = !has(jinja, "tool") && !has(jinja, "think") && !has(jinja, "\\n");
    return bare && has(jinja, "'" CHAT_USER "' + ") && has(jinja, "'" CHAT_ASSISTANT "' + ") && has(jinja, CHAT_EOS) ? CHAT_PLAIN : CHAT_UNKNOWN;
}

static const char *const names[] = {
    [CHAT_NONE] = "none", [CHAT_UNKNOWN] = "unknown", [CHAT_PLAIN] = "plain",    [CHAT_V3] = "v3",
    [CHAT_R1] = "r1",     [CHAT_V31] = "v3.1",        [CHAT_R1_0528] = "r1-0528",
};

enum chat_layout chat_layout_by_name(const char *name)
{
    for (size_t i = CHAT_PLAIN; i < ARRAY_LEN(names); i++) {
        if (strcmp(names[i], name) == 0) {
            return (enum chat_layout)i;
        }
    }
    return CHAT_UNKNOWN;
}

const char *chat_layout_name(enum chat_layout layout) { return names[layout]; }

void chat_prompt_deinit(struct chat_prompt *p)
{
    for (size_t i = 0; i < p->n; i++) {
        free(p->pieces[i].text);
    }
    free(p->pieces);
    *p = (struct chat_prompt){ 0 };
}

char *chat_prompt_text(const struct chat_prompt *p, size_t *ret_len)
{
    struct str joined = { 0 };
    str_append(&joined, "", 0);
    for (size_t i = 0; i < p->n; i++) {
        str_append(&joined, p->pieces[i].text, p->pieces[i].len);
    }
    char *text = str_take(&joined, ret_len);
    str_deinit(&joined);
    return text;
}

static int encode_run(const struct tokenizer *t, struct str *run, struct token_list *out, struct error *e)
{
    if (run->failed) {
        return error_nomem(e, "prompt", run->len);
    }
    int rc = run->len > 0 ? tokenizer_encode(t, run->data, run->len, 0, out, e) : 0;
    run->len = 0;
    return rc;
}

/* Ordinary text is tokenised in runs from one special token to the next, whatever pieces it came in, as it would be in the
 * rendered text; only trusted pieces are searched for special spellings. */
int chat_prompt_tokens(const struct chat_prompt *p, const struct tokenizer *t, struct token_list *out, struct error *e)
{
    struct str run = { 0 };
    int rc = 0;
    for (size_t i = 0; i < p->n && rc == 0; i++) {
        const struct chat_piece *piece = &p->pieces[i];
        struct special_cursor c = { .text = piece->text, .len = piece->len };
        size_t done = 0, start, len;
        int32_t id;
        while (rc == 0 && piece->trusted && tokenizer_next_special(t, &c, &start, &len, &id)) {
            str_append(&run, piece->text + done, start - done);
            rc = encode_run(t, &run, out, e);
            if (rc == 0 && token_list_push(out, id) < 0) {
                rc = error_nomem(e, "prompt", out->n * sizeof id);
            }
            done = start + len;
        }
        str_append(&run, piece->text + done, piece->len - done);
    }
    if (rc == 0) {
        rc = encode_run(t, &run, out, e);
    }
    str_deinit(&run);
    return rc;
}
