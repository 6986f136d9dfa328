/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: libedit. Must not know: what is typed. */
#include "src/cli/lines.h"

#include <errno.h>
#include <histedit.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>

#include "src/base/settings.h"
#include "src/cli/term.h"

struct lines {
    EditLine *editor;
    History *history;
    struct signals *signals;
    const char *prompt;
    char *path; /* of the history; NULL: not kept */
};

enum { HISTORY_LINES = 1000, PASTE_MILLISECONDS = 15 };

static struct lines *lines_of(EditLine *editor)
{
    void *data = NULL;
    el_get(editor, EL_CLIENTDATA, &data);
    return data;
}

static const char *show_prompt(EditLine *editor) { return lines_of(editor)->prompt; }

/* EL_GETCFN: one character; 0 at the end, -1 at a signal. */
static int get_character(EditLine *editor, wchar_t *ret)
{
    struct lines *l = lines_of(editor);
    mbstate_t state = { 0 };
    for (;;) {
        char byte;
        ssize_t n = signals_read(l->signals, STDIN_FILENO, &byte, 1);
        if (n <= 0) {
            return n == 0 ? 0 : -1;
        }
        size_t used = mbrtowc(ret, &byte, 1, &state);
        if (used == (size_t)-1) {
            *ret = L'\ufffd';
            return 1;
        }
        if (used != (size_t)-2) {
            return 1;
        }
    }
}

/* $XDG_STATE_HOME/sluice/history, its folders made; NULL if there is no place. */
static char *history_path(void)
{
    const char *state = settings_environment("XDG_STATE_HOME"), *home = settings_environment("HOME");
    struct str path = { 0 };
    if (state != NULL && state[0] == '/') {
        str_puts(&path, state);
    } else if (home != NULL && home[0] == '/') {
        str_printf(&path, "%s/.local/state", home);
    } else {
        return NULL;
    }
    str_puts(&path, "/sluice");
    for (char *p = path.failed ? NULL : strchr(path.data + 1, '/'); p != NULL; p = strchr(p + 1, '/')) {
        *p = '\0';
        mkdir(path.data, 0700);
        *p = '/';
    }
    if (path.failed || (mkdir(path.data, 0700) < 0 && errno != EEXIST)) {
        str_deinit(&path);
        return NULL;
    }
    str_puts(&path, "/history");
    return str_take(&path, NULL);
}

int lines_create(struct signals *signals, struct lines **ret, struct sluice_error *e)
{
    if (setlocale(LC_CTYPE, "") == NULL || MB_CUR_MAX == 1) {
        setlocale(LC_CTYPE, "C.UTF-8");
    }
    struct lines *l = calloc(1, sizeof(*l));
    if (l == NULL) {
        return cli_fail(e, SLUICE_FAILED, "out of memory");
    }
    HistEvent event;
    l->signals = signals;
    l->prompt = "";
    l->editor = el_init("sluice", stdin, stderr, stderr);
    l->history = history_init();
    if (l->editor == NULL || l->history == NULL) {
        lines_destroy(l);
        return cli_fail(e, SLUICE_FAILED, "cannot edit lines on this terminal; give the prompt with -p or through a pipe");
    }
    el_set(l->editor, EL_CLIENTDATA, l);
    el_set(l->editor, EL_PROMPT, show_prompt);
    el_set(l->editor, EL_EDITOR, "emacs");
    el_set(l->editor, EL_GETCFN, get_character);
    history(l->history, &event, H_SETSIZE, HISTORY_LINES);
    history(l->history, &event, H_SETUNIQUE, 1);
    el_set(l->editor, EL_HIST, history, l->history);
    l->path = history_path();
    if (l->path != NULL) {
        history(l->history, &event, H_LOAD, l->path);
    }
    *ret = l;
    return SLUICE_OK;
}

void lines_destroy(struct lines *l)
{
    if (l == NULL) {
        return;
    }
    HistEvent event;
    if (l->history != NULL && l->path != NULL) {
        history(l->history, &event, H_SAVE, l->path);
    }
    if (l->history != NULL) {
        history_end(l->history);
    }
    if (l->editor != NULL) {
        el_end(l->editor);
    }
    free(l->path);
    free(l);
}

/* One line without its newline. */
static enum lines_result read_line(struct lines *l, const char *prompt, struct str *out)
{
    l->prompt = prompt;
    for (;;) {
        int n = 0;
        const char *line = el_gets(l->editor, &n);
        if (signals_cancelled(l->signals)) {
            const LineInfo *typed = el_line(l->editor);
            bool empty = typed->lastchar == typed->buffer;
            fputs("\n", stderr);
            if (signals_stopped(l->signals)) {
                return LINES_STOP;
            }
            signals_reset(l->signals);
            if (empty) {
                return LINES_INTERRUPTED;
            }
            el_reset(l->editor);
            continue;
        }
        if (line == NULL || n <= 0) {
            fputs("\n", stderr);
            return LINES_END;
        }
        size_t len = strcspn(line, "\r\n");
        HistEvent event;
        if (len > 0) {
            history(l->history, &event, H_ENTER, line);
        }
        str_append(out, line, len);
        return LINES_TEXT;
    }
}

enum lines_result lines_read(struct lines *l, const char *prompt, struct str *out)
{
    enum lines_result r = read_line(l, prompt, out);
    while (r == LINES_TEXT) {
        bool continued = out->len > 0 && out->data[out->len - 1] == '\\';
        if (!continued && !signals_input_waits(STDIN_FILENO, PASTE_MILLISECONDS)) {
            break;
        }
        if (continued) {
            out->len--;
        }
        str_puts(out, "\n");
        r = read_line(l, "... ", out);
    }
    return r == LINES_END && out->len > 0 ? LINES_TEXT : r;
}
