/* SPDX-License-Identifier: Apache-2.0 */
/* comm_mpi.c - a communicator over MPI: the only file that includes <mpi.h>.
 *
 * Messages are non-blocking sends and receives of bytes, cut into chunks: the next chunk of a
 * message starts when the one before it is done. The tag is the message's number between its two
 * ranks, so that chunks of several open requests keep apart.
 *
 * Waiting is polling. A rank that fails sends a notice to every other one on a communicator of its
 * own, which everyone who waits looks at too, between yields of the processor: nobody waits inside
 * MPI for somebody who has failed.
 */
#include "dist.h"
#include "tessera/mpi.h"

#include <sched.h>
#include <string.h>

enum {
    CHUNK = 1 << 26, /* bytes; MPI counts with an int */
    TAGS = 1 << 15,  /* tags that every MPI has */
    EAGER = 2048,    /* bytes that every MPI sends without asking */
    SPINS = 200,     /* looks before the processor is yielded: some 50 us */
    TAG_NOTICE = 0,
    TAG_QUIET = 1,
};

static const int64_t PATIENCE_NS = 2000000000; /* for messages that are given up */

typedef struct {
    int32_t status, rank;
    char sentence[TESS_SENTENCE_MAX];
} notice;

/* What all parts of a communicator share; it belongs to the whole. */
typedef struct {
    MPI_Comm notices;
    int rank, size;
    struct comm_mpi *comms; /* all of this rank */
    int failed;
    notice failure; /* as it came in, or as it goes out to everyone */
    char quiet[];   /* (size) 1: expects no more messages */
} world_mpi;

typedef struct {
    MPI_Request handle;
    int64_t begun;  /* bytes of the message that are under way or done */
    int chunk, got; /* bytes of the last chunk, and how many came */
    int code;       /* MPI's last answer */
} flight;

typedef struct comm_mpi {
    tess_comm comm;
    MPI_Comm mpi;
    world_mpi *world;
    int whole; /* owns the world */
    struct comm_mpi *next;
    flight *flights; /* flight i is that of message i */
    int *places;     /* (size) ranks of the world */
} comm_mpi;

static tess_status mpi_error(const char *what, int code)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    return tess__fail(TESS_EIO, "%s failed: %s", what, text);
}

/* ---- messages ----------------------------------------------------------------------------------
 */

static flight *flight_of(const comm_mpi *self, const tess__message *m)
{
    return &self->flights[m - self->comm.messages];
}

/* An error ends the message; judge tells it. */
static void start_chunk(const comm_mpi *self, tess__message *m, int sends)
{
    flight *f = flight_of(self, m);
    const int tag = (int)(m->number % TAGS);
    char *data = m->data + f->begun;
    f->chunk = f->got = m->bytes - f->begun < CHUNK ? (int)(m->bytes - f->begun) : CHUNK;
    f->begun += f->chunk;
    f->code = sends ? MPI_Isend(data, f->chunk, MPI_BYTE, m->peer, tag, self->mpi, &f->handle)
                    : MPI_Irecv(data, f->chunk, MPI_BYTE, m->peer, tag, self->mpi, &f->handle);
    m->done = f->code != MPI_SUCCESS;
}

static tess_status judge(const comm_mpi *self, const tess__message *m)
{
    const flight *f = flight_of(self, m);
    int kind = MPI_SUCCESS;
    if (f->code != MPI_SUCCESS)
        MPI_Error_class(f->code, &kind);
    if (kind == MPI_ERR_TRUNCATE)
        return tess__fail(TESS_EINVAL, "rank %d sent more bytes than the %lld that rank %d expects",
                          m->peer, (long long)m->bytes, self->comm.rank);
    if (f->code != MPI_SUCCESS)
        return mpi_error("a message", f->code);
    if (f->got != f->chunk)
        return tess__fail(TESS_EINVAL, "rank %d sent %lld bytes where rank %d expects %lld",
                          m->peer, (long long)(f->begun - f->chunk + f->got), self->comm.rank,
                          (long long)m->bytes);
    return TESS_OK;
}

static tess_status mpi_send(tess_comm *comm, tess__message *m)
{
    const comm_mpi *self = (const comm_mpi *)comm;
    *flight_of(self, m) = (flight){.handle = MPI_REQUEST_NULL};
    start_chunk(self, m, 1);
    return judge(self, m);
}

static tess_status mpi_receive(tess_comm *comm, tess__message *m)
{
    const comm_mpi *self = (const comm_mpi *)comm;
    *flight_of(self, m) = (flight){.handle = MPI_REQUEST_NULL};
    start_chunk(self, m, 0);
    return judge(self, m);
}

/* Message i of a request, the receives first. */
static tess__message *message_of(tess_request *r, int i)
{
    return i < r->n_receives ? &r->receives[i] : &r->sends[i - r->n_receives];
}

static void push(const comm_mpi *self, tess__message *m, int sends)
{
    flight *f = flight_of(self, m);
    MPI_Status seen;
    int arrived = 0;
    f->code = MPI_Test(&f->handle, &arrived, &seen);
    if (f->code == MPI_SUCCESS && !arrived)
        return;
    if (f->code == MPI_SUCCESS && !sends)
        MPI_Get_count(&seen, MPI_BYTE, &f->got);
    m->done = 1;
    if (f->code == MPI_SUCCESS && f->got == f->chunk && f->begun < m->bytes)
        start_chunk(self, m, sends);
}

/* Moves a request on; returns how many of its messages are not done. */
static int push_request(const comm_mpi *self, tess_request *r)
{
    int open = 0;
    for (int i = 0; i < r->n_receives + r->n_sends; i++) {
        tess__message *m = message_of(r, i);
        if (!m->done)
            push(self, m, i >= r->n_receives);
        open += !m->done;
    }
    return open;
}

/* Chunks of all requests move: whoever waits for them may be waited for. */
static void push_all(const world_mpi *world)
{
    for (comm_mpi *c = world->comms; c; c = c->next)
        for (int i = 0; i < TESS_COMM_OPEN; i++)
            if (c->comm.requests[i].open)
                push_request(c, &c->comm.requests[i]);
}

/* ---- failure -----------------------------------------------------------------------------------
 */

/* Every rank hears that this one expects no more messages. */
static void tell_quiet(const world_mpi *world)
{
    for (int p = 0; p < world->size; p++) {
        MPI_Request handle = MPI_REQUEST_NULL;
        if (p != world->rank &&
            MPI_Isend(NULL, 0, MPI_BYTE, p, TAG_QUIET, world->notices, &handle) == MPI_SUCCESS)
            MPI_Request_free(&handle);
    }
}

static void hear_quiet(world_mpi *world)
{
    MPI_Status seen;
    int there = 0;
    while (MPI_Iprobe(MPI_ANY_SOURCE, TAG_QUIET, world->notices, &there, &seen) == MPI_SUCCESS &&
           there) {
        MPI_Recv(NULL, 0, MPI_BYTE, seen.MPI_SOURCE, TAG_QUIET, world->notices, MPI_STATUS_IGNORE);
        world->quiet[seen.MPI_SOURCE] = 1;
    }
}

/* Looks once at every message that still moves, after having taken receives back if asked to.
 * Returns how many of them touch the caller's memory yet. */
static int settle(const world_mpi *world, int cancel, int *receives)
{
    int moving = 0;
    *receives = 0;
    for (comm_mpi *c = world->comms; c; c = c->next)
        for (int i = 0; i < TESS_COMM_OPEN; i++) {
            tess_request *r = &c->comm.requests[i];
            for (int j = 0; r->open && j < r->n_receives + r->n_sends; j++) {
                tess__message *m = message_of(r, j);
                MPI_Request *handle = &flight_of(c, m)->handle;
                const int sends = j >= r->n_receives;
                int arrived = 0;
                if (m->done)
                    continue;
                if (cancel && !sends)
                    MPI_Cancel(handle);
                m->done = MPI_Test(handle, &arrived, MPI_STATUS_IGNORE) != MPI_SUCCESS || arrived;
                *receives += !m->done && !sends;
                moving += !m->done && !(sends && world->quiet[c->places[m->peer]]);
            }
        }
    return moving;
}

/* Forgets what still moves on a communicator. */
static void abandon(comm_mpi *self)
{
    for (int i = 0; i < TESS_COMM_OPEN; i++) {
        tess_request *r = &self->comm.requests[i];
        for (int j = 0; r->open && j < r->n_receives + r->n_sends; j++) {
            flight *f = flight_of(self, message_of(r, j));
            if (!message_of(r, j)->done && f->handle != MPI_REQUEST_NULL)
                MPI_Request_free(&f->handle);
            message_of(r, j)->done = 1;
        }
    }
}

/* Ends what still moves, so that all buffers are the caller's. A receive that nobody has begun to
 * send can be taken back, one that has begun comes to its end; then the rank says that it is quiet.
 * A send cannot be taken back: nobody reads it any more once it is done or its receiver is quiet.
 * A receiver that computes for long does not answer, so patience has an end. */
static void give_up(world_mpi *world)
{
    const int64_t until = tess_clock_ns() + PATIENCE_NS;
    int receives, told = 0;
    int moving = settle(world, 1, &receives);
    while (tess_clock_ns() < until) {
        if (!told && receives == 0) {
            tell_quiet(world);
            told = 1;
        }
        if (moving == 0)
            break;
        sched_yield();
        hear_quiet(world);
        moving = settle(world, 0, &receives);
    }
    if (!told)
        tell_quiet(world);
    for (comm_mpi *c = world->comms; c; c = c->next)
        abandon(c);
}

static tess_status told(const world_mpi *world)
{
    return tess__fail(world->failure.status, "rank %d: %s", world->failure.rank,
                      world->failure.sentence);
}

/* Has another rank failed? */
static tess_status ask(world_mpi *world)
{
    MPI_Status seen;
    int there = 0;
    if (world->failed)
        return told(world);
    if (MPI_Iprobe(MPI_ANY_SOURCE, TAG_NOTICE, world->notices, &there, &seen) != MPI_SUCCESS ||
        !there)
        return TESS_OK;
    const int code = MPI_Recv(&world->failure, sizeof world->failure, MPI_BYTE, seen.MPI_SOURCE,
                              TAG_NOTICE, world->notices, MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS)
        return mpi_error("MPI_Recv", code);
    world->failed = 1;
    give_up(world);
    return told(world);
}

static void mpi_fail(tess_comm *comm, tess_status status, const char *sentence)
{
    world_mpi *world = ((const comm_mpi *)comm)->world;
    if (world->failed)
        return; /* everyone hears, or has heard, of the other failure */
    world->failed = 1;
    world->failure = (notice){.status = status, .rank = world->rank};
    snprintf(world->failure.sentence, sizeof world->failure.sentence, "%s", sentence);
    for (int p = 0; p < world->size; p++) {
        MPI_Request handle = MPI_REQUEST_NULL;
        /* So short that MPI takes a copy; the buffer lives as long as the world anyway. */
        if (p != world->rank && MPI_Isend(&world->failure, sizeof world->failure, MPI_BYTE, p,
                                          TAG_NOTICE, world->notices, &handle) == MPI_SUCCESS)
            MPI_Request_free(&handle);
    }
    give_up(world);
}

/* ---- waiting -----------------------------------------------------------------------------------
 */

static tess_status mpi_progress(tess_comm *comm)
{
    world_mpi *world = ((const comm_mpi *)comm)->world;
    TESS_TRY(ask(world));
    push_all(world);
    return TESS_OK;
}

static tess_status mpi_finish(tess_comm *comm, tess_request *request)
{
    const comm_mpi *self = (const comm_mpi *)comm;
    for (int polls = 0; push_request(self, request) > 0; polls++) {
        TESS_TRY(ask(self->world));
        push_all(self->world);
        if (polls >= SPINS)
            sched_yield();
    }
    for (int i = 0; i < request->n_receives + request->n_sends; i++)
        TESS_TRY(judge(self, message_of(request, i)));
    return TESS_OK;
}

static int64_t mpi_clock(const tess_comm *comm)
{
    (void)comm;
    return tess_clock_ns();
}

static int64_t mpi_fresh(tess_comm *comm)
{
    (void)comm;
    return 0; /* MPI tells communicators apart */
}

/* ---- life --------------------------------------------------------------------------------------
 */

/* After a failure: what has come for nobody. Some MPIs complain about it at their end. Messages
 * that do not lie here whole are left alone, for their sender may be gone. */
static void drain(MPI_Comm mpi)
{
    MPI_Status seen;
    int there = 0, bytes = 0;
    char nobody[EAGER];
    while (MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, mpi, &there, &seen) == MPI_SUCCESS && there &&
           MPI_Get_count(&seen, MPI_BYTE, &bytes) == MPI_SUCCESS && bytes <= EAGER)
        MPI_Recv(nobody, EAGER, MPI_BYTE, seen.MPI_SOURCE, seen.MPI_TAG, mpi, MPI_STATUS_IGNORE);
}

static void mpi_destroy(tess_comm *comm)
{
    comm_mpi *self = (comm_mpi *)comm;
    comm_mpi **at = &self->world->comms;
    abandon(self);
    if (self->world->failed)
        drain(self->mpi);
    if (self->whole)
        drain(self->world->notices);
    while (*at != self)
        at = &(*at)->next;
    *at = self->next;
    /* After a failure messages may still come, and MPI would take them for those of the next
     * communicator that it gives the same number: this one keeps its number. */
    if (!self->world->failed)
        MPI_Comm_free(&self->mpi);
    if (self->whole && !self->world->failed)
        MPI_Comm_free(&self->world->notices);
    if (self->whole)
        tess__free(comm->ctx, self->world);
}

static tess_status mpi_part(tess_comm *comm, const int *order, int n, int rank, int64_t tag,
                            tess_comm **part);

static const tess__comm_ops mpi_ops = {
    .kind = "mpi",
    .send = mpi_send,
    .receive = mpi_receive,
    .finish = mpi_finish,
    .progress = mpi_progress,
    .fail = mpi_fail,
    .clock = mpi_clock,
    .fresh = mpi_fresh,
    .part = mpi_part,
    .destroy = mpi_destroy,
};

/* A communicator without world and MPI. */
static comm_mpi *make(tess_ctx *ctx, int rank, int size)
{
    comm_mpi *made = (comm_mpi *)tess__comm_make(ctx, &mpi_ops, sizeof *made, rank, size);
    if (!made)
        return NULL;
    const size_t flights = TESS_COMM_OPEN * 2 * ((size_t)size - 1) * sizeof *made->flights;
    made->flights = tess__arena_take(&made->comm.arena, flights);
    made->places = tess__arena_take(&made->comm.arena, (size_t)size * sizeof *made->places);
    if (made->flights && made->places)
        return made;
    tess__comm_free(&made->comm);
    return NULL;
}

static void join(comm_mpi *made, world_mpi *world, MPI_Comm mpi)
{
    made->world = world;
    made->mpi = mpi;
    made->next = world->comms;
    world->comms = made;
    MPI_Comm_set_errhandler(mpi, MPI_ERRORS_RETURN);
}

static tess_status mpi_part(tess_comm *comm, const int *order, int n, int rank, int64_t tag,
                            tess_comm **part)
{
    const comm_mpi *self = (const comm_mpi *)comm;
    MPI_Comm mpi = MPI_COMM_NULL;
    (void)tag;
    *part = NULL;
    const int code = MPI_Comm_split(self->mpi, n > 0 ? order[0] : MPI_UNDEFINED, rank, &mpi);
    if (code != MPI_SUCCESS)
        return mpi_error("MPI_Comm_split", code);
    if (n == 0)
        return TESS_OK;
    comm_mpi *made = make(comm->ctx, rank, n);
    if (!made) {
        MPI_Comm_free(&mpi);
        return TESS_ENOMEM;
    }
    for (int i = 0; i < n; i++)
        made->places[i] = self->places[order[i]];
    join(made, self->world, mpi);
    *part = &made->comm;
    return TESS_OK;
}

/* Nodes are numbered by their lowest ranks: a node's number is how many lowest ranks are below. */
static int find_node(tess_comm *comm, MPI_Comm mpi)
{
    MPI_Comm node;
    int local = 0, first, number = 0;
    int code = MPI_Comm_split_type(mpi, MPI_COMM_TYPE_SHARED, comm->rank, MPI_INFO_NULL, &node);
    if (code != MPI_SUCCESS)
        return code;
    MPI_Comm_rank(node, &local);
    first = local == 0;
    if ((code = MPI_Allreduce(&first, &comm->nodes, 1, MPI_INT, MPI_SUM, mpi)) == MPI_SUCCESS &&
        (code = MPI_Scan(&first, &number, 1, MPI_INT, MPI_SUM, mpi)) == MPI_SUCCESS &&
        (code = MPI_Bcast(&number, 1, MPI_INT, 0, node)) == MPI_SUCCESS)
        comm->node = number - 1;
    MPI_Comm_free(&node);
    return code;
}

/* The whole: two duplicates of mpi, and who is where. On failure nothing of MPI is held. */
static tess_status join_world(comm_mpi *made, world_mpi *world, MPI_Comm mpi)
{
    MPI_Comm own = MPI_COMM_NULL, notices = MPI_COMM_NULL;
    int code = MPI_Comm_dup(mpi, &own);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_dup(mpi, &notices);
    if (code == MPI_SUCCESS)
        code = find_node(&made->comm, own);
    if (code != MPI_SUCCESS) {
        if (own != MPI_COMM_NULL)
            MPI_Comm_free(&own);
        if (notices != MPI_COMM_NULL)
            MPI_Comm_free(&notices);
        return mpi_error("duplicating the MPI communicator", code);
    }
    MPI_Comm_set_errhandler(notices, MPI_ERRORS_RETURN);
    world->notices = notices;
    world->rank = made->comm.rank;
    world->size = made->comm.size;
    for (int p = 0; p < world->size; p++)
        made->places[p] = p;
    made->whole = 1;
    join(made, world, own);
    return TESS_OK;
}

tess_status tess_comm_from_mpi(tess_ctx *ctx, MPI_Comm mpi, tess_comm **comm)
{
    if (!ctx || !comm)
        return tess__fail(TESS_EINVAL, "tess_comm_from_mpi: %s is NULL", ctx ? "comm" : "ctx");
    int started = 0, ended = 0, rank = 0, size = 0;
    MPI_Initialized(&started);
    MPI_Finalized(&ended);
    if (!started || ended)
        return tess__fail(TESS_EINVAL,
                          "tess_comm_from_mpi: MPI is not running (MPI_Init comes first)");
    if (mpi == MPI_COMM_NULL)
        return tess__fail(TESS_EINVAL, "tess_comm_from_mpi: mpi is MPI_COMM_NULL");
    MPI_Comm_rank(mpi, &rank);
    MPI_Comm_size(mpi, &size);

    comm_mpi *made = make(ctx, rank, size);
    world_mpi *world = tess__alloc_zero(ctx, sizeof *world + (size_t)size);
    /* Collective: whoever lacks memory takes part, and then all leave together. */
    int missing = !made || !world, anyone = 0;
    const int code = MPI_Allreduce(&missing, &anyone, 1, MPI_INT, MPI_MAX, mpi);
    tess_status status = TESS_OK;
    if (code != MPI_SUCCESS)
        status = mpi_error("MPI_Allreduce", code);
    else if (anyone)
        status = tess__fail(TESS_ENOMEM, "a rank has no memory for a communicator");
    else
        status = join_world(made, world, mpi);
    if (status != TESS_OK) {
        tess__free(ctx, world);
        tess__comm_free((tess_comm *)made);
        return status;
    }
    *comm = &made->comm;
    return TESS_OK;
}
