/* SPDX-License-Identifier: Apache-2.0 */
/* validate.c - the loss on a fixed set of clips, noises and noise levels.
 *
 * Clip i of n is evaluated four times, once in each noise-level quartile, bucket 0..3: u = (bucket
 * + (i + 1/2) / n) / 4. So the levels of all clips together are spread evenly over the distribution
 * that training samples from, and the mean over the buckets is the loss. Noise does not depend on
 * the seed of the run: runs with different seeds on the same data are validated alike. Weights are
 * the averaged ones, attention is what training uses at that moment: layers that are sparse are
 * sparse here.
 *
 * With attention.error and sparse heads the first two clips are evaluated with dense attention too:
 *
 *   change = 100 mean over pairs of |sparse - dense|^2 / |dense - target|^2
 *
 * Batches are distributed round robin over groups of ranks; one group adds each clip's loss.
 */
#include "mixture.h"

#include <math.h>
#include <string.h>

static const uint64_t validation_seed = 0x76616c6964617465; /* "validate" */

/* Clip number pair / 4 at a level of its bucket pair % 4, in place b of the batch. */
static tess_status prepare(tess_train *t, int64_t pair, int64_t size, int b)
{
    const int64_t clip = pair / TESS_NOISE_BUCKETS, bucket = pair % TESS_NOISE_BUCKETS;
    const double within = ((double)clip + 0.5) / t->opts.validate_clips;
    const double u = ((double)bucket + within) / TESS_NOISE_BUCKETS;
    const tess__noising noising = {.seed = validation_seed,
                                   .stream = tess__stream(TESS__VALIDATION, pair),
                                   .s = tess__shifted(t->opts.shift, u)};
    const int64_t at = b * t->size;
    TESS_TRY(tess_data_sample(t->data, TESS_SPLIT_VALIDATION, clip, t->clip + at,
                              t->text + b * t->text_size, NULL, 0));
    tess__flow_noise(t->ctx, &noising, t->clip + at, size, t->x + at, t->target + at);
    t->timestep[b] = (float)(1000.0 * noising.s);
    t->u[b] = u;
    return TESS_OK;
}

/* Sums of one rank: losses by bucket; and of the pairs below COMPARED, where sparse attention is
 * compared with dense attention, the change of the output over the dense loss, and their number. */
typedef struct {
    double buckets[TESS_NOISE_BUCKETS];
    double change, compared;
} sums;

/* The outputs of a batch once more with dense attention. The sparse ones move to t->clip, which is
 * noised already. */
static tess_status compare(tess_train *t, int n, int64_t size, sums *s)
{
    memcpy(t->clip, t->out, (size_t)t->batch * (size_t)size * sizeof *t->clip);
    TESS_TRY(tess_pass_attend(t->pass, NULL));
    TESS_TRY(tess_pass_forward(t->pass, &(tess_model_in){t->x, t->timestep, t->text}, t->out));
    for (int b = 0; b < n; b++) {
        const float *sparse = t->clip + b * size, *dense = t->out + b * size;
        const float *target = t->target + b * size;
        double change = 0.0, loss = 0.0;
        for (int64_t i = 0; i < size; i++) {
            const double moved = (double)sparse[i] - (double)dense[i];
            const double missed = (double)dense[i] - (double)target[i];
            change += moved * moved;
            loss += missed * missed;
        }
        s->change += change / loss;
        s->compared += 1.0;
    }
    memcpy(t->out, t->clip, (size_t)t->batch * (size_t)size * sizeof *t->clip);
    return TESS_OK;
}

/* A batch that is not full repeats its last pair. Random choices are keyed by the pair. */
static tess_status run_batches(tess_train *t, sums *s)
{
    enum { COMPARED = 2 * TESS_NOISE_BUCKETS };
    const int calibrates = tess__control_calibrates(t->control);
    double *buckets = s->buckets;
    const int64_t pairs = (int64_t)t->opts.validate_clips * TESS_NOISE_BUCKETS;
    const int64_t step = (int64_t)t->batch * t->pg.dp_size;
    for (int64_t first = (int64_t)t->batch * t->pg.dp_rank; first < pairs; first += step) {
        TESS_TRY(tess__progress(t->ctx, "validating", first, pairs));
        for (int b = 0; b < t->batch; b++)
            TESS_TRY(prepare(t, TESS_MIN(first + b, pairs - 1), t->size, b));
        if (t->control)
            TESS_TRY(tess__attend_table_set(&t->control->table, t->pass, t->u,
                                            &(tess__attend_pass){.sample = first}));
        TESS_TRY(tess_pass_forward(t->pass, &(tess_model_in){t->x, t->timestep, t->text}, t->out));
        const int64_t left = TESS_MIN(pairs, COMPARED) - first;
        if (calibrates && left > 0)
            TESS_TRY(compare(t, (int)TESS_MIN(left, t->batch), t->size, s));
        for (int b = 0; b < t->batch && first + b < pairs; b++) {
            const double loss = tess__flow_loss(t->ctx, t->target + b * t->size, t->size, 0.0,
                                                t->out + b * t->size, t->sums) /
                                t->opts.validate_clips;
            buckets[(first + b) % TESS_NOISE_BUCKETS] +=
                t->opts.exact_ranks ? tess__in_units(loss) : loss;
        }
    }
    return tess__pg_allreduce_groups(&t->pg, buckets, sizeof *s / sizeof *buckets);
}

/* One pair of clips of several sizes, by this rank alone. */
static tess_status run_pair(tess_train *t, int64_t pair, int bucket, sums *s)
{
    enum { COMPARED = 2 * TESS_NOISE_BUCKETS };
    TESS_TRY(tess__mixture_pass(t, bucket, tess__mixture_alone(t->mixture)));
    const int64_t size = tess__mixture_size(tess__train_info(t));
    TESS_TRY(prepare(t, pair, size, 0));
    if (t->control)
        TESS_TRY(tess__attend_table_set(&t->control->table, t->pass, t->u,
                                        &(tess__attend_pass){.sample = pair}));
    TESS_TRY(tess_pass_forward(t->pass, &(tess_model_in){t->x, t->timestep, t->text}, t->out));
    if (tess__control_calibrates(t->control) && pair < COMPARED)
        TESS_TRY(compare(t, 1, size, s));
    const double loss =
        tess__flow_loss(t->ctx, t->target, size, 0.0, t->out, t->sums) / t->opts.validate_clips;
    s->buckets[pair % TESS_NOISE_BUCKETS] += t->opts.exact_ranks ? tess__in_units(loss) : loss;
    return TESS_OK;
}

/* Clips of several sizes, size by size, each pair by one rank. */
static tess_status run_sizes(tess_train *t, sums *s)
{
    const int64_t pairs = (int64_t)t->opts.validate_clips * TESS_NOISE_BUCKETS;
    int64_t done = 0;
    for (int b = 0; b < t->info.sizes; b++)
        for (int64_t pair = 0; pair < pairs; pair++) {
            int bucket;
            TESS_TRY(tess_data_bucket_of(t->data, TESS_SPLIT_VALIDATION, pair / TESS_NOISE_BUCKETS,
                                         &bucket));
            if (bucket != b || done++ % t->pg.dp_size != t->pg.dp_rank)
                continue;
            TESS_TRY(tess__progress(t->ctx, "validating", done - 1, pairs));
            TESS_TRY(run_pair(t, pair, bucket, s));
        }
    return tess__pg_allreduce_groups(&t->pg, s->buckets, sizeof *s / sizeof *s->buckets);
}

tess_status tess__train_validate(tess_train *train, double *loss, double *buckets, double *change)
{
    sums found = {.compared = 0.0};
    if (!train->mixture)
        TESS_TRY(tess__train_pass(train));
    TESS_TRY(tess__train_swap(train));
    const tess_status status =
        train->mixture ? run_sizes(train, &found) : run_batches(train, &found);
    if (status != TESS_OK) {
        /* Other ranks may still validate: only the parameters this rank owns are restored. */
        tess__optim_swap(&train->optim, train->model->values);
        return status;
    }
    TESS_TRY(tess__train_swap(train));
    double sum = 0.0;
    for (int i = 0; i < TESS_NOISE_BUCKETS; i++)
        sum += found.buckets[i];
    *loss = sum / TESS_NOISE_BUCKETS;
    memcpy(buckets, found.buckets, sizeof found.buckets);
    *change = found.compared > 0.0 ? 100.0 * found.change / found.compared : (double)NAN;
    return TESS_OK;
}
