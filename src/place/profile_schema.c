/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: every key of a profile. Must not know: YAML. */
#include "src/place/profile_schema.h"

#include "common/attr.h"
#include "src/place/profile.h"

#define FIELD(s, member) .offset = offsetof(s, member), .room = sizeof(((s *)0)->member)
#define SECTION(k) {k, ARRAY_LEN(k)}

#define MACHINE(member) FIELD(struct profile, machine.member)
static const struct profile_key gpu_keys[] = {
    {"name", PROFILE_TEXT, FIELD(struct profile_gpu, name)},
    {"vram", PROFILE_SIZE, FIELD(struct profile_gpu, vram), .required = true},
    {"read_gb_s", PROFILE_RATE, FIELD(struct profile_gpu, read_gb_s)},
    {"pcie_gb_s", PROFILE_RATE, FIELD(struct profile_gpu, pcie_gb_s)},
};
static const struct profile_section gpu_section = SECTION(gpu_keys);

/* Names as in recorded machines (machine.c); limit[LIMIT_AVAILABLE] is what a process may use. */
static const struct profile_key machine_keys[] = {
    {"cpu", PROFILE_TEXT, MACHINE(cpu)},
    {"cores", PROFILE_COUNT, MACHINE(cores), .required = true},
    {"nodes", PROFILE_COUNT, MACHINE(nodes)},
    {"memory_total", PROFILE_SIZE, MACHINE(memory_total), .required = true},
    {"memory_available", PROFILE_SIZE, MACHINE(limit[LIMIT_AVAILABLE]), .required = true},
    {"ram_read_gb_s", PROFILE_RATE, MACHINE(ram_read_gb_s)},
    {"fma_gop_s", PROFILE_RATE, MACHINE(fma_gop_s)},
    {"bf16_gop_s", PROFILE_RATE, MACHINE(bf16_gop_s)},
    {"int8_gop_s", PROFILE_RATE, MACHINE(int8_gop_s)},
    {"nvme_read_gb_s", PROFILE_RATE, MACHINE(nvme_read_gb_s)},
    {"nvme_depth", PROFILE_COUNT, MACHINE(nvme_depth)},
    {"nvme_chunk", PROFILE_SIZE, MACHINE(nvme_chunk)},
    {"gpus", PROFILE_LIST, .offset = offsetof(struct profile, gpu), .room = PROFILE_GPUS_MAX, .section = &gpu_section,
     .item = sizeof(struct profile_gpu), .counter = offsetof(struct profile, n_gpus)},
};
static const struct profile_section machine_section = SECTION(machine_keys);

static const struct profile_key result_keys[] = {
    {"model", PROFILE_TEXT, FIELD(struct profile_result, model)},
    {"command", PROFILE_TEXT, FIELD(struct profile_result, command), .required = true},
    {"version", PROFILE_TEXT, FIELD(struct profile_result, version), .required = true},
    {"date", PROFILE_DATE, FIELD(struct profile_result, date), .required = true},
    {"decode_tok_s", PROFILE_RATE, FIELD(struct profile_result, decode_tok_s)},
    {"prefill_tok_s", PROFILE_RATE, FIELD(struct profile_result, prefill_tok_s)},
    {"expert_share", PROFILE_SHARE, FIELD(struct profile_result, expert_share)},
    {"hit_ratio", PROFILE_SHARE, FIELD(struct profile_result, hit_ratio)},
};
static const struct profile_section result_section = SECTION(result_keys);

static const struct profile_key root_keys[] = {
    {"name", PROFILE_NAME, FIELD(struct profile, name), .required = true},
    {"description", PROFILE_TEXT, FIELD(struct profile, description)},
    {"machine", PROFILE_MAP, .section = &machine_section, .counter = offsetof(struct profile, has_machine)},
    {"settings", PROFILE_SETTINGS, .offset = offsetof(struct profile, setting), .room = SETTING_COUNT_MAX,
     .item = sizeof(struct profile_setting), .counter = offsetof(struct profile, n_settings)},
    {"results", PROFILE_LIST, .offset = offsetof(struct profile, result), .room = PROFILE_RESULTS_MAX, .section = &result_section,
     .item = sizeof(struct profile_result), .counter = offsetof(struct profile, n_results)},
};
const struct profile_section profile_root = SECTION(root_keys);
