/* SPDX-License-Identifier: Apache-2.0 */
/* comm_thread.c - communicators whose ranks are threads: messages, waiting, virtual clocks. */
#include "comm_thread.h"

#include <assert.h>

typedef struct {
    tess_comm comm;
    tess__world *world;
    int64_t tag;
    int world_rank;                /* of this rank */
    int *world_ranks;              /* (size) of all ranks of the communicator */
    tess__descriptor *descriptors; /* one per message: descriptor i describes message i */
} comm_thread;

static tess__mailbox *mailbox_of(const comm_thread *self, int rank)
{
    return &self->world->mailboxes[self->world_ranks[rank]];
}

static tess__descriptor *descriptor_of(const comm_thread *self, const tess__message *m)
{
    return &self->descriptors[m - self->comm.messages];
}

/* ---- clocks ---------------------------------------------------------------------------------- */

/* Adds the CPU time since start_clock to the virtual time: computing ends. */
static void stop_clock(const comm_thread *self)
{
    tess__clock *clock = &self->world->mailboxes[self->world_rank].clock;
    if (self->world->linked)
        clock->now += tess__cpu_ns() - clock->cpu;
}

/* Computing resumes: the CPU time of the call itself is not counted, the link model is. */
static void start_clock(const comm_thread *self)
{
    if (self->world->linked)
        self->world->mailboxes[self->world_rank].clock.cpu = tess__cpu_ns();
}

static int64_t thread_clock(const tess_comm *comm)
{
    const comm_thread *self = (const comm_thread *)comm;
    const tess__clock *clock = &self->world->mailboxes[self->world_rank].clock;
    return self->world->linked ? clock->now + tess__cpu_ns() - clock->cpu : tess_clock_ns();
}

static int is_remote(const comm_thread *self, int rank)
{
    const int node = self->world->link.node_ranks;
    return node > 0 && self->world_ranks[rank] / node != self->world_rank / node;
}

/* Advances the clock to the time when all messages have arrived and all sent ones have left. */
static void advance_clock(const comm_thread *self, tess_request *request)
{
    tess__clock *clock = &self->world->mailboxes[self->world_rank].clock;
    if (!self->world->linked)
        return;
    for (int n = 0; n < request->n_receives; n++) {
        tess__message *next = NULL;
        for (int i = 0; i < request->n_receives; i++) {
            tess__message *m = &request->receives[i];
            if (!descriptor_of(self, m)->timed &&
                (!next || descriptor_of(self, m)->leaves < descriptor_of(self, next)->leaves))
                next = m;
        }
        assert(next); /* each round of n takes one message */
        descriptor_of(self, next)->timed = 1;
        const int64_t arrived =
            tess__link_arrive(&self->world->link, clock, is_remote(self, next->peer), next->bytes,
                              descriptor_of(self, next)->leaves);
        if (clock->now < arrived)
            clock->now = arrived;
    }
    for (int i = 0; i < request->n_sends; i++)
        if (clock->now < descriptor_of(self, &request->sends[i])->sent)
            clock->now = descriptor_of(self, &request->sends[i])->sent;
}

/* ---- failure --------------------------------------------------------------------------------- */

static tess_status failure(const comm_thread *self)
{
    tess__mailbox_withdraw(self->world, self->world_rank, -1);
    return tess__fail(self->world->status, "%s", self->world->sentence);
}

/* The first failure is the one that all ranks return. */
static void thread_fail(tess_comm *comm, tess_status status, const char *sentence)
{
    const comm_thread *self = (const comm_thread *)comm;
    tess__world *world = self->world;
    pthread_mutex_lock(&world->mutex);
    if (!atomic_load(&world->failed)) {
        world->status = status;
        snprintf(world->sentence, sizeof world->sentence, "rank %d: %.*s", self->world_rank,
                 TESS_SENTENCE_MAX - 20, sentence);
        atomic_store(&world->failed, 1);
    }
    pthread_mutex_unlock(&world->mutex);
    for (int p = 0; p < world->ranks; p++)
        tess__mailbox_wake(&world->mailboxes[p]);
    tess__mailbox_withdraw(self->world, self->world_rank, -1);
}

/* ---- messages -------------------------------------------------------------------------------- */

static tess_status thread_send(tess_comm *comm, tess__message *m)
{
    const comm_thread *self = (const comm_thread *)comm;
    tess__mailbox *mine = &self->world->mailboxes[self->world_rank],
                  *mailbox = mailbox_of(self, m->peer);
    tess__descriptor *l = descriptor_of(self, m);
    *l = (tess__descriptor){.owner = mine,
                            .tag = self->tag,
                            .from = comm->rank,
                            .number = m->number,
                            .bytes = m->bytes,
                            .message = m};
    stop_clock(self);
    if (self->world->linked)
        l->leaves = tess__link_leave(&self->world->link, &mine->clock, is_remote(self, m->peer),
                                     m->bytes, &l->sent);
    tess__mailbox_post(mailbox, l);
    start_clock(self);
    return TESS_OK;
}

static tess_status thread_receive(tess_comm *comm, tess__message *m)
{
    const comm_thread *self = (const comm_thread *)comm;
    tess__mailbox *mine = &self->world->mailboxes[self->world_rank];
    tess__descriptor *l = descriptor_of(self, m);
    *l = (tess__descriptor){.next = mine->expected,
                            .owner = mine,
                            .tag = self->tag,
                            .from = m->peer,
                            .number = m->number,
                            .message = m};
    mine->expected = l;
    return TESS_OK;
}

static tess_status thread_progress(tess_comm *comm)
{
    const comm_thread *self = (const comm_thread *)comm;
    tess__mailbox *mine = &self->world->mailboxes[self->world_rank];
    if (atomic_load(&self->world->failed))
        return failure(self);
    stop_clock(self);
    pthread_mutex_lock(&mine->mutex);
    while (tess__mailbox_receive(mine))
        ;
    pthread_mutex_unlock(&mine->mutex);
    start_clock(self);
    return TESS_OK;
}

/* Number of messages of the request that are not done; *gone is the rank of one of them whose
 * function has returned. The own mutex is held: a rank returns after it has set `done`. */
static int count_open(const comm_thread *self, const tess_request *request, int *gone)
{
    int open = 0;
    for (int i = 0; i < request->n_receives + request->n_sends; i++) {
        const int sends = i >= request->n_receives;
        const tess__message *m =
            sends ? &request->sends[i - request->n_receives] : &request->receives[i];
        if (sends ? descriptor_of(self, m)->done : m->done)
            continue;
        open++;
        if (atomic_load(&mailbox_of(self, m->peer)->left))
            *gone = m->peer;
    }
    return open;
}

/* A message of unexpected size was not copied. */
static tess_status check_result(const comm_thread *self, const tess_request *request)
{
    for (int i = 0; i < request->n_receives; i++) {
        const tess__message *m = &request->receives[i];
        const int64_t sent = descriptor_of(self, m)->bytes;
        if (sent != m->bytes)
            return tess__fail(TESS_EINVAL, "rank %d sent %lld bytes where rank %d expects %lld",
                              m->peer, (long long)sent, self->comm.rank, (long long)m->bytes);
    }
    return TESS_OK;
}

static tess_status thread_finish(tess_comm *comm, tess_request *request)
{
    const comm_thread *self = (const comm_thread *)comm;
    tess__mailbox *mine = &self->world->mailboxes[self->world_rank];
    int failed = 0, gone = -1;
    stop_clock(self);
    pthread_mutex_lock(&mine->mutex);
    for (;;) {
        while (tess__mailbox_receive(mine))
            ;
        if (count_open(self, request, &gone) == 0)
            break;
        failed = atomic_load(&self->world->failed);
        if (failed || gone >= 0)
            break;
        tess__core_release(self->world);
        pthread_cond_wait(&mine->changed, &mine->mutex);
        pthread_mutex_unlock(&mine->mutex); /* the rank that holds a core may need it */
        tess__core_acquire(self->world);
        pthread_mutex_lock(&mine->mutex);
    }
    pthread_mutex_unlock(&mine->mutex);
    if (failed)
        return failure(self);
    if (gone >= 0) {
        tess__mailbox_withdraw(self->world, self->world_rank, -1);
        return tess__fail(TESS_EIO, "rank %d waits for rank %d, which has returned", comm->rank,
                          gone);
    }
    advance_clock(self, request);
    start_clock(self);
    return check_result(self, request);
}

/* ---- creation -------------------------------------------------------------------------------- */

static int64_t thread_new_tag(tess_comm *comm)
{
    return atomic_fetch_add(&((const comm_thread *)comm)->world->tags, 1);
}

static void thread_destroy(tess_comm *comm)
{
    const comm_thread *self = (const comm_thread *)comm;
    int open = 0;
    for (int i = 0; i < TESS_COMM_OPEN; i++)
        open |= comm->requests[i].open;
    if (open)
        tess__mailbox_withdraw(self->world, self->world_rank, self->tag);
}

static tess_status thread_subgroup(tess_comm *comm, const int *order, int n, int rank, int64_t tag,
                                   tess_comm **sub);

static const tess__comm_ops thread_ops = {
    .kind = "thread",
    .send = thread_send,
    .receive = thread_receive,
    .finish = thread_finish,
    .progress = thread_progress,
    .fail = thread_fail,
    .clock = thread_clock,
    .new_tag = thread_new_tag,
    .subgroup = thread_subgroup,
    .destroy = thread_destroy,
};

static comm_thread *make(tess_ctx *ctx, tess__world *world, int rank, int size)
{
    comm_thread *made = (comm_thread *)tess__comm_make(ctx, &thread_ops, sizeof *made, rank, size);
    if (!made)
        return NULL;
    const size_t descriptors = TESS_COMM_OPEN * 2 * ((size_t)size - 1) * sizeof *made->descriptors;
    made->world = world;
    made->descriptors = tess__arena_take(&made->comm.arena, descriptors);
    made->world_ranks =
        tess__arena_take(&made->comm.arena, (size_t)size * sizeof *made->world_ranks);
    if (made->descriptors && made->world_ranks)
        return made;
    tess__comm_free(&made->comm);
    return NULL;
}

static tess_status thread_subgroup(tess_comm *comm, const int *order, int n, int rank, int64_t tag,
                                   tess_comm **sub)
{
    const comm_thread *self = (const comm_thread *)comm;
    *sub = NULL;
    if (n == 0)
        return TESS_OK;
    comm_thread *made = TESS_MEMORY(make(comm->ctx, self->world, rank, n));
    made->tag = tag;
    made->world_rank = self->world_rank;
    for (int i = 0; i < n; i++)
        made->world_ranks[i] = self->world_ranks[order[i]];
    *sub = &made->comm;
    return TESS_OK;
}

tess_status tess__thread_comm(tess_ctx *ctx, tess__world *world, int rank, tess_comm **comm)
{
    const int node = world->link.node_ranks;
    comm_thread *made = TESS_MEMORY(make(ctx, world, rank, world->ranks));
    made->world_rank = rank;
    for (int p = 0; p < world->ranks; p++)
        made->world_ranks[p] = p;
    if (node > 0) {
        made->comm.nodes = (world->ranks + node - 1) / node;
        made->comm.node = rank / node;
    }
    *comm = &made->comm;
    return TESS_OK;
}

void tess__thread_enter(tess_comm *comm)
{
    start_clock((const comm_thread *)comm);
}

void tess__thread_leave(tess_comm *comm)
{
    const comm_thread *self = (const comm_thread *)comm;
    tess__mailbox_withdraw(self->world, self->world_rank, -1);
    atomic_store(&self->world->mailboxes[self->world_rank].left, 1);
    for (int p = 0; p < self->world->ranks; p++)
        tess__mailbox_wake(&self->world->mailboxes[p]);
}
