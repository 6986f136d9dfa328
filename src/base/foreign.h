/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: flags that fingers know from llama.cpp and that are none here, and what does the same. Must not know: who parses. */
#ifndef SLUICE_BASE_FOREIGN_H
#define SLUICE_BASE_FOREIGN_H

/* What to do instead of a flag as typed ("-ngl"); NULL: not one of them. */
const char *foreign_flag_advice(const char *flag);

#endif
