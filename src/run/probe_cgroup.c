/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: finding the control groups of this process in /proc/self/cgroup and mountinfo, and walking them to the root.
 * Must not know: other limits. */
#include "src/run/probe_cgroup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/intmath.h"
#include "src/run/probe_text.h"

#define NO_LIMIT (UINT64_C(1) << 60) /* version 1 says "none" with a number near 2^63 */

/* Files of one version. */
struct flavour {
    const char *limit, *usage, *reclaimable[4];
};

static const struct flavour version1 = {
    "memory.limit_in_bytes", "memory.usage_in_bytes", {"total_inactive_file", "total_active_file", NULL}};
static const struct flavour version2 = {"memory.max", "memory.current", {"inactive_file", "active_file", "slab_reclaimable", NULL}};

/* Text of folder/name, NULL if there is none. */
static char *read_in(const char *root, const char *folder, const char *name)
{
    struct str path = {0};
    str_printf(&path, "%s/%s", folder, name);
    char *text = path.failed ? NULL : probe_read(root, path.data);
    str_deinit(&path);
    return text;
}

static bool read_number(const char *root, const char *folder, const char *name, uint64_t *ret)
{
    char *text = read_in(root, folder, name);
    bool found = text != NULL && probe_number_after(text, "", ret);
    free(text);
    return found;
}

static void take_memory(const char *root, const char *folder, const struct flavour *v, struct machine *m)
{
    uint64_t limit, usage = 0, value;
    if (!read_number(root, folder, v->limit, &limit) || limit >= NO_LIMIT) {
        return;
    }
    read_number(root, folder, v->usage, &usage);
    char *stat = read_in(root, folder, "memory.stat");
    uint64_t reclaimable = 0;
    for (int i = 0; stat != NULL && v->reclaimable[i] != NULL; i++) {
        reclaimable += probe_number_after(stat, v->reclaimable[i], &value) ? value : 0;
    }
    free(stat);
    usage -= min_u64(usage, reclaimable);
    uint64_t left = max_u64(limit - min_u64(limit, usage), 1);
    if (m->limit[LIMIT_CGROUP] == 0 || left < m->limit[LIMIT_CGROUP]) {
        m->limit[LIMIT_CGROUP] = left;
    }
}

static void take_quota(double quota, double period, struct machine *m)
{
    if (quota > 0 && period > 0 && (m->cgroup_cpus == 0 || quota / period < m->cgroup_cpus)) {
        m->cgroup_cpus = quota / period;
    }
}

static void take_cpu(const char *root, const char *folder, const struct flavour *v, struct machine *m)
{
    uint64_t quota, period;
    if (v == &version1) {
        if (read_number(root, folder, "cpu.cfs_quota_us", &quota) && read_number(root, folder, "cpu.cfs_period_us", &period)) {
            take_quota((double)quota, (double)period, m);
        }
        return;
    }
    char *text = read_in(root, folder, "cpu.max"); /* "200000 100000" or "max 100000" */
    double q, p;
    if (text != NULL && sscanf(text, "%lf %lf", &q, &p) == 2) {
        take_quota(q, p, m);
    }
    free(text);
}

/* One of the words of list [len], which ends there with a colon, a blank or the text, is `word`. */
static bool has_word(const char *list, size_t len, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = list, *end = list + len; at < end;) {
        size_t part = strcspn(at, ",: \n");
        if (part == n && strncmp(at, word, n) == 0) {
            return true;
        }
        at += part + 1;
    }
    return false;
}

/* Mount of the hierarchy: its root inside the hierarchy and where it is mounted. `controller` NULL: version 2. */
static bool find_mount(const char *mountinfo, const char *controller, char *ret_inner, char *ret_mount, size_t bytes)
{
    for (const char *line = mountinfo; line != NULL && *line != '\0'; line = strchr(line, '\n'), line += line != NULL) {
        size_t len = strcspn(line, "\n");
        const char *dash = strstr(line, " - ");
        char inner[512], mount[512], type[16], options[512];
        if (dash == NULL || dash >= line + len || sscanf(line, "%*s %*s %*s %511s %511s", inner, mount) != 2 ||
            sscanf(dash, " - %15s %*s %511s", type, options) != 2) {
            continue;
        }
        bool match = controller == NULL ? strcmp(type, "cgroup2") == 0
                                        : strcmp(type, "cgroup") == 0 && has_word(options, strlen(options), controller);
        if (match) {
            snprintf(ret_inner, bytes, "%s", inner);
            snprintf(ret_mount, bytes, "%s", mount);
            return true;
        }
    }
    return false;
}

typedef void (*take_fn)(const char *root, const char *folder, const struct flavour *v, struct machine *m);

/* Visits the group and all its ancestors up to the mount point. */
static void walk(const char *root, const char *mount, const char *inner, const char *group, const struct flavour *v, take_fn take,
                 struct machine *m)
{
    size_t skip = strcmp(inner, "/") == 0 ? 0 : strlen(inner);
    bool inside = strncmp(group, inner, skip) == 0 && (group[skip] == '/' || group[skip] == '\0') && strstr(group, "/..") == NULL;
    struct str path = {0};
    str_printf(&path, "%s%s", mount, inside ? group + skip : "");
    if (path.failed) {
        str_deinit(&path);
        return;
    }
    size_t stop = strlen(mount);
    for (;;) {
        take(root, path.data, v, m);
        char *slash = strrchr(path.data, '/');
        if (slash == NULL || slash < path.data + stop) {
            break;
        }
        *slash = '\0';
    }
    str_deinit(&path);
}

static void walk_controller(const char *root, const char *mountinfo, const char *controller, const char *group, const struct flavour *v,
                            take_fn take, struct machine *m)
{
    char inner[512], mount[512];
    if (find_mount(mountinfo, v == &version2 ? NULL : controller, inner, mount, sizeof(mount))) {
        walk(root, mount, inner, group, v, take, m);
    }
}

/* "4:memory:/group" (version 1) or "0::/group" (version 2). */
static void take_line(const char *root, const char *mountinfo, const char *line, struct machine *m)
{
    const char *controllers = strchr(line, ':');
    const char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
    if (group == NULL) {
        return;
    }
    controllers++;
    group++;
    size_t len = (size_t)(group - 1 - controllers);
    const struct flavour *v = len == 0 ? &version2 : &version1;
    if (len == 0 || has_word(controllers, len, "memory")) {
        walk_controller(root, mountinfo, "memory", group, v, take_memory, m);
    }
    if (len == 0 || has_word(controllers, len, "cpu")) {
        walk_controller(root, mountinfo, "cpu", group, v, take_cpu, m);
    }
}

void probe_cgroup(const char *root, struct machine *m)
{
    char *groups = probe_read(root, "/proc/self/cgroup"), *mountinfo = probe_read(root, "/proc/self/mountinfo");
    char *rest = NULL;
    for (char *line = groups != NULL ? strtok_r(groups, "\n", &rest) : NULL; line != NULL && mountinfo != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        take_line(root, mountinfo, line, m);
    }
    free(groups);
    free(mountinfo);
}
