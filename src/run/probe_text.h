/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: reading the small text files of /proc and /sys under a root. Must not know: what they say. */
#ifndef SLUICE_RUN_PROBE_TEXT_H
#define SLUICE_RUN_PROBE_TEXT_H

#include <stdbool.h>
#include <stdint.h>

/* Whole text of root + path, NUL-terminated, freed by the caller; NULL if it cannot be read. */
char *probe_read(const char *root, const char *path);

/* Number after the first line start `key` and blanks; false if there is no such line or no number ("max", "unlimited"). */
bool probe_number_after(const char *text, const char *key, uint64_t *ret);

#endif
