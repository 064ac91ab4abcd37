/* SPDX-License-Identifier: Apache-2.0 */
/* signals.c - Ctrl-C asks a long call to stop; a second one ends the process at once.
 *
 * SIGUSR1 has the same effect: launchers pass it on to ranks, and batch systems send it before a
 * job's time is over.
 */
#include "cli.h"

#include <signal.h>

static volatile sig_atomic_t caught;

static void catch_signal(int number)
{
    caught = number;
}

/* A signal that was ignored when the process started stays so: nohup and background jobs mean it.
 */
static void catch_one(int number)
{
    struct sigaction old;
    if (sigaction(number, NULL, &old) != 0 || old.sa_handler == SIG_IGN)
        return;
    struct sigaction action = {.sa_handler = catch_signal, .sa_flags = SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

void signals_catch(void)
{
    catch_one(SIGINT);
    catch_one(SIGTERM);
    catch_one(SIGUSR1);
    /* A reader that closes the pipe shows as a failed write, and partial files are removed. */
    signal(SIGPIPE, SIG_IGN);
}

int signals_caught(void)
{
    return caught;
}
