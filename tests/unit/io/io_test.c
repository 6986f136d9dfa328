/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: helpers of the io tests. Must not know: what is tested. */
#include "tests/unit/io/io_test.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void put(struct bytes *b, const void *data, size_t len)
{
    if (b->len + len > b->cap) {
        b->cap = (b->len + len) * 2;
        b->data = realloc(b->data, b->cap);
        assert_non_null(b->data);
    }
    if (len > 0) {
        memcpy(b->data + b->len, data, len);
    }
    b->len += len;
}

void put_text(struct bytes *b, const char *text) { put(b, text, strlen(text)); }
void put_u16(struct bytes *b, uint16_t v) { put(b, &v, sizeof v); }
void put_u32(struct bytes *b, uint32_t v) { put(b, &v, sizeof v); }
void put_u64(struct bytes *b, uint64_t v) { put(b, &v, sizeof v); }

void put_string(struct bytes *b, const char *text)
{
    put_u64(b, strlen(text));
    put_text(b, text);
}

void put_hex(struct bytes *b, const char *hex)
{
    for (unsigned v; *hex != '\0'; hex++) {
        if (*hex != ' ' && *hex != '\n') {
            assert_int_equal(sscanf(hex, "%2x", &v), 1);
            put(b, &(uint8_t){(uint8_t)v}, 1);
            hex++;
        }
    }
}

void bytes_free(struct bytes *b)
{
    free(b->data);
    *b = (struct bytes){0};
}

int folder_setup(void **state)
{
    char path[] = "/tmp/sluice-io-XXXXXX";
    assert_non_null(mkdtemp(path));
    *state = strdup(path);
    return *state == NULL;
}

const char *in(const char *folder, const char *name)
{
    static char ring[8][512];
    static unsigned at;
    char *path = ring[at++ % 8];
    snprintf(path, sizeof ring[0], "%s/%s", folder, name);
    return path;
}

int folder_teardown(void **state)
{
    DIR *dir = opendir(*state);
    for (const struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        unlink(in(*state, entry->d_name));
    }
    closedir(dir);
    rmdir(*state);
    free(*state);
    return 0;
}

void write_bytes(const char *path, const void *data, size_t len)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

void write_text(const char *path, const char *text) { write_bytes(path, text, strlen(text)); }

struct bytes read_bytes(const char *path)
{
    struct bytes b = {0};
    char block[65536];
    FILE *f = fopen(path, "rb");
    if (f == NULL) {
        fail_msg("cannot read %s", path);
    }
    for (size_t n; (n = fread(block, 1, sizeof block, f)) > 0;) {
        put(&b, block, n);
    }
    fclose(f);
    return b;
}

void copy_file(const char *from, const char *to, size_t len)
{
    struct bytes b = read_bytes(from);
    write_bytes(to, b.data, b.len < len ? b.len : len);
    bytes_free(&b);
}

void copy_tree(const char *from, const char *to)
{
    DIR *dir = opendir(from);
    assert_non_null(dir);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        struct stat st;
        if (stat(in(from, entry->d_name), &st) == 0 && S_ISREG(st.st_mode)) {
            copy_file(in(from, entry->d_name), in(to, entry->d_name), SIZE_MAX);
        }
    }
    closedir(dir);
}

void check_error(const struct error *e, int code, ...)
{
    va_list texts;
    va_start(texts, code);
    assert_int_equal(e->code, code);
    assert_null(strchr(e->text, '\n'));
    for (const char *text; (text = va_arg(texts, const char *)) != NULL;) {
        if (strstr(e->text, text) == NULL) {
            va_end(texts);
            fail_msg("'%s' is not in: %s", text, e->text);
        }
    }
    va_end(texts);
}

uint32_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (uint32_t)(*state >> 32);
}
