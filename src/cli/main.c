/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: main: commands by name, the exit status. Must not know: what a command does. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "src/base/str.h"
#include "src/cli/cli.h"
#include "src/commands/commands.h"

/* One of `run` and `look`: a command of this folder, or one that looks inside. */
static const struct command {
    const char *name, *summary;
    int (*run)(struct cli *c, int argc, char **argv);
    int (*look)(int argc, char **argv, const volatile int *cancel);
} commands[] = {
    { "run", "generate text, or talk", cli_run, NULL },
    { "score", "log-probabilities and perplexity of a text, routing", cli_score, NULL },
    { "tokenize", "text to token ids", cli_tokenize, NULL },
    { "detokenize", "token ids to bytes", cli_detokenize, NULL },
    { "template", "chat requests to prompt text", cli_template, NULL },
    { "plan", "where every byte goes and what speed to expect", NULL, command_plan },
    { "bench", "prompt and decode speed beside what the machine can do", NULL, command_bench },
    { "doctor", "what this machine offers, what is missing, what to do", NULL, command_doctor },
    { "inspect", "config, tensors and sizes of a model", NULL, command_inspect },
    { "check", "verify a model file", NULL, command_check },
    { "convert", "Hugging Face folder to GGUF", NULL, command_convert },
    { "synth", "write a true-shape synthetic model", NULL, command_synth },
    { "tune", "find settings for this machine and model: a profile", NULL, command_tune },
    { "trace", "routing traces: cache policies, use and prediction of experts", NULL, command_trace },
};

static const char *const later[] = { "serve", "top", "loadtest" };

/* Names that fingers know from other programs. */
static const struct {
    const char *name, *here;
} foreign[] = {
    { "chat", "run" }, { "cli", "run" }, { "generate", "run" }, { "server", "serve (not in this build)" }, { "perplexity", "score" },
    { "quantize", "convert" }, { "quantise", "convert" }, { "show", "inspect" }, { "version", "--version" },
};

static void print_usage(FILE *out)
{
    fputs("usage: sluice COMMAND [flags]\n\nRuns DeepSeek-V3-class mixture-of-experts models.\n\ncommands:\n", out);
    for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
        fprintf(out, "  %-12s %s\n", commands[i].name, commands[i].summary);
    }
    fputs("\n  sluice COMMAND --help   flags and examples\n  sluice --version\n\n"
          "exit status: 0 done, 1 failed, 2 wrong usage, 3 does not fit, 130 interrupted\n\n"
          "example:\n  sluice run -m models/demo -p \"It is a truth universally acknowledged\" -n 40\n", out);
}

static const struct command *find_command(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
        if (strcmp(name, commands[i].name) == 0) {
            return &commands[i];
        }
    }
    return NULL;
}

static int refuse_command(struct cli *c, const char *name)
{
    const char *names[ARRAY_LEN(commands) + 1] = { NULL };
    for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
        names[i] = commands[i].name;
    }
    for (size_t i = 0; i < ARRAY_LEN(later); i++) {
        if (strcmp(name, later[i]) == 0) {
            return term_refuse(&c->term, SLUICE_USAGE, "%s: not in this build; sluice --help lists the commands that are", name);
        }
    }
    if (name[0] == '-') {
        return term_refuse(&c->term, SLUICE_USAGE, "%s: the command comes first, as in sluice run -m PATH; sluice --help lists them", name);
    }
    for (size_t i = 0; i < ARRAY_LEN(foreign); i++) {
        if (strcmp(name, foreign[i].name) == 0) {
            return term_refuse(&c->term, SLUICE_USAGE, "unknown command %s; here it is sluice %s", name, foreign[i].here);
        }
    }
    const char *near = nearest_name(name, names);
    if (near != NULL) {
        return term_refuse(&c->term, SLUICE_USAGE, "unknown command %s; did you mean %s?", name, near);
    }
    return term_refuse(&c->term, SLUICE_USAGE, "unknown command %s; sluice --help lists them", name);
}

static int dispatch(struct cli *c, int argc, char **argv)
{
    const struct command *command = find_command(argv[0]);
    if (command == NULL) {
        return refuse_command(c, argv[0]);
    }
    return command->run != NULL ? command->run(c, argc, argv) : command->look(argc, argv, &c->signals.cancel);
}

static int run_main(struct cli *c, int argc, char **argv)
{
    if (argc < 2) {
        print_usage(stderr);
        return SLUICE_USAGE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("sluice %s\n", sluice_version());
        return SLUICE_OK;
    }
    bool help = strcmp(argv[1], "help") == 0;
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || (help && argc == 2)) {
        print_usage(stdout);
        return SLUICE_OK;
    }
    if (help) {
        char option[] = "--help";
        return dispatch(c, 2, (char *[]){ argv[2], option, NULL });
    }
    return dispatch(c, argc - 1, argv + 1);
}

/* A file opened later must not become stdout because that was closed. */
static void fill_standard_files(void)
{
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0) {
            return;
        }
    }
}

/* OpenBLAS starts an idle thread before main. Where the address space is limited that thread may retry an allocation for
 * ever, and the library's destructor would wait for it. */
static void leave(int status)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        fflush(NULL);
        _exit(status);
    }
}

static int main_status(struct cli *c, int argc, char **argv)
{
    int r = signals_start(&c->signals);
    if (r < 0) {
        return term_refuse(&c->term, SLUICE_FAILED, "cannot take signals: %s", strerror(-r));
    }
    int status = run_main(c, argc, argv);
    errno = 0;
    if ((fflush(stdout) != 0 || ferror(stdout)) && status == SLUICE_OK) {
        status = term_refuse(&c->term, SLUICE_FAILED, "cannot write to stdout: %s", errno != 0 ? strerror(errno) : "some output was lost");
    }
    return status;
}

int main(int argc, char **argv)
{
    struct cli c;
    fill_standard_files();
    term_init(&c.term);
    int status = main_status(&c, argc, argv);
    term_deinit(&c.term);
    leave(status);
    return status;
}
