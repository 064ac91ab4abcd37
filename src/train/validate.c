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
 * Batches are distributed round robin over groups of ranks; one group adds each clip's loss.
 */
#include "train_internal.h"

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

/* A batch that is not full repeats its last pair. Random choices are keyed by the pair. */
static tess_status run_batches(tess_train *t, double *buckets)
{
    const int64_t pairs = (int64_t)t->opts.validate_clips * TESS_NOISE_BUCKETS;
    const int64_t step = (int64_t)t->batch * t->pg.dp_size;
    memset(buckets, 0, TESS_NOISE_BUCKETS * sizeof *buckets);
    for (int64_t first = (int64_t)t->batch * t->pg.dp_rank; first < pairs; first += step) {
        TESS_TRY(tess__progress(t->ctx, "validating", first, pairs));
        for (int b = 0; b < t->batch; b++)
            TESS_TRY(prepare(t, TESS_MIN(first + b, pairs - 1), t->size, b));
        if (t->control)
            TESS_TRY(tess__attend_table_set(&t->control->table, t->pass, t->u,
                                            &(tess__attend_pass){.sample = first}));
        TESS_TRY(tess_pass_forward(t->pass, &(tess_model_in){t->x, t->timestep, t->text}, t->out));
        for (int b = 0; b < t->batch && first + b < pairs; b++) {
            const double loss = tess__flow_loss(t->ctx, t->target + b * t->size, t->size, 0.0,
                                                t->out + b * t->size, t->sums) /
                                t->opts.validate_clips;
            buckets[(first + b) % TESS_NOISE_BUCKETS] +=
                t->opts.exact_ranks ? tess__in_units(loss) : loss;
        }
    }
    return tess__pg_allreduce_groups(&t->pg, buckets, TESS_NOISE_BUCKETS);
}

/* Clips of several sizes, size by size, each pair by one rank. */
static tess_status run_sizes(tess_train *t, double *buckets)
{
    const int64_t pairs = (int64_t)t->opts.validate_clips * TESS_NOISE_BUCKETS;
    int64_t done = 0;
    memset(buckets, 0, TESS_NOISE_BUCKETS * sizeof *buckets);
    for (int b = 0; b < t->info.sizes; b++)
        for (int64_t pair = 0; pair < pairs; pair++) {
            int bucket;
            TESS_TRY(tess_data_bucket_of(t->data, TESS_SPLIT_VALIDATION, pair / TESS_NOISE_BUCKETS,
                                         &bucket));
            if (bucket != b || done++ % t->pg.dp_size != t->pg.dp_rank)
                continue;
            TESS_TRY(tess__progress(t->ctx, "validating", done - 1, pairs));
            TESS_TRY(tess__mixture_pass(t, bucket));
            const int64_t size = tess__mixture_size(tess__train_info(t));
            TESS_TRY(prepare(t, pair, size, 0));
            TESS_TRY(
                tess_pass_forward(t->pass, &(tess_model_in){t->x, t->timestep, t->text}, t->out));
            buckets[pair % TESS_NOISE_BUCKETS] +=
                tess__flow_loss(t->ctx, t->target, size, 0.0, t->out, t->sums) /
                t->opts.validate_clips;
        }
    return tess__pg_allreduce_groups(&t->pg, buckets, TESS_NOISE_BUCKETS);
}

tess_status tess__train_validate(tess_train *train, double *loss, double *buckets)
{
    double found[TESS_NOISE_BUCKETS];
    TESS_TRY(tess__train_pass(train));
    TESS_TRY(tess__train_swap(train));
    const tess_status status = train->mixture ? run_sizes(train, found) : run_batches(train, found);
    if (status != TESS_OK) {
        /* Other ranks may still validate: only the parameters this rank owns are restored. */
        tess__optim_swap(&train->optim, train->model->values);
        return status;
    }
    TESS_TRY(tess__train_swap(train));
    double sum = 0.0;
    for (int i = 0; i < TESS_NOISE_BUCKETS; i++)
        sum += found[i];
    *loss = sum / TESS_NOISE_BUCKETS;
    memcpy(buckets, found, sizeof found);
    return TESS_OK;
}
