/* SPDX-License-Identifier: Apache-2.0 */
/* loop.c - training steps (forward, backward, clip, update), and the work between them.
 *
 * A step accumulates the gradients of `accumulate` micro-batches; noise levels are stratified over
 * all their clips. The loss and the norm of the gradients are checked before the update: if one is
 * not finite, the state is still that of the step before, and is saved; a loss that diverges ends
 * the run with a checkpoint of its last good state (last_good.c). Between steps come, when due,
 * validation, a sheet of preview samples and a checkpoint. A step allocates nothing.
 *
 * Each of many ranks has its clips of every micro-batch, with the same numbers, and so the same
 * noise, as on one rank; gradients are sent to their owners during the backward pass of the last
 * micro-batch (reduce.c), and loss and norm are sums over all ranks.
 */
#include "train_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double loss_memory = 0.98; /* of the running mean: about 50 steps */

/* ---- one step -------------------------------------------------------------------------------- */

void tess__train_noise(tess_train *t, const tess__batch *batch, int64_t i, int64_t size, int b)
{
    const tess_train_opts *o = &t->opts;
    const double u = tess__noise_level(o->seed, t->step, i, (int64_t)o->batch * o->accumulate);
    const tess__noising noising = {.seed = o->seed,
                                   .stream = tess__stream(TESS__NOISE, t->step),
                                   .first = (uint64_t)(i * t->size),
                                   .s = tess__shifted(o->shift, u)};
    tess__flow_noise(t->ctx, &noising, batch->x + b * t->size, size, t->x + b * t->size,
                     t->target + b * t->size);
    t->timestep[b] = (float)(1000.0 * noising.s);
    t->u[b] = u;

    float chance, *text = t->text + b * t->text_size;
    const size_t bytes = (size_t)t->text_size * sizeof *text;
    tess_random_uniform(o->seed, tess__stream(TESS__DROPOUT, t->step), (uint64_t)i, &chance, 1);
    if ((double)chance < o->prompt_dropout)
        memset(text, 0, bytes);
    else
        memcpy(text, batch->text + b * t->text_size, bytes);
}

/* Adds noise to a micro-batch and drops some of its prompts; micro is its number in the step. */
static void prepare(tess_train *t, const tess__batch *batch, int micro)
{
    const int64_t first = (int64_t)micro * t->opts.batch + (int64_t)t->pg.dp_rank * t->batch;
    for (int b = 0; b < t->batch; b++)
        tess__train_noise(t, batch, first + b, t->size, b);
}

/* One forward pass of a step, with the budgets of its noise levels. */
static tess_status forward(tess_train *t, int micro)
{
    if (t->control)
        TESS_TRY(tess__attend_table_set(
            &t->control->table, t->pass, t->u,
            &(tess__attend_pass){.number = t->step * t->opts.accumulate + micro,
                                 .sample = (int64_t)t->pg.dp_rank * t->batch,
                                 .renews = micro == 0,
                                 .observer = &t->control->observer}));
    return tess_pass_forward(t->pass, &(tess_model_in){t->x, t->timestep, t->text}, t->out);
}

/* The loss and its gradient clip by clip, for sums that do not depend on who has which clips. */
static double loss_of_clips(tess_train *t)
{
    const double share = 1.0 / ((double)t->opts.accumulate * t->opts.batch);
    double sum = 0.0;
    for (int b = 0; b < t->batch; b++) {
        const int64_t at = b * t->size;
        sum += tess__in_units(
            share * tess__flow_loss(t->ctx, t->target + at, t->size, share, t->out + at, t->sums));
    }
    return sum;
}

/* Forward and backward over all micro-batches; with many ranks it starts the reduce-scatter of the
 * gradients. *loss: of this rank's clips. *waited: for data. */
static tess_status accumulate_gradients(tess_train *t, double *loss, int64_t *waited)
{
    const int64_t n = (int64_t)t->batch * t->size;
    const double share = 1.0 / ((double)t->opts.accumulate * t->pg.dp_size);
    const int many = tess__pg_many(&t->pg);
    double sum = 0.0;
    TESS_TRY(tess_model_zero_gradients(t->model));
    for (int micro = 0; micro < t->opts.accumulate; micro++) {
        const int last = micro == t->opts.accumulate - 1;
        const int64_t asked = tess__pg_clock(&t->pg);
        tess__batch batch;
        TESS_TRY(tess__loader_next(t->loader, &batch));
        *waited += tess__pg_clock(&t->pg) - asked;
        prepare(t, &batch, micro);
        TESS_TRY(forward(t, micro));
        sum += t->opts.exact_ranks
                   ? loss_of_clips(t)
                   : share * tess__flow_loss(t->ctx, t->target, n, share, t->out, t->sums);
        if (!isfinite(sum) && !many)
            break; /* useless gradients; but other ranks would wait for them */
        if (t->control)
            tess__observe_weigh(&t->control->observer, t->out, t->batch, t->size,
                                2.0 * share / (double)n);
        tess__pass_ready(t->pass, many && last ? tess__reduce_ready : NULL, &t->reduce);
        TESS_TRY(tess_pass_backward(t->pass, t->out, NULL));
    }
    if (t->opts.exact_ranks && !many)
        tess__model_read_sums(t->model);
    *loss = sum;
    return TESS_OK;
}

/* The gradients' norm, added in the order of parameters. */
static tess_status exact_norm(tess_train *t, double *norm)
{
    const int n = t->model->params.params;
    double sum = 0.0;
    memset(t->squares, 0, (size_t)n * sizeof *t->squares);
    tess__optim_squares_each(&t->optim, t->model->gradients, t->squares);
    if (t->mixture ? tess__mixture_beyond(t) : tess__pass_beyond(t->pass))
        t->squares[0] = (double)NAN;
    TESS_TRY(tess__pg_allreduce(&t->pg, t->squares, n));
    for (int i = 0; i < n; i++)
        sum += t->squares[i];
    *norm = sqrt(sum);
    return TESS_OK;
}

/* The loss and the gradients' norm, over all ranks. */
static tess_status reduce_loss(tess_train *t, double *loss, double *norm)
{
    double sums[2] = {t->pg.cp_rank == 0 ? *loss : 0.0,
                      tess__optim_squares(&t->optim, t->model->gradients)};
    TESS_TRY(tess__pg_allreduce(&t->pg, sums, 2));
    *loss = sums[0];
    *norm = sqrt(sums[1]);
    return t->opts.exact_ranks ? exact_norm(t, norm) : TESS_OK;
}

/* Saves the state of a run that ends, on all ranks, if it has a folder. A failure to save is
 * reported after the reason why the run ends, never in its place. */
static tess_status save_last(tess_train *t, const char *why)
{
    const tess_status status = t->opts.folder ? tess__run_checkpoint(t) : TESS_OK;
    if (status != TESS_OK)
        return tess__fail(status, "%s; and its checkpoint failed: %s", why, tess_last_error());
    t->pg.failure_known = 1;
    return TESS_OK;
}

/* EINVAL, with a checkpoint of the state before the failed step. */
static tess_status fail_not_finite(tess_train *t, const char *what, double value)
{
    char why[128];
    const char *text = isnan(value) ? "NaN" : "infinite"; /* printf may sign a NaN */
    snprintf(why, sizeof why, "tess_train_run: %s of step %lld is %s, must be finite", what,
             (long long)t->step + 1, text);
    if (save_last(t, why) != TESS_OK)
        return TESS_EINVAL; /* with both sentences */
    if (!t->opts.folder)
        return tess__fail(TESS_EINVAL, "%s", why);
    return tess__fail(TESS_EINVAL, "%s; %s holds the state before it", why, t->checkpoint);
}

/* ESTOPPED says that the run can go on: not without the checkpoint. */
static tess_status stop_run(tess_train *t)
{
    char why[128];
    snprintf(why, sizeof why, "tess_train_run: stopped by the caller after step %lld",
             (long long)t->step);
    TESS_TRY(save_last(t, why));
    return tess__fail(TESS_ESTOPPED, "%s", why);
}

static tess_status update(tess_train *t, double norm, double factor)
{
    const tess_train_opts *o = &t->opts;
    const double scale = o->clip > 0 && norm > o->clip ? o->clip / norm : 1.0;
    const tess__optim_step step = {
        .step = t->step + 1,
        .lr = factor * o->lr,
        .lr_muon = factor * o->lr_muon,
        .beta1 = o->beta1,
        .beta2 = o->beta2,
        .eps = 1e-8,
        .momentum = o->momentum,
        .weight_decay = o->weight_decay,
        .ema = o->ema,
        .scale = scale,
    };
    TESS_TRY(tess__optim_update(&t->optim, &step, t->model->values, t->model->gradients));
    return tess__pg_many(&t->pg) ? tess__reduce_values(&t->reduce, t->model->values) : TESS_OK;
}

/* How many layers' lists a pass that was made again saves for the gradients. */
static tess_status report_lists(tess_train *t)
{
    const int saved = tess__pass_saved_lists(t->pass);
    const tess__event event = {
        .kind = TESS__EVENT_LISTS,
        .step = t->step + 1,
        .layer = -1,
        .head = -1,
        .why = {{"layers", saved}, {"selected_again", t->model->config.layers - saved}},
        .n_why = 2};
    return saved >= 0 ? tess__events_write(t, &event) : TESS_OK;
}

/* What was decided is in force: the pass is made again if its tokens lie in other cubes now. */
static tess_status apply(tess_train *t)
{
    int remake = 0;
    if (t->control)
        TESS_TRY(tess__control_apply(t->control, t->step + 1, &remake));
    if (t->mixture) { /* clips make their passes */
        tess__mixture_restart(t, remake);
        return TESS_OK;
    }
    if (remake) {
        tess_pass_destroy(t->pass);
        t->pass = NULL;
    }
    TESS_TRY(tess__train_pass(t));
    if (remake)
        TESS_TRY(report_lists(t));
    return tess__plans_make(t);
}

/* The predictors' update and the next decision, or the work of a dense step. */
static tess_status observe(const tess_train *t, tess_step *now)
{
    const int forwards = t->opts.keep == TESS_KEEP_BLOCKS ? 2 : 1;
    const tess_model_config *m = &t->model->config;
    if (t->control) {
        const int64_t passes = t->mixture ? (int64_t)t->opts.batch * t->opts.accumulate
                                          : (int64_t)t->opts.accumulate * t->pg.dp_size;
        TESS_TRY(tess__control_observe(t->control, passes, forwards, now));
        return tess__density_add(t);
    }
    const double each = (double)t->tokens / t->opts.batch / t->opts.accumulate;
    const double pairs = t->mixture ? tess__mixture_pairs(t) : (double)t->tokens * each;
    now->attention_gflop =
        tess__attention_gflop(m->head_dim, forwards, pairs * m->layers * m->heads);
    return TESS_OK;
}

/* A loss that diverges is noted in t->divergence, and the step is not taken. */
static tess_status run_step(tess_train *t, tess_step *now)
{
    const double factor = tess_train_schedule(&t->opts, t->step);
    double loss = 0.0, norm = 0.0;
    tess__step_times at = {.begin = tess__pg_clock(&t->pg), .begun = tess__train_sent(t)};
    t->plan_ns = 0;
    TESS_TRY(apply(t));
    TESS_TRY(tess__train_times(t, &at.before));
    TESS_TRY(t->mixture ? tess__mixture_gradients(t, &loss, &at.waited)
                        : accumulate_gradients(t, &loss, &at.waited));
    at.middle = tess__pg_clock(&t->pg);
    at.between = tess__train_sent(t);
    TESS_TRY(reduce_loss(t, &loss, &norm));
    if (!isfinite(loss))
        return fail_not_finite(t, "the loss", loss);
    if (!isfinite(norm))
        return fail_not_finite(t, "the gradients' norm", norm);
    tess__good_loss(t, loss);
    if (t->divergence.what)
        return TESS_OK; /* the weights are as before */
    TESS_TRY(update(t, norm, factor));
    at.end = tess__pg_clock(&t->pg);
    at.ended = tess__train_sent(t);
    TESS_TRY(tess__train_times(t, &at.after));

    t->step++;
    t->batches += t->opts.accumulate;
    t->loss_mean =
        isnan(t->loss_mean) ? loss : loss_memory * t->loss_mean + (1.0 - loss_memory) * loss;
    t->loss_level = fmin(t->loss_level, t->loss_mean);
    tess__step_describe(t, &at, factor, now);
    now->loss = loss;
    now->grad_norm = norm;
    TESS_TRY(observe(t, now));
    tess__step_sent(t, &at.begun, now);
    return TESS_OK;
}

/* ---- between steps --------------------------------------------------------------------------- */

static int is_due(int64_t every, const tess_train *t)
{
    return every > 0 && (t->step % every == 0 || t->step == t->opts.steps);
}

/* The step in the files of the run's folder, by rank 0. */
static tess_status record(tess_train *t, const tess_step *now)
{
    if (!t->opts.folder || t->pg.rank > 0)
        return TESS_OK;
    if (t->resumed && !t->recorded)
        TESS_TRY(tess__settings_write(t, t->opts.folder));
    t->recorded = 1;
    TESS_TRY(tess__metrics_add(t->opts.folder, now));
    return t->opts.tensorboard ? tess__tensorboard_add(t->opts.folder, now) : TESS_OK;
}

static tess_status after_step(tess_train *t, tess_step *now)
{
    const int validates = is_due(t->opts.validate_every, t);
    if (validates) {
        TESS_TRY(tess__train_validate(t, &t->val_loss, t->val_buckets, &now->output_change));
        TESS_TRY(tess__control_calibrate(t->control, now->output_change));
        now->val_loss = t->val_loss;
        memcpy(now->val_buckets, t->val_buckets, sizeof now->val_buckets);
        tess__good_validation(t);
    }
    if (t->divergence.again)
        return TESS_OK;
    if (validates || t->step == t->opts.steps)
        TESS_TRY(tess__plans_add(t));
    TESS_TRY(record(t, now));
    if (!t->opts.folder || t->divergence.what)
        return TESS_OK;
    if (is_due(t->opts.sample_every, t))
        TESS_TRY(tess__sheet_write(t));
    return is_due(t->opts.checkpoint_every, t) ? tess__run_checkpoint(t) : TESS_OK;
}

static tess_status start_loader(tess_train *t)
{
    if (t->loader)
        return TESS_OK;
    if (t->mixture)
        return tess__loader_start(t->ctx,
                                  &(tess__loader_opts){.data = t->data,
                                                       .split = TESS_SPLIT_TRAIN,
                                                       .batch = 1,
                                                       .depth = TESS__RING,
                                                       .queue = t->opts.batch * t->opts.accumulate},
                                  &t->loader);
    return tess__loader_start(t->ctx,
                              &(tess__loader_opts){.data = t->data,
                                                   .split = TESS_SPLIT_TRAIN,
                                                   .batch = t->batch,
                                                   .of = t->opts.batch,
                                                   .skip = (int64_t)t->pg.dp_rank * t->batch,
                                                   .depth = TESS__RING,
                                                   .first = t->batches},
                              &t->loader);
}

static tess_status start(tess_train *t)
{
    tess_status status = t->control ? tess__control_ready(t->control) : TESS_OK;
    if (status == TESS_OK && t->opts.folder && !t->opened && t->pg.rank == 0)
        status = tess__run_open(t);
    TESS_TRY(tess__pg_agree(&t->pg, status));
    if (!t->opened && !t->resumed)
        TESS_TRY(tess__good_begin(t));
    t->opened = 1;
    return start_loader(t);
}

/* Whether the caller of any rank wants to stop. */
static tess_status poll_stop(tess_train *t, tess_step_fn fn, void *user, const tess_step *now,
                             int *stop)
{
    int64_t wish = fn && fn(user, now);
    if (tess__pg_many(&t->pg))
        TESS_TRY(tess_comm_allreduce(t->pg.world, TESS_TRAFFIC_CONTROL, &wish, 1, TESS_DTYPE_I64,
                                     TESS_REDUCE_MAX));
    *stop = wish != 0;
    return TESS_OK;
}

/* Steps that were taken before, up to step `end` or the caller's stop, without files. */
static tess_status run_again(tess_train *t, int64_t end, tess_step_fn fn, void *user)
{
    int stop = 0;
    t->divergence.again = 1;
    t->opened = 1; /* the files of the run keep the steps that diverged */
    TESS_TRY(start_loader(t));
    while (t->step < end && !stop) {
        tess_step now;
        TESS_TRY(run_step(t, &now));
        TESS_TRY(after_step(t, &now));
        TESS_TRY(poll_stop(t, fn, user, &now, &stop));
    }
    return TESS_OK;
}

/* Back to the last good state, and its checkpoint. */
static tess_status save_good(tess_train *t, int64_t good, tess_step_fn fn, void *user)
{
    int found;
    TESS_TRY(tess__good_return(t, good, &found));
    if (!found)
        return TESS_OK;
    const tess_status status = run_again(t, good, fn, user);
    t->divergence.again = 0;
    TESS_TRY(status);
    t->opened = 0; /* steps after this one would be taken anew, as after a resume */
    t->resumed = 1;
    /* Checkpoints of later steps have lost weights, and a resume would take the newest one. */
    TESS_TRY(tess__pg_agree(&t->pg, t->pg.rank == 0 ? tess__run_drop(t, t->step) : TESS_OK));
    return tess__run_checkpoint(t);
}

/* EINVAL on all ranks, which have the same losses. */
static tess_status end_diverged(tess_train *t, tess_step_fn fn, void *user)
{
    const tess__divergence d = t->divergence;
    char why[256];
    snprintf(
        why, sizeof why,
        "tess_train_run: the run diverges: %s of step %lld is %.3g, the lowest running mean of "
        "the loss was %.3g",
        d.what, (long long)d.step, d.loss, t->loss_level);
    t->divergence.what = NULL;
    t->checkpoint[0] = 0;
    if (t->opts.folder && save_good(t, d.good, fn, user) != TESS_OK)
        return tess__fail(TESS_EINVAL, "%s; and the checkpoint of its last good state failed: %s",
                          why, tess_last_error());
    t->pg.failure_known = 1;
    if (!t->opts.folder)
        return tess__fail(TESS_EINVAL, "%s; a smaller learning rate may help", why);
    if (!t->checkpoint[0])
        return tess__fail(TESS_EINVAL,
                          "%s; its last good state was that of step %lld, and no checkpoint from "
                          "before it is kept",
                          why, (long long)d.good);
    return tess__fail(TESS_EINVAL,
                      "%s; %s holds its last good state, and a smaller learning rate may help", why,
                      t->checkpoint);
}

static tess_status run_steps(tess_train *t, int64_t end, tess_step_fn fn, void *user)
{
    TESS_TRY(start(t));
    while (t->step < end) {
        tess_step now;
        int stop;
        TESS_TRY(run_step(t, &now));
        if (!t->divergence.what)
            TESS_TRY(after_step(t, &now));
        if (t->divergence.what)
            return end_diverged(t, fn, user);
        TESS_TRY(poll_stop(t, fn, user, &now, &stop));
        if (stop && t->step < t->opts.steps)
            return stop_run(t);
    }
    return TESS_OK;
}

tess_status tess_train_run(tess_train *train, int64_t steps, tess_step_fn fn, void *user)
{
    TESS_REQUIRE(train);
    TESS_TRY(tess__check_least(__func__, "steps", steps, 0));
    const int64_t left = train->opts.steps - train->step;
    const int64_t end = train->step + (steps == 0 || steps > left ? left : steps);
    return tess__pg_propagate(&train->pg, run_steps(train, end, fn, user));
}
