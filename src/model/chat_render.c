/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: messages -> pieces of each layout (docs/chat.md). Text of messages, tools and calls is never trusted. Must not know:
 * tokens beyond their spelling, HTTP. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/str.h"
#include "src/model/chat.h"
#include "src/model/chat_tokens.h"
#include "src/base/json_text.h"

enum { REQUEST_LIMIT = 256 << 20 };

enum role { ROLE_SYSTEM, ROLE_USER, ROLE_ASSISTANT, ROLE_TOOL, ROLE_COUNT };

/* Writes go on after an error and do nothing: `rc` is looked at in the end. */
struct render {
    enum chat_layout layout;
    const struct tokenizer *t;
    const json_t *messages;
    bool thinking;
    size_t at;          /* message being rendered, for errors */
    bool after_tool;    /* the last turn was a tool result */
    bool after_user;
    struct str piece;   /* being written */
    bool piece_trusted;
    struct chat_prompt *out;
    int rc;
    struct error *e;
};

static void fail_nomem(struct render *r)
{
    if (r->rc == 0) {
        r->rc = error_nomem(r->e, "prompt", r->piece.len);
    }
}

static void end_piece(struct render *r)
{
    struct chat_prompt *p = r->out;
    if (r->piece.len == 0 || r->rc < 0) {
        return;
    }
    if (p->n == p->cap) {
        size_t cap = p->cap ? 2 * p->cap : 16;
        struct chat_piece *pieces = realloc(p->pieces, cap * sizeof *pieces);
        if (!pieces) {
            fail_nomem(r);
            return;
        }
        p->pieces = pieces;
        p->cap = cap;
    }
    size_t len = 0;
    char *text = str_take(&r->piece, &len);
    if (!text) {
        fail_nomem(r);
        return;
    }
    p->pieces[p->n++] = (struct chat_piece){ .text = text, .len = len, .trusted = r->piece_trusted };
}

static void put(struct render *r, bool trusted, const char *text, size_t len)
{
    if (len == 0) {
        return;
    }
    if (trusted != r->piece_trusted) {
        end_piece(r);
        r->piece_trusted = trusted;
    }
    str_append(&r->piece, text, len);
    if (r->piece.failed) {
        fail_nomem(r);
    }
}

static void plain(struct render *r, const char *text) { put(r, true, text, strlen(text)); }

static void special(struct render *r, const char *spelling)
{
    if (r->rc == 0 && tokenizer_special_id(r->t, spelling) < 0) {
        r->rc = error_set(r->e, ERROR_FORMAT, "the tokenizer has no token %s, which chat layout %s needs; choose another with --template NAME",
                          spelling, chat_layout_name(r->layout));
    }
    plain(r, spelling);
}

static void untrusted(struct render *r, const struct str *text) { put(r, false, text->data, text->len); }

static void untrusted_json(struct render *r, const json_t *v)
{
    if (json_is_string(v)) {
        put(r, false, json_string_value(v), json_string_length(v));
        return;
    }
    char *text = json_text_print(v, JSON_ENCODE_ANY);
    if (!text) {
        fail_nomem(r);
        return;
    }
    put(r, false, text, strlen(text));
    free(text);
}

static void refuse(struct render *r, const char *what)
{
    if (r->rc == 0) {
        r->rc = error_set(r->e, ERROR_FORMAT, "messages[%zu]: %s", r->at, what);
    }
}

static enum role role_of(struct render *r, const json_t *message)
{
    static const char *const names[] = { "system", "user", "assistant", "tool" };
    const char *role = json_string_value(json_object_get(message, "role"));
    for (size_t i = 0; role && i < ARRAY_LEN(names); i++) {
        if (strcmp(role, names[i]) == 0) {
            return (enum role)i;
        }
    }
    if (role && strcmp(role, "developer") == 0) {
        return ROLE_SYSTEM; /* the newer name of the same */
    }
    if (r->rc == 0) {
        r->rc = error_set(r->e, ERROR_FORMAT, "messages[%zu]: role '%.40s', expected system, developer, user, assistant or tool", r->at,
                          role ? role : "(none)");
    }
    return ROLE_COUNT;
}

/* Text parts are joined with a newline. Only an assistant's content may be null or missing: it counts as empty. */
static void read_content(struct render *r, const json_t *message, bool optional, struct str *out)
{
    const json_t *content = json_object_get(message, "content");
    str_append(out, "", 0);
    if (json_is_string(content)) {
        str_append(out, json_string_value(content), json_string_length(content));
    } else if (json_is_array(content)) {
        for (size_t i = 0; i < json_array_size(content); i++) {
            const json_t *part = json_array_get(content, i), *text = json_object_get(part, "text");
            const char *type = json_string_value(json_object_get(part, "type"));
            if (!type || strcmp(type, "text") != 0 || !json_is_string(text)) {
                refuse(r, "content has a part that is no text");
                break;
            }
            str_append(out, i ? "\n" : "", i ? 1 : 0);
            str_append(out, json_string_value(text), json_string_length(text));
        }
    } else if (!optional || (content && !json_is_null(content))) {
        refuse(r, content && !json_is_null(content) ? "content is neither text nor a list of parts" : "content is missing");
    }
    if (out->failed) {
        fail_nomem(r);
    }
}

static void put_content(struct render *r, const json_t *message)
{
    struct str text = { 0 };
    read_content(r, message, false, &text);
    untrusted(r, &text);
    str_deinit(&text);
}

/* End of the reasoning in an answer of the history: behind the first or the last </think>; the start if there is none. */
static size_t answer_start(const struct str *text, bool last)
{
    const size_t len = strlen(CHAT_THINK_END);
    size_t start = 0;
    for (const char *p = text->data, *hit; p && (hit = memmem(p, text->len - (size_t)(p - text->data), CHAT_THINK_END, len)); p = hit + len) {
        start = (size_t)(hit - text->data) + len;
        if (!last) {
            break;
        }
    }
    return start;
}

static void put_answer(struct render *r, const json_t *message, bool cut)
{
    struct str text = { 0 };
    read_content(r, message, true, &text);
    size_t start = cut ? answer_start(&text, r->layout != CHAT_V31) : 0;
    if (r->rc == 0) {
        put(r, false, text.data + start, text.len - start);
    }
    str_deinit(&text);
}

/* NULL if the message has no calls. */
static const json_t *calls_of(const json_t *message)
{
    const json_t *calls = json_object_get(message, "tool_calls");
    return json_array_size(calls) > 0 ? calls : NULL;
}

static void put_call(struct render *r, const json_t *call)
{
    const json_t *function = json_object_get(call, "function"), *name = json_object_get(function, "name");
    const json_t *arguments = json_object_get(function, "arguments"), *type = json_object_get(call, "type");
    if (!json_is_string(name) || !(json_is_string(arguments) || json_is_object(arguments))) {
        refuse(r, "a tool call has no function name or no arguments");
        return;
    }
    if (type && (!json_is_string(type) || strcmp(json_string_value(type), "function") != 0)) {
        refuse(r, "a tool call is of another type than function");
        return;
    }
    bool v31 = r->layout == CHAT_V31;
    special(r, CHAT_CALL_BEGIN);
    if (!v31) {
        plain(r, "function");
        special(r, CHAT_SEP);
    }
    untrusted_json(r, name);
    if (v31) {
        special(r, CHAT_SEP);
    } else {
        plain(r, "\n```json\n");
    }
    untrusted_json(r, arguments);
    plain(r, v31 ? "" : "\n```");
    special(r, CHAT_CALL_END);
}

static void put_calls(struct render *r, const json_t *calls)
{
    special(r, CHAT_CALLS_BEGIN);
    for (size_t i = 0; i < json_array_size(calls); i++) {
        plain(r, i > 0 && r->layout != CHAT_V31 ? "\n" : "");
        put_call(r, json_array_get(calls, i));
    }
    special(r, CHAT_CALLS_END);
}

static void put_tool(struct render *r, const json_t *tool)
{
    const json_t *function = json_object_get(tool, "function"), *name = json_object_get(function, "name");
    const json_t *description = json_object_get(function, "description"), *parameters = json_object_get(function, "parameters");
    if (!json_is_string(name)) {
        if (r->rc == 0) {
            r->rc = error_set(r->e, ERROR_FORMAT, "tools: expected objects with function.name");
        }
        return;
    }
    plain(r, "\n### ");
    untrusted_json(r, name);
    plain(r, "\nDescription: ");
    if (json_is_string(description)) {
        untrusted_json(r, description);
    }
    plain(r, "\n\nParameters: ");
    if (parameters && !json_is_null(parameters)) {
        untrusted_json(r, parameters);
    } else {
        plain(r, "{}");
    }
    plain(r, "\n");
}

/* The wording that DeepSeek publishes for V3.1, with the call format of the layout. */
static void put_tools(struct render *r, const json_t *tools)
{
    bool v31 = r->layout == CHAT_V31;
    plain(r, "\n\n## Tools\nYou have access to the following tools:\n");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        put_tool(r, json_array_get(tools, i));
    }
    plain(r, "\nIMPORTANT: ALWAYS adhere to this exact format for tool use:\n");
    special(r, CHAT_CALLS_BEGIN);
    special(r, CHAT_CALL_BEGIN);
    plain(r, v31 ? "tool_call_name" : "function");
    special(r, CHAT_SEP);
    plain(r, v31 ? "tool_call_arguments" : "tool_call_name\n```json\ntool_call_arguments\n```");
    special(r, CHAT_CALL_END);
    plain(r, "{additional_tool_calls}");
    special(r, CHAT_CALLS_END);
    plain(r, "\n\nWhere:\n\n- `tool_call_name` must be an exact match to one of the available tools\n"
             "- `tool_call_arguments` must be valid JSON that strictly follows the tool's Parameters Schema\n"
             "- For multiple tool calls, chain them ");
    plain(r, v31 ? "directly without separators or spaces" : "with one newline in between");
}

static void put_system(struct render *r, const json_t *tools)
{
    bool first = true;
    for (r->at = 0; r->at < json_array_size(r->messages) && r->rc == 0; r->at++) {
        const json_t *message = json_array_get(r->messages, r->at);
        if (role_of(r, message) == ROLE_SYSTEM) {
            plain(r, first ? "" : "\n\n");
            put_content(r, message);
            first = false;
        }
    }
    if (json_array_size(tools) > 0) {
        put_tools(r, tools);
    }
}

/* V3 and R1: a group of results has an outer pair, after which the same assistant turn goes on. */
static void put_turn(struct render *r, enum role role, const json_t *message)
{
    bool was_tool = r->after_tool;
    r->after_tool = role == ROLE_TOOL;
    if (was_tool && role != ROLE_TOOL) {
        special(r, CHAT_OUTPUTS_END);
    }
    if (role == ROLE_USER) {
        special(r, CHAT_USER);
        put_content(r, message);
    } else if (role == ROLE_ASSISTANT) {
        if (!was_tool) {
            special(r, CHAT_ASSISTANT);
        }
        put_answer(r, message, r->layout != CHAT_V3);
        if (calls_of(message)) {
            put_calls(r, calls_of(message));
        }
        special(r, CHAT_EOS);
    } else {
        if (was_tool) {
            plain(r, "\n");
        } else {
            special(r, CHAT_OUTPUTS_BEGIN);
        }
        special(r, CHAT_OUTPUT_BEGIN);
        put_content(r, message);
        special(r, CHAT_OUTPUT_END);
    }
}

/* V3.1: only the first assistant turn after a user has a header, which says that the reasoning is over. */
static void put_turn_v31(struct render *r, enum role role, const json_t *message)
{
    if (role == ROLE_USER) {
        special(r, CHAT_USER);
        put_content(r, message);
    } else if (role == ROLE_ASSISTANT) {
        const json_t *calls = calls_of(message);
        if (r->after_user) {
            bool open = !calls && r->thinking && json_is_true(json_object_get(message, "prefix"));
            special(r, CHAT_ASSISTANT);
            special(r, open ? CHAT_THINK : CHAT_THINK_END);
        }
        put_answer(r, message, !calls && !r->after_tool);
        if (calls) {
            put_calls(r, calls);
        }
        special(r, CHAT_EOS);
    } else {
        special(r, CHAT_OUTPUT_BEGIN);
        put_content(r, message);
        special(r, CHAT_OUTPUT_END);
    }
    r->after_tool = role == ROLE_TOOL;
    r->after_user = role == ROLE_USER;
}

static void put_turn_plain(struct render *r, enum role role, const json_t *message)
{
    if (role == ROLE_TOOL || calls_of(message)) {
        refuse(r, "the plain chat layout has no tools");
    } else if (role == ROLE_SYSTEM) {
        put_content(r, message);
    } else if (role == ROLE_USER) {
        special(r, CHAT_USER);
        put_content(r, message);
    } else {
        special(r, CHAT_ASSISTANT);
        put_answer(r, message, false);
        special(r, CHAT_EOS);
    }
}

static void put_generation_prompt(struct render *r)
{
    if (r->after_tool || (r->layout == CHAT_V31 && !r->after_user)) {
        return; /* the assistant's turn is open already, or over */
    }
    special(r, CHAT_ASSISTANT);
    if (r->layout == CHAT_V31) {
        special(r, r->thinking ? CHAT_THINK : CHAT_THINK_END);
    } else if (r->layout == CHAT_R1) {
        special(r, CHAT_THINK);
        plain(r, "\n");
    }
}

static void put_messages(struct render *r, const json_t *tools, bool generation)
{
    size_t bos_len;
    const char *bos = tokenizer_token_bytes(r->t, tokenizer_bos(r->t), &bos_len);
    put(r, true, bos, bos_len);
    if (r->layout != CHAT_PLAIN) {
        put_system(r, tools);
    }
    for (r->at = 0; r->at < json_array_size(r->messages) && r->rc == 0; r->at++) {
        const json_t *message = json_array_get(r->messages, r->at);
        enum role role = role_of(r, message);
        if (role == ROLE_COUNT) {
            return;
        }
        if (r->layout == CHAT_PLAIN) {
            put_turn_plain(r, role, message);
        } else if (role != ROLE_SYSTEM && r->layout == CHAT_V31) {
            put_turn_v31(r, role, message);
        } else if (role != ROLE_SYSTEM) {
            put_turn(r, role, message);
        }
    }
    if (r->after_tool && r->layout != CHAT_V31) {
        special(r, CHAT_OUTPUTS_END);
    }
    if (generation) {
        put_generation_prompt(r);
    }
}

static int check_request(enum chat_layout layout, const json_t *root, struct error *e)
{
    const json_t *tools = json_object_get(root, "tools");
    if (!json_is_array(json_object_get(root, "messages"))) {
        return error_set(e, ERROR_FORMAT, "messages: expected a list");
    }
    if (tools && !json_is_null(tools) && !json_is_array(tools)) {
        return error_set(e, ERROR_FORMAT, "tools: expected a list");
    }
    if (json_array_size(tools) > 0 && layout == CHAT_PLAIN) {
        return error_set(e, ERROR_FORMAT, "tools: the plain chat layout has none");
    }
    if (json_is_true(json_object_get(root, "thinking")) && (layout == CHAT_PLAIN || layout == CHAT_V3)) {
        return error_set(e, ERROR_FORMAT, "thinking: chat layout %s has no thinking mode", chat_layout_name(layout));
    }
    return 0;
}

int chat_render(enum chat_layout layout, const struct tokenizer *t, const char *request, size_t len, struct chat_prompt *ret, struct error *e)
{
    if (layout == CHAT_NONE || layout == CHAT_UNKNOWN) {
        return error_set(e, ERROR_USAGE, "the model has %s; choose a layout with --template plain, v3, r1, r1-0528 or v3.1",
                         layout == CHAT_NONE ? "no chat template" : "a chat template that is not built in");
    }
    if (len > REQUEST_LIMIT) {
        return error_set(e, ERROR_USAGE, "a chat request of %zu bytes, at most %d are accepted", len, REQUEST_LIMIT);
    }
    json_t *root = NULL;
    int rc = json_text_parse(request, len, JSON_ALLOW_NUL, &root, e);
    if (rc < 0) {
        return error_prefix(e, rc, "request");
    }
    struct chat_prompt out = { 0 };
    struct render r = { .layout = layout, .t = t, .messages = json_object_get(root, "messages"), .out = &out, .e = e };
    r.thinking = json_is_true(json_object_get(root, "thinking"));
    r.rc = check_request(layout, root, e);
    if (r.rc == 0) {
        put_messages(&r, json_object_get(root, "tools"), json_is_true(json_object_get(root, "add_generation_prompt")));
        end_piece(&r);
    }
    str_deinit(&r.piece);
    json_decref(root);
    if (r.rc < 0) {
        chat_prompt_deinit(&out);
        return r.rc;
    }
    *ret = out;
    return 0;
}
