/* SPDX-License-Identifier: Apache-2.0 */
/* mixture.c - training on clips of several sizes: order, passes and weights of the clips of a step.
 *
 * Every clip has a pass of its own. One pass is held at a time, made anew where the next clip has
 * another size: a rank holds what its largest clip takes, and makes as many passes in a step as its
 * clips have sizes. Making one is a thousandth of running it, the pages of its memory included.
 */
#include "mixture.h"

#include "dsv/control.h"

#include <math.h>
#include <stdlib.h>

/* ---- life ------------------------------------------------------------------------------------ */

static int64_t tokens_of(const tess_model_config *config, const tess_data_info *i)
{
    const int *patch = config->patch;
    return (int64_t)(i->frames / patch[0]) * (i->height / patch[1]) * (i->width / patch[2]);
}

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

tess_status tess__mixture_create(tess_train *t)
{
    if (t->info.sizes <= 1)
        return TESS_OK;
    if (t->opts.attention.kind != TESS_ATTENTION_DENSE)
        return tess__fail(TESS_ENOTSUP, "tess_train_create: attention of clips of several sizes "
                                        "must be dense");
    if (t->opts.exact_ranks)
        return tess__fail(TESS_ENOTSUP, "tess_train_create: exact_ranks is 1, clips must have one "
                                        "size with it");
    tess__mixture *m = TESS_TAKE(&t->arena, sizeof *m);
    const size_t sizes = (size_t)t->info.sizes;
    *m = (tess__mixture){.sizes = t->info.sizes, .n = t->opts.batch * t->opts.accumulate};
    m->info = TESS_TAKE(&t->arena, sizes * sizeof *m->info);
    m->tokens = TESS_TAKE(&t->arena, sizes * sizeof *m->tokens);
    m->clips = TESS_TAKE(&t->arena, (size_t)m->n * sizeof *m->clips);
    m->samples = TESS_TAKE(&t->arena, (size_t)m->n * sizeof *m->samples);
    for (int i = 0; i < m->sizes; i++) {
        TESS_TRY(tess_data_bucket(t->data, i, &m->info[i]));
        m->tokens[i] = tokens_of(&t->model->config, &m->info[i]);
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
    tess_mix_plan_destroy(m->plan);
    tess_cluster_destroy(m->cluster);
}

/* ---- passes ---------------------------------------------------------------------------------- */

const tess_data_info *tess__train_info(const tess_train *t)
{
    return t->mixture ? &t->mixture->info[t->mixture->bucket] : &t->info;
}

static void add_times(tess_pass_times *sum, const tess_pass_times *more)
{
    sum->attention_ns += more->attention_ns;
    sum->linear_ns += more->linear_ns;
    sum->other_ns += more->other_ns;
    sum->cross_ns += more->cross_ns;
    sum->select_ns += more->select_ns;
    sum->learn_ns += more->learn_ns;
    sum->observe_ns += more->observe_ns;
    sum->exchange_ns += more->exchange_ns;
    sum->forwards += more->forwards;
    sum->backwards += more->backwards;
}

tess_status tess__train_times(const tess_train *t, tess_pass_times *times)
{
    tess_pass_times now = {0};
    if (t->pass)
        TESS_TRY(tess_pass_times_read(t->pass, &now));
    if (t->mixture)
        add_times(&now, &t->mixture->times);
    *times = now;
    return TESS_OK;
}

tess_status tess__mixture_pass(tess_train *t, int bucket)
{
    tess__mixture *m = t->mixture;
    if (m->bucket != bucket && t->pass) {
        TESS_TRY(tess__train_times(t, &m->times));
        tess_pass_destroy(t->pass);
        t->pass = NULL;
    }
    m->bucket = bucket;
    return tess__train_pass(t);
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
        *clip = (tess__step_clip){.number = i};
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

/* Forward and backward of one clip, whose weighted loss is added to *sum. last: 1: gradients are
 * complete with it, and go to their owners. */
static tess_status run_clip(tess_train *t, const tess__step_clip *clip, int last, double *sum,
                            int64_t *waited)
{
    const int64_t size = tess__mixture_size(&t->mixture->info[clip->bucket]);
    const int64_t asked = tess__pg_clock(&t->pg);
    tess__batch batch;
    TESS_TRY(tess__loader_next(t->loader, &batch));
    *waited += tess__pg_clock(&t->pg) - asked;
    TESS_TRY(tess__mixture_pass(t, clip->bucket));
    tess__train_noise(t, &batch, clip->number, size, 0);
    TESS_TRY(tess_pass_forward(t->pass, &(tess_model_in){t->x, t->timestep, t->text}, t->out));
    *sum += clip->weight * tess__flow_loss(t->ctx, t->target, size, clip->weight, t->out, t->sums);
    const int sends = last && tess__pg_many(&t->pg);
    tess__pass_ready(t->pass, sends ? tess__reduce_ready : NULL, &t->reduce);
    return tess_pass_backward(t->pass, t->out, NULL);
}

/* The gradients of a rank without clips, zeros, in the order of a backward pass. */
static tess_status send_zeros(tess_train *t)
{
    for (int layer = t->model->config.layers; layer >= -1; layer--)
        TESS_TRY(tess__reduce_ready(&t->reduce, layer));
    return TESS_OK;
}

static tess_status run_clips(tess_train *t, double *loss, int64_t *waited)
{
    tess__mixture *m = t->mixture;
    const int64_t first = t->batches * t->opts.batch;
    int n;
    tess__mixture_own(t, 0, &n);
    for (int i = 0; i < n; i++)
        m->samples[i] = first + m->clips[tess__mixture_own(t, i, &n)].number;
    tess__loader_order(t->loader, m->samples, n);
    TESS_TRY(tess_model_zero_gradients(t->model));
    for (int i = 0; i < n; i++)
        TESS_TRY(run_clip(t, &m->clips[tess__mixture_own(t, i, &n)], i == n - 1, loss, waited));
    return n == 0 && tess__pg_many(&t->pg) ? send_zeros(t) : TESS_OK;
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
