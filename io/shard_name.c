/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: file names of the kind PREFIX-00001-of-00003.EXT. Must not know: what is in the files. */
#include "io/shard_name.h"

#include <stdio.h>
#include <string.h>

#include "io/file.h"
#include "src/base/str.h"

enum { MAX_DIGITS = 6 };

static bool digit(char c) { return c >= '0' && c <= '9'; }

/* The number ending before name[end]; *ret_begin where it begins. False if none or too long. */
static bool number_before(const char *name, size_t end, size_t *ret_begin, uint32_t *ret)
{
    size_t begin = end;
    uint32_t value = 0;
    while (begin > 0 && digit(name[begin - 1])) {
        begin--;
    }
    if (begin == end || end - begin > MAX_DIGITS) {
        return false;
    }
    for (size_t i = begin; i < end; i++) {
        value = value * 10 + (uint32_t)(name[i] - '0');
    }
    *ret_begin = begin;
    *ret = value;
    return true;
}

bool shard_name_parse(const char *name, struct shard_name *ret)
{
    struct shard_name s;
    const char *dot = strrchr(name, '.');
    size_t begin;
    if (dot == NULL || !number_before(name, (size_t)(dot - name), &begin, &s.count) || begin < 4 ||
        memcmp(name + begin - 4, "-of-", 4) != 0) {
        return false;
    }
    s.tail = name + begin - 4;
    size_t end = begin - 4;
    if (!number_before(name, end, &begin, &s.no) || begin < 1 || name[begin - 1] != '-') {
        return false;
    }
    s.prefix = begin - 1;
    s.no_digits = (int)(end - begin);
    if (s.count == 0) {
        return false;
    }
    *ret = s;
    return true;
}

char *shard_name_path(const char *folder, const char *name, const struct shard_name *parsed, uint32_t no)
{
    struct str s = {0};
    str_append(&s, name, parsed->prefix);
    str_printf(&s, "-%0*u%s", parsed->no_digits, no, parsed->tail);
    char *path = s.failed ? NULL : file_join(folder, s.data);
    str_deinit(&s);
    return path;
}

bool shard_name_same_set(const char *a, const char *b)
{
    struct shard_name x, y;
    return shard_name_parse(a, &x) && shard_name_parse(b, &y) && x.prefix == y.prefix && memcmp(a, b, x.prefix) == 0 &&
           strcmp(x.tail, y.tail) == 0;
}

const char *shard_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}
