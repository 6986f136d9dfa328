/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the error convention. Functions return 0 or a negative code and describe it in a struct error.
 * Must not know: who prints it. */
#ifndef SLUICE_COMMON_ERROR_H
#define SLUICE_COMMON_ERROR_H

#include "common/attr.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Codes are negative errno values, and these four, outside errno's range. */
enum {
    ERROR_FORMAT = -4001,       /* a file, tensor, field is not what it has to be (exit 1) */
    ERROR_USAGE = -4002,        /* a flag, setting or argument is wrong (exit 2) */
    ERROR_DOES_NOT_FIT = -4003, /* the plan exceeds what the process may use (exit 3) */
    ERROR_INTERRUPTED = -4130,  /* the cancel flag was set (exit 130) */
};

/* Text has one line: what (file, tensor, field, line), found, expected, what to do next. */
struct error {
    int code; /* 0 while nothing is wrong */
    char text[1400];
};

/* Stores code and text (cut to fit) and returns code. `e` may be NULL: only the code is returned. */
int error_set(struct error *e, int code, const char *fmt, ...) ATTR_PRINTF(3, 4);

/* Puts "text: " before what is stored; returns the stored code. `e` may be NULL: returns `code`. */
int error_prefix(struct error *e, int code, const char *fmt, ...) ATTR_PRINTF(3, 4);

/* "out of memory: WHAT (N bytes)"; returns -ENOMEM. */
int error_nomem(struct error *e, const char *what, unsigned long long bytes);

/* Exit status of a code: 0, 1 failed, 2 usage, 3 does not fit, 130 interrupted. */
int error_exit_status(int code);

#ifdef __cplusplus
}
#endif

#endif
