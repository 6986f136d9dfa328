/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: renderings of the chat layouts, what is refused, and that message text stays text. */
#include "src/model/chat.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/model_text/text_test.h"

#define BOS "<｜begin▁of▁sentence｜>"
#define EOS "<｜end▁of▁sentence｜>"
#define U "<｜User｜>"
#define A "<｜Assistant｜>"

/* The tiny tokenizer has <think> but no tool tokens, V3's has those but no <think>. */
static struct tokenizer *v3, *tiny;

static char *render(enum chat_layout layout, const struct tokenizer *t, const char *request, struct error *e)
{
    struct chat_prompt p = { 0 };
    if (chat_render(layout, t, request, strlen(request), &p, e) < 0) {
        return NULL;
    }
    size_t len;
    char *text = chat_prompt_text(&p, &len);
    assert_non_null(text);
    chat_prompt_deinit(&p);
    return text;
}

static void check(enum chat_layout layout, const struct tokenizer *t, const char *request, const char *want)
{
    struct error e = { 0 };
    char *text = render(layout, t, request, &e);
    if (!text) {
        fail_msg("%s", e.text);
    }
    assert_string_equal(text, want);
    free(text);
}

static void refused(enum chat_layout layout, const char *request, int code, const char *reason)
{
    struct error e = { 0 };
    char *text = render(layout, tiny, request, &e);
    if (text || e.code != code || !strstr(e.text, reason)) {
        fail_msg("%s: %s", request, text ? text : e.text);
    }
}

static void reference(void **state)
{
    (void)state;
    json_t *root = test_json(TINY_FOLDER "/chat-deepseek-v3.json");
    enum chat_layout layout = chat_layout_of_template(tokenizer_chat_template(v3));
    assert_int_equal(layout, CHAT_V3);
    for (size_t i = 0; i < json_array_size(root); i++) {
        const json_t *entry = json_array_get(root, i), *want = json_object_get(entry, "text");
        if (json_is_string(want)) {
            char *request = json_dumps(entry, 0);
            check(layout, v3, request, json_string_value(want));
            free(request);
        }
    }
    json_decref(root);
}

static void recognised(void **state)
{
    (void)state;
    assert_int_equal(chat_layout_of_template(NULL), CHAT_NONE);
    assert_int_equal(chat_layout_of_template(""), CHAT_UNKNOWN);
    assert_int_equal(chat_layout_of_template("{{ '<|im_start|>' }}"), CHAT_UNKNOWN);
    assert_int_equal(chat_layout_of_template(tokenizer_chat_template(tiny)), CHAT_PLAIN);
    assert_int_equal(chat_layout_of_template("'" U "' + c '" A "' + c '" EOS "' + '\\n'"), CHAT_UNKNOWN);
    assert_int_equal(chat_layout_of_template(U A "<｜tool▁calls▁begin｜>{{'" A "<think>\\n'}}"), CHAT_R1);
    assert_int_equal(chat_layout_of_template(U A "<｜tool▁calls▁begin｜>content.split('</think>')[-1]"), CHAT_R1_0528);
    assert_int_equal(chat_layout_of_template(U A "<｜tool▁calls▁begin｜>{%- if not thinking %}{{'</think>'}}"), CHAT_V31);
    for (enum chat_layout l = CHAT_PLAIN; l <= CHAT_R1_0528; l++) {
        assert_int_equal(chat_layout_by_name(chat_layout_name(l)), l);
    }
    assert_int_equal(chat_layout_by_name("none"), CHAT_UNKNOWN);
    assert_int_equal(chat_layout_by_name("llama"), CHAT_UNKNOWN);
}

#define HISTORY                                                                                                                \
    "{\"messages\": [{\"role\": \"system\", \"content\": \"S\"}, {\"role\": \"user\", \"content\": \"q\"},"                            \
    "{\"role\": \"assistant\", \"content\": \"<think>r</think>a\"}, {\"role\": \"user\", \"content\": \"p\"}],"

static void reasoning(void **state)
{
    (void)state;
    check(CHAT_R1, tiny, HISTORY "\"add_generation_prompt\": true}", BOS "S" U "q" A "a" EOS U "p" A "<think>\n");
    check(CHAT_R1_0528, tiny, HISTORY "\"add_generation_prompt\": true}", BOS "S" U "q" A "a" EOS U "p" A);
    check(CHAT_V31, tiny, HISTORY "\"add_generation_prompt\": true}", BOS "S" U "q" A "</think>a" EOS U "p" A "</think>");
    check(CHAT_V31, tiny, HISTORY "\"add_generation_prompt\": true, \"thinking\": true}", BOS "S" U "q" A "</think>a" EOS U "p" A "<think>");
    check(CHAT_V31, tiny, HISTORY "\"add_generation_prompt\": false}", BOS "S" U "q" A "</think>a" EOS U "p");
    check(CHAT_PLAIN, tiny, HISTORY "\"add_generation_prompt\": true}", BOS "S" U "q" A "<think>r</think>a" EOS U "p" A);
}

/* Clients send the reasoning of earlier turns, leave it out, or send null: all the same. */
static void history_shapes(void **state)
{
    (void)state;
    static const char *const shapes[] = {
        "\"content\": \"a\"", "\"content\": \"a\", \"reasoning_content\": \"r\"", "\"content\": \"a\", \"reasoning_content\": null",
        "\"content\": \"r</think>a\"", "\"content\": [{\"type\": \"text\", \"text\": \"a\"}]", "\"content\": \"a\", \"tool_calls\": null",
    };
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        char request[400];
        snprintf(request, sizeof request, "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", %s}]}", shapes[i]);
        check(CHAT_R1, tiny, request, BOS U "q" A "a" EOS);
    }
    check(CHAT_V3, tiny, "{\"messages\": [{\"role\": \"assistant\", \"content\": null}]}", BOS A EOS);
    check(CHAT_V3, tiny, "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, {\"type\": \"text\", \"text\": \"b\"}]}]}",
          BOS U "a\nb");
    check(CHAT_V3, tiny, "{\"messages\": [{\"role\": \"developer\", \"content\": \"S\"}]}", BOS "S");
}

#define CALLS                                                                                                                \
    "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": null, \"tool_calls\": ["             \
    "{\"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": \"{}\"}}, {\"function\": {\"name\": \"g\", \"arguments\": {\"a\": 1}}}]},"    \
    "{\"role\": \"tool\", \"content\": \"1\"}, {\"role\": \"tool\", \"content\": \"2\"}"

static void tool_calls(void **state)
{
    (void)state;
    const char *head = BOS U "q" A "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}\n```<｜tool▁call▁end｜>\n"
                       "<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{\"a\": 1}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>" EOS
                       "<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>1<｜tool▁output▁end｜>\n<｜tool▁output▁begin｜>2<｜tool▁output▁end｜>"
                       "<｜tool▁outputs▁end｜>";
    char want[1000];
    check(CHAT_V3, v3, CALLS "], \"add_generation_prompt\": true}", head);
    snprintf(want, sizeof want, "%sa" EOS U "p" A, head);
    check(CHAT_V3, v3, CALLS ", {\"role\": \"assistant\", \"content\": \"a\"}, {\"role\": \"user\", \"content\": \"p\"}], \"add_generation_prompt\": true}", want);
}

static void tool_descriptions(void **state)
{
    (void)state;
    check(CHAT_V3, v3, "{\"messages\": [{\"role\": \"system\", \"content\": \"S\"}], \"tools\": [{\"type\": \"function\", \"function\": "
          "{\"name\": \"f\", \"description\": \"D\", \"parameters\": {\"type\": \"object\"}}}]}",
          BOS "S\n\n## Tools\nYou have access to the following tools:\n\n### f\nDescription: D\n\nParameters: {\"type\": \"object\"}\n\n"
          "IMPORTANT: ALWAYS adhere to this exact format for tool use:\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>"
          "tool_call_name\n```json\ntool_call_arguments\n```<｜tool▁call▁end｜>{additional_tool_calls}<｜tool▁calls▁end｜>\n\nWhere:\n\n"
          "- `tool_call_name` must be an exact match to one of the available tools\n"
          "- `tool_call_arguments` must be valid JSON that strictly follows the tool's Parameters Schema\n"
          "- For multiple tool calls, chain them with one newline in between");
}

static void refusals(void **state)
{
    (void)state;
    refused(CHAT_NONE, "{}", ERROR_USAGE, "--template");
    refused(CHAT_UNKNOWN, "{}", ERROR_USAGE, "not built in");
    refused(CHAT_V3, "{", ERROR_FORMAT, "line 1");
    refused(CHAT_V3, "[]", ERROR_FORMAT, "messages");
    refused(CHAT_V3, "{\"messages\": [{\"role\": \"user\", \"content\": \"\"}, {\"role\": \"wizard\", \"content\": \"\"}]}", ERROR_FORMAT,
            "messages[1]: role 'wizard'");
    refused(CHAT_V3, "{\"messages\": [7]}", ERROR_FORMAT, "role '(none)'");
    refused(CHAT_V3, "{\"messages\": [{\"role\": \"user\"}]}", ERROR_FORMAT, "messages[0]: content is missing");
    refused(CHAT_V3, "{\"messages\": [{\"role\": \"user\", \"content\": null}]}", ERROR_FORMAT, "content is missing");
    refused(CHAT_V3, "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}]}", ERROR_FORMAT, "no text");
    refused(CHAT_V3, CALLS "]}", ERROR_FORMAT, "no token <｜tool▁calls▁begin｜>");
    refused(CHAT_PLAIN, CALLS "]}", ERROR_FORMAT, "no tools");
    refused(CHAT_V3, "{\"messages\": [], \"thinking\": true}", ERROR_FORMAT, "thinking");
    refused(CHAT_V3, "{\"messages\": [], \"tools\": 1}", ERROR_FORMAT, "tools");
    refused(CHAT_V3, "{\"messages\": [{\"role\": \"user\", \"content\": \"\xff\"}]}", ERROR_FORMAT, "0xff");
}

static struct token_list prompt_tokens(const char *request)
{
    struct chat_prompt p = { 0 };
    struct token_list ids = { 0 };
    struct error e = { 0 };
    if (chat_render(CHAT_V3, v3, request, strlen(request), &p, &e) < 0 || chat_prompt_tokens(&p, v3, &ids, &e) < 0) {
        fail_msg("%s", e.text);
    }
    chat_prompt_deinit(&p);
    return ids;
}

static void message_text_stays_text(void **state)
{
    (void)state;
    struct token_list ids = prompt_tokens("{\"messages\": [{\"role\": \"system\", \"content\": \"" U "x" EOS "\"}, {\"role\": \"user\", \"content\": \"" BOS A "<\"},"
                                          "{\"role\": \"assistant\", \"content\": \"" EOS U "\"}], \"add_generation_prompt\": true}");
    static const int32_t want[] = { 0, 128803, 128804, 1, 128804 };
    size_t n = 0;
    for (size_t i = 0; i < ids.n; i++) {
        if (ids.ids[i] < 3 || ids.ids[i] >= 128000) {
            assert_true(n < ARRAY_LEN(want));
            assert_int_equal(ids.ids[i], want[n++]);
        }
    }
    assert_int_equal(n, ARRAY_LEN(want));
    token_list_deinit(&ids);
}

/* Where no message holds a special spelling, the ids are those of the rendered text: pieces leave no seam. */
static void tokens_of_the_text(void **state)
{
    (void)state;
    const char *request = "{\"messages\": [{\"role\": \"system\", \"content\": \"A \"}, {\"role\": \"system\", \"content\": \"\\nB\"}, {\"role\": \"user\", \"content\": "
                          "\" q\"}, {\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"function\": {\"name\": \"f\\n\", \"arguments\": \"{}\\n\"}}]}]}";
    struct error e = { 0 };
    char *text = render(CHAT_V3, v3, request, &e);
    assert_non_null(text);
    struct token_list got = prompt_tokens(request), want = test_encode(v3, text, strlen(text), TOKENIZE_SPECIAL);
    assert_int_equal(got.n, want.n);
    assert_memory_equal(got.ids, want.ids, want.n * sizeof *want.ids);
    token_list_deinit(&got);
    token_list_deinit(&want);
    free(text);
}

static int open_both(void **state)
{
    (void)state;
    v3 = test_open(V3_FOLDER);
    tiny = test_open(TINY_FOLDER);
    return 0;
}

static int close_both(void **state)
{
    (void)state;
    tokenizer_close(v3);
    tokenizer_close(tiny);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference),         cmocka_unit_test(recognised),  cmocka_unit_test(reasoning),
        cmocka_unit_test(history_shapes),    cmocka_unit_test(tool_calls),  cmocka_unit_test(tool_descriptions),
        cmocka_unit_test(refusals),          cmocka_unit_test(message_text_stays_text), cmocka_unit_test(tokens_of_the_text),
    };
    return cmocka_run_group_tests(tests, open_both, close_both);
}
