/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: `sluice doctor`: what this machine offers, what is missing, what to do. docs/performance.md. Must not know: how a
 * fact is found (doctor_facts). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/container.h"
#include "io/mirror.h"
#include "src/commands/arguments.h"
#include "src/commands/commands.h"
#include "src/commands/doctor_facts.h"
#include "src/commands/measure.h"
#include "src/run/probe.h"

static const char help_text[] =
    "usage: sluice doctor [-m MODEL [--model-mirror DIR]] [--no-rates] [--json]\n"
    "\n"
    "What this machine offers, what is missing and what to do about it, one line each: \"ok\", \"note\" - it works, but could be\n"
    "better - or \"problem\". Memory, arithmetic and, with -m, the drive of the model are measured, which takes 2 to 5 s.\n"
    "\n"
    "flags:\n"
    "  -m, --model PATH        a model whose file system and drive matter\n"
    "  --model-mirror DIR      a copy of the model on another drive: whether it is one\n"
    "  --no-rates              measure nothing\n"
    "  --json                  {\"findings\": [{level, topic, text, advice}], \"problems\": N, \"machine\": {...}}\n"
    "Exit status: 0, 1 when there is a problem, 2 usage, 130 interrupted.\n"
    "\n"
    "examples:\n"
    "  sluice doctor\n"
    "  sluice doctor -m model.gguf --json\n";

struct doctor {
    bool json, no_rates;
    struct machine machine;
    struct topology topology;
    struct findings findings;
    char *file; /* one of the model's, or NULL */
};

/* Copies of the model, and what is wrong with them. */
static void find_mirrors(struct doctor *d, struct container *c, const char *folders)
{
    struct error told = {0};
    char note[sizeof(((struct finding *)0)->text)];
    if (mirror_open(c, folders, &told) < 0) {
        findings_add(&d->findings, FINDING_PROBLEM, "mirror", "%s", told.text);
        return;
    }
    for (uint32_t i = 0; i < c->files[0].n_copies; i++) {
        mirror_note(c, i, note, sizeof(note));
        findings_add(&d->findings, note[0] != '\0' ? FINDING_NOTE : FINDING_OK, "mirror", "%s", note[0] != '\0' ? note : c->files[0].copies[i].path);
        if (note[0] != '\0') {
            findings_advise(&d->findings, "put the copy on another drive");
        }
    }
}

/* A file that is missing or broken is a finding. */
static int find_file(struct doctor *d, const struct settings *s, struct error *e)
{
    const char *model = s->model;
    struct container_options options = {0};
    struct container *c;
    struct error told = {0};
    if (model == NULL) {
        return 0;
    }
    if (container_open(model, &options, &c, &told) < 0) {
        findings_add(&d->findings, FINDING_PROBLEM, "model", "%s", told.text);
        return 0;
    }
    d->file = strdup(c->files[0].path);
    if (s->model_mirror != NULL) {
        find_mirrors(d, c, s->model_mirror);
    }
    container_close(c);
    return d->file != NULL ? 0 : error_nomem(e, "path", strlen(model));
}

static int measure(struct doctor *d, const volatile int *cancel, struct error *e)
{
    if (isatty(STDERR_FILENO) == 1) {
        fputs("measuring...\r", stderr);
    }
    int r = measure_machine(d->file, 0, cancel, &d->machine, e);
    if (isatty(STDERR_FILENO) == 1) {
        fputs("\033[K", stderr);
    }
    if (r == ERROR_DOES_NOT_FIT) {
        findings_add(&d->findings, FINDING_NOTE, "memory rate", "%s", e->text);
        return 0;
    }
    if (r == 0) {
        doctor_rates(&d->machine, d->file, &d->findings);
    }
    return r;
}

static int examine(struct doctor *d, const struct settings *s, const volatile int *cancel, struct error *e)
{
    int r = topology_read(&d->topology, e);
    r = r < 0 ? r : probe_machine(&(struct probe_options){.topology = &d->topology}, &d->machine, e);
    if (r < 0) {
        return r;
    }
    doctor_processor(&d->findings);
    doctor_cores("", &d->machine, &d->topology, &d->findings);
    doctor_memory("", &d->machine, &d->findings);
    doctor_nodes("", &d->topology, &d->findings);
    doctor_pages("", &d->findings);
    doctor_uring(&d->findings);
    doctor_gpu("", &d->findings);
    doctor_libraries(&d->findings);
    r = find_file(d, s, e);
    if (s->model == NULL || d->file != NULL) {
        doctor_files("", d->file, &d->findings);
    }
    return r == 0 && !d->no_rates ? measure(d, cancel, e) : r;
}

static int report(struct doctor *d, struct error *e)
{
    struct str out = {0};
    if (d->json) {
        str_puts(&out, "{\n  \"findings\": ");
        findings_json(&d->findings, &out);
        str_printf(&out, ",\n  \"problems\": %u,\n  \"machine\": ", d->findings.problems);
        machine_to_json(&d->machine, &out);
        str_puts(&out, "\n}\n");
    } else {
        findings_text(&d->findings, &out);
    }
    int r = arguments_print(&out, e);
    return r == 0 && d->findings.problems > 0 ? error_set(e, ERROR_FORMAT, "%u problem%s", d->findings.problems, d->findings.problems == 1 ? "" : "s") : r;
}

int command_doctor(int argc, char **argv, const volatile int *cancel)
{
    struct doctor *d = calloc(1, sizeof(*d));
    struct settings settings = {0};
    struct error e = {0};
    const char *mirror = NULL;
    bool help = false;
    if (d == NULL) {
        return arguments_finish("doctor", error_nomem(&e, "findings", sizeof(*d)), &e);
    }
    const struct argument own[] = {{"--json", &d->json, NULL}, {"--no-rates", &d->no_rates, NULL}, {"--model-mirror", NULL, &mirror}, {0}};
    int r = settings_init(&settings, &e);
    r = r < 0 ? r : arguments_read_few(argc, argv, own, &settings, &help, &e);
    r = r < 0 || mirror == NULL ? r : settings_set(&settings, "model-mirror", mirror, SOURCE_FLAG, &e);
    if (r == 0) {
        r = help ? (fputs(help_text, stdout), 0) : examine(d, &settings, cancel, &e);
        r = r < 0 || help ? r : report(d, &e);
    }
    settings_deinit(&settings);
    free(d->file);
    free(d);
    return arguments_finish("doctor", r, &e);
}
