/* SPDX-License-Identifier: Apache-2.0 */
/* train_time.c - predicted time of a step and of a run, measured on this machine.
 *
 * Where a step takes SHORT seconds at most, by the rates below, and its memory suffices, STEPS of
 * them are run, with first weights and no folder, and the time is the median of those after the
 * first. Else, and with several ranks, it follows from rates:
 *
 *   linear layers   2 parameters tokens (3, or 4 with recompute) / rate of a layer's products
 *   attention       (query, key) pairs x rates of dense attention, forward and backward
 *   optimiser       Muon: five Newton-Schulz steps, about 25 dim FLOP a parameter
 *   other           OTHER of the linear layers: norms, activations, noise, loss
 *
 * The rates are those that `tessera bench` times, here in about a second. Ranks share all of it. A
 * machine that is busy makes the prediction too long. Sparse steps are not predicted: their
 * densities are not known before the run; of DSV it is a step of stage 1, whose predictors learn.
 */
#include "train_job.h"

#include "tessera/advanced/dataset.h"
#include "tessera/advanced/machine.h"
#include "tessera/advanced/pass.h"
#include "tessera/advanced/predict.h"

#include <math.h>
#include <stdlib.h>

static const double OTHER = 0.2, SHORT = 2.0;
enum { ROWS = 512, WIDEST = 2048, REPEATS = 5, STEPS = 5 };

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* FLOP/s of a linear layer of the model's width, forward and backward. */
static tess_status linear_rate(const train_job *j, int64_t tokens, double *rate)
{
    const int64_t dim = least((int64_t)j->config.heads * j->config.head_dim, WIDEST);
    const tess_linear_shape shape = {
        .rows = least(tokens * j->opts.batch, ROWS), .in = dim, .out = dim};
    const size_t x = (size_t)(shape.rows * dim), w = (size_t)(dim * dim);
    float *all = calloc(3 * x + 2 * w, sizeof *all);
    double best = INFINITY;
    tess_status status = all ? TESS_OK : out_fail(j->c, TESS_ENOMEM, "no memory for a measurement");
    for (int i = 0; i < REPEATS && status == TESS_OK; i++) {
        const int64_t begun = tess_clock_ns();
        status = tess_linear_forward(j->c->ctx, &shape, all, all + 3 * x, NULL, all + x);
        if (status == TESS_OK)
            status = tess_linear_backward(j->c->ctx, &shape, all, all + 3 * x, all + x, all + 2 * x,
                                          all + 3 * x + w, NULL);
        best = fmin(best, 1e-9 * (double)(tess_clock_ns() - begun));
    }
    free(all);
    *rate = 6.0 * (double)shape.rows * (double)w / best;
    return status;
}

/* Means over the clips of several sizes: tokens, and pairs of two tokens. */
static tess_status mean_clip(const train_job *j, int64_t largest, double *tokens, double *pairs)
{
    const int *patch = j->config.patch;
    *tokens = (double)largest;
    *pairs = *tokens * *tokens;
    if (j->info.sizes <= 1)
        return TESS_OK;
    *tokens = *pairs = 0.0;
    for (int i = 0; i < j->info.sizes; i++) {
        tess_data_info b;
        TRY(tess_data_bucket(j->data, i, &b));
        const int side_h = b.height / patch[1], side_w = b.width / patch[2];
        const int64_t n = (int64_t)side_h * side_w * (b.frames / patch[0]);
        *tokens += b.share * (double)n;
        *pairs += b.share * (double)n * (double)n;
    }
    return TESS_OK;
}

/* Seconds of the self-attention of so many pairs, all layers and heads, on one thread. */
static tess_status attention_time(const train_job *j, int64_t tokens, double pairs, double *seconds)
{
    const tess_attn_rates_shape shape = {.head_dim = j->config.head_dim,
                                         .queries = tokens,
                                         .keys = tokens,
                                         .group = (int32_t)least(tokens, 64),
                                         .unit = 1,
                                         .backward = 1,
                                         .seconds = 0.3,
                                         .precision = j->opts.precision};
    const int again = j->opts.keep == TESS_KEEP_BLOCKS;
    tess_attn_rates rates[2];
    TRY(tess_attn_measure(j->c->ctx, &shape, rates));
    *seconds = 1e-9 * ((1 + again) * rates[0].dense + rates[1].dense) * pairs * j->config.layers *
               j->config.heads;
    return TESS_OK;
}

static tess_status predict(const train_job *j, int64_t tokens, int64_t params, int threads,
                           train_times *t)
{
    const int again = j->opts.keep == TESS_KEEP_BLOCKS;
    const double clips = (double)j->opts.batch * j->opts.accumulate;
    const double ranks = j->c->ranks > 1 ? j->c->ranks : 1;
    const double dim = (double)j->config.heads * j->config.head_dim;
    double rate, attention, mean, pairs;
    TRY(mean_clip(j, tokens, &mean, &pairs));
    TRY(linear_rate(j, tokens, &rate));
    TRY(attention_time(j, tokens, pairs, &attention));
    t->linear = 2.0 * (double)params * mean * clips * (3 + again) / rate / ranks;
    t->attention = attention * clips / threads / ranks;
    t->optimiser =
        (j->opts.optim == TESS_OPTIM_MUON ? 25.0 * dim : 10.0) * (double)params / rate / ranks;
    t->other = OTHER * t->linear;
    t->step = t->linear + t->attention + t->optimiser + t->other;
    const double every = (double)j->opts.validate_every;
    const double validations = every > 0 ? ceil((double)j->opts.steps / every) : 0;
    t->run = (double)j->opts.steps * t->step +
             validations * 4.0 * j->opts.validate_clips / clips * t->step / (3 + again);
    return TESS_OK;
}

/* ---- steps that are run ---------------------------------------------------------------------- */

typedef struct {
    int n;
    double step[STEPS], linear[STEPS], attention[STEPS], optimiser[STEPS];
} timed;

static int on_timed(void *user, const tess_step *step)
{
    timed *t = user;
    if (t->n < STEPS) {
        t->step[t->n] = 1e-3 * step->step_ms;
        t->linear[t->n] = 1e-3 * step->linear_ms;
        t->attention[t->n] = 1e-3 * step->attention_ms;
        t->optimiser[t->n++] = 1e-3 * step->optimiser_ms;
    }
    return signals_caught() != 0;
}

static void no_event(void *user, const char *sentence)
{
    (void)user, (void)sentence;
}

/* Steps of a training that is made for them, says nothing and leaves nothing. */
static tess_status run_steps(const train_job *j, timed *t)
{
    const tess_model_opts fresh = {.gradients = 1, .seed = (uint64_t)j->v->common.seed};
    tess_train_opts opts = j->opts;
    tess_model *model = NULL;
    tess_train *train = NULL;
    opts.folder = opts.settings = NULL;
    opts.validate_every = opts.sample_every = opts.checkpoint_every = 0;
    opts.tensorboard = 0;
    opts.event = no_event;
    tess_status status = tess_model_create(j->c->ctx, &j->config, &fresh, &model);
    if (status == TESS_OK)
        status = tess_train_create(model, j->data, &opts, &train);
    if (status == TESS_OK)
        status = tess_train_run(train, least(STEPS, opts.steps), on_timed, t);
    tess_train_destroy(train);
    tess_model_destroy(model);
    return status;
}

/* Replaces what the rates say by what steps take. */
static tess_status measure(const train_job *j, train_times *t)
{
    timed times = {0};
    const double before = t->step;
    TRY(run_steps(j, &times));
    if (times.n < 2)
        return TESS_OK;
    const int64_t n = times.n - 1;
    t->measured = (int)n;
    t->step = out_median(times.step + 1, n);
    t->linear = out_median(times.linear + 1, n);
    t->attention = out_median(times.attention + 1, n);
    t->optimiser = out_median(times.optimiser + 1, n);
    t->run *= t->step / before;
    return TESS_OK;
}

/* "51 ms", "2.9 min", "58 days" */
static const char *duration(double seconds, char text[32])
{
    static const struct {
        double seconds;
        const char *name;
    } units[] = {{86400, "days"}, {3600, "h"}, {60, "min"}, {1, "s"}, {0, "ms"}};
    int i = 0;
    while (seconds < 2 * units[i].seconds)
        i++;
    snprintf(text, 32, "%.3g %s", seconds / (units[i].seconds > 0 ? units[i].seconds : 1e-3),
             units[i].name);
    return text;
}

tess_status train_show_time(const train_job *j, int64_t tokens, int64_t params, int threads,
                            int fits)
{
    cli *c = j->c;
    train_times t = {0};
    char text[32];
    TRY(predict(j, tokens, params, threads, &t));
    if (fits && c->ranks < 2 && t.step <= SHORT)
        TRY(measure(j, &t));
    progress_clear(c);
    if (c->json) {
        json_t *o = json_object();
        out_set(c, o, "step_ms", out_number(1e3 * t.step));
        out_set(c, o, "linear_ms", out_number(1e3 * t.linear));
        out_set(c, o, "attention_ms", out_number(1e3 * t.attention));
        out_set(c, o, "optimiser_ms", out_number(1e3 * t.optimiser));
        out_set(c, o, "run_s", out_number(t.run));
        out_set(c, o, "measured_steps", json_integer(t.measured));
        out_set(c, c->json, "predicted", o);
        return TESS_OK;
    }
    fprintf(c->out, "%-12s about %s", "step", duration(t.step, text));
    if (t.measured)
        fprintf(c->out, " (%d steps on this machine)", t.measured);
    fprintf(c->out, ": linear layers %.0f %%, dense attention %.0f %%\n", 100 * t.linear / t.step,
            100 * t.attention / t.step);
    fprintf(c->out, "%-12s about %s for %lld steps\n", "run", duration(t.run, text),
            (long long)j->opts.steps);
    return TESS_OK;
}
