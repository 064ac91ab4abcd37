/* SPDX-License-Identifier: Apache-2.0 */
/* pass.c - the network from its input to its output, and its gradients back.
 *
 *   embed -> block 0 -> ... -> block layers - 1 -> head
 *
 * Each block's input is the output of the one before it. Where inputs are saved in F32 a block
 * writes its output to the next one's place; otherwise all inputs share one place in the work set,
 * and are rounded into the saved ones before they are overwritten.
 */
#include "attn/attn_internal.h"
#include "observe.h"
#include "ranks.h"

#include <string.h>

/* ---- life ------------------------------------------------------------------------------------ */

static tess_status make_dense(const tess_pass *p, const tess_attn_shape *shape, tess_attn **attn)
{
    TESS_TRY(tess_attn_create(p->ctx, shape, attn));
    return p->shape.train ? tess__attn_backward_ready(*attn, 0) : TESS_OK;
}

static tess_status make_attention(tess_pass *p)
{
    const tess_attn_shape self = tess__pass_attention(&p->z, p->z.tokens);
    const tess_attn_shape cross = tess__pass_attention(&p->z, p->z.text);
    const int alone = !p->ranks.comm;
    if (p->z.half)
        TESS_TRY(tess__linear_bf16_create(p->ctx, &p->linear));
    if (alone)
        TESS_TRY(make_dense(p, &self, &p->self));
    TESS_TRY(make_dense(p, &cross, &p->cross));
    if (p->z.exact && p->shape.train) {
        tess_attn_shape one = cross;
        one.batch = 1;
        TESS_TRY(make_dense(p, &one, &p->exact.cross));
        TESS_TRY(tess__model_sums(p->model));
        memset(p->exact.mod, 0, (size_t)(p->z.batch * MOD_ALL * p->z.dim) * sizeof *p->exact.mod);
    }
    if (!p->z.sparse)
        return TESS_OK;
    const tess_attn_shape one = tess__pass_one(p);
    const tess_sel_shape lists = tess__pass_lists(p);
    const int64_t room = (int64_t)p->z.n_q * p->z.units_most;
    if (alone && !p->room.dense) {
        TESS_TRY(tess__attn_create_like(p->self, &one, &p->sparse.one));
        if (p->shape.train)
            TESS_TRY(tess__attn_backward_ready(p->sparse.one, 1));
        TESS_TRY(tess_selection_create(p->ctx, &lists, room, &p->sparse.lists));
    }
    const tess_predict_shape predict = tess__pass_predict(p);
    return p->room.proj_dim ? tess_predict_create(p->ctx, &predict, &p->learn.predict) : TESS_OK;
}

/* Token order and rotations; the attention stands on the cubes. */
static tess_status make_places(tess_pass *p, const int *cube)
{
    tess__rope_make(p, p->z.head_dim, p->rope);
    if (p->learn.rope[0])
        tess__rope_make(p, p->room.proj_dim, p->learn.rope);
    if (cube)
        TESS_TRY(tess_order_cubes(p->z.grid, cube, p->perm, NULL, p->sparse.bounds, NULL));
    return TESS_OK;
}

tess_status tess_pass_create(tess_model *model, const tess_pass_shape *shape, tess_pass **pass)
{
    TESS_REQUIRE(model, shape, pass);
    tess_pass plan = {
        .model = model, .ctx = model->ctx, .shape = *shape, .threads = model->ctx->threads};
    if (shape->sparse)
        plan.room = *shape->sparse;
    size_t saved;
    TESS_TRY(tess__pass_sizes(__func__, &model->config, shape, &plan.z));
    plan.ranks = tess__ranks_of(shape->context);
    if (shape->train && !model->gradients)
        return tess__invalid(__func__, "train is 1, but the model was made without gradients");
    if (shape->exact && shape->train && !shape->context)
        return tess__invalid(__func__, "context is NULL, must be given with exact and train");
    const size_t object = tess__arena_round(sizeof plan);
    char *memory = TESS_ALLOC(model->ctx, object + tess__pass_layout(&plan, NULL, &saved));
    tess_pass *made = (tess_pass *)memory;
    *made = plan;
    tess__pass_layout(made, memory + object, &saved);
    tess_status status = make_places(made, shape->cube);
    if (status == TESS_OK)
        status = make_attention(made);
    if (status == TESS_OK)
        status = tess_pass_attend(made, NULL);
    made->shape.cube = NULL;
    made->shape.sparse = NULL;
    made->shape.context = NULL;
    if (status == TESS_OK)
        *pass = made;
    else
        tess_pass_destroy(made);
    return status;
}

void tess_pass_destroy(tess_pass *pass)
{
    if (!pass)
        return;
    tess__linear_bf16_destroy(pass->linear);
    tess_attn_destroy(pass->sparse.one);
    tess_attn_destroy(pass->self);
    tess_attn_destroy(pass->cross);
    tess_attn_destroy(pass->exact.cross);
    tess_selection_destroy(pass->sparse.lists);
    tess_predict_destroy(pass->learn.predict);
    for (int kind = 0; kind < TESS_SELECT_COUNT; kind++)
        tess_selector_destroy(pass->sparse.selectors[kind]);
    tess__free(pass->ctx, pass->ranks.whole);
    tess__free(pass->ctx, pass);
}

tess_status tess_pass_times_read(const tess_pass *pass, tess_pass_times *times)
{
    TESS_REQUIRE(pass, times);
    *times = pass->times;
    return TESS_OK;
}

/* ---- saved activations ----------------------------------------------------------------------- */

/* Whether a block works in F32 on what is saved as halves. */
static int in_halves(const tess_pass *p)
{
    return tess__saves_halves(p) && !p->z.half;
}

/* Copies a slot between the work set and what is saved in halves; log-sums are saved in F32. */
static void copy_slot(tess_pass *p, int layer, int slot, int keep)
{
    const int64_t n = p->z.slot[slot];
    void *saved = p->act.saved[layer].at[slot];
    float *work = p->act.work.at[slot];
    if (slot == SET_LSE1 || slot == SET_LSE2)
        memcpy(keep ? saved : work, keep ? (void *)work : saved, (size_t)n * sizeof *work);
    else if (keep)
        tess_convert(p->ctx, TESS_DTYPE_F32, work, TESS_DTYPE_BF16, saved, n);
    else
        tess_convert(p->ctx, TESS_DTYPE_BF16, saved, TESS_DTYPE_F32, work, n);
}

/* Where a block's input lies in F32. */
static float *input_of(const tess_pass *p, int layer)
{
    if (p->z.half)
        return p->act.stream;
    return p->act.saved && !in_halves(p) ? p->act.saved[layer].at[SET_X0] : p->act.work.at[SET_X0];
}

static float *output_of(const tess_pass *p, int layer)
{
    if (p->z.half)
        return p->ws.t;
    return layer + 1 < p->z.layers ? input_of(p, layer + 1) : p->act.last;
}

/* The set that a block works in, with its input. */
static tess__set set_of(const tess_pass *p, int layer)
{
    if (p->act.saved && !in_halves(p) && p->shape.keep == TESS_KEEP_ALL)
        return p->act.saved[layer];
    tess__set set = p->act.work;
    if (!p->z.half)
        set.at[SET_X0] = input_of(p, layer);
    else if (p->act.saved)
        set.at[SET_X0] = p->act.saved[layer].at[SET_X0];
    return set;
}

/* ---- forward --------------------------------------------------------------------------------- */

static tess_status run_block(tess_pass *p, int layer)
{
    const tess__set set = set_of(p, layer);
    const int halves = p->act.saved && in_halves(p);
    if (p->z.half) {
        tess__stream_round(p, set.at[SET_X0]);
        TESS_TRY(tess__block_forward(p, layer, &set, output_of(p, layer)));
        tess__stream_swap(p);
        p->act.last = p->act.stream;
        return TESS_OK;
    }
    if (halves)
        copy_slot(p, layer, SET_X0, 1);
    TESS_TRY(tess__block_forward(p, layer, &set, output_of(p, layer)));
    for (int slot = SET_X0 + 1; halves && p->shape.keep == TESS_KEEP_ALL && slot < SET_SLOTS;
         slot++)
        copy_slot(p, layer, slot, 1);
    return TESS_OK;
}

static tess_status run_forward(tess_pass *p, const tess_model_in *in, float *out)
{
    TESS_TRY(tess__embed_forward(p, in, input_of(p, 0)));
    for (int layer = 0; layer < p->z.layers; layer++)
        TESS_TRY(run_block(p, layer));
    return tess__head_forward(p, p->act.last, out);
}

static int64_t counted(const tess_pass_times *t)
{
    return t->attention_ns + t->linear_ns + t->select_ns + t->learn_ns + t->observe_ns;
}

/* The rest of the time of a call that began at `begin`, when `before` was read. */
static void count_time(tess_pass *p, tess__lap begin, const tess_pass_times *before)
{
    p->times.exchange_ns += tess__lap_begin(p).waited - begin.waited;
    p->times.other_ns += tess__lap_end(p, begin) - (counted(&p->times) - counted(before));
}

tess_status tess_pass_forward(tess_pass *pass, const tess_model_in *in, float *out)
{
    TESS_REQUIRE(pass, in, out);
    if (!in->x || !in->timestep || !in->text)
        return tess__invalid(__func__, "%s is NULL",
                             !in->x          ? "in->x"
                             : !in->timestep ? "in->timestep"
                                             : "in->text");
    const tess_pass_times before = pass->times;
    const tess__lap begin = tess__lap_begin(pass);
    pass->ready = 0;
    tess__packed_forget(pass);
    TESS_TRY(tess__ranks_end(pass, run_forward(pass, in, out)));
    pass->ready = pass->shape.train;
    if (pass->observer)
        tess__observe_attended(pass);
    pass->times.forwards++;
    count_time(pass, begin, &before);
    return TESS_OK;
}

/* ---- backward -------------------------------------------------------------------------------- */

static tess_status run_block_backward(tess_pass *p, int layer)
{
    const tess__set set = set_of(p, layer);
    const int all = p->shape.keep == TESS_KEEP_ALL;
    if (p->z.half && !all)
        tess__stream_read(p, set.at[SET_X0]);
    for (int slot = SET_X0; in_halves(p) && slot < (all ? SET_SLOTS : SET_X0 + 1); slot++)
        copy_slot(p, layer, slot, 0);
    if (!all) {
        p->recomputing = 1;
        const tess_status status = tess__block_recompute(p, layer, &set);
        p->recomputing = 0;
        TESS_TRY(status);
    }
    return tess__block_backward(p, layer, &set);
}

tess_status tess__report_ready(const tess_pass *p, int layer)
{
    return p->ready_fn ? p->ready_fn(p->ready_user, layer) : TESS_OK;
}

void tess__pass_ready(tess_pass *pass, tess__ready_fn fn, void *user)
{
    pass->ready_fn = fn;
    pass->ready_user = user;
}

int tess__pass_saved_lists(const tess_pass *pass)
{
    return pass->sparse.lists ? pass->sparse.saved_lists : -1;
}

int tess__pass_beyond(tess_pass *pass)
{
    const int beyond = pass->exact.beyond;
    pass->exact.beyond = 0;
    return beyond;
}

static tess_status run_backward(tess_pass *p, const float *dout, float *dx)
{
    const tess__sizes *z = &p->z;
    memset(p->cond.dsix, 0, (size_t)(z->batch * MOD_ALL * z->dim) * sizeof *p->cond.dsix);
    memset(p->cond.dtemb, 0, (size_t)(z->batch * z->dim) * sizeof *p->cond.dtemb);
    memset(p->cond.dtext_emb, 0, (size_t)(z->text_rows * z->dim) * sizeof *p->cond.dtext_emb);
    TESS_TRY(tess__head_backward(p, dout));
    TESS_TRY(tess__report_ready(p, z->layers));
    for (int layer = z->layers - 1; layer >= 0; layer--) {
        TESS_TRY(run_block_backward(p, layer));
        TESS_TRY(tess__report_ready(p, layer));
    }
    TESS_TRY(tess__embed_backward(p, dx));
    return tess__report_ready(p, -1);
}

tess_status tess_pass_backward(tess_pass *pass, const float *dout, float *dx)
{
    TESS_REQUIRE(pass, dout);
    if (!pass->shape.train)
        return tess__invalid(__func__, "the pass was made with train 0");
    if (!pass->ready)
        return tess__invalid(__func__, "there is no forward pass before it");
    const tess_pass_times before = pass->times;
    const tess__lap begin = tess__lap_begin(pass);
    pass->ready = 0;
    tess__packed_forget(pass);
    TESS_TRY(tess__ranks_end(pass, run_backward(pass, dout, dx)));
    pass->times.backwards++;
    count_time(pass, begin, &before);
    return TESS_OK;
}
