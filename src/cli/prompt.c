/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: prompts to ids. Must not know: sessions. */
#include "src/cli/prompt.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/json_text.h"
#include "src/cli/term.h"

int prompt_is_chat(const struct sluice_tokenizer *t, const struct prompt_options *o, bool *ret_chat, struct sluice_error *e)
{
    if (t == NULL) {
        return cli_fail(e, SLUICE_USAGE, "the model has no tokenizer; give ids with --tokens");
    }
    if (o->raw && (o->layout != NULL || o->system != NULL || o->thinking)) {
        return cli_fail(e, SLUICE_USAGE, "--raw: text is taken as it is; leave out --template, --system and --thinking");
    }
    const char *own = sluice_chat_layout(t);
    if (!o->raw && o->layout == NULL && own != NULL && strcmp(own, "unknown") == 0) {
        return cli_fail(e, SLUICE_USAGE, "the model's chat template is none of the built-in ones; choose one with --template v3|r1|r1-0528|v3.1|plain, or take the text as it is with --raw");
    }
    bool chat = !o->raw && (o->layout != NULL || own != NULL);
    if (!chat && (o->system != NULL || o->thinking)) {
        return cli_fail(e, SLUICE_USAGE, "the model has no chat template, which --system and --thinking need; choose one with --template v3|r1|r1-0528|v3.1|plain");
    }
    *ret_chat = chat;
    return SLUICE_OK;
}

int prompt_add_message(json_t *messages, const char *role, const char *text, size_t len, struct sluice_error *e)
{
    struct str s = { 0 };
    str_printf(&s, "{\"role\":\"%s\",\"content\":", role);
    str_json(&s, text, len);
    str_puts(&s, "}");
    json_t *message = NULL;
    bool failed = s.failed || json_text_parse(s.data, s.len, JSON_ALLOW_NUL, &message, NULL) < 0;
    str_deinit(&s);
    if (failed || json_array_append_new(messages, message) != 0) {
        return cli_fail(e, SLUICE_FAILED, "out of memory: message of %zu bytes", len);
    }
    return SLUICE_OK;
}

int prompt_chat_ids(const struct sluice_tokenizer *t, const struct prompt_options *o, const json_t *messages, struct ids *out, struct sluice_error *e)
{
    char *list = json_text_print(messages, JSON_COMPACT);
    if (list == NULL) {
        return cli_fail(e, SLUICE_FAILED, "out of memory");
    }
    struct str s = { 0 };
    str_puts(&s, "{\"messages\":[");
    if (o->system != NULL) {
        str_puts(&s, "{\"role\":\"system\",\"content\":");
        str_json(&s, o->system, strlen(o->system));
        str_puts(&s, json_array_size(messages) > 0 ? "}," : "}");
    }
    str_puts(&s, list + 1); /* after its '[' */
    free(list);
    str_printf(&s, ",\"add_generation_prompt\":true,\"thinking\":%s}", o->thinking ? "true" : "false");
    int32_t *item = NULL;
    size_t n = 0;
    int r = s.failed ? cli_fail(e, SLUICE_FAILED, "out of memory") : sluice_chat_tokens(t, o->layout, s.data, s.len, &item, &n, e);
    str_deinit(&s);
    if (r == SLUICE_OK) {
        r = ids_append(out, item, n, e);
        sluice_free(item);
    }
    return r;
}

int prompt_text_ids(const struct sluice_tokenizer *t, const char *text, size_t len, bool start, struct ids *out, struct sluice_error *e)
{
    int32_t *item = NULL;
    size_t n = 0;
    unsigned flags = SLUICE_SPECIAL | (start && sluice_tokenizer_adds_bos(t) ? SLUICE_BOS : 0);
    int r = sluice_tokenize(t, text, len, flags, &item, &n, e);
    if (r == SLUICE_OK) {
        r = ids_append(out, item, n, e);
        sluice_free(item);
    }
    return r;
}
