/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: doctor_facts.h. Must not know: how findings are shown. */
#include "src/commands/doctor_facts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/attr.h"
#include "cpu/cpu.h"
#include "io/file.h"
#include "io/reader.h"
#include "src/commands/host.h"
#include "src/run/probe.h"
#include "src/run/probe_text.h"

enum { NEAR_DEGREES = 5 };

/* First line of a small file; false where there is none. */
static bool read_line(const char *root, const char *path, char *out, size_t bytes)
{
    char *text = probe_read(root, path);
    if (text != NULL) {
        snprintf(out, bytes, "%.*s", (int)strcspn(text, "\n"), text);
    }
    free(text);
    return text != NULL;
}

/* ---- processor ---- */

void doctor_processor(struct findings *f)
{
    struct cpu_flags c;
    cpu_detect(&c);
    const struct {
        bool there;
        const char *name;
    } sets[] = {{c.avx2, "avx2"}, {c.avx_vnni, "avx-vnni"}, {c.avx512, "avx512"}, {c.avx512_vnni, "avx512-vnni"}, {c.avx512_vbmi, "avx512-vbmi"},
                {c.avx512_bf16, "avx512-bf16"}, {c.amx_int8, "amx-int8"}, {c.amx_bf16, "amx-bf16"}};
    struct str there = {0}, missing = {0};
    for (size_t i = 0; i < ARRAY_LEN(sets); i++) {
        struct str *s = sets[i].there ? &there : &missing;
        str_printf(s, "%s%s", s->len > 0 ? " " : "", sets[i].name);
    }
    findings_add(f, FINDING_OK, "processor", "%s", c.brand[0] != '\0' ? c.brand : "unnamed");
    enum cpu_isa best = cpu_isa_best(&c);
    findings_add(f, best == CPU_SCALAR ? FINDING_NOTE : FINDING_OK, "kernels", "%s; this processor has: %s; not: %s", cpu_isa_name(best),
                 there.len > 0 ? there.data : "none", missing.len > 0 ? missing.data : "none");
    if (c.amx_refused != 0) {
        findings_add(f, FINDING_NOTE, "amx", "the processor has it, the system refuses tile registers to this process (%s)", strerror(c.amx_refused));
        findings_advise(f, "a container's seccomp profile or an old kernel (before 5.16) forbids arch_prctl(ARCH_REQ_XCOMP_PERM)");
    }
    if (best == CPU_SCALAR) {
        findings_advise(f, "AVX2, FMA and F16C are needed for speed; in a virtual machine let the guest see the host's processor");
    }
    str_deinit(&there);
    str_deinit(&missing);
}

void doctor_cores(const char *root, const struct machine *m, const struct topology *t, struct findings *f)
{
    char why[160], governor[40];
    uint32_t threads = probe_threads(m, why, sizeof(why));
    findings_add(f, FINDING_OK, "threads", "%u by default (%s, %u processors)", threads, why, t->processors);
    if (m->cgroup_cpus > 0 && m->cgroup_cpus < m->cores) {
        findings_add(f, FINDING_NOTE, "quota", "the control group allows %.2f of %u cores", m->cgroup_cpus, m->cores);
        findings_advise(f, "raise the CPU quota (docker --cpus, systemd CPUQuota=) to use the others");
    }
    if (read_line(root, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", governor, sizeof(governor)) && strcmp(governor, "powersave") == 0) {
        findings_add(f, FINDING_NOTE, "frequency", "the governor is powersave");
        findings_advise(f, "cpupower frequency-set -g performance, if prompts are slower than their roof");
    }
}

/* ---- memory ---- */

void doctor_memory(const char *root, const struct machine *m, struct findings *f)
{
    char total[24], usable[24];
    enum memory_limit which;
    uint64_t limit = machine_memory(m, &which);
    struct str modules = {0};
    host_memory(root, &modules);
    bool known = modules.data != NULL && strstr(modules.data, "unknown") == NULL;
    findings_add(f, FINDING_OK, "memory", "%s; %s may be used (%s)", format_bytes(total, m->memory_total), format_bytes(usable, limit), memory_limit_name(which));
    findings_add(f, known ? FINDING_OK : FINDING_NOTE, "modules", "%s", modules.data != NULL ? modules.data : "unknown");
    if (!known) {
        findings_advise(f, geteuid() == 0 ? "as in many virtual machines; the measured rate below counts" : "run once as root to see modules and their speed; the measured rate below counts");
    }
    str_deinit(&modules);
    for (int l = 0; l < LIMIT_COUNT; l++) {
        if (m->limit[l] > 0 && l != (int)which) {
            findings_add(f, FINDING_OK, "limit", "%s: %s", memory_limit_name((enum memory_limit)l), format_bytes(usable, m->limit[l]));
        }
    }
}

void doctor_nodes(const char *root, const struct topology *t, struct findings *f)
{
    char balancing[8], total[24], left[24];
    if (t->nodes_errno != 0) {
        findings_add(f, FINDING_NOTE, "nodes", "the system does not tell about memory nodes (%s)", strerror(t->nodes_errno));
        findings_advise(f, "in a container allow get_mempolicy and mbind (docker --cap-add SYS_NICE); one node is assumed");
    }
    for (uint32_t i = 0; i < t->nodes; i++) {
        uint32_t cores = 0;
        for (uint32_t c = 0; c < t->cores; c++) {
            cores += t->core_node[c] == i;
        }
        findings_add(f, FINDING_OK, "node", "%d: %s, %s free, %u core%s", t->node_os[i], format_bytes(total, t->node_total[i]), format_bytes(left, t->node_free[i]),
                     cores, cores == 1 ? "" : "s");
    }
    if (t->nodes_there > t->nodes && t->nodes_errno == 0) {
        findings_add(f, FINDING_NOTE, "nodes", "%u of %u memory nodes may be used", t->nodes, t->nodes_there);
        findings_advise(f, "numactl, a cpuset or the container forbids the others");
    }
    if (t->nodes > 1 && read_line(root, "/proc/sys/kernel/numa_balancing", balancing, sizeof(balancing)) && strcmp(balancing, "0") != 0) {
        findings_add(f, FINDING_NOTE, "balancing", "the kernel moves pages between nodes by itself");
        findings_advise(f, "sysctl kernel.numa_balancing=0: weights are placed where they are read");
    }
}

void doctor_pages(const char *root, struct findings *f)
{
    char thp[80];
    if (!read_line(root, "/sys/kernel/mm/transparent_hugepage/enabled", thp, sizeof(thp))) {
        findings_add(f, FINDING_NOTE, "huge pages", "the kernel has no transparent huge pages");
        findings_advise(f, "reading weights costs more address translations; a usual distribution kernel has them");
    } else if (strstr(thp, "[never]") != NULL) {
        findings_add(f, FINDING_NOTE, "huge pages", "switched off (%s)", thp);
        findings_advise(f, "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
    } else {
        findings_add(f, FINDING_OK, "huge pages", "%s", thp);
    }
    struct rlimit lock;
    char text[24];
    if (getrlimit(RLIMIT_MEMLOCK, &lock) == 0) {
        findings_add(f, FINDING_OK, "locking", "%s may be locked; weights are not locked in this build", lock.rlim_cur == RLIM_INFINITY ? "all memory" : format_bytes(text, lock.rlim_cur));
    }
}

/* ---- system and libraries ---- */

void doctor_libraries(struct findings *f)
{
    struct cpu_blas blas;
    struct cpu_flags flags;
    struct ops ops;
    struct error e = {0};
    cpu_detect(&flags);
    if (cpu_blas_open(&blas, &ops, &flags, 1, &e) == 0) {
        findings_add(f, FINDING_OK, "blas", "%s; kernels for %s", blas.config, blas.core);
    } else {
        findings_add(f, FINDING_PROBLEM, "blas", "%s", e.text);
        findings_advise(f, "apt-get install libopenblas0-pthread");
    }
}

void doctor_uring(struct findings *f)
{
    struct reader *r;
    struct error e = {0};
    if (reader_create(&(struct reader_options){.kind = READER_URING, .depth = 1, .chunk = 1}, &r, &e) < 0) {
        findings_add(f, FINDING_PROBLEM, "io_uring", "%s", e.text);
        return;
    }
    int code = reader_refused(r, READER_KIND);
    reader_destroy(r);
    if (code == 0) {
        findings_add(f, FINDING_OK, "io_uring", "there; it reads the weights");
        return;
    }
    findings_add(f, FINDING_NOTE, "io_uring", "refused: %s; pread threads read the weights", strerror(code));
    findings_advise(f, code == ENOSYS ? "Linux 5.6 or newer has it" : code == EPERM ? "a container profile or kernel.io_uring_disabled forbids it" : "see the message");
}

void doctor_gpu(const char *root, struct findings *f)
{
    char version[120];
    bool driver = read_line(root, "/proc/driver/nvidia/version", version, sizeof(version));
    findings_add(f, driver ? FINDING_NOTE : FINDING_OK, "gpu", "%s", driver ? "a GPU driver is loaded; this build has no GPU back end" : "none");
}

/* ---- the model's drive ---- */

static void drive_temperature(const char *root, const char *path, struct findings *f)
{
    double degrees, most;
    if (!host_drive_temperature(root, path, &degrees, &most)) {
        return;
    }
    bool hot = most > 0 && degrees > most - NEAR_DEGREES;
    if (most > 0) {
        findings_add(f, hot ? FINDING_NOTE : FINDING_OK, "drive temperature", "%.0f C; above %.0f C it slows down", degrees, most);
    } else {
        findings_add(f, FINDING_OK, "drive temperature", "%.0f C", degrees);
    }
    if (hot) {
        findings_advise(f, "give the drive a heat sink or more air: reading a model keeps it busy for minutes");
    }
}

void doctor_files(const char *root, const char *path, struct findings *f)
{
    if (path == NULL) {
        findings_add(f, FINDING_NOTE, "drive", "not looked at");
        findings_advise(f, "sluice doctor -m MODEL looks at the file system and drive of the model");
        return;
    }
    struct file file;
    struct error e = {0};
    struct str drive = {0}, wear = {0};
    if (file_open(path, &file, &e) < 0) {
        findings_add(f, FINDING_PROBLEM, "model", "%s", e.text);
        return;
    }
    host_drive(root, path, &drive);
    findings_add(f, FINDING_OK, "drive", "%s", drive.data != NULL ? drive.data : "unknown");
    drive_temperature(root, path, f);
    host_drive_wear(root, path, &wear);
    if (wear.data != NULL) {
        findings_add(f, FINDING_OK, "drive wear", "%s", wear.data);
    }
    if (file.direct_fd >= 0) {
        findings_add(f, FINDING_OK, "O_DIRECT", "works on this file system");
    } else {
        findings_add(f, FINDING_NOTE, "O_DIRECT", "refused (%s): buffered reads, dropped from the page cache behind", strerror(file.direct_errno));
        findings_advise(f, "keep models on ext4, xfs or btrfs to load at the speed of the drive");
    }
    str_deinit(&drive);
    str_deinit(&wear);
    file_close(&file);
}

/* ---- rates ---- */

void doctor_rates(const struct machine *m, const char *drive, struct findings *f)
{
    findings_add(f, FINDING_OK, "memory rate", "%.1f GB/s by %u threads, %.1f GB/s by one", m->ram_read_gb_s, m->rate_threads, m->thread_read_gb_s);
    for (uint32_t i = 0; i < m->nodes_measured; i++) {
        findings_add(f, FINDING_OK, "node rate", "%.1f GB/s by the cores of node index %u", m->node_read_gb_s[i], i);
    }
    findings_add(f, FINDING_OK, "peaks", "int8 %.0f, bf16 %.0f, float32 %.0f GOP/s by %u threads", m->int8_gop_s, m->bf16_gop_s, m->fma_gop_s, m->rate_threads);
    if (drive != NULL && m->nvme_read_gb_s > 0) {
        char chunk[24];
        findings_add(f, FINDING_OK, "drive rate", "%.2f GB/s past the page cache; %u reads of %s in flight are enough for it", m->nvme_read_gb_s,
                     m->nvme_depth, format_bytes(chunk, m->nvme_chunk));
    }
}
