/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: options and opening a model for the commands. Must not know: what a command does. */
#include "src/cli/cli.h"

void cli_set_verbosity(struct cli *c, const struct verbosity *v)
{
    c->term.level = v->debug ? SLUICE_LOG_DEBUG : v->verbose ? SLUICE_LOG_INFO : v->quiet ? SLUICE_LOG_ERROR : SLUICE_LOG_NOTICE;
}

int cli_options(struct sluice_options **ret, struct sluice_error *e)
{
    struct sluice_options *o = sluice_options_create();
    if (o == NULL) {
        return cli_fail(e, SLUICE_FAILED, "out of memory");
    }
    int r = sluice_options_read_environment(o, e);
    if (r != SLUICE_OK) {
        sluice_options_destroy(o);
        return r;
    }
    *ret = o;
    return SLUICE_OK;
}

int cli_open(struct cli *c, const struct sluice_options *o, struct sluice_engine **ret, struct sluice_error *e)
{
    struct sluice_open_hooks hooks = { .log = term_log, .log_level = c->term.level, .progress = term_progress, .ctx = &c->term };
    int r = sluice_engine_open(o, &hooks, &c->signals.cancel, ret, e);
    term_clear(&c->term);
    return r;
}
