/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: bench_report.h. Must not know: how results were measured. */
#include "src/commands/bench_report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { DRIFT_PERCENT = 10 };

static double tokens_of(const struct bench_row *row) { return row->decode_n > 0 ? (double)row->decode_n * row->rows : row->prompt_n; }

static double over(double a, double b) { return b > 0 ? a / b : NAN; }

struct rate bench_speed(const struct bench_row *row)
{
    double speeds[BENCH_REPEATS_MAX];
    for (uint32_t i = 0; i < row->repeats; i++) {
        speeds[i] = over(tokens_of(row), row->seconds[i]);
    }
    return rate_of(speeds, row->repeats);
}

/* Leaves their order alone. */
static double median_of(const double *values, uint32_t n)
{
    double sorted[BENCH_REPEATS_MAX];
    memcpy(sorted, values, n * sizeof(*sorted));
    return rate_of(sorted, n).median;
}

/* What a row says beyond its samples. */
struct figures {
    struct rate speed;
    double seconds;   /* median */
    double read_gb_s, ceiling_gb_s, roof_tok_s;
    double ceiling_share, roof_share; /* medians of what each repeat has of its own ceiling and roof */
    double first_tok_s, last_tok_s;
};

static struct figures figures_of(const struct bench_row *row)
{
    double rows = row->decode_n > 0 ? row->rows : 1;
    double ceiling = median_of(row->ceiling, row->repeats), ceiling_share[BENCH_REPEATS_MAX], roof_share[BENCH_REPEATS_MAX];
    for (uint32_t i = 0; i < row->repeats; i++) {
        ceiling_share[i] = over(tokens_of(row) * row->ram_bytes, row->seconds[i] * row->ceiling[i]);
        roof_share[i] = 1 / over(row->seconds[i], row->roof_s[i]);
    }
    struct figures f = {.speed = bench_speed(row), .seconds = median_of(row->seconds, row->repeats)};
    f.read_gb_s = 1e-9 * row->ram_bytes * f.speed.median;
    f.ceiling_gb_s = ceiling > 0 ? 1e-9 * ceiling : NAN;
    f.ceiling_share = median_of(ceiling_share, row->repeats);
    f.roof_tok_s = over(tokens_of(row), row->roof.seconds);
    f.roof_share = median_of(roof_share, row->repeats);
    f.first_tok_s = row->window > 0 ? over(row->window * rows, row->first_s) : NAN;
    f.last_tok_s = row->window > 0 ? over(row->window * rows, row->last_s) : NAN;
    return f;
}

/* ---- table ---- */

/* A number of at least three digits, or "-". */
static void cell(struct str *out, int width, double value)
{
    if (!isfinite(value)) {
        str_printf(out, " %*s |", width, "-");
    } else {
        str_printf(out, " %*.*f |", width, value < 10 ? 3 : value < 100 ? 2 : 1, value);
    }
}

static void cell_share(struct str *out, double share)
{
    if (isfinite(share)) {
        str_printf(out, " %4.0f %% |", 100 * share);
    } else {
        str_puts(out, "      - |");
    }
}

static void text_row(const struct bench_row *row, struct str *out)
{
    struct figures f = figures_of(row);
    char spread[24] = "-";
    if (row->repeats > 1) {
        snprintf(spread, sizeof(spread), "%.1f %%", 100 * over(f.speed.best - f.speed.worst, 2 * f.speed.median));
    }
    str_printf(out, "| %-16s | %7u |", row->test, row->threads);
    cell(out, 8, f.speed.median);
    str_printf(out, " %7s |", spread);
    cell(out, 7, f.read_gb_s);
    cell(out, 7, f.ceiling_gb_s);
    cell_share(out, f.ceiling_share);
    cell(out, 8, f.roof_tok_s);
    cell_share(out, f.roof_share);
    str_printf(out, " %-14s |\n", row->roof.bound == ROOF_UNKNOWN ? "-" : roof_bound_name(row->roof.bound));
}

static void text_notes(const struct bench_row *row, struct str *out)
{
    struct figures f = figures_of(row);
    char bytes[24];
    if (row->window > 0) {
        str_printf(out, "%s: first %u tokens %.2f tok/s, last %u %.2f tok/s\n", row->test, row->window, f.first_tok_s, row->window, f.last_tok_s);
    }
    if (row->nvme_bytes >= 1) {
        str_printf(out, "%s: cold: %s per token came from the drive\n", row->test, format_bytes(bytes, (uint64_t)row->nvme_bytes));
    }
    double drift = over(row->drift.best - row->drift.worst, row->drift.best);
    if (row->drift.samples > 1 && drift > DRIFT_PERCENT / 100.0) {
        str_printf(out, "%s: the memory ceiling moved between %.1f and %.1f GB/s during the test: something else uses this machine\n", row->test,
                   1e-9 * row->drift.worst, 1e-9 * row->drift.best);
    }
}

void bench_text(const struct bench_setting *s, const struct bench_row *rows, uint32_t n, struct str *out)
{
    str_printf(out, "machine: %s\nmodel:   %s\n\n", s->machine, s->model);
    str_puts(out, "| test             | threads |      t/s |     +/- |    GB/s | ceiling |  share | roof t/s |  share | bound by       |\n"
                  "| ---------------- | ------: | -------: | ------: | ------: | ------: | -----: | -------: | -----: | -------------- |\n");
    double resident = 1, drive = 0;
    for (uint32_t i = 0; i < n; i++) {
        text_row(&rows[i], out);
        resident = fmin(resident, rows[i].resident_share);
        drive = fmax(drive, rows[i].nvme_bytes);
    }
    str_puts(out, "\n");
    for (uint32_t i = 0; i < n; i++) {
        text_notes(&rows[i], out);
    }
    if (n > 0 && drive < 1) {
        str_printf(out, "warm: %.0f %% of memory resident, nothing read from the drive\n", 100 * resident);
    }
    if (n > 0) {
        str_printf(out, "t/s: median of %u; +/-: half of the distance from least to most; GB/s: weights and latents read; ceiling: plain reads just before and after;\n"
                        "roof: max(bytes / ceiling, operations / peaks); shares: medians of what each repeat has of its own ceiling and roof\n", rows[0].repeats);
    }
}

/* ---- JSON ---- */

static void number(struct str *out, const char *key, double value)
{
    if (isfinite(value)) {
        str_printf(out, "\"%s\": %.9g, ", key, value);
    } else {
        str_printf(out, "\"%s\": null, ", key);
    }
}

static void text(struct str *out, const char *key, const char *value)
{
    str_printf(out, "\"%s\": ", key);
    str_json(out, value, strlen(value));
    str_puts(out, ", ");
}

static void json_samples(const struct bench_row *row, const struct figures *f, struct str *out)
{
    str_puts(out, "\"tok_s\": {");
    number(out, "median", f->speed.median);
    number(out, "min", f->speed.worst);
    number(out, "max", f->speed.best);
    str_puts(out, "\"samples\": [");
    for (uint32_t i = 0; i < row->repeats; i++) {
        str_printf(out, "%s%.9g", i == 0 ? "" : ", ", over(tokens_of(row), row->seconds[i]));
    }
    str_puts(out, "]}, ");
}

/* The keys of design 8a that `timings` has, too. */
static void json_timings(const struct bench_row *row, const struct figures *f, struct str *out)
{
    bool decode = row->decode_n > 0;
    text(out, "test", row->test);
    number(out, "prompt_n", row->prompt_n);
    number(out, "prompt_s", decode ? 0 : f->seconds);
    number(out, "decode_n", row->decode_n);
    number(out, "decode_s", decode ? f->seconds : 0);
    number(out, "prompt_tok_s", decode ? NAN : f->speed.median);
    number(out, "decode_tok_s", decode ? f->speed.median : NAN);
    str_printf(out, "\"bytes_per_token\": {\"vram\": 0, \"ram\": %.0f, \"nvme\": %.0f}, ", row->ram_bytes, row->nvme_bytes);
    number(out, "read_gb_s", f->read_gb_s);
    number(out, "ceiling_gb_s", f->ceiling_gb_s);
    number(out, "ceiling_share", f->ceiling_share);
    str_printf(out, "\"cache\": {\"vram\": {\"hits\": 0, \"misses\": 0, \"bytes\": 0}, \"ram\": {\"hits\": %" PRIu64 ", \"misses\": %" PRIu64
               ", \"bytes\": %" PRIu64 "}, \"nvme\": {\"hits\": %" PRIu64 ", \"misses\": 0, \"bytes\": %" PRIu64 ", \"missed_bytes\": %" PRIu64
               "}}, \"draft\": {\"drafted\": %" PRIu64 ", \"accepted\": %" PRIu64 "}, ", row->hits, row->misses, row->cache_bytes, row->misses, row->read_bytes,
               row->missed_bytes, row->drafted, row->accepted);
}

/* Best and worst of all measurements, and what stands beside each of the samples of tok_s. */
static void json_ceiling(const struct bench_row *row, struct str *out)
{
    bool measured = row->drift.samples > 0;
    str_puts(out, "\"ceiling\": {");
    number(out, "best_gb_s", measured ? 1e-9 * row->drift.best : NAN);
    number(out, "worst_gb_s", measured ? 1e-9 * row->drift.worst : NAN);
    str_printf(out, "\"samples\": %u, \"repeats_gb_s\": [", row->drift.samples);
    for (uint32_t i = 0; measured && i < row->repeats; i++) {
        str_printf(out, "%s%.9g", i == 0 ? "" : ", ", 1e-9 * row->ceiling[i]);
    }
    str_puts(out, "]}, ");
}

static void json_row(const struct bench_setting *s, const struct bench_row *row, struct str *out)
{
    struct figures f = figures_of(row);
    str_puts(out, "{");
    json_timings(row, &f, out);
    number(out, "threads", row->threads);
    number(out, "ubatch", row->ubatch);
    number(out, "rows", row->rows);
    number(out, "depth", row->depth);
    json_samples(row, &f, out);
    number(out, "roof_tok_s", f.roof_tok_s);
    number(out, "roof_share", f.roof_share);
    text(out, "roof_bound", roof_bound_name(row->roof.bound));
    number(out, "roof_bytes", row->roof.bytes);
    number(out, "int8_operations", row->roof.int8_operations);
    number(out, "float_operations", row->roof.float_operations);
    json_ceiling(row, out);
    number(out, "window", row->window);
    number(out, "first_tok_s", f.first_tok_s);
    number(out, "last_tok_s", f.last_tok_s);
    number(out, "resident_share", row->resident_share);
    str_printf(out, "\"cold\": %s, ", row->nvme_bytes >= 1 ? "true" : "false");
    text(out, "machine", s->machine);
    text(out, "model", s->model);
    str_printf(out, "\"steps_down\": %s}", s->steps_down);
}

void bench_json(const struct bench_setting *s, const struct bench_row *rows, uint32_t n, struct str *out)
{
    str_puts(out, "[");
    for (uint32_t i = 0; i < n; i++) {
        str_puts(out, i == 0 ? "\n  " : ",\n  ");
        json_row(s, &rows[i], out);
    }
    str_puts(out, "\n]\n");
}

/* ---- CSV ---- */

static void csv_text(struct str *out, const char *value)
{
    str_puts(out, "\"");
    for (const char *c = value; *c != '\0'; c++) {
        str_append(out, c, 1);
        if (*c == '"') {
            str_puts(out, "\"");
        }
    }
    str_puts(out, "\"");
}

/* An empty field is a figure that is not known. */
static void csv_number(struct str *out, double value)
{
    if (isfinite(value)) {
        str_printf(out, ",%.9g", value);
    } else {
        str_puts(out, ",");
    }
}

void bench_csv(const struct bench_setting *s, const struct bench_row *rows, uint32_t n, struct str *out)
{
    str_puts(out, "test,threads,ubatch,rows,depth,tokens,repeats,tok_s,tok_s_min,tok_s_max,bytes_per_token_ram,bytes_per_token_nvme,read_gb_s,"
                  "ceiling_gb_s,ceiling_share,roof_tok_s,roof_share,roof_bound,first_tok_s,last_tok_s,machine,model\n");
    for (uint32_t i = 0; i < n; i++) {
        const struct bench_row *row = &rows[i];
        struct figures f = figures_of(row);
        csv_text(out, row->test);
        const double numbers[] = {row->threads, row->ubatch, row->rows, row->depth, tokens_of(row), row->repeats, f.speed.median, f.speed.worst,
                                  f.speed.best, row->ram_bytes, row->nvme_bytes, f.read_gb_s, f.ceiling_gb_s, f.ceiling_share,
                                  f.roof_tok_s, f.roof_share};
        for (size_t k = 0; k < sizeof(numbers) / sizeof(*numbers); k++) {
            csv_number(out, numbers[k]);
        }
        str_puts(out, ",");
        csv_text(out, roof_bound_name(row->roof.bound));
        csv_number(out, f.first_tok_s);
        csv_number(out, f.last_tok_s);
        str_puts(out, ",");
        csv_text(out, s->machine);
        str_puts(out, ",");
        csv_text(out, s->model);
        str_puts(out, "\n");
    }
}
