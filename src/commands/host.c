/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: host.h: SMBIOS type 17, /proc/self/mountinfo, /sys/dev/block. Must not know: measuring. */
#include "src/commands/host.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "common/attr.h"
#include "common/intmath.h"
#include "io/file.h"
#include "sluice/sluice.h"
#include "src/commands/build_version.h"
#include "src/run/probe_text.h"

/* ---- memory modules: SMBIOS 3, 7.18 ---- */

enum { MEMORY_DEVICE = 17, END_OF_TABLE = 127, SIZE_AT = 0x0c, TYPE_AT = 0x12, SPEED_AT = 0x15, EXTENDED_AT = 0x1c, CONFIGURED_AT = 0x20 };

static uint32_t word(const unsigned char *at) { return (uint32_t)at[0] | (uint32_t)at[1] << 8; }

static const char *memory_type(unsigned char code)
{
    static const struct {
        unsigned char code;
        const char *name;
    } types[] = {{0x18, "DDR3"}, {0x1a, "DDR4"}, {0x1e, "LPDDR4"}, {0x20, "HBM"}, {0x21, "HBM2"}, {0x22, "DDR5"}, {0x23, "LPDDR5"}, {0x24, "HBM3"}};
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        if (types[i].code == code) {
            return types[i].name;
        }
    }
    return "memory";
}

/* Bytes of a module, 0: an empty socket. s has `len` bytes. */
static uint64_t module_bytes(const unsigned char *s, size_t len)
{
    uint32_t size = len > SIZE_AT + 1 ? word(s + SIZE_AT) : 0;
    if (size == 0 || size == 0xffff) {
        return 0;
    }
    if (size == 0x7fff) {
        return len >= EXTENDED_AT + 4 ? (uint64_t)(word(s + EXTENDED_AT) | (word(s + EXTENDED_AT + 2) & 0x7fff) << 16) << 20 : 0;
    }
    return size & 0x8000 ? (uint64_t)(size & 0x7fff) << 10 : (uint64_t)size << 20;
}

struct modules {
    uint32_t n, speed; /* of the slowest */
    uint64_t bytes;
    const char *type;
};

static void add_module(struct modules *m, const unsigned char *s, size_t len)
{
    uint64_t bytes = module_bytes(s, len);
    if (bytes == 0) {
        return;
    }
    uint32_t speed = len >= CONFIGURED_AT + 2 ? word(s + CONFIGURED_AT) : 0;
    speed = speed == 0 && len >= SPEED_AT + 2 ? word(s + SPEED_AT) : speed;
    m->speed = m->n == 0 || speed < m->speed ? speed : m->speed;
    m->type = len > TYPE_AT ? memory_type(s[TYPE_AT]) : "memory";
    m->bytes += bytes;
    m->n++;
}

void host_memory_modules(const unsigned char *table, size_t bytes, struct str *out)
{
    struct modules m = {0};
    size_t at = 0;
    while (bytes - at >= 4 && table[at] != END_OF_TABLE && table[at + 1] >= 4 && table[at + 1] <= bytes - at) {
        size_t len = table[at + 1];
        if (table[at] == MEMORY_DEVICE) {
            add_module(&m, table + at, len);
        }
        at += len; /* then strings, up to two zero bytes */
        while (bytes - at >= 2 && (table[at] != 0 || table[at + 1] != 0)) {
            at++;
        }
        if (bytes - at < 2) {
            break;
        }
        at += 2;
    }
    if (m.n > 0) {
        char text[24];
        str_printf(out, "%u x %s", m.n, m.type);
        if (m.speed > 0) {
            str_printf(out, "-%u", m.speed);
        }
        str_printf(out, ", %s", format_bytes(text, m.bytes));
    }
}

void host_memory(const char *root, struct str *out)
{
    struct str path = {0};
    unsigned char table[1 << 16];
    str_printf(&path, "%s/sys/firmware/dmi/tables/DMI", root);
    int fd = path.failed ? -1 : open(path.data, O_RDONLY | O_CLOEXEC);
    int code = errno;
    ssize_t got = fd >= 0 ? read(fd, table, sizeof(table)) : -1;
    size_t before = out->len;
    if (got > 0) {
        host_memory_modules(table, (size_t)got, out);
    }
    if (out->len == before) {
        str_printf(out, "modules unknown (%s)", fd >= 0 ? "none in the SMBIOS table" : code == ENOENT ? "the system shows no SMBIOS table" : strerror(code));
    }
    if (fd >= 0) {
        close(fd);
    }
    str_deinit(&path);
}

/* ---- drive ---- */

/* File system type of a device: mountinfo names it "MAJOR:MINOR" in its third field. */
static bool file_system(const char *mountinfo, const char *device, char ret_type[32])
{
    for (const char *line = mountinfo; line != NULL && *line != '\0'; line = strchr(line, '\n'), line += line != NULL) {
        char id[32];
        size_t len = strcspn(line, "\n");
        const char *dash = strstr(line, " - ");
        if (dash != NULL && dash < line + len && sscanf(line, "%*s %*s %31s", id) == 1 && strcmp(id, device) == 0) {
            return sscanf(dash, " - %31s", ret_type) == 1;
        }
    }
    return false;
}

/* First word line of a small file, or false. A partition has its drive's facts one folder up. */
static bool drive_text(const char *root, const char *device, const char *name, char *out, size_t out_bytes)
{
    static const char *const folders[] = {"", "/.."};
    for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
        char path[160];
        snprintf(path, sizeof(path), "/sys/dev/block/%s%s/%s", device, folders[i], name);
        char *text = probe_read(root, path);
        if (text != NULL) {
            size_t n = strcspn(text, "\n");
            while (n > 0 && text[n - 1] == ' ') {
                n--;
            }
            snprintf(out, out_bytes, "%.*s", (int)n, text);
            text_one_line(out);
            free(text);
            return n > 0;
        }
    }
    return false;
}

/* " on nvme0n1p2": the folder that the device's number links to. */
static void drive_name(const char *root, const char *device, struct str *out)
{
    struct str link = {0};
    char target[256];
    str_printf(&link, "%s/sys/dev/block/%s", root, device);
    ssize_t n = link.failed ? -1 : readlink(link.data, target, sizeof(target) - 1);
    target[n > 0 ? n : 0] = '\0';
    const char *slash = strrchr(target, '/');
    if (slash != NULL) {
        text_one_line(target);
        str_printf(out, " on %s", slash + 1);
    }
    str_deinit(&link);
}

void host_drive(const char *root, const char *path, struct str *out)
{
    struct stat st;
    char device[32], type[32] = "unknown file system", model[80];
    if (stat(path, &st) != 0) {
        str_printf(out, "%s", strerror(errno));
        return;
    }
    snprintf(device, sizeof(device), "%u:%u", major(st.st_dev), minor(st.st_dev));
    char *mounts = probe_read(root, "/proc/self/mountinfo");
    if (mounts != NULL) {
        file_system(mounts, device, type);
    }
    free(mounts);
    str_puts(out, type);
    drive_name(root, device, out);
    if (drive_text(root, device, "device/model", model, sizeof(model))) {
        str_printf(out, " (%s)", model);
    }
}

/* Thousandths of a degree in a file of a sensor's folder; 0: none. */
static double read_degrees(const char *root, const char *folder, const char *name)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    char *text = probe_read(root, path);
    double degrees = text != NULL ? strtod(text, NULL) / 1000 : 0;
    free(text);
    return degrees;
}

/* Sensors lie in hwmonN, with the drive's controller or, in older kernels, with its PCI device. */
static bool read_sensor(const char *root, const char *parent, double *ret_degrees, double *ret_most)
{
    char folder[200];
    char **names;
    size_t n, i = 0;
    snprintf(folder, sizeof(folder), "%s%s", root, parent);
    if (file_list_folder(folder, "", &names, &n, NULL) < 0) {
        return false;
    }
    while (i < n && (strncmp(names[i], "hwmon", 5) != 0 || names[i][5] == '\0')) {
        i++;
    }
    bool found = i < n;
    if (found) {
        snprintf(folder, sizeof(folder), "%s/%.20s", parent, names[i]);
        *ret_degrees = read_degrees(root, folder, "temp1_input");
        *ret_most = read_degrees(root, folder, "temp1_max");
    }
    file_free_list(names, n);
    return found && *ret_degrees > 0;
}

bool host_drive_temperature(const char *root, const char *path, double *ret_degrees, double *ret_most)
{
    static const char *const places[] = {"device", "../device", "device/device/hwmon", "../device/device/hwmon"};
    struct stat st;
    bool found = false;
    for (size_t i = 0; i < ARRAY_LEN(places) && !found && stat(path, &st) == 0; i++) {
        char parent[120];
        snprintf(parent, sizeof(parent), "/sys/dev/block/%u:%u/%s", major(st.st_dev), minor(st.st_dev), places[i]);
        found = read_sensor(root, parent, ret_degrees, ret_most);
    }
    return found;
}

/* eMMC counts in tenths, for the two kinds of cells it has: "0x01 0x03". */
void host_drive_wear(const char *root, const char *path, struct str *out)
{
    struct stat st;
    struct str name = {0};
    char device[32], text[80];
    unsigned a = 0, b = 0;
    if (stat(path, &st) != 0) {
        return;
    }
    snprintf(device, sizeof(device), "%u:%u", major(st.st_dev), minor(st.st_dev));
    drive_name(root, device, &name);
    if (drive_text(root, device, "device/life_time", text, sizeof(text)) && sscanf(text, "%x %x", &a, &b) == 2 && max_u32(a, b) > 0) {
        str_printf(out, "at most %u %% of its life", 10 * max_u32(a, b));
    } else if (name.data != NULL && strncmp(name.data, " on nvme", 8) == 0) { /* nvme0n1p2: the controller is nvme0 */
        int digits = (int)strspn(name.data + 8, "0123456789");
        str_printf(out, "not readable without privileges: nvme smart-log /dev/nvme%.*s", digits, name.data + 8);
    }
    str_deinit(&name);
}

/* ---- lines ---- */

void host_line(const struct machine *m, const char *isa, uint32_t threads, const char *path, struct str *out)
{
    char text[24];
    str_printf(out, "%s, %u core%s, %u node%s, ", m->cpu[0] != '\0' ? m->cpu : "unknown processor", m->cores, m->cores == 1 ? "" : "s", m->nodes,
               m->nodes == 1 ? "" : "s");
    str_printf(out, "%s RAM, ", format_bytes(text, m->memory_total));
    host_memory("", out);
    str_puts(out, ", GPU none");
    if (path != NULL) {
        str_puts(out, ", ");
        host_drive("", path, out);
    }
    str_puts(out, "; ");
    if (threads > 0) {
        str_printf(out, "%u thread%s, ", threads, threads == 1 ? "" : "s");
    }
    str_printf(out, "%s; sluice %s (%s)", isa, SLUICE_VERSION, build_version());
}
