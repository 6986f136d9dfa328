/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: SIGINT, SIGTERM and SIGHUP of the program, taken by one thread: the first sets the cancel flag, a second ends the
 * process at once, and so does a process that has not ended GRACE after the first. Must not know: what is cancelled. */
#ifndef SLUICE_CLI_SIGNALS_H
#define SLUICE_CLI_SIGNALS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct signals {
    volatile int cancel; /* what the library reads */
    int stop;            /* SIGTERM or SIGHUP came: an interactive session ends too */
    int interactive;     /* SIGINT stops an answer, not the process */
    int wake[2];         /* pipe, readable while cancel is set */
    pthread_t thread;
};

/* Before any other thread exists. 0 or a negative errno. The thread lives as long as the process. */
int signals_start(struct signals *s);

bool signals_cancelled(const struct signals *s);
bool signals_stopped(const struct signals *s);

void signals_set_interactive(struct signals *s);
/* Forgets a SIGINT, so that the next answer can be computed. */
void signals_reset(struct signals *s);

/* As read(2), but -EINTR as soon as the cancel flag is set, and -errno on failure. */
ssize_t signals_read(struct signals *s, int fd, void *buffer, size_t size);
/* True if input is there within `milliseconds`. */
bool signals_input_waits(int fd, int milliseconds);

#endif
