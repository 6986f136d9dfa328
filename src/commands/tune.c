/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the command line of `sluice tune`. docs/profiles.md. Must not know: how anything is measured. */
#include "src/commands/tune.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/attr.h"
#include "io/file.h"
#include "src/commands/arguments.h"
#include "src/commands/commands.h"
#include "src/run/profiles.h"

static const char help_text[] =
    "usage: sluice tune -m MODEL -o FILE.yaml [--profile START] [settings] [-n N] [-p N] [-r N] [--budget SECONDS] [--json]\n"
    "\n"
    "Finds settings for this machine and model and writes them as a profile, with what was reached. One setting changes at a time,\n"
    "against the best so far, in pairs of samples taken in turn; it wins with more than 3 %, more than the pairs differ, and without\n"
    "slowing the other of prompts and decoding by more than 3 %. Tried is what can matter here: threads, -ub and --bulk; --mtp where\n"
    "drafts are made; --numa on several memory nodes; --prefetch, --io and --expert-ram where experts are read from the drive.\n"
    "Settings given as flags or in the environment stay as they are; those of a profile are where tuning starts.\n"
    "-ub and --bulk may change the last bits of prompt rows (docs/performance.md); the others change speed alone.\n"
    "Ctrl-C keeps the best so far. Nothing is written before the start has been measured.\n"
    "\n"
    "  -o FILE.yaml            the profile to write; its name without .yaml is that of the profile\n"
    "  --force                 replace the file if there is one\n"
    "  -n, --n-gen N           tokens decoded in a repeat, three of which are a sample [32]; 0: decoding does not matter\n"
    "  -p, --n-prompt N        tokens of a prompt [512]; 0: prompts do not matter. -ub is tried up to so many\n"
    "  -r, --repetitions N     pairs of a trial, 2 to 16 [3]\n"
    "  --budget SECONDS        no trial begins that would end later [900]\n"
    "  --json                  results as one object, with every sample\n"
    "  --quiet                 no progress, no messages\n"
    "Settings are those of `sluice run`: --ram, -c, -ctk, -t, ...\n"
    "Exit status: 0 done, 1 failed, 2 usage, 3 does not fit, 130 interrupted.\n"
    "\n"
    "examples:\n"
    "  sluice tune -m model.gguf -o my-box.yaml && sluice run -m model.gguf --profile my-box.yaml\n"
    "  sluice tune -m model.gguf --profile laptop-64g-nvme -o my-laptop.yaml --budget 3600\n"
    "  sluice tune -m model.gguf -p 0 -t 16 -o decode.yaml --json\n";

/* Numbers as typed; NULL: the default stays. */
struct texts {
    const char *decode, *prompt, *rounds, *budget;
};

static int read_number(const char *flag, const char *text, uint32_t least, uint32_t most, uint32_t *ret, struct error *e)
{
    uint64_t value;
    if (text == NULL) {
        return 0;
    }
    if (!parse_u64(text, &value) || value < least || value > most) {
        return error_set(e, ERROR_USAGE, "%s %s: expected a number from %u to %u", flag, text, least, most);
    }
    *ret = (uint32_t)value;
    return 0;
}

static int read_texts(const struct texts *x, struct tune_options *o, struct error *e)
{
    int r = read_number("-n", x->decode, 0, 1 << 20, &o->decode_n, e);
    r = r < 0 ? r : read_number("-p", x->prompt, 0, 1 << 20, &o->prompt_n, e);
    r = r < 0 ? r : read_number("-r", x->rounds, 2, TUNE_PAIRS_MAX, &o->rounds, e);
    if (r == 0 && x->budget != NULL && (!parse_double(x->budget, &o->budget) || o->budget < 0)) {
        r = error_set(e, ERROR_USAGE, "--budget %s: expected seconds", x->budget);
    }
    return r;
}

/* Before minutes are spent: the file may be written. */
static int check_out(const struct tune_options *o, struct error *e)
{
    struct str folder = {0};
    const char *slash = strrchr(o->out, '/');
    if (!file_has_suffix(o->out, ".yaml")) {
        return error_set(e, ERROR_USAGE, "-o %s: a profile ends in .yaml", o->out);
    }
    if (file_is_folder(o->out)) {
        return error_set(e, ERROR_USAGE, "-o %s: is a folder", o->out);
    }
    if (file_exists(o->out) && !o->force) {
        return error_set(e, ERROR_USAGE, "-o %s: is there already; --force replaces it", o->out);
    }
    str_printf(&folder, "%.*s", slash != NULL ? (int)(slash - o->out + 1) : 2, slash != NULL ? o->out : "./");
    int r = folder.failed ? error_nomem(e, "path", strlen(o->out)) : 0;
    if (r == 0 && access(folder.data, W_OK) != 0) {
        r = error_set(e, -errno, "-o %s: nothing can be written to %s: %s", o->out, folder.data, strerror(errno));
    }
    str_deinit(&folder);
    return r;
}

static int check(const struct tune_options *o, struct error *e)
{
    if (o->settings.model == NULL) {
        return error_set(e, ERROR_USAGE, "no model given: -m PATH; `sluice tune --help` shows examples");
    }
    if (o->out == NULL) {
        return error_set(e, ERROR_USAGE, "no file given: -o FILE.yaml is the profile to write");
    }
    if (o->settings.machine != NULL) {
        return error_set(e, ERROR_USAGE, "--machine %s: only this machine can be measured; `sluice plan` takes recorded ones", o->settings.machine);
    }
    if (o->decode_n + o->prompt_n == 0) {
        return error_set(e, ERROR_USAGE, "nothing to measure: -n 0 and -p 0");
    }
    return check_out(o, e);
}

static int parse(int argc, char **argv, struct tune_options *o, bool *ret_help, struct error *e)
{
    struct texts x = {.decode = NULL};
    const struct argument own[] = {{"-o", NULL, &o->out}, {"--force", &o->force, NULL}, {"--json", &o->json, NULL}, {"--quiet", &o->quiet, NULL},
                                   {"-n", NULL, &x.decode}, {"--n-gen", NULL, &x.decode}, {"-p", NULL, &x.prompt}, {"--n-prompt", NULL, &x.prompt},
                                   {"-r", NULL, &x.rounds}, {"--repetitions", NULL, &x.rounds}, {"--budget", NULL, &x.budget}, {0}};
    int r = arguments_read_all(argc, argv, own, &o->settings, ret_help, e);
    if (r < 0 || *ret_help) {
        return r;
    }
    r = read_texts(&x, o, e);
    r = r < 0 ? r : check(o, e);
    return r < 0 ? r : profiles_apply(&o->settings, NULL, e);
}

/* As typed, but for folders: others have none of them. */
static void put_command(int argc, char **argv, struct str *out)
{
    str_puts(out, "sluice");
    for (int i = 0; i < argc; i++) {
        const char *slash = strrchr(argv[i], '/');
        str_printf(out, " %s", slash != NULL && slash[1] != '\0' ? slash + 1 : argv[i]);
    }
}

int command_tune(int argc, char **argv, const volatile int *cancel)
{
    struct tune_options o = {.decode_n = 32, .prompt_n = 512, .rounds = 3, .budget = 900};
    struct str command = {0};
    struct error e = {0};
    bool help = false;
    int r = settings_init(&o.settings, &e);
    r = r < 0 ? r : parse(argc, argv, &o, &help, &e);
    if (r == 0 && help) {
        fputs(help_text, stdout);
    } else if (r == 0) {
        put_command(argc, argv, &command);
        o.command = command.data;
        r = command.failed ? error_nomem(&e, "command", command.len) : tune_model(&o, cancel, &e);
    }
    str_deinit(&command);
    settings_deinit(&o.settings);
    return arguments_finish("tune", r, &e);
}
