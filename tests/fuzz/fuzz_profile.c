/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: fuzzing of profiles: a refusal has words, and what is accepted is written and read back the same. */
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "src/place/profile.h"

static void check(const struct profile *p)
{
    struct profile back;
    struct str first = {0}, second = {0};
    if (profile_write(p, &first, NULL) != 0 || profile_parse(first.data, first.len, "written", &back, NULL) != 0 ||
        profile_write(&back, &second, NULL) != 0 || strcmp(first.data, second.data) != 0) {
        abort();
    }
    str_deinit(&first);
    str_deinit(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct profile p;
    struct error e = {0};
    if (profile_parse((const char *)data, size, "fuzz", &p, &e) == 0) {
        check(&p);
    } else if (e.text[0] == '\0') {
        abort(); /* a refusal without a word */
    }
    return 0;
}
