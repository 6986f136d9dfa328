/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: writing to stderr, one line at a time. Must not know: commands. */
#include "src/cli/term.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/settings.h"
#include "src/base/str.h"

void term_init(struct term *t)
{
    const char *kind = settings_environment("TERM"), *plain = settings_environment("NO_COLOR");
    *t = (struct term){ .level = SLUICE_LOG_NOTICE };
    pthread_mutex_init(&t->lock, NULL);
    t->live = isatty(STDERR_FILENO) == 1 && kind != NULL && strcmp(kind, "dumb") != 0;
    t->colour = t->live && (plain == NULL || plain[0] == '\0');
}

void term_deinit(struct term *t) { pthread_mutex_destroy(&t->lock); }

static const char *level_colour(enum sluice_log_level level)
{
    return level == SLUICE_LOG_ERROR ? "\033[31m" : level == SLUICE_LOG_WARN ? "\033[33m" : "\033[2m";
}

static void clear_locked(struct term *t)
{
    if (t->on_line) {
        fputs("\r\033[K", stderr);
        t->on_line = false;
    }
}

/* `line` has no newline; control bytes in it (file names, model text) are shown as '?'. */
static void write_line(struct term *t, enum sluice_log_level level, char *line)
{
    text_one_line(line);
    const char *kind = level == SLUICE_LOG_ERROR ? "error: " : level == SLUICE_LOG_WARN ? "warning: " : "";
    pthread_mutex_lock(&t->lock);
    clear_locked(t);
    fprintf(stderr, "%ssluice: %s%s%s\n", t->colour ? level_colour(level) : "", kind, line, term_plain(t));
    fflush(stderr);
    pthread_mutex_unlock(&t->lock);
}

enum { LINE_MAX_BYTES = 2048 };

void term_print(struct term *t, enum sluice_log_level level, const char *fmt, ...)
{
    if (level > t->level) {
        return;
    }
    char line[LINE_MAX_BYTES];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    write_line(t, level, line);
}

int term_fail(struct term *t, const struct sluice_error *e)
{
    if (e->status == SLUICE_INTERRUPTED) {
        term_print(t, SLUICE_LOG_NOTICE, "interrupted");
    } else {
        term_print(t, SLUICE_LOG_ERROR, "%s", e->text);
    }
    return e->status;
}

int term_refuse(struct term *t, int status, const char *fmt, ...)
{
    char line[LINE_MAX_BYTES];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    write_line(t, SLUICE_LOG_ERROR, line);
    return status;
}

void term_log(void *ctx, enum sluice_log_level level, const char *line) { term_print(ctx, level, "%s", line); }

/* Ten times a second, and the last; nothing for what takes a moment. */
static bool due(struct term *t, bool last, double seconds)
{
    if (!t->live || t->level < SLUICE_LOG_NOTICE || seconds < 0.3 || (!last && t->on_line && seconds >= t->shown && seconds < t->shown + 0.1)) {
        return false;
    }
    t->shown = seconds;
    t->on_line = true;
    return true;
}

void term_progress(void *ctx, uint64_t done, uint64_t total, double seconds)
{
    struct term *t = ctx;
    pthread_mutex_lock(&t->lock);
    if (due(t, done >= total, seconds)) {
        char a[24], b[24];
        double rate = seconds > 0 ? (double)done / seconds : 0;
        fprintf(stderr, "\r\033[Kloading %s of %s, %.0f MB/s", format_bytes(a, done), format_bytes(b, total), rate / 1e6);
        if (rate > 0) {
            fprintf(stderr, ", %.0f s left", (double)(total - (done < total ? done : total)) / rate);
        }
        fflush(stderr);
    }
    pthread_mutex_unlock(&t->lock);
}

void term_count(struct term *t, const char *what, uint64_t done, uint64_t total, double seconds)
{
    pthread_mutex_lock(&t->lock);
    if (due(t, false, seconds)) {
        fprintf(stderr, "\r\033[K%s %llu/%llu", what, (unsigned long long)done, (unsigned long long)total);
        fflush(stderr);
    }
    pthread_mutex_unlock(&t->lock);
}

void term_clear(struct term *t)
{
    pthread_mutex_lock(&t->lock);
    clear_locked(t);
    fflush(stderr);
    pthread_mutex_unlock(&t->lock);
}

const char *term_dim(const struct term *t) { return t->colour ? "\033[2m" : ""; }
const char *term_plain(const struct term *t) { return t->colour ? "\033[0m" : ""; }

int cli_fail(struct sluice_error *e, int status, const char *fmt, ...)
{
    if (e != NULL) {
        e->status = status;
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(e->text, sizeof(e->text), fmt, ap);
        va_end(ap);
    }
    return status;
}
