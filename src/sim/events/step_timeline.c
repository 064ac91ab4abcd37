/* SPDX-License-Identifier: Apache-2.0 */
/* step_timeline.c - tess_sim_timeline: the step of the last run, from its operations to a timeline.
 *
 * parts and passes -> kinds of process groups -> classes of ranks -> operations of each class ->
 * events. Memory: about 100 bytes for each operation of a class, and 4 for each rank.
 */
#include "events_internal.h"

#include <math.h>
#include <string.h>

static const char *const classes[] = {"gemm", "attention", "elementwise", "optimiser", "host", "tp",
                                      "cp",   "ep",        "pp",          "dp",        NULL};
_Static_assert(sizeof classes / sizeof *classes == TESS__TL_CLASSES + 1, "a name for each class");

static const char *const streams[] = {"compute", "tp", "cp", "ep", "ep beside", "dp", "copies"};
static const char *const op_names[] = {
    [TESS_ALL_REDUCE] = "all_reduce",         [TESS_ALL_GATHER] = "all_gather",
    [TESS_REDUCE_SCATTER] = "reduce_scatter", [TESS_ALL_TO_ALL] = "all_to_all",
    [TESS_BROADCAST] = "broadcast",           [TESS_SEND_RECEIVE] = "send_receive"};
static const char *const counters[TESS__COUNTERS] = {"state", "activations", "working"};

enum { OPERATIONS_MAX = 200000000 };

const char *tess_sim_timeline_class(int index)
{
    return index < 0 || index >= TESS__TL_CLASSES ? NULL : classes[index];
}

/* ---- ranks by name --------------------------------------------------------------------------- */

/* What the file says of groups and streams; in the timeline's arena. */
typedef struct {
    tess__view view;
    int size, stages, n_peers;
    tess__group_kind kinds[TESS__KINDS_MAX];
    const int32_t *peers;
} job_view;

/* "tp:16+1x8": class, lowest rank, distance, number of ranks. */
static void group_text(const void *user, int rank, const tess__tl_call *call, char text[64])
{
    static const char *const names[TESS__CLASSES] = {"", "tp", "cp", "ep", "pp", "dp"};
    const job_view *v = user;
    if (call->group >= TESS__KINDS_MAX) {
        const int pair = call->group - TESS__KINDS_MAX, all = v->stages * v->stages;
        const int a = pair % all / v->stages, b = pair % v->stages;
        const int low = TESS_MIN(a, b), high = TESS_MAX(a, b);
        snprintf(text, 64, "%s:%d+%dx2", pair < all ? "pp" : "tied",
                 low * v->size + rank % v->size, (high - low) * v->size);
        return;
    }
    const tess__group_kind *kind = &v->kinds[call->group];
    const int in_stage = rank % v->size, span = kind->n * kind->stride;
    snprintf(text, 64, "%s:%d+%dx%d", names[kind->class],
             rank - in_stage + in_stage / span * span + in_stage % kind->stride, kind->stride,
             kind->n);
}

/* Streams to and from the ranks of other stages; "": this rank has no such one. */
static void stream_text(const void *user, int rank, int stream, char text[64])
{
    const job_view *v = user;
    const int slot = (stream - TESS__STREAM_PP) / 2, receive = (stream - TESS__STREAM_PP) % 2;
    const int other = v->peers[rank / v->size * v->n_peers + slot];
    text[0] = '\0';
    if (other >= 0)
        snprintf(text, 64, "pp %s %d", receive ? "from rank" : "to rank",
                 other * v->size + rank % v->size);
}

static tess_status give_view(tess_timeline *t, const tess__step *p)
{
    const tess__classes *c = p->c;
    const size_t peers = (size_t)(p->s->ranks * p->n_peers) * sizeof *p->peers;
    const size_t ranks = (size_t)c->ranks * sizeof *c->row_of;
    const size_t rows = (size_t)c->rows * sizeof *c->first_rank;
    job_view *v = tess__arena_take(&t->arena, sizeof *v);
    int32_t *copies = tess__arena_take(&t->arena, peers + ranks + rows);
    if (!v || !copies)
        return TESS_ENOMEM;
    int32_t *const row_of = copies + p->s->ranks * p->n_peers, *const first = row_of + c->ranks;
    memcpy(copies, p->peers, peers);
    memcpy(row_of, c->row_of, ranks);
    memcpy(first, c->first_rank, rows);
    *v = (job_view){.view = {.streams = streams,
                             .named = TESS__STREAM_PP,
                             .ops = op_names,
                             .tags = 1,
                             .counters = counters,
                             .group = group_text,
                             .stream = stream_text},
                    .size = c->size,
                    .stages = c->stages,
                    .n_peers = p->n_peers,
                    .peers = copies};
    memcpy(v->kinds, c->kinds, sizeof v->kinds);
    v->view.user = v;
    t->view = &v->view;
    t->ranks = c->ranks;
    t->row_of = row_of;
    t->first_rank = first;
    t->classes = classes;
    return TESS_OK;
}

/* ---- the schedule ---------------------------------------------------------------------------- */

static tess_status make_schedule(const tess_sim *sim, tess_schedule **schedule)
{
    static const char *const names[] = {
        [TESS_SIM_1F1B] = "1f1b",
        [TESS_SIM_INTERLEAVED] = "interleaved",
        [TESS_SIM_ZERO_BUBBLE] = "zero-bubble",
        [TESS_SIM_GPIPE] = "gpipe",
        [TESS_SIM_GPIPE_LOOPED] = "gpipe-looped",
        [TESS_SIM_INTERLEAVED_ZB] = "interleaved-zb",
        [TESS_SIM_ZB_V] = "zb-v",
    };
    const tess_sim_layout *l = &sim->s.layout;
    return tess_schedule_make(sim->ctx, names[l->schedule], l->pp, l->vpp, sim->batches, schedule);
}

tess_status tess_sim_schedule_of(const tess_sim *sim, tess_schedule **schedule)
{
    TESS_REQUIRE(sim, schedule);
    if (sim->n_ops == 0)
        return tess__invalid(__func__, "sim has run no scenario");
    if (sim->s.layout.schedule == TESS_SIM_SCHEDULE_FILE)
        return tess__schedule_copy(sim->schedule, schedule);
    return make_schedule(sim, schedule);
}

/* Places of parts in their virtual stages, and of these in their ranks. */
static tess_status place_parts(tess__step *p, tess__arena *arena)
{
    const tess_schedule *s = p->s;
    const size_t stages = (size_t)s->stages;
    p->places = tess__arena_take(arena, stages * sizeof *p->places);
    p->chunk_of = tess__arena_take(arena, stages * sizeof *p->chunk_of);
    p->last_weight = tess__arena_take(arena, stages * sizeof *p->last_weight);
    p->first_forward = tess__arena_take(arena, stages * sizeof *p->first_forward);
    int32_t *used = tess__arena_take(arena, (size_t)s->ranks * sizeof *used);
    if (!p->places || !p->chunk_of || !p->last_weight || !p->first_forward || !used)
        return TESS_ENOMEM;
    memset(used, 0, (size_t)s->ranks * sizeof *used);
    memset(p->first_forward, 0xff, stages * sizeof *p->first_forward);
    for (int k = 0; k < s->stages; k++) {
        int counts[TESS__PARTS];
        tess__chunk_counts(p->sim, s, k, counts);
        p->places[k] = 0;
        for (int part = 0; part < TESS__PARTS; part++)
            p->places[k] += counts[part];
        p->places_max = TESS_MAX(p->places_max, p->places[k]);
        p->chunk_of[k] = used[s->rank_of[k]]++;
        p->chunks = TESS_MAX(p->chunks, used[s->rank_of[k]]);
    }
    for (int64_t i = 0; i < s->n; i++) {
        const tess__action *a = &s->actions[i];
        if (a->kind == TESS__ACT_F && p->first_forward[a->stage] < 0)
            p->first_forward[a->stage] = i;
        if (a->kind == TESS__ACT_B || a->kind == TESS__ACT_W)
            p->last_weight[a->stage] = i;
    }
    static const uint8_t order[] = {TESS__EMBED, TESS__LAYER, TESS__EXPERTS, TESS__HEAD};
    p->parts = tess__arena_take(arena, stages * (size_t)p->places_max + 1);
    if (!p->parts)
        return TESS_ENOMEM;
    for (int k = 0; k < s->stages; k++) {
        int counts[TESS__PARTS];
        uint8_t *at = &p->parts[(int64_t)k * p->places_max];
        tess__chunk_counts(p->sim, s, k, counts);
        for (int i = 0; i < 4; i++)
            for (int n = 0; n < counts[order[i]]; n++)
                *at++ = order[i];
    }
    return TESS_OK;
}

/* Ranks of the pipeline that exchange with each rank. */
static tess_status find_peers(tess__step *p, tess__arena *arena)
{
    const tess_schedule *s = p->s;
    const size_t all = (size_t)s->ranks * (size_t)s->ranks;
    tess__arena scratch = {.ctx = arena->ctx};
    uint8_t *near = tess__arena_take(&scratch, all);
    if (!near)
        return TESS_ENOMEM;
    memset(near, 0, all);
    for (int k = 0; k + 1 < s->stages; k++) {
        const int a = s->rank_of[k], b = s->rank_of[k + 1];
        near[(int64_t)a * s->ranks + b] = near[(int64_t)b * s->ranks + a] = a != b;
    }
    for (int a = 0; a < s->ranks; a++) {
        int n = 0;
        for (int b = 0; b < s->ranks; b++)
            n += near[(int64_t)a * s->ranks + b];
        p->n_peers = TESS_MAX(p->n_peers, n);
    }
    const size_t bytes = (size_t)(s->ranks * p->n_peers + 1) * sizeof *p->peers;
    p->peers = tess__arena_take(arena, bytes);
    if (p->peers)
        memset(p->peers, 0xff, bytes);
    for (int a = 0; p->peers && a < s->ranks; a++)
        for (int b = 0, n = 0; b < s->ranks; b++)
            if (near[(int64_t)a * s->ranks + b])
                p->peers[a * p->n_peers + n++] = b;
    tess__arena_free(&scratch);
    return p->peers ? TESS_OK : TESS_ENOMEM;
}

/* ---- passes and ends ------------------------------------------------------------------------- */

static void fill_passes(tess__step *p)
{
    for (int part = TESS__LAYER; part <= TESS__HEAD; part++)
        for (int kind = 0; kind < TESS__PASS_KINDS; kind++)
            tess__pass_fill(&p->in, part, kind, &p->passes[part][kind]);
}

static tess_status fill_ends(tess__step *p, tess__arena *arena)
{
    tess_sim *scratch = tess__alloc(p->sim->ctx, sizeof *scratch);
    p->ends = tess__arena_take(arena, (size_t)p->c->stages * sizeof *p->ends);
    for (int i = 0; scratch && p->ends && i < p->c->stages; i++) {
        tess__stage_end *e = &p->ends[i];
        tess__stage_end_fill(p->sim, i, scratch, e);
        for (int k = 0; k < 2; k++) {
            if (e->gradient[k].m > 1.0)
                tess__pass_kind(&p->in, (int)e->gradient[k].m, (int)e->gradient[k].n, TESS__DP);
            if (e->gather[k].m > 1.0)
                tess__pass_kind(&p->in, (int)e->gather[k].m, (int)e->gather[k].n, TESS__DP);
        }
    }
    tess__free(p->sim->ctx, scratch);
    return scratch && p->ends ? TESS_OK : TESS_ENOMEM;
}

static void number_names(tess__step *p)
{
    for (int part = TESS__LAYER; part <= TESS__HEAD; part++)
        for (int kind = 0; kind < TESS__PASS_KINDS; kind++)
            for (int i = 0; i < p->passes[part][kind].n; i++) {
                tess__pass_op *op = &p->passes[part][kind].ops[i];
                op->number = tess__timeline_name(p->t, op->name);
            }
    p->host = tess__timeline_name(p->t, "wait for the host");
}

static tess_status check_size(const tess__step *p)
{
    double most = 0.0;
    for (int part = TESS__LAYER; part <= TESS__HEAD; part++)
        most = fmax(most, p->passes[part][TESS__PASS_F].n + p->passes[part][TESS__PASS_B].n);
    double all = 0.0;
    for (int k = 0; k < p->s->stages; k++)
        all += most * p->places[k] * (double)p->s->batches;
    all *= (double)p->c->rows / p->c->stages;
    return all <= OPERATIONS_MAX
               ? TESS_OK
               : tess__fail(TESS_EINVAL,
                            "timeline: about %.3g operations, at most %d; fewer micro-batches or "
                            "slow ranks have fewer",
                            all, OPERATIONS_MAX);
}

static tess_status reserve_rows(tess__step *p, tess__arena *arena)
{
    const size_t rows = (size_t)p->c->rows, peers = (size_t)p->n_peers + 1;
    const size_t passes =
        rows * (size_t)p->chunks * (size_t)p->s->batches * TESS__DIRECTIONS * sizeof(int32_t);
    const size_t lists = (size_t)TESS__KINDS_MAX * rows * sizeof *p->calls;
    p->begin = tess__arena_take(arena, passes);
    p->arrive = tess__arena_take(arena, passes);
    p->pair_calls = tess__arena_take(arena, rows * peers * sizeof *p->pair_calls);
    p->tied = tess__arena_take(arena, rows * sizeof *p->tied);
    p->gathers = tess__arena_take(arena, (size_t)p->chunks * ((size_t)p->places_max + 1) *
                                             sizeof *p->gathers);
    p->calls = tess__arena_take(arena, lists);
    if (p->calls)
        memset(p->calls, 0, lists);
    if (!p->begin || !p->arrive || !p->pair_calls || !p->tied || !p->gathers || !p->calls)
        return TESS_ENOMEM;
    memset(p->begin, 0xff, passes);
    memset(p->arrive, 0xff, passes);
    memset(p->pair_calls, 0, rows * peers * sizeof *p->pair_calls);
    memset(p->tied, 0xff, rows * sizeof *p->tied);
    return TESS_OK;
}

static void find_hop(tess__step *p)
{
    const tess_sim *sim = p->sim;
    for (int i = sim->n_part_ops; i < sim->n_ops; i++)
        if (sim->ops[i].class == TESS__PP)
            p->hop_bytes = llround(sim->ops[i].bytes);
    p->hop_ns = tess__pass_ns(&p->in, sim->hop, TESS__TL_PP);
    p->blocking =
        sim->s.training.overlap_pp == TESS_SIM_OFF ||
        (sim->s.training.overlap_pp == TESS_SIM_AUTO && sim->era[TESS__ERA_PP_EXPOSED] > 0.5);
}

/* Parts per million by which computing takes longer beside communication: of the time that both
 * share, overlap_slow is lost. */
static int32_t slow_beside(const void *user, const char *name, int class)
{
    const tess_sim *sim = user;
    const double lost = fmin(sim->era[TESS__ERA_OVERLAP_SLOW], 0.9);
    (void)name;
    return class <= TESS__TL_ELEMENTWISE ? (int32_t)lround(1e6 * lost / (1.0 - lost)) : 0;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static tess_status build(tess__step *p, tess__arena *arena, const tess_sim_timeline_opts *opts)
{
    TESS_TRY(place_parts(p, arena));
    TESS_TRY(find_peers(p, arena));
    p->passes = tess__arena_take(arena, TESS__PARTS * sizeof *p->passes);
    if (!p->passes)
        return TESS_ENOMEM;
    fill_passes(p);
    TESS_TRY(fill_ends(p, arena));
    TESS_TRY(tess__classes_find(arena, opts->slow, opts->n_slow, opts->every_rank, p->c));
    TESS_TRY(check_size(p));
    TESS_TRY(reserve_rows(p, arena));
    TESS_TRY(
        tess__timeline_create(p->sim->ctx, p->c->rows, TESS__STREAM_PP + 2 * p->n_peers, &p->t));
    number_names(p);
    find_hop(p);
    tess_status status = tess__step_build(p);
    if (status == TESS_OK && p->sim->era[TESS__ERA_OVERLAP_SLOW] > 0.0)
        tess__timeline_slow(p->t, slow_beside, p->sim);
    if (status == TESS_OK)
        status = tess__timeline_run(p->t);
    tess__timeline_slow(p->t, NULL, NULL);
    if (status == TESS_OK)
        status = tess__timeline_mark_critical(p->t);
    return status == TESS_OK ? give_view(p->t, p) : status;
}

static tess_status check_opts(const tess_sim *sim, const tess_sim_timeline_opts *opts)
{
    const int last = sim->s.layout.gpus - 1;
    for (int i = 0; i < opts->n_slow; i++) {
        if (opts->slow[i].rank < 0 || opts->slow[i].rank > last)
            return tess__fail(TESS_EINVAL, "timeline: slow rank %d, must be 0..%d",
                              opts->slow[i].rank, last);
        TESS_TRY(tess__check_number("timeline", "factor of a slow rank", opts->slow[i].factor,
                                    0.001, 1000));
    }
    for (int i = 0; opts->scale && i < TESS__TL_CLASSES; i++)
        TESS_TRY(tess__check_number("timeline", classes[i], opts->scale[i], 0, 1000));
    return TESS_OK;
}

tess_status tess_sim_timeline(const tess_sim *sim, const tess_sim_timeline_opts *given,
                              tess_timeline **timeline)
{
    TESS_REQUIRE(sim, timeline);
    if (sim->n_ops == 0)
        return tess__invalid(__func__, "sim has run no scenario");
    const tess_sim_timeline_opts opts = given ? *given : (tess_sim_timeline_opts){0};
    TESS_TRY(check_opts(sim, &opts));
    const tess_sim_layout *l = &sim->s.layout;
    double ones[TESS__TL_CLASSES];
    for (int i = 0; i < TESS__TL_CLASSES; i++)
        ones[i] = 1.0;
    tess_schedule *own = NULL;
    if (l->schedule != TESS_SIM_SCHEDULE_FILE)
        TESS_TRY(make_schedule(sim, &own));
    tess__classes c = {.ranks = l->gpus, .stages = l->pp, .size = l->gpus / l->pp};
    tess__arena arena = {.ctx = sim->ctx};
    tess__step p = {.sim = sim,
                    .s = own ? own : sim->schedule,
                    .c = &c,
                    .in = {.sim = sim, .classes = &c, .scale = opts.scale ? opts.scale : ones}};
    const tess_status status = build(&p, &arena, &opts);
    for (int i = 0; p.calls && i < TESS__KINDS_MAX * c.rows; i++)
        tess__free(sim->ctx, p.calls[i].numbers);
    tess_schedule_destroy(own);
    tess__arena_free(&arena);
    if (status != TESS_OK) {
        tess_timeline_destroy(p.t);
        return status;
    }
    *timeline = p.t;
    return TESS_OK;
}
