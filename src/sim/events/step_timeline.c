/* SPDX-License-Identifier: Apache-2.0 */
/* step_timeline.c - tess_sim_timeline: the step of the last run, from its operations to a timeline.
 *
 * parts and passes -> kinds of process groups -> classes of ranks -> operations of each class ->
 * events. Memory: about 100 bytes for each operation of a class, and 4 for each rank.
 */
#include "events_internal.h"
#include "sim/fields.h"

#include <math.h>
#include <string.h>

static const char *const classes[] = {"gemm", "attention", "elementwise", "optimiser", "host", "tp",
                                      "cp",   "ep",        "pp",          "dp",        NULL};
_Static_assert(sizeof classes / sizeof *classes == TESS__TL_CLASSES + 1, "a name for each class");

static const char *const streams[] = {"compute", "tp", "cp", "ep", "ep beside", "dp", "copies"};
static const char *const counters[TESS__COUNTERS] = {"state", "activations", "working"};

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
        snprintf(text, 64, "%s:%d+%dx2", pair < all ? "pp" : "tied", low * v->size + rank % v->size,
                 (high - low) * v->size);
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
    job_view *v = TESS_TAKE(&t->arena, sizeof *v);
    int32_t *copies = TESS_TAKE(&t->arena, peers + ranks + rows);
    int32_t *const row_of = copies + p->s->ranks * p->n_peers, *const first = row_of + c->ranks;
    memcpy(copies, p->peers, peers);
    memcpy(row_of, c->row_of, ranks);
    memcpy(first, c->first_rank, rows);
    *v = (job_view){.view = {.streams = streams,
                             .named = TESS__STREAM_PP,
                             .ops = tess__collective_names,
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
    const tess_sim_layout *l = &sim->s.layout;
    const char *name = tess__field_find("layout", "schedule")->words[l->schedule];
    if (l->schedule == TESS_SIM_DUALPIPE)
        return tess__fail(TESS_ENOTSUP,
                          "layout.schedule is dualpipe, which has a closed form alone: "
                          "no order of passes from both ends is known here");
    return tess_schedule_make(sim->ctx, name, l->pp, l->vpp, sim->batches, schedule);
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

/* Parts per million by which computing takes longer beside communication: as measured of the class
 * on this GPU, or, of GPUs without such measurements, so that overlap_slow of the time that both
 * share is lost. */
static int32_t slow_beside(const void *user, const char *name, int class)
{
    static const int kernel_class[] = {[TESS__TL_GEMM] = TESS_KERNEL_GEMM,
                                       [TESS__TL_ATTENTION] = TESS_KERNEL_ATTENTION,
                                       [TESS__TL_ELEMENTWISE] = TESS_KERNEL_ELEMENTWISE};
    const tess_sim *sim = user;
    (void)name;
    if (class > TESS__TL_ELEMENTWISE)
        return 0;
    const double lost = fmin(sim->era[TESS__ERA_OVERLAP_SLOW], 0.9),
                 measured =
                     tess__overlap_find(&sim->params->overlaps, sim->i_hw, "", kernel_class[class]);
    return (int32_t)lround(1e6 * (measured > 0.0 ? measured : lost / (1.0 - lost)));
}

/* ---- all of it ------------------------------------------------------------------------------- */

static tess_status build(tess__step *p, tess__arena *arena, const tess_sim_timeline_opts *opts)
{
    TESS_TRY(tess__step_place_parts(p, arena));
    TESS_TRY(tess__step_find_peers(p, arena));
    p->passes = TESS_TAKE(arena, TESS__PARTS * sizeof *p->passes);
    tess__step_fill_passes(p);
    TESS_TRY(tess__step_fill_ends(p, arena));
    TESS_TRY(tess__classes_find(arena, opts->slow, opts->n_slow, opts->every_rank, p->c));
    TESS_TRY(tess__step_check_size(p));
    TESS_TRY(tess__step_reserve_rows(p, arena));
    TESS_TRY(
        tess__timeline_create(p->sim->ctx, p->c->rows, TESS__STREAM_PP + 2 * p->n_peers, &p->t));
    tess__step_number_names(p);
    tess__step_find_hop(p);
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
    if (sim->s.model.clips[0])
        return tess__fail(TESS_ENOTSUP, "model.clips has several sizes, a timeline is of one");
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
