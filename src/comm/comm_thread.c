/* SPDX-License-Identifier: Apache-2.0 */
/* comm_thread.c - a communicator whose ranks are threads: who waits for whom, by which clock. */
#include "comm_thread.h"

typedef struct {
    tess_comm comm;
    tess__world *world;
    int64_t tag;
    int place;             /* this rank's in the world */
    int *places;           /* (size) everyone's */
    tess__letter *letters; /* as many as messages: letter i is that of message i */
} comm_thread;

static tess__box *box_of(const comm_thread *self, int rank)
{
    return &self->world->boxes[self->places[rank]];
}

static tess__letter *letter_of(const comm_thread *self, const tess__message *m)
{
    return &self->letters[m - self->comm.messages];
}

/* ---- clocks ---------------------------------------------------------------------------------- */

/* Computing ends here. */
static void stop_clock(const comm_thread *self)
{
    tess__clock *clock = &self->world->boxes[self->place].clock;
    if (self->world->linked)
        clock->now += tess__cpu_ns() - clock->cpu;
}

/* And goes on here: what a call itself took is the link's business. */
static void start_clock(const comm_thread *self)
{
    if (self->world->linked)
        self->world->boxes[self->place].clock.cpu = tess__cpu_ns();
}

static int64_t thread_clock(const tess_comm *comm)
{
    const comm_thread *self = (const comm_thread *)comm;
    const tess__clock *clock = &self->world->boxes[self->place].clock;
    return self->world->linked ? clock->now + tess__cpu_ns() - clock->cpu : tess_clock_ns();
}

static int far_from(const comm_thread *self, int rank)
{
    const int node = self->world->link.node_ranks;
    return node > 0 && self->places[rank] / node != self->place / node;
}

/* The clock goes to when the last message has arrived and the last own one has left. */
static void advance_clock(const comm_thread *self, tess_request *request)
{
    tess__clock *clock = &self->world->boxes[self->place].clock;
    if (!self->world->linked)
        return;
    for (int n = 0; n < request->n_receives; n++) {
        tess__message *next = NULL;
        for (int i = 0; i < request->n_receives; i++) {
            tess__message *m = &request->receives[i];
            if (!letter_of(self, m)->timed &&
                (!next || letter_of(self, m)->leaves < letter_of(self, next)->leaves))
                next = m;
        }
        letter_of(self, next)->timed = 1;
        const int64_t arrived =
            tess__link_arrive(&self->world->link, clock, far_from(self, next->peer), next->bytes,
                              letter_of(self, next)->leaves);
        if (clock->now < arrived)
            clock->now = arrived;
    }
    for (int i = 0; i < request->n_sends; i++)
        if (clock->now < letter_of(self, &request->sends[i])->sent)
            clock->now = letter_of(self, &request->sends[i])->sent;
}

/* ---- failure --------------------------------------------------------------------------------- */

static tess_status failure(const comm_thread *self)
{
    tess__box_withdraw(self->world, self->place, -1);
    return tess__fail(self->world->status, "%s", self->world->sentence);
}

/* The first failure is everyone's. */
static void thread_fail(tess_comm *comm, tess_status status, const char *sentence)
{
    const comm_thread *self = (const comm_thread *)comm;
    tess__world *world = self->world;
    pthread_mutex_lock(&world->mutex);
    if (!atomic_load(&world->failed)) {
        world->status = status;
        snprintf(world->sentence, sizeof world->sentence, "rank %d: %.*s", self->place,
                 TESS_SENTENCE_MAX - 20, sentence);
        atomic_store(&world->failed, 1);
    }
    pthread_mutex_unlock(&world->mutex);
    for (int p = 0; p < world->ranks; p++)
        tess__box_wake(&world->boxes[p]);
    tess__box_withdraw(self->world, self->place, -1);
}

/* ---- messages -------------------------------------------------------------------------------- */

static tess_status thread_send(tess_comm *comm, tess__message *m)
{
    const comm_thread *self = (const comm_thread *)comm;
    tess__box *mine = &self->world->boxes[self->place], *box = box_of(self, m->peer);
    tess__letter *l = letter_of(self, m);
    *l = (tess__letter){.owner = mine,
                        .tag = self->tag,
                        .from = comm->rank,
                        .number = m->number,
                        .bytes = m->bytes,
                        .message = m};
    stop_clock(self);
    if (self->world->linked)
        l->leaves = tess__link_leave(&self->world->link, &mine->clock, far_from(self, m->peer),
                                     m->bytes, &l->sent);
    tess__box_put(box, l);
    start_clock(self);
    return TESS_OK;
}

static tess_status thread_receive(tess_comm *comm, tess__message *m)
{
    const comm_thread *self = (const comm_thread *)comm;
    tess__box *mine = &self->world->boxes[self->place];
    tess__letter *l = letter_of(self, m);
    *l = (tess__letter){.next = mine->expected,
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
    tess__box *mine = &self->world->boxes[self->place];
    if (atomic_load(&self->world->failed))
        return failure(self);
    stop_clock(self);
    pthread_mutex_lock(&mine->mutex);
    while (tess__box_take(mine))
        ;
    pthread_mutex_unlock(&mine->mutex);
    start_clock(self);
    return TESS_OK;
}

/* How many messages of the request are not done; *gone is the rank of one of them whose function
 * has returned. The own mutex is held: a rank leaves after it has said that a letter is done. */
static int count_open(const comm_thread *self, const tess_request *request, int *gone)
{
    int open = 0;
    for (int i = 0; i < request->n_receives + request->n_sends; i++) {
        const int sends = i >= request->n_receives;
        const tess__message *m =
            sends ? &request->sends[i - request->n_receives] : &request->receives[i];
        if (sends ? letter_of(self, m)->done : m->done)
            continue;
        open++;
        if (atomic_load(&box_of(self, m->peer)->left))
            *gone = m->peer;
    }
    return open;
}

/* A letter of another size was not read. */
static tess_status judge(const comm_thread *self, const tess_request *request)
{
    for (int i = 0; i < request->n_receives; i++) {
        const tess__message *m = &request->receives[i];
        const int64_t sent = letter_of(self, m)->bytes;
        if (sent != m->bytes)
            return tess__fail(TESS_EINVAL, "rank %d sent %lld bytes where rank %d expects %lld",
                              m->peer, (long long)sent, self->comm.rank, (long long)m->bytes);
    }
    return TESS_OK;
}

static tess_status thread_finish(tess_comm *comm, tess_request *request)
{
    const comm_thread *self = (const comm_thread *)comm;
    tess__box *mine = &self->world->boxes[self->place];
    int failed = 0, gone = -1;
    stop_clock(self);
    pthread_mutex_lock(&mine->mutex);
    for (;;) {
        while (tess__box_take(mine))
            ;
        if (count_open(self, request, &gone) == 0)
            break;
        failed = atomic_load(&self->world->failed);
        if (failed || gone >= 0)
            break;
        tess__core_give(self->world);
        pthread_cond_wait(&mine->changed, &mine->mutex);
        pthread_mutex_unlock(&mine->mutex); /* whoever has a core may need it */
        tess__core_take(self->world);
        pthread_mutex_lock(&mine->mutex);
    }
    pthread_mutex_unlock(&mine->mutex);
    if (failed)
        return failure(self);
    if (gone >= 0) {
        tess__box_withdraw(self->world, self->place, -1);
        return tess__fail(TESS_EIO, "rank %d waits for rank %d, which has returned", comm->rank,
                          gone);
    }
    advance_clock(self, request);
    start_clock(self);
    return judge(self, request);
}

/* ---- life ------------------------------------------------------------------------------------ */

static int64_t thread_fresh(tess_comm *comm)
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
        tess__box_withdraw(self->world, self->place, self->tag);
}

static tess_status thread_part(tess_comm *comm, const int *order, int n, int rank, int64_t tag,
                               tess_comm **part);

static const tess__comm_ops thread_ops = {
    .kind = "thread",
    .send = thread_send,
    .receive = thread_receive,
    .finish = thread_finish,
    .progress = thread_progress,
    .fail = thread_fail,
    .clock = thread_clock,
    .fresh = thread_fresh,
    .part = thread_part,
    .destroy = thread_destroy,
};

static comm_thread *make(tess_ctx *ctx, tess__world *world, int rank, int size)
{
    comm_thread *made = (comm_thread *)tess__comm_make(ctx, &thread_ops, sizeof *made, rank, size);
    if (!made)
        return NULL;
    const size_t letters = TESS_COMM_OPEN * 2 * ((size_t)size - 1) * sizeof *made->letters;
    made->world = world;
    made->letters = tess__arena_take(&made->comm.arena, letters);
    made->places = tess__arena_take(&made->comm.arena, (size_t)size * sizeof *made->places);
    if (made->letters && made->places)
        return made;
    tess__comm_free(&made->comm);
    return NULL;
}

static tess_status thread_part(tess_comm *comm, const int *order, int n, int rank, int64_t tag,
                               tess_comm **part)
{
    const comm_thread *self = (const comm_thread *)comm;
    *part = NULL;
    if (n == 0)
        return TESS_OK;
    comm_thread *made = make(comm->ctx, self->world, rank, n);
    if (!made)
        return TESS_ENOMEM;
    made->tag = tag;
    made->place = self->place;
    for (int i = 0; i < n; i++)
        made->places[i] = self->places[order[i]];
    *part = &made->comm;
    return TESS_OK;
}

tess_status tess__thread_comm(tess_ctx *ctx, tess__world *world, int rank, tess_comm **comm)
{
    const int node = world->link.node_ranks;
    comm_thread *made = make(ctx, world, rank, world->ranks);
    if (!made)
        return TESS_ENOMEM;
    made->place = rank;
    for (int p = 0; p < world->ranks; p++)
        made->places[p] = p;
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
    tess__box_withdraw(self->world, self->place, -1);
    atomic_store(&self->world->boxes[self->place].left, 1);
    for (int p = 0; p < self->world->ranks; p++)
        tess__box_wake(&self->world->boxes[p]);
}
