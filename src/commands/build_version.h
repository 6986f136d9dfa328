/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the name of the commit this build was made from. Must not know: anything else. */
#ifndef SLUICE_COMMANDS_BUILD_VERSION_H
#define SLUICE_COMMANDS_BUILD_VERSION_H

/* "1a2b3c4d5", with "-dirty" when files had been changed; the release number where there is no git. */
const char *build_version(void);

#endif
