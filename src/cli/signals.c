/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the signal thread. A thread and a pipe instead of a handler: no global state, and nothing is missed between a
 * check and a read. Must not know: what is cancelled. */
#include "src/cli/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

enum { EXIT_INTERRUPTED = 130 };
static const struct timespec GRACE = { 1, 800000000 }; /* the promise is 2 s */

static int flag_get(const volatile int *flag) { return __atomic_load_n(flag, __ATOMIC_RELAXED); }

static sigset_t signal_set(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    return set;
}

/* Runs in threads that libraries made before main: blocks the signal there for good and sends it on, until it reaches the
 * thread that waits for it. */
static void pass_on(int number, siginfo_t *info, void *context)
{
    (void)info;
    sigaddset(&((ucontext_t *)context)->uc_sigmask, number);
    kill(getpid(), number);
}

static void *signal_loop(void *ctx)
{
    struct signals *s = ctx;
    sigset_t set = signal_set();
    bool last = false; /* the process is ending */
    for (;;) {
        int number = last ? sigtimedwait(&set, NULL, &GRACE) : sigwaitinfo(&set, NULL);
        if (number < 0 && errno == EINTR) {
            continue;
        }
        if (last || flag_get(&s->cancel) != 0) {
            _exit(EXIT_INTERRUPTED);
        }
        if (number != SIGINT) {
            __atomic_store_n(&s->stop, 1, __ATOMIC_RELAXED);
        }
        last = number != SIGINT || flag_get(&s->interactive) == 0;
        __atomic_store_n(&s->cancel, 1, __ATOMIC_SEQ_CST);
        if (write(s->wake[1], "!", 1) < 0) {
            continue; /* full: it is readable already */
        }
    }
    return NULL;
}

int signals_start(struct signals *s)
{
    *s = (struct signals){ 0 };
    if (pipe2(s->wake, O_CLOEXEC | O_NONBLOCK) < 0) {
        return -errno;
    }
    sigset_t set = signal_set();
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    struct sigaction action = { .sa_sigaction = pass_on, .sa_flags = SA_SIGINFO | SA_RESTART };
    sigaction(SIGINT, &action, NULL); /* also where a shell's background job starts with it ignored */
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a limit of file sizes is a failed write */
    int r = pthread_create(&s->thread, NULL, signal_loop, s);
    if (r != 0) {
        close(s->wake[0]);
        close(s->wake[1]);
        return -r;
    }
    pthread_detach(s->thread);
    return 0;
}

bool signals_cancelled(const struct signals *s) { return flag_get(&s->cancel) != 0; }
bool signals_stopped(const struct signals *s) { return flag_get(&s->stop) != 0; }
void signals_set_interactive(struct signals *s) { __atomic_store_n(&s->interactive, 1, __ATOMIC_RELAXED); }

void signals_reset(struct signals *s)
{
    char drop[16];
    while (read(s->wake[0], drop, sizeof(drop)) > 0) {
    }
    if (!signals_stopped(s)) {
        __atomic_store_n(&s->cancel, 0, __ATOMIC_SEQ_CST);
    }
}

ssize_t signals_read(struct signals *s, int fd, void *buffer, size_t size)
{
    struct pollfd p[2] = { { fd, POLLIN, 0 }, { s->wake[0], POLLIN, 0 } };
    for (;;) {
        if (signals_cancelled(s)) {
            return -EINTR;
        }
        int n = poll(p, 2, -1);
        if (n < 0 && errno != EINTR) {
            return -errno;
        }
        if (n > 0 && p[0].revents != 0 && !signals_cancelled(s)) {
            ssize_t got = read(fd, buffer, size);
            if (got >= 0 || (errno != EINTR && errno != EAGAIN)) {
                return got >= 0 ? got : -errno;
            }
        }
    }
}

bool signals_input_waits(int fd, int milliseconds)
{
    struct pollfd p = { fd, POLLIN, 0 };
    return poll(&p, 1, milliseconds) > 0 && (p.revents & POLLIN) != 0;
}
