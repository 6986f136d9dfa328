/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: reading /proc and /sys for the facts of probe.h. Memory that the kernel can take back (file pages) counts as free.
 * Must not know: models, plans. */
#include "src/run/probe.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/intmath.h"
#include "src/run/probe_cgroup.h"
#include "src/run/probe_text.h"

enum { TEXT_LIMIT = 1 << 20 };

char *probe_read(const char *root, const char *path)
{
    struct str name = {0}, text = {0};
    str_printf(&name, "%s%s", root, path);
    int fd = name.failed ? -1 : open(name.data, O_RDONLY | O_CLOEXEC);
    str_deinit(&name);
    if (fd < 0) {
        return NULL;
    }
    char chunk[4096];
    ssize_t got;
    while (text.len < TEXT_LIMIT && ((got = read(fd, chunk, sizeof(chunk))) > 0 || (got < 0 && errno == EINTR))) {
        str_append(&text, chunk, got > 0 ? (size_t)got : 0);
    }
    close(fd);
    return str_take(&text, NULL);
}

bool probe_number_after(const char *text, const char *key, uint64_t *ret)
{
    const char *at = text;
    for (size_t n = strlen(key); at != NULL && *at != '\0'; at = strchr(at, '\n'), at += at != NULL) {
        if (strncmp(at, key, n) == 0) {
            at += n + strspn(at + n, " \t");
            if (*at < '0' || *at > '9') {
                return false;
            }
            *ret = strtoull(at, NULL, 10);
            return true;
        }
    }
    return false;
}

/* Sum of kB values in a meminfo file; keys that are absent count as 0. */
static uint64_t sum_kb(const char *text, const char *const *keys)
{
    uint64_t sum = 0, value;
    for (; *keys != NULL; keys++) {
        sum += probe_number_after(text, *keys, &value) ? value : 0;
    }
    return sum * 1024;
}

static int read_memory(const char *root, struct machine *m, struct error *e)
{
    errno = 0;
    char *text = probe_read(root, "/proc/meminfo");
    uint64_t total = 0, available = 0;
    if (text == NULL && errno == ENOMEM) {
        return error_nomem(e, "/proc/meminfo", TEXT_LIMIT);
    }
    bool found = text != NULL && probe_number_after(text, "MemTotal:", &total) && probe_number_after(text, "MemAvailable:", &available);
    free(text);
    if (!found) {
        return error_set(e, -ENOENT, "%s/proc/meminfo: no MemTotal or MemAvailable found; is /proc mounted?", root);
    }
    m->memory_total = total * 1024;
    m->limit[LIMIT_AVAILABLE] = max_u64(available * 1024, 1);
    return 0;
}

/* What the kernel keeps of a node, which allocations bound to it cannot have: its zones' low watermarks. */
static uint64_t node_reserve(const char *zoneinfo, int node)
{
    uint64_t pages = 0;
    unsigned long long low;
    int current = -1;
    for (const char *line = zoneinfo; line != NULL && *line != '\0'; line = strchr(line, '\n'), line += line != NULL) {
        sscanf(line, "Node %d, zone", &current);
        pages += current == node && sscanf(line, " low %llu", &low) == 1 ? low : 0;
    }
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Free and reclaimable memory of one node. */
static uint64_t node_available(const char *root, int node)
{
    static const char *const names[] = {"MemFree:", "Active(file):", "Inactive(file):", NULL};
    char path[64], keys[3][40];
    const char *list[4] = {0};
    snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/meminfo", node);
    for (int i = 0; names[i] != NULL; i++) {
        snprintf(keys[i], sizeof(keys[i]), "Node %d %s", node, names[i]);
        list[i] = keys[i];
    }
    char *text = probe_read(root, path);
    uint64_t sum = text != NULL ? sum_kb(text, list) : 0;
    free(text);
    return sum;
}

static bool node_has_memory(const char *root, const char *name)
{
    char path[320], key[64];
    uint64_t total = 0;
    snprintf(path, sizeof(path), "/sys/devices/system/node/%s/meminfo", name);
    snprintf(key, sizeof(key), "Node %s MemTotal:", name + strlen("node"));
    char *text = probe_read(root, path);
    bool has = text != NULL && probe_number_after(text, key, &total) && total > 0;
    free(text);
    return has;
}

static uint32_t count_nodes(const char *root)
{
    struct str path = {0};
    str_printf(&path, "%s/sys/devices/system/node", root);
    DIR *folder = path.failed ? NULL : opendir(path.data);
    str_deinit(&path);
    uint32_t n = 0;
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        bool node = strncmp(entry->d_name, "node", 4) == 0 && entry->d_name[4] >= '0' && entry->d_name[4] <= '9';
        n += node && node_has_memory(root, entry->d_name);
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return n;
}

/* A limit only where some nodes are forbidden: otherwise MemAvailable says the same, better. */
static void read_nodes(const char *root, const struct topology *t, struct machine *m)
{
    uint64_t sum = 0;
    char *zoneinfo = probe_read(root, "/proc/zoneinfo");
    for (uint32_t i = 0; i < t->nodes; i++) {
        uint64_t available = node_available(root, t->node_os[i]), reserve = node_reserve(zoneinfo, t->node_os[i]);
        available -= min_u64(available, reserve);
        sum += available;
        if (i < WEIGHT_NODES_MAX) {
            m->node_number[i] = t->node_os[i];
            m->node_available[i] = available;
        }
    }
    free(zoneinfo);
    if (count_nodes(root) > t->nodes) {
        m->limit[LIMIT_NUMA] = max_u64(sum, 1);
    }
}

static void read_address_space(const char *root, struct machine *m)
{
    char *limits = probe_read(root, "/proc/self/limits"), *status = probe_read(root, "/proc/self/status");
    uint64_t limit = 0, used = 0;
    if (limits != NULL && probe_number_after(limits, "Max address space", &limit)) {
        used = status != NULL && probe_number_after(status, "VmSize:", &used) ? used * 1024 : 0;
        m->limit[LIMIT_ADDRESS_SPACE] = max_u64(limit - min_u64(limit, used), 1);
    }
    free(limits);
    free(status);
}

static void read_cpu_name(const char *root, struct machine *m)
{
    char *text = probe_read(root, "/proc/cpuinfo");
    const char *at = text != NULL ? strstr(text, "model name") : NULL;
    at = at != NULL ? strchr(at, ':') : NULL;
    if (at != NULL) {
        at += 1 + strspn(at + 1, " \t");
        snprintf(m->cpu, sizeof(m->cpu), "%.*s", (int)strcspn(at, "\n"), at);
        text_one_line(m->cpu);
    }
    free(text);
}

int probe_machine(const struct probe_options *options, struct machine *ret, struct error *e)
{
    const char *root = options != NULL && options->root != NULL ? options->root : "";
    struct machine m = {0};
    struct topology *t = malloc(sizeof(*t));
    if (t == NULL) {
        return error_nomem(e, "topology", sizeof(*t));
    }
    int r = 0;
    if (options != NULL && options->topology != NULL) {
        *t = *options->topology;
    } else {
        r = topology_read(t, e);
    }
    r = r < 0 ? r : read_memory(root, &m, e);
    if (r == 0) {
        m.cores = max_u32(t->cores, 1);
        m.nodes = max_u32(t->nodes, 1);
        read_nodes(root, t, &m);
        read_address_space(root, &m);
        probe_cgroup(root, &m);
        read_cpu_name(root, &m);
        *ret = m;
    }
    free(t);
    return r;
}

uint32_t probe_threads(const struct machine *m, char *why, size_t why_bytes)
{
    const char *s = m->cores == 1 ? "" : "s";
    if (m->cgroup_cpus > 0 && m->cgroup_cpus < m->cores) {
        uint32_t threads = max_u32((uint32_t)m->cgroup_cpus, 1);
        snprintf(why, why_bytes, "cgroup CPU quota of %.2f, with %u physical core%s allowed", m->cgroup_cpus, m->cores, s);
        return threads;
    }
    snprintf(why, why_bytes, "%u physical core%s allowed", m->cores, s);
    return max_u32(m->cores, 1);
}
