/* SPDX-License-Identifier: Apache-2.0 */
/* train.c - creates, describes and destroys a run. */
#include "mixture.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* Copies of the caller's texts, for they need not live as long as the run. */
static tess_status copy_texts(tess_train *t)
{
    const char **texts[] = {&t->opts.folder, &t->opts.settings, &t->opts.strategy, &t->opts.cluster,
                            &t->opts.speeds};
    t->opts.attention.dispatch = t->opts.attention.cache = NULL; /* the controller has copies */
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (*texts[i]) {
            *texts[i] = TESS_TAKE_STRING(&t->arena, *texts[i], strlen(*texts[i]));
        }
    return TESS_OK;
}

static tess_status take_buffers(tess_train *t)
{
    const size_t batch = (size_t)t->batch, numbers = batch * (size_t)t->size;
    const struct {
        void **place;
        size_t bytes;
    } parts[] = {
        {(void **)&t->clip, numbers * sizeof *t->clip},
        {(void **)&t->x, numbers * sizeof *t->x},
        {(void **)&t->target, numbers * sizeof *t->target},
        {(void **)&t->out, numbers * sizeof *t->out},
        {(void **)&t->text, batch * (size_t)t->text_size * sizeof *t->text},
        {(void **)&t->timestep, batch * sizeof *t->timestep},
        {(void **)&t->u, batch * sizeof *t->u},
        {(void **)&t->sums, (numbers / TESS_PIECE + 1) * sizeof *t->sums},
        {(void **)&t->squares, (size_t)t->model->params.params * sizeof *t->squares},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        *parts[i].place = TESS_TAKE(&t->arena, parts[i].bytes);
    }
    return TESS_OK;
}

/* All parameters, or those that this rank owns. */
static tess_status make_optim(tess_train *t)
{
    int n = t->model->params.params;
    tess__optim_slot *slots = TESS_ALLOC(t->ctx, (size_t)n * sizeof *slots);
    if (tess__pg_many(&t->pg))
        n = tess__owners_own(&t->owners, t->pg.rank, slots);
    else
        tess__train_slots(&t->model->params, t->opts.optim, slots);
    const tess_status status =
        tess__optim_create(t->ctx, slots, n, t->opts.ema > 0, t->model->values, &t->optim);
    tess__free(t->ctx, slots);
    return status;
}

static tess_status make_owners(tess_train *t)
{
    if (!tess__pg_many(&t->pg))
        return TESS_OK;
    TESS_TRY(tess__owners_create(t->ctx, &t->model->params, t->opts.optim, t->pg.size, &t->owners));
    return tess__reduce_create(t->ctx, &t->pg, &t->owners, t->model->gradients, t->model->sums,
                               t->opts.precision == TESS_PRECISION_BF16, &t->reduce);
}

static tess_status make_control(tess_train *t)
{
    const int *patch = t->model->config.patch;
    if (t->opts.attention.kind == TESS_ATTENTION_DENSE)
        return TESS_OK;
    tess_pass_shape shape;
    tess_model_memory dense;
    tess__train_pass_shape(&t->opts, &t->info, t->batch, &shape);
    TESS_TRY(tess_model_need(&t->model->config, NULL, &shape, 1, &dense));
    const tess__control_opts opts = {
        .grids = t->mixture ? (const int(*)[3])t->mixture->grids : NULL,
        .n_grids = t->mixture ? t->mixture->sizes : 0,
        .config = &t->model->config,
        .attention = &t->opts.attention,
        .pg = tess__pg_many(&t->pg) ? &t->pg : NULL,
        .batch = t->batch,
        .grid = {t->info.frames / patch[0], t->info.height / patch[1], t->info.width / patch[2]},
        .seed = t->opts.seed,
        .train = 1,
        .memory = t->opts.exact_ranks ? 0 : dense.activations + dense.workspace,
        .exact = t->opts.exact_ranks,
        .precision = t->opts.precision,
        .steps = t->opts.steps,
        .listener = {tess__events_write, t},
    };
    return tess__control_create(t->ctx, &opts, &t->control);
}

tess_status tess__train_pass(tess_train *t)
{
    tess_pass_shape shape;
    tess_sparse_opts sparse;
    if (t->pass)
        return TESS_OK;
    tess__train_pass_shape(&t->opts, tess__train_info(t), t->batch, &shape);
    if (t->control)
        tess__control_shape(t->control, &shape, &sparse);
    if (t->mixture) {
        TESS_TRY(tess__mixture_context(t, &shape, &shape.context));
    } else {
        TESS_TRY(tess__plans_create(t, &shape));
        shape.context = t->cp;
    }
    return tess_pass_create(t->model, &shape, &t->pass);
}

tess_status tess__train_swap(tess_train *t)
{
    tess__optim_swap(&t->optim, t->model->values);
    return tess__pg_many(&t->pg) && t->opts.ema > 0
               ? tess__reduce_values(&t->reduce, t->model->values)
               : TESS_OK;
}

/* The part without communication. */
static tess_status build(tess_train *t)
{
    const int *patch = t->model->config.patch;
    t->size = (int64_t)t->info.channels * t->info.frames * t->info.height * t->info.width;
    t->text_size = (int64_t)t->info.text_len * t->info.text_dim;
    t->tokens = (int64_t)t->opts.batch * t->opts.accumulate * (t->info.frames / patch[0]) *
                (t->info.height / patch[1]) * (t->info.width / patch[2]);
    TESS_TRY(copy_texts(t));
    TESS_TRY(take_buffers(t));
    TESS_TRY(make_owners(t));
    TESS_TRY(make_optim(t));
    if (!t->opts.folder || t->pg.rank != 0)
        return TESS_OK;
    TESS_TRY(tess__run_lock(t));
    tess__run_clean(t->opts.folder);
    return TESS_OK;
}

static tess_status build_together(tess_train *t, const char *who)
{
    const int mixed = t->info.sizes > 1;
    TESS_TRY(tess__pg_open(who, t->ctx, &t->opts, mixed, &t->pg));
    t->batch = mixed ? 1 : t->opts.batch / t->pg.dp_size;
    TESS_TRY(tess__pg_agree(&t->pg, tess__mixture_create(t)));
    TESS_TRY(tess__pg_agree(&t->pg, make_control(t)));
    TESS_TRY(tess__pg_agree(&t->pg, tess__train_pass(t))); /* checks the shape */
    TESS_TRY(tess__pg_agree(&t->pg, build(t)));
    return tess__train_same_start(t);
}

static tess_status check(const char *who, const tess_model *model, const tess_data *data,
                         const tess_train_opts *opts, tess_train *const *train,
                         tess_train_opts *full, tess_data_info *info)
{
    tess__process_group pg;
    if (!model || !data || !train)
        return tess__invalid(who, "%s is NULL", !model ? "model" : !data ? "data" : "train");
    if (!model->gradients)
        return tess__invalid(who, "the model has no gradients, must be made with them");
    TESS_TRY(tess__train_options(who, opts, full));
    TESS_TRY(tess_data_query(data, info));
    TESS_TRY(tess__pg_layout(who, full, info->sizes > 1, &pg));
    return tess__train_fits(who, &model->config, info);
}

tess_status tess_train_create(tess_model *model, tess_data *data, const tess_train_opts *opts,
                              tess_train **train)
{
    tess_comm *comm = opts ? opts->comm : NULL;
    tess_train_opts full;
    tess_data_info info;
    tess__arena arena = {.ctx = NULL};
    tess_train *t = NULL;
    tess_status status = check(__func__, model, data, opts, train, &full, &info);
    if (status == TESS_OK) {
        arena.ctx = model->ctx;
        t = tess__arena_take(&arena, sizeof *t);
        status = t ? TESS_OK : TESS_ENOMEM;
    }
    if (comm)
        status = tess_comm_agree(comm, status);
    if (status != TESS_OK) {
        tess__arena_free(&arena);
        return status;
    }
    assert(t);
    *t = (tess_train){.ctx = model->ctx,
                      .arena = arena,
                      .model = model,
                      .data = data,
                      .info = info,
                      .opts = full,
                      .loss_mean = (double)NAN,
                      .loss_level = (double)NAN,
                      .val_loss = (double)NAN,
                      .lock = -1,
                      .saved = -1};
    tess__counts_add(comm, -1, &t->sent_before);
    status = tess__pg_propagate(&t->pg, build_together(t, __func__));
    if (status == TESS_OK)
        *train = t;
    else
        tess_train_destroy(t);
    return status;
}

void tess_train_destroy(tess_train *train)
{
    if (!train)
        return;
    tess__run_unlock(train);
    tess__loader_stop(train->loader);
    tess_pass_destroy(train->pass);
    tess_cp_destroy(train->cp);
    tess__control_destroy(train->control);
    tess__mixture_destroy(train->mixture);
    tess__optim_destroy(&train->optim);
    tess__reduce_destroy(&train->reduce);
    tess__owners_destroy(&train->owners);
    tess__pg_close(&train->pg);
    tess__arena arena = train->arena; /* the train lies in it */
    tess__arena_free(&arena);
}

tess_status tess_train_query(const tess_train *train, tess_train_info *info)
{
    TESS_REQUIRE(train, info);
    *info = (tess_train_info){
        .step = train->step,
        .steps = train->opts.steps,
        .tokens = train->tokens,
        .loss_mean = train->loss_mean,
        .val_loss = train->val_loss,
        .checkpoint = train->checkpoint[0] ? train->checkpoint : NULL,
        .sent = tess__train_sent(train),
    };
    return TESS_OK;
}
