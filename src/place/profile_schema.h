/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the table of keys that reading and writing profiles share. Must not know: YAML. */
#ifndef SLUICE_PLACE_PROFILE_SCHEMA_H
#define SLUICE_PLACE_PROFILE_SCHEMA_H

#include <stdbool.h>
#include <stddef.h>

enum profile_kind {
    PROFILE_NAME,     /* char[], letters, digits, '-', '_', '.' */
    PROFILE_TEXT,     /* char[], one line */
    PROFILE_DATE,     /* char[], YYYY-MM-DD */
    PROFILE_COUNT,    /* uint32_t from 1 */
    PROFILE_RATE,     /* double above 0 */
    PROFILE_SHARE,    /* double from 0 to 1 */
    PROFILE_SIZE,     /* uint64_t above 0 */
    PROFILE_MAP,      /* keys of `section` inside the same struct; `counter` is a bool */
    PROFILE_LIST,     /* `room` structs of `item` bytes, each with the keys of `section`; `counter` is a uint32_t */
    PROFILE_SETTINGS, /* keys of the registry of settings; `counter` is a uint32_t */
};

struct profile_section;

struct profile_key {
    const char *name;
    enum profile_kind kind;
    size_t offset, room; /* in the struct of the section; bytes of a text, items of a list */
    const struct profile_section *section;
    size_t item, counter;
    bool required;
};

/* A value of 0 or "" is an absent key. */
struct profile_section {
    const struct profile_key *keys; /* [n] */
    size_t n;
};

extern const struct profile_section profile_root; /* of struct profile */

#endif
