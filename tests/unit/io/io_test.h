/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what every unit test of io includes: folders that vanish, files, bytes written by hand, expected errors. */
#ifndef TESTS_UNIT_IO_IO_TEST_H
#define TESTS_UNIT_IO_IO_TEST_H

#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/error.h"

/* Growing bytes; test programs have the memory. */
struct bytes {
    uint8_t *data;
    size_t len, cap;
};

void put(struct bytes *b, const void *data, size_t len);
void put_text(struct bytes *b, const char *text);
void put_u16(struct bytes *b, uint16_t v);
void put_u32(struct bytes *b, uint32_t v);
void put_u64(struct bytes *b, uint64_t v);
void put_string(struct bytes *b, const char *text); /* u64 length and bytes */
void bytes_free(struct bytes *b);
/* Hex digits, white space ignored. */
void put_hex(struct bytes *b, const char *hex);

/* cmocka fixtures: *state is the path of an empty folder. */
int folder_setup(void **state);
int folder_teardown(void **state);

/* "FOLDER/NAME"; one of a ring of 8 static buffers. */
const char *in(const char *folder, const char *name);

void write_bytes(const char *path, const void *data, size_t len);
void write_text(const char *path, const char *text);
struct bytes read_bytes(const char *path);
/* First `len` bytes of a file (all if it is shorter). */
void copy_file(const char *from, const char *to, size_t len);
void copy_tree(const char *from, const char *to); /* the plain files of a folder */

/* e holds an error of this code and all the texts (up to NULL), on one line. */
void check_error(const struct error *e, int code, ...);

/* xorshift, for mutations that are the same everywhere. */
uint32_t next_random(uint64_t *state);

#endif
