/* SPDX-License-Identifier: Apache-2.0 */
/* memory_need.c - predicts the memory of a run before anything is allocated.
 *
 *   model and passes (tess_model_need) + moments, average and scratch of the optimiser
 *   + four batches of clips, prompts, and the prefetched batches
 *   + the state of the controller of sparse attention, + names, paths and queues
 *
 * One of many ranks holds all weights and gradients, and its shard of the rest.
 */
#include "train_internal.h"

#include "attn/attn_internal.h"
#include "comm/comm_internal.h"

#include <math.h>

void tess__train_pass_shape(const tess_train_opts *opts, const tess_data_info *info, int batch,
                            tess_pass_shape *shape)
{
    const int ordered = opts->cube[0] || opts->cube[1] || opts->cube[2];
    *shape = (tess_pass_shape){
        .batch = batch,
        .frames = info->frames,
        .height = info->height,
        .width = info->width,
        .text_len = info->text_len,
        .train = 1,
        .keep = opts->keep,
        .store = opts->store,
        .precision = opts->precision,
        .cube = ordered ? opts->cube : NULL,
        .exact = opts->exact_ranks,
    };
}

static tess__optim_slot slot_of(const tess__param *p, tess_optim optim)
{
    const int muon = optim == TESS_OPTIM_MUON && p->kind == TESS_PARAM_MATRIX;
    return (tess__optim_slot){.count = p->count,
                              .rows = muon ? p->shape[0] : 0,
                              .cols = muon ? p->count / p->shape[0] : 0,
                              .decay = p->kind != TESS_PARAM_VECTOR};
}

void tess__train_slots(const tess__params *params, tess_optim optim, tess__optim_slot *slots)
{
    int64_t at = 0;
    for (int i = 0; i < params->params; i++) {
        int layer;
        slots[i] = slot_of(tess__params_at(params, i, &layer), optim);
        slots[i].at = at;
        slots[i].param = i;
        at += slots[i].count;
    }
}

tess_status tess__train_fits(const char *who, const tess_model_config *config,
                             const tess_data_info *info)
{
    const struct {
        const char *what, *rule;
        int data, in, out;
    } sides[] = {
        {"channels", "in_channels and out_channels", info->channels, config->in_channels,
         config->out_channels},
        {"text_dim", "text_dim", info->text_dim, config->text_dim, config->text_dim},
    };
    for (size_t i = 0; i < sizeof sides / sizeof *sides; i++)
        if (sides[i].data != sides[i].in || sides[i].data != sides[i].out)
            return tess__invalid(who, "the data's %s is %d, must be the model's %s, %d",
                                 sides[i].what, sides[i].data, sides[i].rule,
                                 sides[i].data != sides[i].in ? sides[i].in : sides[i].out);
    return TESS_OK;
}

enum { OBJECTS = 1 << 16 }; /* bytes of small objects: names, paths, queues */

/* Four batches of clips, their prompts and noise levels, and small objects. */
static int64_t batch_bytes(int batch, const tess_data_info *info)
{
    const int64_t size = (int64_t)info->channels * info->frames * info->height * info->width;
    const int64_t text = (int64_t)info->text_len * info->text_dim;
    return batch * (4 * size + text + 1) * (int64_t)sizeof(float) +
           (batch * size / TESS_PIECE + 1) * (int64_t)sizeof(double) +
           tess__loader_bytes(info, batch, TESS__RING) + OBJECTS;
}

/* One of many ranks: the state it owns, parts in flight, and on rank 0 the state gathered for a
 * checkpoint. */
static tess_status owned_need(const tess_model_config *config, const tess_train_opts *opts,
                              const tess__process_group *pg, int threads, tess__optim_need *need)
{
    tess_ctx *ctx = opts->comm->ctx;
    tess__params params;
    tess__owners owners;
    tess__params_make(config, &params);
    TESS_TRY(tess__owners_create(ctx, &params, opts->optim, pg->size, &owners));
    tess__optim_slot *own = tess__alloc(ctx, (size_t)owners.n_slots * sizeof *own);
    if (own) {
        const int n = tess__owners_own(&owners, pg->rank, own);
        tess__optim_measure(own, NULL, n, opts->ema > 0, threads, need);
        need->workspace += tess__reduce_bytes(&owners, pg->rank, opts->exact_ranks);
        if (pg->rank == 0)
            need->workspace += owners.total_second * (int64_t)sizeof(float);
    }
    tess__free(ctx, own);
    tess__owners_destroy(&owners);
    return own ? TESS_OK : TESS_ENOMEM;
}

/* The parameters of a block are measured once, and count for every layer. */
static void optim_need(const tess_model_config *config, const tess_train_opts *opts, int threads,
                       tess__optim_need *need)
{
    tess__params params;
    tess__optim_slot slots[P_OUTER + B_BLOCK];
    int times[P_OUTER + B_BLOCK], n = 0;
    tess__params_make(config, &params);
    for (int i = 0; i < P_OUTER + B_BLOCK; i++) {
        const tess__param *p = i < P_OUTER ? &params.outer[i] : &params.block[i - P_OUTER];
        if (p->rank == 0)
            continue;
        slots[n] = slot_of(p, opts->optim);
        times[n++] = i < P_OUTER ? 1 : config->layers;
    }
    tess__optim_measure(slots, times, n, opts->ema > 0, threads, need);
}

/* The larger one of two needs. */
static void larger(const tess_model_memory *other, tess_model_memory *memory)
{
    if (other->total > memory->total)
        *memory = *other;
}

/* The model and the pass in either stage, as tess__control_shape asks for it: without lists, and
 * with those of any cubes that may be chosen, whose length follows from the memory of the dense
 * pass. room and cubes must live as long as shape, which is left as that of the larger one. */
static tess_status model_need(const tess_model_config *config, const tess_train_opts *opts,
                              const int grid[3], int threads, tess_pass_shape *shape,
                              tess_sparse_opts *room, tess_model_memory *memory)
{
    static const tess_model_opts with = {.gradients = 1};
    const tess_attention_opts *o = &opts->attention;
    int cubes[TESS_CUBES][3];
    tess_model_memory dense, need;
    TESS_TRY(tess_model_need(config, &with, shape, 1, &dense));
    if (o->kind == TESS_ATTENTION_DENSE)
        return tess_model_need(config, &with, shape, threads, memory);
    tess__attention_at at = {.grid = grid,
                             .train = 1,
                             .break_even = o->break_even > 0.0 ? o->break_even : (double)NAN,
                             .memory = opts->exact_ranks ? 0 : dense.activations + dense.workspace};
    const int n = tess__attention_cubes(o, grid, cubes);
    shape->sparse = room;
    for (int i = -1; i < n; i++) {
        at.cube = shape->cube = cubes[i < 0 ? 0 : i];
        at.sparse = i >= 0;
        tess__attention_room(o, &at, room);
        TESS_TRY(tess_model_need(config, &with, shape, threads, &need));
        if (i < 0)
            *memory = need;
        larger(&need, memory);
    }
    shape->cube = NULL; /* cubes end here */
    return TESS_OK;
}

/* Whole heads that a rank observes, and its rows of all heads in flight. */
static int64_t hook_bytes(const tess_model_config *m, const tess_sparse_opts *room, int ranks,
                          int64_t rows)
{
    const int64_t shown = rows * ranks * ((m->heads + ranks - 1) / ranks);
    return (shown * (3 * m->head_dim + 2 * room->proj_dim + 1) +
            rows * m->heads * (m->head_dim + 1)) *
           (int64_t)sizeof(float);
}

/* With context parallelism a rank's pass scales with its local rows; besides, the context-parallel
 * group holds the q, k, v of the heads that a rank computes, all keys of whole heads, for each
 * layer or for one, packed rows, and a communicator of its own. The exact amount depends on the
 * plans, so this is an estimate; layers of selected keys may need more. */
static void share_tokens(const tess_model_config *m, const tess_pass_shape *shape, int ranks,
                         int64_t tokens, tess_model_memory *memory)
{
    const int64_t dim = (int64_t)m->heads * m->head_dim, f = (int64_t)sizeof(float);
    const int64_t rows = shape->batch * ((tokens + ranks - 1) / ranks);
    const int64_t keys = shape->batch * tokens * ((m->heads + ranks - 1) / ranks) * m->head_dim;
    const int64_t saves = shape->keep == TESS_KEEP_ALL ? m->layers : 1;
    if (ranks == 1 && !shape->exact)
        return;
    memory->activations =
        memory->activations / ranks + saves * (2 * keys + rows * (2 * dim + m->heads)) * f;
    memory->workspace =
        memory->workspace / ranks + 4 * (rows * dim + keys) * f + (int64_t)ranks * TESS_COMM_PIECE;
    if (shape->sparse)
        memory->workspace += hook_bytes(m, shape->sparse, ranks, rows);
    if (shape->sparse && shape->sparse->group != TESS_GROUP_CUBE)
        memory->workspace += tokens * 2 * m->head_dim * f + (int64_t)tess__content_bytes(tokens);
    memory->total = memory->weights + memory->gradients + memory->activations + memory->workspace;
}

tess_status tess_train_need(const tess_model_config *config, const tess_data_info *data,
                            const tess_train_opts *opts, int threads, tess_train_memory *memory)
{
    TESS_REQUIRE(config, data, memory);
    TESS_TRY(tess__check_range(__func__, "threads", threads, 1, 1024));
    tess_train_opts full;
    tess_pass_shape shape;
    tess_sparse_opts room;
    tess_model_memory model;
    tess__optim_need optim;
    tess__process_group pg;
    TESS_TRY(tess_model_config_check(config));
    TESS_TRY(tess__train_options(__func__, opts, &full));
    const int mixed = data->sizes > 1; /* a clip has a pass of its own: the largest counts */
    TESS_TRY(tess__pg_layout(__func__, &full, mixed, &pg));
    TESS_TRY(tess__train_fits(__func__, config, data));
    const int *patch = config->patch;
    const int grid[3] = {data->frames / patch[0], data->height / patch[1], data->width / patch[2]};
    const int batch = mixed ? 1 : full.batch / pg.dp_size;
    tess__train_pass_shape(&full, data, batch, &shape);
    TESS_TRY(model_need(config, &full, grid, threads, &shape, &room, &model));
    share_tokens(config, &shape, pg.cp_size, (int64_t)grid[0] * grid[1] * grid[2], &model);
    if (tess__pg_many(&pg))
        TESS_TRY(owned_need(config, &full, &pg, threads, &optim));
    else
        optim_need(config, &full, threads, &optim);
    const int64_t batches = batch_bytes(batch, data);
    const int64_t control = tess__attention_bytes(&full.attention, config, batch, grid, threads);
    *memory = (tess_train_memory){
        .weights = model.weights,
        .gradients = model.gradients,
        .activations = model.activations,
        .workspace = model.workspace,
        .moments = optim.moments,
        .average = optim.ema,
        .optimiser = optim.workspace,
        .batches = batches,
        .predictors = control,
        .total = model.total + optim.moments + optim.ema + optim.workspace + batches + control,
    };
    return TESS_OK;
}
