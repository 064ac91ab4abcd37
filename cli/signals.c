/* SPDX-License-Identifier: Apache-2.0 */
/* signals.c - Ctrl-C and its like ask a long call to stop; one that comes later ends the process.
 *
 * A thread of its own waits for the signals (sigwait), and all others have them blocked: no handler
 * runs on a thread that computes. A batch system sends SIGTERM to the process and to its group, and
 * Ctrl-C reaches a rank from the terminal and from the launcher: signals within a second are one
 * request. SIGUSR1 has the same effect: launchers pass it on to ranks, and batch systems send it
 * before a job's time is over.
 */
#include "cli.h"

#include "tessera/advanced/machine.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

static const int stopping[] = {SIGINT, SIGTERM, SIGUSR1, SIGHUP};
static const int64_t one_request_ns = 1000000000;

static sigset_t awaited;
static atomic_int caught;

/* Ends the process by the signal's default action. */
static void end_by(int number)
{
    signal(number, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &awaited, NULL);
    raise(number);
}

static void *wait_for_signals(void *unused)
{
    int64_t first = 0;
    for (int number; sigwait(&awaited, &number) == 0;) {
        const int64_t now = tess_clock_ns();
        if (!atomic_load(&caught)) {
            first = now;
            atomic_store(&caught, number);
        } else if (now - first > one_request_ns) {
            end_by(number);
        }
    }
    return unused;
}

void signals_catch(void)
{
    pthread_t thread;
    struct sigaction old;
    sigemptyset(&awaited);
    /* A signal that is ignored at the start stays so: nohup and background jobs mean it. */
    for (size_t i = 0; i < sizeof stopping / sizeof *stopping; i++)
        if (sigaction(stopping[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaddset(&awaited, stopping[i]);
    pthread_sigmask(SIG_BLOCK, &awaited, NULL);
    if (pthread_create(&thread, NULL, wait_for_signals, NULL) == 0)
        pthread_detach(thread);
    else
        pthread_sigmask(SIG_UNBLOCK, &awaited, NULL); /* then a signal ends the process */
    /* A reader that closes the pipe, and a file that reaches the limit of its size (ulimit -f),
     * show as failed writes: with a sentence, and partial files are removed. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
}

int signals_caught(void)
{
    return atomic_load(&caught);
}

int signals_progress(void *unused, const char *what, int64_t done, int64_t total)
{
    (void)unused, (void)what, (void)done, (void)total;
    return signals_caught() != 0;
}
