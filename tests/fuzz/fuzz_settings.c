/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: fuzzing of settings: "name=value" lines, as flags, environment and profiles give them. */
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/settings.h"

/* Whatever was accepted must survive a copy and a report. */
static void use(const struct settings *s)
{
    struct settings copy;
    struct str out = { 0 };
    if (settings_copy(s, &copy, NULL) == 0) {
        for (uint32_t i = 0; i < settings_count(); i++) {
            settings_value(&copy, i, &out);
        }
        settings_deinit(&copy);
    }
    str_deinit(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct settings s;
    char *text = malloc(size + 1);
    if (text == NULL || settings_init(&s, NULL) != 0) {
        free(text);
        return 0;
    }
    memcpy(text, data, size);
    text[size] = '\0';
    for (char *line = text, *end; line < text + size; line = end + 1) {
        end = line + strcspn(line, "\n");
        *end = '\0';
        char *equals = strchr(line, '=');
        if (equals != NULL) {
            struct error e = { 0 };
            *equals = '\0';
            if (settings_set(&s, line, equals + 1, (enum setting_source)(size % 5), &e) != 0 && e.text[0] == '\0') {
                abort(); /* a refusal without a word */
            }
        }
    }
    use(&s);
    settings_deinit(&s);
    free(text);
    return 0;
}
