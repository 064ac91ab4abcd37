/* SPDX-License-Identifier: Apache-2.0 */
/* train_together.c - ranks of one node traced at the same time, each in a process of its own.
 *
 * A rank that is traced alone has the last-level cache and the memory bus to itself, and computes
 * some percent faster than it would beside the other ranks of its node. So `--trace-rank all`
 * starts as many processes at once as `--trace-together` says, each of which traces one rank:
 *
 *   parent    fork, exec --trace-rank 0 ...    all ready: opens the gate     reads the results
 *   rank 0    step 1 .................. ready | waits | step 2, recorded
 *   rank 1    step 1 .......... ready | waits ....... | step 2, recorded
 *
 * Nothing is sent between ranks: each has its own trace recorder. A process says on one pipe that
 * its first step is done, and waits on another until its parent closes that one. TESS_TRACE_GATE
 * has both descriptors and the number of processes. A process prints JSON; of one that fails the
 * sentence is the parent's.
 */
#define _GNU_SOURCE /* pipe2 */
#include "train_together.h"

#include "tessera/advanced/machine.h"
#include "tessera/cluster.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static const char gate_name[] = "TESS_TRACE_GATE";

enum { REPLY_MAX = 1 << 16, WORDS_ADDED = 9 };

typedef struct {
    int rank, out; /* out: its standard output; -1: closed */
    pid_t pid;     /* 0: none */
    int code;      /* of its exit */
    char *reply;   /* what it printed, REPLY_MAX bytes */
    size_t bytes;
} player;

typedef struct {
    cli *c;
    const train_values *v;
    int threads;
    int ready[2], open[2]; /* pipes: the read end, the write end */
    int n, n_ready;
    player players[TRAIN_TOGETHER_MAX];
} stage;

/* ---- in a process of one rank ---------------------------------------------------------------- */

static int read_gate(int *ready, int *open)
{
    int n;
    const char *text = getenv(gate_name);
    return text && sscanf(text, "%d,%d,%d", ready, open, &n) == 3 && n > 1 ? n : 1;
}

int train_together_ranks(void)
{
    int ready, open;
    return read_gate(&ready, &open);
}

void train_together_wait(void)
{
    int ready, open;
    char byte = 0;
    if (read_gate(&ready, &open) == 1)
        return;
    /* A parent that is gone has closed both pipes: the wait ends as well. */
    if (write(ready, &byte, 1) == 1)
        while (read(open, &byte, 1) < 0 && errno == EINTR)
            ;
}

/* ---- how many at once ------------------------------------------------------------------------ */

/* Ranks of a node: those of the cluster, or all. */
static tess_status ranks_of_node(cli *c, const train_values *v, int *ranks)
{
    tess_cluster *cluster = NULL;
    tess_cluster_info info;
    *ranks = (int)v->trace_ranks;
    if (!v->opts.cluster)
        return TESS_OK;
    TRY(out_option(c, "--cluster", tess_cluster_load(c->ctx, v->opts.cluster, &cluster)));
    const tess_status status = tess_cluster_query(cluster, &info);
    if (status == TESS_OK && info.node_gpus < *ranks)
        *ranks = info.node_gpus;
    tess_cluster_destroy(cluster);
    return status;
}

tess_status train_together_plan(cli *c, const train_values *v, train_together *plan)
{
    tess_machine machine;
    int node;
    TRY(tess_machine_query(c->ctx, &machine));
    TRY(ranks_of_node(c, v, &node));
    const int each = c->common->threads > 0 ? (int)c->common->threads : 1;
    const int room = machine.cores_usable / each, most = node < room ? node : room;
    const int at_once = v->trace_together > 0 ? (int)v->trace_together : most > 1 ? most : 1;
    if (at_once > node)
        return out_usage(c, "--trace-together is %d, must be 1..%d, the ranks of a node", at_once,
                         node);
    if (at_once > 1 && at_once > room)
        return out_usage(c,
                         "--trace-together is %d with %d thread%s each, must be 1..%d: %d core%s "
                         "can be used",
                         at_once, each, out_plural(each), room > 1 ? room : 1, machine.cores_usable,
                         out_plural(machine.cores_usable));
    *plan = (train_together){
        .at_once = at_once < TRAIN_TOGETHER_MAX ? at_once : TRAIN_TOGETHER_MAX,
        .node = node,
        .threads = c->common->threads > 0 ? each : machine.cores_usable / at_once,
    };
    return TESS_OK;
}

/* ---- processes ------------------------------------------------------------------------------- */

/* The command line of one rank: later options win. To be freed; NULL: no memory. */
static char **words_of(const cli *c, const char *rank, const char *path, const char *threads)
{
    char **words = calloc((size_t)c->argc + 2 + WORDS_ADDED, sizeof *words);
    int n = 0;
    if (!words)
        return NULL;
    words[n++] = (char *)"tessera";
    words[n++] = (char *)c->cmd->name;
    for (int i = 0; i < c->argc && strcmp(c->argv[i], "--") != 0; i++)
        words[n++] = c->argv[i];
    const char *const added[] = {"--trace-rank", rank, "--trace-out", path, "--threads",
                                 threads,        "-q", "--json",      NULL};
    for (int i = 0; added[i]; i++)
        words[n++] = (char *)added[i];
    return words;
}

/* In the child: signal-safe calls only. */
static void become(const stage *s, const char *program, char *const *words, int out)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setpgid(0, 0); /* Ctrl-C reaches the parent alone, which passes it on */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    const int nothing = open("/dev/null", O_RDWR);
    if (nothing < 0 || dup2(nothing, 0) < 0 || dup2(out, 1) < 0 || dup2(nothing, 2) < 0 ||
        fcntl(s->ready[1], F_SETFD, 0) < 0 || fcntl(s->open[0], F_SETFD, 0) < 0)
        _exit(127);
    execv(program, words);
    _exit(127);
}

static tess_status start(stage *s, player *p, int rank)
{
    char path[4096], program[4096], number[16], threads[16];
    int out[2] = {-1, -1};
    const ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    program[n > 0 ? n : 0] = 0;
    train_trace_path(s->v, rank, path, sizeof path);
    snprintf(number, sizeof number, "%d", rank);
    snprintf(threads, sizeof threads, "%d", s->threads);
    *p = (player){.rank = rank, .out = -1};
    char **words = words_of(s->c, number, path, threads);
    p->reply = malloc(REPLY_MAX);
    if (words && p->reply && pipe2(out, O_CLOEXEC) == 0) {
        p->out = out[0];
        p->pid = fork();
        if (p->pid == 0)
            become(s, program, words, out[1]);
    }
    const int why = errno;
    if (out[1] >= 0)
        close(out[1]);
    free(words);
    if (p->pid > 0)
        return TESS_OK;
    p->pid = 0;
    return out_fail(s->c, TESS_EIO, "cannot start the process of rank %d: %s", rank, strerror(why));
}

static void open_gate(stage *s)
{
    if (s->open[1] >= 0)
        close(s->open[1]);
    s->open[1] = -1;
}

/* Ends all that still run; a process that waits at the gate sees the signal behind it. */
static void stop_all(stage *s)
{
    for (int i = 0; i < s->n; i++)
        if (s->players[i].pid > 0)
            kill(s->players[i].pid, SIGTERM);
    open_gate(s);
}

/* What it printed; at the end of that its exit. */
static void listen(stage *s, player *p)
{
    char rest[256];
    const size_t room = REPLY_MAX - 1 - p->bytes;
    const ssize_t n =
        room ? read(p->out, p->reply + p->bytes, room) : read(p->out, rest, sizeof rest);
    if (n > 0) {
        p->bytes += room ? (size_t)n : 0;
        return;
    }
    int status = 0;
    close(p->out);
    p->out = -1;
    while (waitpid(p->pid, &status, 0) < 0 && errno == EINTR)
        ;
    p->pid = 0;
    p->reply[p->bytes] = 0;
    p->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (p->code != 0)
        stop_all(s);
}

/* Until all have ended. */
static void watch(stage *s)
{
    int stopped = 0;
    for (int left = s->n; left > 0;) {
        struct pollfd fds[TRAIN_TOGETHER_MAX + 1];
        fds[s->n] = (struct pollfd){.fd = s->open[1] >= 0 ? s->ready[0] : -1, .events = POLLIN};
        for (int i = 0; i < s->n; i++)
            fds[i] = (struct pollfd){.fd = s->players[i].out, .events = POLLIN};
        poll(fds, (nfds_t)s->n + 1, 100);
        if (signals_caught() && !stopped) {
            stopped = 1;
            stop_all(s);
        }
        char bytes[TRAIN_TOGETHER_MAX];
        if (fds[s->n].revents & POLLIN) {
            const ssize_t n = read(s->ready[0], bytes, sizeof bytes);
            s->n_ready += n > 0 ? (int)n : 0;
        }
        left = 0;
        for (int i = 0; i < s->n; i++) {
            if (fds[i].revents && s->players[i].out >= 0)
                listen(s, &s->players[i]);
            left += s->players[i].out >= 0;
        }
        if (s->n_ready == s->n)
            open_gate(s);
    }
}

/* ---- results --------------------------------------------------------------------------------- */

static tess_status status_of(const char *name)
{
    for (int s = TESS_ESTOPPED; s < TESS_OK; s++)
        if (name && strcmp(tess_status_name((tess_status)s), name) == 0)
            return (tess_status)s;
    return TESS_EIO;
}

/* A process that failed: its own sentence, if it had one. */
static tess_status fail(cli *c, const player *p)
{
    json_t *root = json_loads(p->reply, 0, NULL);
    const json_t *error = json_object_get(root, "error");
    const char *sentence = json_string_value(json_object_get(error, "message"));
    tess_status status = status_of(json_string_value(json_object_get(error, "status")));
    c->code = p->code <= 128 ? p->code : EXIT_FAILED;
    if (sentence)
        status = out_fail(c, status, "%s", sentence);
    else if (p->code > 128)
        status = out_fail(c, TESS_EIO, "the process of rank %d was ended by signal %d%s", p->rank,
                          p->code - 128,
                          p->code - 128 == SIGKILL ? ", as for lack of memory: --trace-together 1 "
                                                     "needs less"
                                                   : "");
    else
        status = out_fail(c, TESS_EIO, "the process of rank %d exited with %d", p->rank, p->code);
    json_decref(root);
    return status;
}

static tess_status show(stage *s, const player *p)
{
    char path[4096];
    json_t *root = json_loads(p->reply, 0, NULL);
    const json_t *ms = json_object_get(root, "step_ms");
    const tess_status status =
        json_is_number(ms)
            ? TESS_OK
            : out_fail(s->c, TESS_EIO, "the process of rank %d printed no step", p->rank);
    train_trace_path(s->v, p->rank, path, sizeof path);
    if (status == TESS_OK)
        train_trace_show(s->c, s->v, &(train_traced){path, p->rank, s->n, json_number_value(ms)});
    json_decref(root);
    return status;
}

/* The first that failed by itself explains why; those that it took with it were stopped. */
static tess_status results(stage *s)
{
    const player *failed = NULL;
    if (signals_caught()) {
        s->c->code = EXIT_SIGNAL + signals_caught();
        return out_fail(s->c, TESS_ESTOPPED, "interrupted by a signal");
    }
    for (int i = 0; i < s->n; i++) {
        const player *p = &s->players[i];
        if (p->code != 0 && (!failed || failed->code == EXIT_SIGNAL + SIGTERM))
            failed = p;
    }
    if (failed)
        return fail(s->c, failed);
    for (int i = 0; i < s->n; i++)
        TRY(show(s, &s->players[i]));
    return TESS_OK;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void close_stage(stage *s)
{
    const int ends[] = {s->ready[0], s->ready[1], s->open[0], s->open[1]};
    for (int i = 0; i < 4; i++)
        if (ends[i] >= 0)
            close(ends[i]);
    for (int i = 0; i < s->n; i++)
        free(s->players[i].reply);
    free(s);
}

static tess_status play(stage *s, int first, int n)
{
    char text[64];
    if (pipe2(s->ready, O_CLOEXEC) != 0 || pipe2(s->open, O_CLOEXEC) != 0)
        return out_fail(s->c, TESS_EIO, "cannot make a pipe: %s", strerror(errno));
    snprintf(text, sizeof text, "%d,%d,%d", s->ready[1], s->open[0], n);
    if (setenv(gate_name, text, 1) != 0)
        return out_fail(s->c, TESS_ENOMEM, "no memory for a variable");
    tess_status status = TESS_OK;
    for (int i = 0; i < n && status == TESS_OK; i++)
        status = start(s, &s->players[s->n++], first + i);
    unsetenv(gate_name);
    if (status != TESS_OK)
        stop_all(s);
    watch(s);
    TRY(status);
    return results(s);
}

tess_status train_together_run(cli *c, const train_values *v, const train_together *plan, int first,
                               int n)
{
    stage *s = malloc(sizeof *s);
    if (!s)
        return out_fail(c, TESS_ENOMEM, "no memory for %d processes", n);
    *s = (stage){.c = c, .v = v, .threads = plan->threads, .ready = {-1, -1}, .open = {-1, -1}};
    const tess_status status = play(s, first, n);
    close_stage(s);
    return status;
}
