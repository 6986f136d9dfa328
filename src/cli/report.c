/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: figures of a run. Must not know: how they came about. */
#include "src/cli/report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static double rate(double amount, double seconds) { return seconds > 0 ? amount / seconds : NAN; }

void report_number(struct str *out, double value)
{
    if (isfinite(value)) {
        str_printf(out, "%.9g", value);
    } else {
        str_puts(out, "null");
    }
}

static void field(struct str *out, const char *name, double value)
{
    str_printf(out, "\"%s\": ", name);
    report_number(out, value);
    str_puts(out, ", ");
}

static void cache_tier(struct str *out, const struct sluice_engine *engine, const char *tier)
{
    static const char *const kinds[] = { "hits", "misses", "bytes" };
    bool drive = strcmp(tier, "nvme") == 0;
    str_printf(out, "\"%s\": {", tier);
    for (int i = 0; i < 3; i++) {
        char name[48];
        snprintf(name, sizeof(name), "expert.%s.%s%s", tier, drive && i == 2 ? "drive_" : "", kinds[i]); /* what came, asked for or ahead */
        str_printf(out, "%s\"%s\": %" PRIu64, i == 0 ? "" : ", ", kinds[i], sluice_engine_counter(engine, name));
    }
    if (strcmp(tier, "ram") == 0) {
        str_printf(out, ", \"admitted\": %" PRIu64, sluice_engine_counter(engine, "expert.ram.admitted"));
    }
    if (drive) {
        str_printf(out, ", \"missed_bytes\": %" PRIu64, sluice_engine_counter(engine, "expert.nvme.bytes"));
        str_printf(out, ", \"demand_s\": %.6f, \"demand_bytes\": %" PRIu64, 1e-6 * (double)sluice_engine_counter(engine, "expert.nvme.demand_us"),
                   sluice_engine_counter(engine, "expert.nvme.demand_bytes"));
    }
    str_puts(out, "}");
}

/* Bytes of weights read, the load included, from the model itself and from each mirror. */
static void report_drive(struct str *out, const struct sluice_engine *engine)
{
    struct sluice_model_info info;
    sluice_engine_info(engine, &info);
    str_printf(out, "{\"depth\": %" PRIu32 ", \"chunk\": %" PRIu64 ", \"source\": \"%s\", \"copies\": [", info.read_depth, info.read_chunk, info.read_source);
    for (uint32_t i = 0; i < info.copies; i++) {
        char name[40];
        snprintf(name, sizeof(name), "drive.copy.%u.bytes", i);
        str_printf(out, "%s%" PRIu64, i == 0 ? "" : ", ", sluice_engine_counter(engine, name));
    }
    str_printf(out, "], \"failed\": %" PRIu64 ", \"slow\": %" PRIu64 "}", sluice_engine_counter(engine, "drive.failed"), sluice_engine_counter(engine, "drive.slow"));
}

/* What a call of the engine gives; `otherwise` if it gives nothing. */
static void engine_json(struct str *out, char *text, const char *otherwise)
{
    str_puts(out, text != NULL ? text : otherwise);
    out->failed |= text == NULL;
    sluice_free(text);
}

void report_timings(struct str *out, const struct sluice_engine *engine, const struct timings *t)
{
    static const char *const tiers[] = { "vram", "ram", "nvme" };
    struct sluice_model_info info;
    sluice_engine_info(engine, &info);
    double bytes = t->decode_n > 0 ? (double)t->decode_ram / t->decode_n : (double)info.bytes_per_token; /* fewer with drafts */
    str_puts(out, "{\"test\": null, ");
    field(out, "prompt_n", (double)t->prompt_n);
    field(out, "prompt_s", t->prompt_s);
    field(out, "decode_n", t->decode_n);
    field(out, "decode_s", t->decode_s);
    field(out, "prompt_tok_s", rate((double)t->prompt_n, t->prompt_s));
    field(out, "decode_tok_s", rate(t->decode_n, t->decode_s));
    double drive = t->decode_n > 0 ? (double)t->decode_nvme / t->decode_n : 0;
    str_printf(out, "\"bytes_per_token\": {\"vram\": 0, \"ram\": %.0f, \"nvme\": %.0f}, ", bytes, drive);
    field(out, "read_gb_s", rate((double)t->decode_ram, t->decode_s) / 1e9);
    str_puts(out, "\"ceiling_gb_s\": null, \"ceiling_share\": null, \"cache\": {");
    for (int i = 0; i < 3; i++) {
        str_puts(out, i == 0 ? "" : ", ");
        cache_tier(out, engine, tiers[i]);
    }
    str_puts(out, "}, \"drive\": ");
    report_drive(out, engine);
    static const char *const ahead[] = { "named", "right", "begun", "begun_bytes", "useful", "useful_bytes", "late", "late_bytes", "wasted", "wasted_bytes", "cancelled", "cancelled_bytes" };
    str_puts(out, ", \"prefetch\": {");
    for (size_t i = 0; i < sizeof(ahead) / sizeof(*ahead); i++) {
        char name[48];
        snprintf(name, sizeof(name), "prefetch.%s", ahead[i]);
        str_printf(out, "%s\"%s\": %" PRIu64, i == 0 ? "" : ", ", ahead[i], sluice_engine_counter(engine, name));
    }
    str_printf(out, "}, \"draft\": {\"drafted\": %" PRIu64 ", \"accepted\": %" PRIu64 "}, \"prediction\": ", sluice_engine_counter(engine, "draft.drafted"),
               sluice_engine_counter(engine, "draft.accepted"));
    engine_json(out, sluice_engine_predictions_json(engine), "null");
    str_puts(out, ", \"steps_down\": ");
    engine_json(out, sluice_engine_steps_down_json(engine), "[]");
    str_puts(out, "}");
}

void report_line(struct term *term, const struct sluice_engine *engine, const struct timings *t)
{
    double prompt = rate((double)t->prompt_n, t->prompt_s), decode = rate(t->decode_n, t->decode_s), read = rate((double)t->decode_ram, t->decode_s);
    uint64_t drafted = sluice_engine_counter(engine, "draft.drafted"), begun = sluice_engine_counter(engine, "prefetch.begun");
    char drafts[64] = "", ahead[128] = "";
    if (drafted > 0) {
        snprintf(drafts, sizeof(drafts), "; %" PRIu64 " of %" PRIu64 " drafts accepted", sluice_engine_counter(engine, "draft.accepted"), drafted);
    }
    if (begun > 0) {
        snprintf(ahead, sizeof(ahead), "; of %" PRIu64 " experts read ahead %" PRIu64 " were there in time, %" PRIu64 " late", begun, sluice_engine_counter(engine, "prefetch.useful"),
                 sluice_engine_counter(engine, "prefetch.late"));
    }
    term_print(term, SLUICE_LOG_NOTICE, "prompt %zu tokens, %.1f tok/s; answer %zu tokens, %.1f tok/s, %.1f GB/s of weights%s%s", t->prompt_n, isfinite(prompt) ? prompt : 0.0,
               t->answer_n, isfinite(decode) ? decode : 0.0, isfinite(read) ? read / 1e9 : 0.0, drafts, ahead);
}
