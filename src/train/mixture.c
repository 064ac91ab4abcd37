/* SPDX-License-Identifier: Apache-2.0 */
/* mixture.c - training on clips of several sizes: order, weights and gradients of the clips of a
 * step.
 *
 * The gradients of a rank are sent to their owners while those of its last clip are computed, or
 * after it where ranks compute that together: a rank that waits for others inside a clip must not
 * wait for the gradients of a rank that waits for it.
 */
#include "mixture.h"

#include "dsv/control.h"

#include <math.h>
#include <stdlib.h>

/* ---- life ------------------------------------------------------------------------------------ */

/* Every size must be one of the model's. */
static tess_status check_sizes(const tess_train *t, const tess__mixture *m)
{
    for (int i = 0; i < m->sizes; i++) {
        tess_pass_shape shape;
        tess_model_memory need;
        tess__train_pass_shape(&t->opts, &m->info[i], 1, &shape);
        TESS_TRY(tess_model_need(&t->model->config, NULL, &shape, 1, &need));
    }
    return TESS_OK;
}

static tess_status check_options(const tess_train_opts *o)
{
    if (o->attention.kind == TESS_ATTENTION_OWN)
        return tess__fail(TESS_ENOTSUP, "tess_train_create: attention is own, must be of another "
                                        "kind for clips of several sizes");
    if (o->attention.compensate > 1 && o->attention.cluster_every > 0)
        return tess__fail(TESS_ENOTSUP,
                          "tess_train_create: cluster_every is %lld, must be 0 for clips of "
                          "several sizes",
                          (long long)o->attention.cluster_every);
    if (o->strategy && *o->strategy >= '0' && *o->strategy <= '9')
        return tess__fail(TESS_ENOTSUP,
                          "tess_train_create: strategy is \"%.40s\", must be a method without "
                          "degrees for clips of several sizes, which are cut over any ranks",
                          o->strategy);
    return TESS_OK;
}

tess_status tess__mixture_create(tess_train *t)
{
    if (t->info.sizes <= 1)
        return TESS_OK;
    TESS_TRY(check_options(&t->opts));
    tess__mixture *m = TESS_TAKE(&t->arena, sizeof *m);
    const int *patch = t->model->config.patch;
    const size_t sizes = (size_t)t->info.sizes;
    *m = (tess__mixture){.sizes = t->info.sizes, .n = t->opts.batch * t->opts.accumulate};
    m->info = TESS_TAKE(&t->arena, sizes * sizeof *m->info);
    m->grids = TESS_TAKE(&t->arena, sizes * sizeof *m->grids);
    m->tokens = TESS_TAKE(&t->arena, sizes * sizeof *m->tokens);
    m->clips = TESS_TAKE(&t->arena, (size_t)m->n * sizeof *m->clips);
    m->samples = TESS_TAKE(&t->arena, (size_t)m->n * sizeof *m->samples);
    m->own = TESS_TAKE(&t->arena, (size_t)m->n * sizeof *m->own);
    for (int i = 0; i < m->sizes; i++) {
        TESS_TRY(tess_data_bucket(t->data, i, &m->info[i]));
        m->grids[i][0] = m->info[i].frames / patch[0];
        m->grids[i][1] = m->info[i].height / patch[1];
        m->grids[i][2] = m->info[i].width / patch[2];
        m->tokens[i] = (int64_t)m->grids[i][0] * m->grids[i][1] * m->grids[i][2];
        m->largest = m->tokens[i] > m->tokens[m->largest] ? i : m->largest;
    }
    m->bucket = m->largest;
    TESS_TRY(check_sizes(t, m));
    t->mixture = m;
    return tess__mixture_ranks(t);
}

void tess__mixture_destroy(tess__mixture *m)
{
    if (!m)
        return;
    for (int i = m->n_ranges - 1; i >= 0; i--) {
        tess_cp_destroy(m->ranges[i].cp);
        if (i < m->n_ranges - 1) /* the last one belongs to the process group */
            tess_comm_destroy(m->ranges[i].comm);
    }
    tess_mix_plan_destroy(m->plan);
    tess_cluster_destroy(m->cluster);
}

/* ---- the clips of a step --------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    const tess__step_clip *x = a, *y = b;
    if (x->tokens != y->tokens)
        return x->tokens > y->tokens ? -1 : 1;
    if (x->bucket != y->bucket)
        return x->bucket - y->bucket;
    return (x->number > y->number) - (x->number < y->number);
}

int64_t tess__mixture_size(const tess_data_info *i)
{
    return (int64_t)i->channels * i->frames * i->height * i->width;
}

/* The clips of the step at hand, with their weights, and t->tokens. */
static tess_status list_clips(tess_train *t)
{
    tess__mixture *m = t->mixture;
    const int64_t first = t->batches * t->opts.batch;
    t->tokens = 0;
    for (int i = 0; i < m->n; i++) {
        tess__step_clip *clip = &m->clips[i];
        *clip = (tess__step_clip){
            .number = i, .u = tess__noise_level(t->opts.seed, t->step, i, m->n), .width = 1};
        TESS_TRY(tess_data_bucket_of(t->data, TESS_SPLIT_TRAIN, first + i, &clip->bucket));
        clip->tokens = m->tokens[clip->bucket];
        t->tokens += clip->tokens;
    }
    for (int i = 0; i < m->n; i++)
        m->clips[i].weight = t->opts.weigh == TESS_WEIGH_CLIPS
                                 ? 1.0 / m->n
                                 : (double)m->clips[i].tokens / (double)t->tokens;
    qsort(m->clips, (size_t)m->n, sizeof *m->clips, by_size);
    return TESS_OK;
}

double tess__mixture_pairs(const tess_train *t)
{
    double pairs = 0.0;
    for (int i = 0; i < t->mixture->n; i++)
        pairs += (double)t->mixture->clips[i].tokens * (double)t->mixture->clips[i].tokens;
    return pairs;
}

/* ---- gradients ------------------------------------------------------------------------------- */

/* The forward pass of a clip. What all ranks of a range find out alike counts on the first one. */
static tess_status forward(tess_train *t, const tess__step_clip *clip)
{
    tess__observer *observer = t->control ? &t->control->observer : NULL;
    tess__observations before = {.density = 0.0};
    if (observer) {
        before = observer->sums;
        TESS_TRY(tess__attend_table_set(
            &t->control->table, t->pass, t->u,
            &(tess__attend_pass){.number = t->step, .sample = clip->number, .observer = observer}));
    }
    TESS_TRY(tess_pass_forward(t->pass, &(tess_model_in){t->x, t->timestep, t->text}, t->out));
    if (observer && t->pg.rank != clip->first && clip->width > 1) {
        observer->sums.density = before.density;
        observer->sums.pairs = before.pairs;
        observer->sums.loss = before.loss;
        observer->sums.layers = before.layers;
        observer->sums.losses = before.losses;
    }
    return TESS_OK;
}

/* Forward and backward of one clip, whose weighted loss is added to *sum. sends: 1: gradients are
 * complete with it, and go to their owners. */
static tess_status run_clip(tess_train *t, const tess__step_clip *clip, int sends, double *sum,
                            int64_t *waited)
{
    const int64_t size = tess__mixture_size(&t->mixture->info[clip->bucket]);
    const int64_t asked = tess__pg_clock(&t->pg);
    tess__batch batch;
    TESS_TRY(tess__loader_next(t->loader, &batch));
    *waited += tess__pg_clock(&t->pg) - asked;
    TESS_TRY(tess__mixture_pass(t, clip->bucket, tess__mixture_range_of(t->mixture, clip)));
    tess__train_noise(t, &batch, clip->number, size, 0);
    TESS_TRY(forward(t, clip));
    const double loss =
        clip->weight * tess__flow_loss(t->ctx, t->target, size, clip->weight, t->out, t->sums);
    if (clip->width == 1 || t->pg.rank == clip->first)
        *sum += t->opts.exact_ranks ? tess__in_units(loss) : loss;
    if (t->control)
        tess__observe_weigh(&t->control->observer, t->out, 1, size,
                            2.0 * clip->weight / (double)size);
    tess__pass_ready(t->pass, sends ? tess__reduce_ready : NULL, &t->reduce);
    return tess_pass_backward(t->pass, t->out, NULL);
}

/* The gradients of a rank that did not send them, in the order of a backward pass; of a rank
 * without clips zeros. */
static tess_status send_all(tess_train *t)
{
    for (int layer = t->model->config.layers; layer >= -1; layer--)
        TESS_TRY(tess__reduce_ready(&t->reduce, layer));
    return TESS_OK;
}

static tess_status run_clips(tess_train *t, double *loss, int64_t *waited)
{
    tess__mixture *m = t->mixture;
    const int64_t first = t->batches * t->opts.batch;
    const int n = m->n_own, many = tess__pg_many(&t->pg);
    int sends = 0;
    for (int i = 0; i < n; i++)
        m->samples[i] = first + m->clips[m->own[i]].number;
    tess__loader_order(t->loader, m->samples, n);
    TESS_TRY(tess_model_zero_gradients(t->model));
    for (int i = 0; i < n; i++) {
        const tess__step_clip *clip = &m->clips[m->own[i]];
        sends = many && i == n - 1 && clip->width == 1;
        TESS_TRY(run_clip(t, clip, sends, loss, waited));
    }
    if (!many && t->opts.exact_ranks)
        tess__model_read_sums(t->model);
    return many && !sends ? send_all(t) : TESS_OK;
}

tess_status tess__mixture_gradients(tess_train *t, double *loss, int64_t *waited)
{
    tess_pass_times before, after;
    TESS_TRY(list_clips(t));
    TESS_TRY(tess__mixture_plan(t));
    TESS_TRY(tess__train_times(t, &before));
    const int64_t begin = tess__pg_clock(&t->pg), sent = tess__train_sent(t).wait_ns;
    *loss = 0.0;
    TESS_TRY(run_clips(t, loss, waited));
    const int64_t waits = tess__train_sent(t).wait_ns - sent + *waited;
    const double all = (double)(tess__pg_clock(&t->pg) - begin - waits);
    TESS_TRY(tess__train_times(t, &after));
    return tess__pg_many(&t->pg)
               ? tess__rates_step(t, (double)(after.attention_ns - before.attention_ns), all)
               : TESS_OK;
}

void tess__mixture_describe(const tess_train *t, tess_step *now)
{
    const tess__mixture *m = t->mixture;
    const int ranks = t->pg.size;
    double most = 0.0, sum = 0.0;
    now->imbalance_measured = now->passes_ms = now->passes_predicted_ms = (double)NAN;
    if (!m || !m->plan)
        return;
    for (int p = 0; p < ranks; p++) {
        const double time = m->rates.times[p] + m->rates.times[ranks + p];
        most = fmax(most, time);
        sum += time;
    }
    now->imbalance = m->view.step[0].rho;
    now->imbalance_measured = sum > 0.0 ? most * ranks / sum : 1.0;
    now->passes_ms = 1e-6 * most;
    if (m->timed)
        now->passes_predicted_ms = 1e-6 * m->view.step[0].time;
}
