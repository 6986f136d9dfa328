/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: bytes, weights and types of a checkpoint summed by class (router, norms, attention, experts, ...).
 * Must not know: files, flags. */
#ifndef SLUICE_COMMANDS_INSPECT_CLASS_H
#define SLUICE_COMMANDS_INSPECT_CLASS_H

#include "src/base/str.h"
#include "src/model/bind.h"

/* Entries of a JSON array: {"class", "weights", "bytes", "bits", "types": {NAME: share}}. Block scales are part of bytes. */
void inspect_classes_json(struct str *out, const struct weights *w);
void inspect_classes_text(struct str *out, const struct weights *w);

#endif
