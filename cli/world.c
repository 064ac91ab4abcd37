/* SPDX-License-Identifier: Apache-2.0 */
/* world.c - the ranks a launcher started: MPI_Init_thread and MPI_Finalize are called here.
 *
 * MPI is initialised only under a launcher, because it costs more than most commands. Where it
 * finds fewer ranks than the launcher started, each process has an MPI_COMM_WORLD of its own and
 * would do the whole job: a command that runs on every rank refuses, with one message; the result
 * of any other one is still printed once, by the process that the launcher calls rank 0.
 */
#include "world.h"

#include "tessera/advanced/collectives.h"

#include <stdlib.h>
#include <string.h>

/* A failure that names the launcher, what MPI found and the remedy. */
static tess_status refuse(cli *c, const launcher *l, const char *found, const char *advice)
{
    char processes[32] = "an unknown number of processes";
    if (l->ranks > 0)
        snprintf(processes, sizeof processes, "%d processes", l->ranks);
    c->rank = l->rank;
    return out_fail(c, TESS_EINVAL, "%s started %s, but %s; %s", l->name, processes, found, advice);
}

/* ---- agreement --------------------------------------------------------------------------- */

/* The sentence of a failure. The library's last one is older where the command itself or a signal
 * decided. */
static const char *why(const cli *c, tess_status status)
{
    if (c->sentence[0])
        return c->sentence;
    return status == TESS_ESTOPPED && signals_caught() ? "interrupted by a signal"
                                                       : tess_last_error();
}

tess_status world_agree(cli *c, tess_comm *comm, tess_status status)
{
    struct {
        tess_status status;
        char sentence[CLI_SENTENCE_MAX];
    } failure = {.status = status};
    tess_comm_info info;
    if (!comm)
        return status;
    if (status != TESS_OK) {
        snprintf(failure.sentence, sizeof failure.sentence, "%s", why(c, status));
        out_fail(c, status, "%s",
                 failure.sentence); /* the calls below may overwrite the library's */
    }
    TRY(tess_comm_query(comm, &info));
    int64_t failed = status == TESS_OK ? 0 : info.size - info.rank;
    tess_status sent = tess_comm_allreduce(comm, TESS_TRAFFIC_CONTROL, &failed, 1, TESS_DTYPE_I64,
                                           TESS_REDUCE_MAX);
    const int first = info.size - (int)failed;
    if (sent == TESS_OK && failed) {
        sent = tess_comm_broadcast(comm, TESS_TRAFFIC_CONTROL, first, &failure, sizeof failure);
        /* A rank that returns may destroy the communicator: not before all have the sentence. */
        tess_comm_allreduce(comm, TESS_TRAFFIC_CONTROL, &failed, 1, TESS_DTYPE_I64,
                            TESS_REDUCE_MAX);
    }
    TRY(status);
    TRY(sent);
    return failed ? out_fail(c, failure.status, "rank %d: %.*s", first, CLI_SENTENCE_MAX - 24,
                             failure.sentence)
                  : TESS_OK;
}

/* ---- open and close ---------------------------------------------------------------------- */

#ifdef CLI_MPI
#include "tessera/mpi.h"

void world_mpi(char *text, size_t bytes)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_Get_library_version(version, &length);
    version[strcspn(version, ",\n")] = 0;
    for (char *at = version; *at; at++)
        if (*at == '\t')
            *at = ' ';
    snprintf(text, bytes, "%.*s", (int)bytes - 1, version);
}

static tess_status alone(cli *c, const launcher *l, int size)
{
    char library[64], found[160];
    c->ranks = size;
    if (!c->cmd || !c->cmd->everywhere)
        return TESS_OK;
    world_mpi(library, sizeof library);
    snprintf(found, sizeof found, "MPI (%.60s) finds %d: each would do the whole job", library,
             size);
    return refuse(c, l, found,
                  l->ranks == 0
                      ? "start with the mpirun of that MPI, and one rank without a launcher"
                      : "start with the mpirun of that MPI, or under Slurm with srun --mpi=pmix or "
                        "--mpi=pmi2, whichever srun --mpi=list has and that MPI was built for");
}

/* The failure of a rank, as it is sent to the others. */
typedef struct {
    int status;
    char sentence[CLI_SENTENCE_MAX];
} failure_message;

/* Collective, if a rank failed: the others get the sentence of the lowest one that did. */
static tess_status broadcast_failure(cli *c, tess_status so_far, int first)
{
    failure_message f = {.status = (int)so_far};
    snprintf(f.sentence, sizeof f.sentence, "%s", c->sentence[0] ? c->sentence : tess_last_error());
    MPI_Bcast(&f, sizeof f, MPI_BYTE, first, MPI_COMM_WORLD);
    return so_far != TESS_OK ? so_far
                             : out_fail(c, (tess_status)f.status, "rank %d: %.*s", first,
                                        CLI_SENTENCE_MAX - 24, f.sentence);
}

static const char *level_name(int level)
{
    return level == MPI_THREAD_SINGLE       ? "MPI_THREAD_SINGLE"
           : level == MPI_THREAD_FUNNELED   ? "MPI_THREAD_FUNNELED"
           : level == MPI_THREAD_SERIALIZED ? "MPI_THREAD_SERIALIZED"
                                            : "MPI_THREAD_MULTIPLE";
}

/* Ranks of one build compute the same way and send the messages that the others expect. */
static tess_status same_build(cli *c)
{
    uint64_t mine = build_fingerprint(), *all = calloc((size_t)c->ranks, sizeof *all);
    int missing = !all, anyone = 0, other = 0;
    MPI_Allreduce(&missing, &anyone, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (!anyone) {
        MPI_Allgather(&mine, 1, MPI_UINT64_T, all, 1, MPI_UINT64_T, MPI_COMM_WORLD);
        for (int i = c->ranks - 1; i > 0; i--)
            other = all[i] != all[0] ? i : other;
    }
    free(all);
    if (anyone)
        return out_fail(c, TESS_ENOMEM, "a rank has no memory for %d numbers", c->ranks);
    return other ? out_fail(c, TESS_EINVAL,
                            "rank %d has another build of tessera than rank 0; install the same "
                            "one on all hosts",
                            other)
                 : TESS_OK;
}

/* The command of a rank and the folder or file that it writes, as they are compared. */
typedef struct {
    char name[32], out[1024];
} rank_command;

static void describe_command(const cli *c, rank_command *r)
{
    *r = (rank_command){0};
    snprintf(r->name, sizeof r->name, "%s", c->cmd ? c->cmd->name : "");
    for (int i = 0; c->cmd && i < c->cmd->n_options; i++) {
        const opt *o = &c->cmd->options[i];
        const char *path = o->type == OPT_PATH && strncmp(o->name, "out", 3) == 0
                               ? *(const char *const *)((const char *)c->common + o->offset)
                               : NULL;
        if (path)
            snprintf(r->out, sizeof r->out, "--%s %s", o->name, path);
    }
}

/* Collective: all ranks run the same command, and write to the same place. */
static tess_status same_command(cli *c)
{
    rank_command mine, first, other;
    describe_command(c, &mine);
    first = mine;
    MPI_Bcast(&first, sizeof first, MPI_BYTE, 0, MPI_COMM_WORLD);
    int differs = memcmp(&first, &mine, sizeof mine) == 0 ? c->ranks : c->rank;
    MPI_Allreduce(MPI_IN_PLACE, &differs, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (differs == c->ranks)
        return TESS_OK;
    other = mine;
    MPI_Bcast(&other, sizeof other, MPI_BYTE, differs, MPI_COMM_WORLD);
    return out_fail(c, TESS_EINVAL,
                    "rank %d runs tessera %s %.300s, rank 0 tessera %s %.300s: start the same "
                    "command on all ranks",
                    differs, other.name, other.out, first.name, first.out);
}

/* A tess_silent_fn. */
static void report_silent(void *user, int rank, int64_t silent_ns)
{
    cli *c = user;
    char text[160];
    const int64_t limit = c->common->rank_timeout;
    if (c->common->quiet)
        return;
    int used = snprintf(text, sizeof text,
                        "warning: rank %d has not answered for %lld s: its process is stopped, or "
                        "computes for long",
                        rank, (long long)(silent_ns / 1000000000));
    if (limit)
        snprintf(text + used, sizeof text - (size_t)used, "; --rank-timeout is %lld s",
                 (long long)limit);
    progress_clear(c);
    out_error(c, text);
}

static _Thread_local int calls_mpi; /* 1 on the one thread that may */

tess_status world_open(cli *c, tess_status so_far)
{
    launcher l;
    int level, rank, size, first;
    const int everywhere = c->cmd && c->cmd->everywhere;
    if (!launcher_find(&l) || (!l.wired && !everywhere))
        return so_far;
    /* MPI's errors are fatal until there is a communicator of ours. One thread alone calls it. */
    MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
    calls_mpi = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (l.ranks > 0 ? size != l.ranks : size == 1)
        return so_far == TESS_OK ? alone(c, &l, size) : so_far;
    c->rank = rank;
    c->ranks = size;
    end_open();
    if (so_far == TESS_OK && level < MPI_THREAD_FUNNELED)
        so_far = out_fail(c, TESS_ENOTSUP,
                          "MPI offers %s, must offer MPI_THREAD_FUNNELED or more: ranks compute "
                          "with threads of their own",
                          level_name(level));
    first = so_far == TESS_OK ? size : rank;
    MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (first < size)
        return broadcast_failure(c, so_far, first);
    TRY(same_command(c));
    TRY(tess_comm_from_mpi(c->ctx, MPI_COMM_WORLD, &c->comm));
    const int64_t limit = c->common->rank_timeout * 1000000000;
    const tess_comm_watch_opts watch = {
        .report_ns = limit < 60000000000 ? limit / 2 : 0, limit, report_silent, c};
    TRY(tess_comm_watch(c->comm, &watch));
    return everywhere ? same_build(c) : TESS_OK;
}

void world_fail(cli *c, tess_status status)
{
    if (c->comm)
        tess_comm_fail(c->comm, status);
}

int world_failed(cli *c)
{
    if (!c->comm || !calls_mpi)
        return 0;
    const tess_status status = tess_comm_progress(c->comm);
    if (status != TESS_OK && !c->sentence[0])
        out_fail(c, status, "%s", tess_last_error());
    return status != TESS_OK;
}

void world_close(cli *c, tess_status status, int code)
{
    int initialised = 0;
    MPI_Initialized(&initialised);
    if (!initialised)
        return;
    end_close(status, code);
    tess_comm_destroy(c->comm);
    c->comm = NULL;
    MPI_Finalize();
}

#else

void world_mpi(char *text, size_t bytes)
{
    snprintf(text, bytes, "none");
}

tess_status world_open(cli *c, tess_status so_far)
{
    launcher l;
    if (so_far != TESS_OK || !c->cmd || !c->cmd->everywhere || !launcher_find(&l) || l.ranks == 1)
        return so_far;
    return refuse(c, &l, "this build has no MPI: each would do the whole job",
                  "start it without a launcher, or rebuild with TESS_MPI=ON and an MPI that CMake "
                  "finds");
}

void world_fail(cli *c, tess_status status)
{
    (void)c;
    (void)status;
}

int world_failed(cli *c)
{
    (void)c;
    return 0;
}

void world_close(cli *c, tess_status status, int code)
{
    (void)c;
    (void)status;
    (void)code;
}

#endif
