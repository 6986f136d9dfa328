/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what people write beside a result - memory modules, file system and drive of a file, build - as far as this process
 * may read it. Must not know: measuring. */
#ifndef SLUICE_COMMANDS_HOST_H
#define SLUICE_COMMANDS_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/str.h"
#include "src/place/machine.h"

/* "8 x DDR5-4800, 512.00 GiB" from an SMBIOS structure table; nothing where it has no populated module. */
void host_memory_modules(const unsigned char *table, size_t bytes, struct str *out);

/* The same from this machine, or why not: "modules unknown (Permission denied)". */
void host_memory(const char *root, struct str *out);

/* "ext4 on nvme0n1 (Samsung SSD 990 PRO)"; as much of it as can be found. `root` is put before /proc and /sys. */
void host_drive(const char *root, const char *path, struct str *out);

/* Degrees Celsius of the drive of a file and what it may reach (0: unknown); false where no sensor can be read. */
bool host_drive_temperature(const char *root, const char *path, double *ret_degrees, double *ret_most);

/* "at most 30 % of its life" where a file says how worn the drive of a file is (eMMC), the command that tells where none does (NVMe);
 * nothing for other drives. */
void host_drive_wear(const char *root, const char *path, struct str *out);

/* One line to paste beside figures. `threads` 0: several counts, not said. `path`: a file of the model, or NULL. */
void host_line(const struct machine *m, const char *isa, uint32_t threads, const char *path, struct str *out);

#endif
