/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: a plan as text for people and as JSON (docs/plan.md). No logic. */
#include "src/place/report.h"

#include <string.h>

#include "common/intmath.h"

static const char *const purpose_keys[PURPOSE_COUNT] = {
    [PURPOSE_RESIDENT] = "resident", [PURPOSE_EXPERTS] = "experts",     [PURPOSE_SCALES] = "scales",
    [PURPOSE_KV] = "kv",             [PURPOSE_WORK] = "work",           [PURPOSE_STAGING] = "staging",
    [PURPOSE_TOKENIZER] = "tokenizer", [PURPOSE_TABLES] = "tables",     [PURPOSE_PROGRAM] = "program",
};

static void line_bytes(struct str *out, const char *what, uint64_t bytes)
{
    char text[24];
    str_printf(out, "  %-18s %12s\n", what, format_bytes(text, bytes));
}

/* Words of a long text in lines of so many bytes, the later ones indented. */
static void wrapped(struct str *out, const char *text)
{
    enum { LINE = 100, INDENT = 19 };
    size_t at = 0, len = strlen(text);
    while (len - at > LINE) {
        size_t n = LINE;
        while (n > 0 && text[at + n] != ' ') {
            n--;
        }
        n = n > 0 ? n : strcspn(text + at, " ");
        str_printf(out, "%.*s\n%*s", (int)n, text + at, INDENT, "");
        at = min_u64(at + n + 1, len);
    }
    str_printf(out, "%s\n", text + at);
}

static void profile_text(const struct profile *f, struct str *out)
{
    char size[24];
    str_printf(out, "profile            %s\n", f->name);
    if (f->description[0] != '\0') {
        str_printf(out, "%-19s", "");
        wrapped(out, f->description);
    }
    if (f->has_machine) {
        str_printf(out, "made for           %s, %u cores, %s\n", f->machine.cpu[0] != '\0' ? f->machine.cpu : "a processor", f->machine.cores,
                   format_bytes(size, f->machine.memory_total));
    }
    for (uint32_t i = 0; i < f->n_gpus; i++) {
        str_printf(out, "GPU                %s, %s: this build does not use it\n", f->gpu[i].name[0] != '\0' ? f->gpu[i].name : "of any kind",
                   format_bytes(size, f->gpu[i].vram));
    }
    for (uint32_t i = 0; i < f->n_results; i++) {
        const struct profile_result *r = &f->result[i];
        str_printf(out, "measured           %.2f tokens/s, prompts %.1f: %s (%s, %s)\n", r->decode_tok_s, r->prefill_tok_s, r->command, r->version, r->date);
    }
    str_puts(out, "\n");
}

static void speed_text(const struct plan *p, struct str *out)
{
    const struct speed *v = &p->speed;
    char ram[24], drive[24];
    bool streams = p->staging_slots > 0;
    if (streams) {
        str_printf(out, "experts in RAM     %llu of %llu (%.1f %%), where %.1f %% of uses are expected to find theirs; %llu slot%s to read into\n",
                   (unsigned long long)p->expert_slots, (unsigned long long)p->experts, 100.0 * (double)p->expert_slots / (double)p->experts,
                   100 * v->hit_ratio, (unsigned long long)p->staging_slots, p->staging_slots == 1 ? "" : "s");
    }
    str_printf(out, "weights per token  %s from RAM", format_bytes(ram, v->ram_bytes));
    str_printf(out, streams ? ", %s of them from the drive before\n" : "\n", format_bytes(drive, v->nvme_bytes));
    if (v->decode_tok_s <= 0 && v->ram_s > 0) {
        str_puts(out, "decode at best     unknown: the machine's drive has no rate; sluice plan --record -m FILE measures that of a large file\n");
    } else if (v->decode_tok_s <= 0) {
        str_puts(out, "decode at best     unknown: plan for a recorded machine (--record, --machine) or a profile\n");
    } else if (streams) {
        str_printf(out, "decode at best     %.2f tokens/s: RAM %.0f ms and drive %.0f ms at the same time; one after the other %.2f\n", v->decode_tok_s,
                   1e3 * v->ram_s, 1e3 * v->nvme_s, v->serial_tok_s);
    } else {
        str_printf(out, "decode at best     %.2f tokens/s\n", v->decode_tok_s);
    }
    if (v->decode_tok_s > 0) {
        str_printf(out, "decode expected    %.2f tokens/s%s%s\n", v->expected_tok_s, streams ? " where nothing is read ahead" : "",
                   v->kernels_known ? "" : "; kernels are taken to read as fast as RAM");
    }
    if (v->prefill_tok_s > 0) {
        str_printf(out, "prefill at best    %.1f tokens/s\n", v->prefill_tok_s);
    }
    if (streams && v->decode_tok_s > 0) {
        str_printf(out, "more would add     %.3f tokens/s for a GiB of RAM, %.3f for a GB/s of the drive\n", v->more_ram_tok_s, v->more_nvme_tok_s);
    }
}

void report_text(const struct plan *p, const struct shape *s, const struct profile *profile, struct str *out)
{
    char a[24], b[24];
    if (profile != NULL) {
        profile_text(profile, out);
    }
    str_printf(out, "%s: %u layers, %u experts, %u per token", s->family, s->layers, s->experts, s->experts_used);
    str_puts(out, s->mtp_layers > 0 ? ", with MTP layer\n\nRAM\n" : "\n\nRAM\n");
    for (int i = 0; i < PURPOSE_COUNT; i++) {
        if (p->bytes[i] > 0) {
            line_bytes(out, purpose_name((enum purpose)i), p->bytes[i]);
        }
    }
    line_bytes(out, "total", p->total);
    str_printf(out, "  %-18s %12s  (%s)\n\n", "limit", format_bytes(a, p->limit), memory_limit_name(p->binding));
    for (uint32_t k = 0; k < p->nodes; k++) {
        str_printf(out, "node %-13d %s of weights", p->node[k].number, format_bytes(a, p->node[k].weights));
        str_printf(out, p->node[k].available > 0 ? ", %s available\n" : "\n", format_bytes(b, p->node[k].available));
    }
    str_printf(out, "context            %u positions, %s per position; largest that fits: %u\n", p->context,
               format_bytes(a, p->kv_token_bytes), p->context_max);
    speed_text(p, out);
    str_printf(out, "bound by           %s\n", p->binding_text);
    str_printf(out, "%s; the least that works is %s\n", p->fits ? "fits" : "does not fit", format_bytes(a, p->needed));
}

static void json_tier(struct str *out, const char *name, uint64_t limit, uint64_t total, const uint64_t *bytes)
{
    str_printf(out, "    \"%s\": {\"limit\": %llu, \"total\": %llu, \"purposes\": {", name, (unsigned long long)limit,
               (unsigned long long)total);
    for (int i = 0; bytes != NULL && i < PURPOSE_COUNT; i++) {
        str_printf(out, "%s\"%s\": %llu", i == 0 ? "" : ", ", purpose_keys[i], (unsigned long long)bytes[i]);
    }
    str_puts(out, "}}");
}

static void profile_json(const struct profile *f, struct str *out)
{
    if (f == NULL) {
        str_puts(out, "null");
        return;
    }
    str_puts(out, "{\"name\": ");
    str_json(out, f->name, strlen(f->name));
    str_puts(out, ", \"description\": ");
    str_json(out, f->description, strlen(f->description));
    str_printf(out, ", \"unused_gpus\": %u}", f->n_gpus);
}

void report_json(const struct plan *p, const struct shape *s, const struct profile *profile, struct str *out)
{
    const struct speed *v = &p->speed;
    str_puts(out, "{\n  \"model\": ");
    str_json(out, s->family, strlen(s->family));
    str_puts(out, ",\n  \"profile\": ");
    profile_json(profile, out);
    str_puts(out, ",\n  \"tiers\": {\n");
    json_tier(out, "ram", p->limit, p->total, p->bytes);
    str_puts(out, ",\n");
    const uint64_t on_drive[PURPOSE_COUNT] = {[PURPOSE_EXPERTS] = p->nvme_bytes};
    json_tier(out, "nvme", 0, p->nvme_bytes, on_drive);
    str_puts(out, ",\n");
    json_tier(out, "vram0", 0, 0, NULL);
    str_puts(out, "\n  },\n  \"nodes\": [");
    for (uint32_t k = 0; k < p->nodes; k++) {
        str_printf(out, "%s{\"node\": %d, \"weights\": %llu, \"available\": %llu}", k == 0 ? "" : ", ", p->node[k].number,
                   (unsigned long long)p->node[k].weights, (unsigned long long)p->node[k].available);
    }
    str_printf(out, "],\n  \"fits\": %s,\n  \"needed\": %llu,\n  \"limit_name\": \"%s\",\n", p->fits ? "true" : "false",
               (unsigned long long)p->needed, memory_limit_name(p->binding));
    str_printf(out, "  \"context\": %u,\n  \"context_max\": %u,\n  \"kv_bytes_per_token\": %llu,\n  \"bytes_per_token\": %llu,\n",
               p->context, p->context_max, (unsigned long long)p->kv_token_bytes, (unsigned long long)v->ram_bytes);
    str_printf(out, "  \"nvme_bytes_per_token\": %llu,\n  \"experts\": %llu,\n  \"staging_slots\": %llu,\n", (unsigned long long)v->nvme_bytes,
               (unsigned long long)p->experts, (unsigned long long)p->staging_slots);
    str_printf(out, "  \"expert_slots\": %llu,\n  \"hit_ratio\": %.6g,\n  \"decode_tok_s\": %.6g,\n  \"decode_expected_tok_s\": %.6g,\n  \"decode_serial_tok_s\": %.6g,\n",
               (unsigned long long)p->expert_slots, v->hit_ratio, v->decode_tok_s, v->expected_tok_s, v->serial_tok_s);
    str_printf(out, "  \"prefill_tok_s\": %.6g,\n  \"more\": {\"ram_gib_tok_s\": %.6g, \"nvme_gb_s_tok_s\": %.6g},\n  \"binding\": ", v->prefill_tok_s,
               v->more_ram_tok_s, v->more_nvme_tok_s);
    str_json(out, p->binding_text, strlen(p->binding_text));
    str_puts(out, "\n}\n");
}
