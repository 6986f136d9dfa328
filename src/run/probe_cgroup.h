/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: memory limits and CPU quota of this process's control groups, versions 1 and 2, ancestors included.
 * Must not know: other limits. */
#ifndef SLUICE_RUN_PROBE_CGROUP_H
#define SLUICE_RUN_PROBE_CGROUP_H

#include "src/place/machine.h"

/* Sets limit[LIMIT_CGROUP] and cgroup_cpus where there are such limits. */
void probe_cgroup(const char *root, struct machine *m);

#endif
