/* SPDX-License-Identifier: Apache-2.0 */
/* world_end.c - all ranks exit together, with one exit code and one message, and always.
 *
 *   every rank   sends its result to rank 0: status, exit code, sentence
 *   rank 0       waits for all results, decides on one for the command, and sends that to all
 *
 * These messages have a communicator of their own, so that no message left over from the command
 * matches them. A waiting rank polls and sleeps in between, because a command that runs on rank 0
 * alone may take hours. After a failure the wait is limited: a rank that computes, or hangs in a
 * call, has 3 seconds, then rank 0 prints the message and aborts all; if rank 0 itself does not
 * respond, the rank that failed does so after 5, and one that was notified of the failure after 7:
 * aborting the others may take a moment, and the message is printed once. MPI_Finalize too may wait
 * for messages that never arrive: after a failure it has 2 seconds. A signal that reaches a waiting
 * rank is a failure of that rank, since the rank that it waits for may be stopped: the ranks that
 * still compute are notified, and the limits above hold.
 *
 * The failure that is printed: rank 0's, if it failed by itself; else that of the lowest rank that
 * did, as "rank 2: ...". A rank that was only notified, whose sentence begins so, does not count;
 * nor does a rank that stopped without a signal of its own, because another rank had one.
 */
#include "world.h"

#ifdef CLI_MPI

#include "tessera/advanced/collectives.h"
#include "tessera/advanced/machine.h"
#include "tessera/mpi.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TAG_ENDING = 1, TAG_VERDICT = 2 };
static const int64_t second = 1000000000;

/* The result of a rank, as it is sent. */
typedef struct {
    int32_t status, code, usage;
    char sentence[CLI_SENTENCE_MAX];
} ending;

static MPI_Comm endings = MPI_COMM_NULL;
static int abandoned; /* 1: a rank did not respond, and no collective call is possible */
static volatile sig_atomic_t late_code;

void end_open(void)
{
    MPI_Comm_dup(MPI_COMM_WORLD, &endings);
}

/* Other ranks that still compute may ask whether this one is there. */
static void pause_briefly(const cli *c)
{
    const struct timespec ms = {.tv_nsec = 1000000};
    if (c->comm)
        tess_comm_progress(c->comm);
    nanosleep(&ms, NULL);
}

/* Whether a signal has come for a rank that had not failed: its result is then that. */
static int interrupted(cli *c, ending *mine)
{
    if (mine->status != TESS_OK || !signals_caught())
        return 0;
    *mine = (ending){.status = TESS_ESTOPPED,
                     .code = EXIT_SIGNAL + signals_caught(),
                     .sentence = "interrupted by a signal"};
    world_fail(c, tess_error_set(TESS_ESTOPPED, mine->sentence));
    return 1;
}

/* ---- rank 0 ------------------------------------------------------------------------------ */

/* The rank in "rank 2: no space left", or -1; *rest is the text after it. */
static int notified_of(const char *sentence, const char **rest)
{
    int rank = -1, used = 0;
    *rest = sentence;
    if (sscanf(sentence, "rank %d: %n", &rank, &used) != 1 || used == 0)
        return -1;
    *rest = sentence + used;
    return rank;
}

/* The result of the command: of several exit codes of success, the largest. */
static ending decide(const ending *all, int n)
{
    int failed = -1, notified = -1;
    ending verdict = {0};
    for (int i = 0; i < n; i++) {
        const char *rest;
        const int stopped_along = all[i].status == TESS_ESTOPPED && all[i].code == EXIT_SIGNAL;
        if (all[i].status == TESS_OK) {
            verdict.code = all[i].code > verdict.code ? all[i].code : verdict.code;
        } else if (stopped_along || notified_of(all[i].sentence, &rest) >= 0) {
            notified = notified < 0 ? i : notified;
        } else if (failed < 0) {
            failed = i;
        }
    }
    if (failed < 0 && notified < 0)
        return verdict;
    verdict = all[failed >= 0 ? failed : notified];
    if (failed > 0)
        snprintf(verdict.sentence, sizeof verdict.sentence, "rank %d: %.*s", failed,
                 (int)sizeof verdict.sentence - 24, all[failed].sentence);
    return verdict;
}

/* Waits for the results of the others: without limit while no rank has failed. */
static void collect(cli *c, MPI_Request *requests, ending *all)
{
    const int n = c->ranks;
    int64_t deadline = all[0].status == TESS_OK ? 0 : tess_clock_ns() + 3 * second;
    for (int left = n - 1; left > 0;) {
        int at = MPI_UNDEFINED, came = 0;
        MPI_Testany(n - 1, requests, &at, &came, MPI_STATUS_IGNORE);
        if (came && at != MPI_UNDEFINED) {
            left--;
            if (all[at + 1].status != TESS_OK && !deadline)
                deadline = tess_clock_ns() + 3 * second;
            continue;
        }
        if (interrupted(c, &all[0]) && !deadline)
            deadline = tess_clock_ns() + 3 * second;
        if (deadline && tess_clock_ns() > deadline) {
            abandoned = 1;
            return;
        }
        pause_briefly(c);
    }
}

/* Sends the result to all ranks: without limit while the command has not failed. */
static void announce(cli *c, MPI_Request *requests, ending *verdict)
{
    static ending sent; /* MPI may still use it after the wait has ended */
    sent = *verdict;
    for (int i = 1; i < c->ranks; i++)
        MPI_Isend(&sent, sizeof sent, MPI_BYTE, i, TAG_VERDICT, endings, &requests[i - 1]);
    int64_t deadline = verdict->status == TESS_OK ? 0 : tess_clock_ns() + 3 * second;
    for (int left = c->ranks - 1; left > 0;) {
        int at = MPI_UNDEFINED, came = 0;
        MPI_Testany(c->ranks - 1, requests, &at, &came, MPI_STATUS_IGNORE);
        if (came && at != MPI_UNDEFINED) {
            left--;
            continue;
        }
        if (interrupted(c, verdict))
            deadline = tess_clock_ns() + 3 * second;
        if (deadline && tess_clock_ns() > deadline) {
            abandoned = 1;
            return;
        }
        pause_briefly(c);
    }
}

static ending lead(cli *c, const ending *mine)
{
    const int n = c->ranks;
    ending *all = calloc((size_t)n, sizeof *all);
    MPI_Request *requests = calloc((size_t)n, sizeof *requests);
    ending verdict = *mine;
    if (!all || !requests) {
        abandoned = 1;
    } else {
        all[0] = *mine;
        for (int i = 1; i < n; i++)
            MPI_Irecv(&all[i], sizeof all[i], MPI_BYTE, i, TAG_ENDING, endings, &requests[i - 1]);
        collect(c, requests, all);
        verdict = decide(all, n);
        if (!abandoned)
            announce(c, requests, &verdict);
    }
    /* If a rank did not respond, MPI may still write its result: the buffer stays. */
    if (!abandoned) {
        free(all);
        free(requests);
    }
    return verdict;
}

/* ---- other ranks ------------------------------------------------------------------------- */

/* How long a rank that failed waits. Of several, the first that gives up aborts the others. */
static int64_t patience(const cli *c, int notified)
{
    return (notified < 0 ? 5 : 7) * second + (c->rank < 20 ? c->rank : 20) * (second / 10);
}

static ending follow(cli *c, ending *mine)
{
    static ending sent, verdict; /* MPI may still use them after the wait has ended */
    MPI_Request requests[2];
    MPI_Status statuses[2];
    int done = 0;
    sent = verdict = *mine;
    MPI_Irecv(&verdict, sizeof verdict, MPI_BYTE, 0, TAG_VERDICT, endings, &requests[0]);
    MPI_Isend(&sent, sizeof sent, MPI_BYTE, 0, TAG_ENDING, endings, &requests[1]);
    const char *rest;
    int notified = notified_of(mine->sentence, &rest);
    int64_t deadline = mine->status == TESS_OK ? 0 : tess_clock_ns() + patience(c, notified);
    for (;;) {
        MPI_Testall(2, requests, &done, statuses);
        if (done)
            return verdict;
        if (interrupted(c, mine)) {
            notified = notified_of(mine->sentence, &rest);
            deadline = tess_clock_ns() + patience(c, notified);
        }
        if (deadline && tess_clock_ns() > deadline)
            break;
        pause_briefly(c);
    }
    char text[CLI_SENTENCE_MAX + 32];
    snprintf(text, sizeof text, "rank %d: %s", notified < 0 ? c->rank : notified, rest);
    out_error(c, text);
    abandoned = 1;
    return *mine;
}

tess_status world_end(cli *c, tess_status status)
{
    if (endings == MPI_COMM_NULL || c->ranks < 2)
        return status;
    ending mine = {.status = status, .code = c->code, .usage = c->usage};
    if (status != TESS_OK)
        snprintf(mine.sentence, sizeof mine.sentence, "%s",
                 c->sentence[0] ? c->sentence : tess_last_error());
    const ending verdict = c->rank == 0 ? lead(c, &mine) : follow(c, &mine);
    c->code = verdict.code;
    c->usage = verdict.usage;
    if (verdict.status != TESS_OK)
        snprintf(c->sentence, sizeof c->sentence, "%s", verdict.sentence);
    return (tess_status)verdict.status;
}

static void leave(int number)
{
    (void)number;
    _exit(late_code);
}

void end_close(tess_status status, int code)
{
    if (abandoned) {
        MPI_Abort(MPI_COMM_WORLD, code ? code : EXIT_FAILED);
        _exit(code ? code : EXIT_FAILED);
    }
    if (status != TESS_OK) {
        late_code = code;
        signal(SIGALRM, leave);
        alarm(2);
    }
    if (endings != MPI_COMM_NULL)
        MPI_Comm_free(&endings);
}

#else

tess_status world_end(cli *c, tess_status status)
{
    (void)c;
    return status;
}

#endif
