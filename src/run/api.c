/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: public API: errors, options. Must not compute. */
#include "src/run/api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void sluice_free(void *p)
{
    free(p);
}

const char *sluice_version(void)
{
    return SLUICE_VERSION;
}

int api_status(int code, const struct error *e, struct sluice_error *out)
{
    int status = code < 0 ? error_exit_status(code) : SLUICE_OK;
    if (out) {
        out->status = status;
        snprintf(out->text, sizeof(out->text), "%s", code < 0 ? e->text : "");
    }
    return status;
}

int api_take(struct str *s, char **ret, size_t *ret_len, struct sluice_error *out)
{
    struct error e = {0};
    size_t len = 0;
    char *text = str_take(s, &len);
    if (!text) {
        return api_status(error_nomem(&e, "text", 0), &e, out);
    }
    *ret = text;
    if (ret_len) {
        *ret_len = len;
    }
    return api_status(0, &e, out);
}

struct sluice_options *sluice_options_create(void)
{
    struct sluice_options *o = calloc(1, sizeof(*o));
    struct error e = {0};
    if (o && settings_init(&o->settings, &e) < 0) {
        sluice_options_destroy(o);
        return NULL;
    }
    return o;
}

void sluice_options_destroy(struct sluice_options *o)
{
    if (o) {
        settings_deinit(&o->settings);
        free(o);
    }
}

int sluice_options_set(struct sluice_options *o, const char *name, const char *value, struct sluice_error *error)
{
    struct error e = {0};
    return api_status(settings_set(&o->settings, name, value, SOURCE_API, &e), &e, error);
}

int sluice_options_read_environment(struct sluice_options *o, struct sluice_error *error)
{
    struct error e = {0};
    return api_status(settings_read_environment(&o->settings, &e), &e, error);
}
