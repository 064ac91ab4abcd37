/* SPDX-License-Identifier: Apache-2.0 */
/* observe.c - profile and check: what a layer's attention is like, measured while it runs.
 *
 * Each size of cubes that is compared is measured on a sample of its query groups against all keys.
 * Where ranks share the tokens each rank measures some heads; the rank that has the first head
 * counts the samples. Values are added in units of 2^-40, so that the
 * order of samples and ranks does not matter.
 *
 * Flop of a layer, with r sampled queries, S keys and D = head_dim, for each sample and head and
 * each size of cubes: profile 4 r S D, half of it with the log-sums of a dense layer; overlap 8 r
 * S D, and twice that for groups that are compared; check 2 r S (proj_dim + 2 D). A profile by
 * error: see output_change.c.
 */
#include "model/observe.h"

#include "model/ranks.h"
#include "tessera/advanced/predict.h"

#include <math.h>
#include <string.h>

enum { QUARTILES = TESS_NOISE_BUCKETS };

int tess__quartile(double u)
{
    const int quartile = (int)(u * QUARTILES);
    return quartile < 0 ? 0 : quartile < QUARTILES ? quartile : QUARTILES - 1;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static tess_status make_sums(tess__arena *arena, const tess__observer_opts *o, tess__cube_sums *s)
{
    const int64_t layers = o->layers, heads = o->heads, each = layers * QUARTILES * heads;
    s->n = layers * (QUARTILES * heads + QUARTILES + heads + 1) + 2;
    const int both = o->group == TESS_GROUP_AUTO;
    s->n += o->error > 0.0 ? (1 + both) * each * (1 + TESS__TRIAL_DENSITIES) : 0;
    s->n += o->error > 0.0 ? each + layers * QUARTILES : 0;
    s->n += both ? layers * (2 * heads + 1) : 0;
    s->all = TESS_TAKE(arena, (size_t)s->n * sizeof *s->all);
    s->density = s->all;
    s->profiles = s->density + layers * QUARTILES * heads;
    s->recall = s->profiles + layers * QUARTILES;
    s->checks = s->recall + layers * heads;
    s->overlap = s->checks + layers;
    if (o->error > 0.0) {
        s->output = s->overlap + 2;
        s->change = s->output + each;
        s->gradient = s->change + each * TESS__TRIAL_DENSITIES;
        s->queries = s->gradient + each;
    }
    if (both) {
        s->compared = s->all + s->n - layers;
        s->shared = s->compared - 2 * layers * heads;
    }
    if (both && o->error > 0.0) {
        s->output2 = s->queries + layers * QUARTILES;
        s->change2 = s->output2 + each;
    }
    memset(s->all, 0, (size_t)s->n * sizeof *s->all);
    return TESS_OK;
}

tess_status tess__observer_create(tess_ctx *ctx, tess__arena *arena, const tess__observer_opts *o,
                                  tess__observer *observer)
{
    const size_t layers = (size_t)o->layers, heads = (size_t)o->heads, batch = (size_t)o->batch;
    const size_t budgets = TESS_CUBES * layers * QUARTILES * heads;
    *observer = (tess__observer){.ctx = ctx, .opts = *o};
    for (int i = 0; i < TESS_CUBES; i++)
        TESS_TRY(make_sums(arena, o, &observer->sums.cubes[i]));
    TESS_TRY(tess__sampled_create(arena, o, &observer->sampled));
    observer->layers = TESS_TAKE_ZERO(arena, layers * sizeof *observer->layers);
    observer->budgets = TESS_TAKE(arena, budgets * sizeof *observer->budgets);
    observer->quartiles = TESS_TAKE(arena, batch * sizeof *observer->quartiles);
    observer->weights = TESS_TAKE_ZERO(arena, batch * sizeof *observer->weights);
    observer->calibration = 1.0;
    observer->values = TESS_TAKE(arena, batch * heads * sizeof *observer->values);
    observer->keys = TESS_TAKE(arena, batch * heads * sizeof *observer->keys);
    const tess_selector_opts selector = {.kind = o->proj_dim ? TESS_SELECT_PREDICTOR
                                                             : TESS_SELECT_ORACLE,
                                         .proxy = o->proxy,
                                         .in_place = 1};
    return o->proj_dim || o->error > 0.0 ? tess_selector_create(ctx, &selector, &observer->selector)
                                         : TESS_OK;
}

void tess__observer_destroy(tess__observer *observer)
{
    tess_selector_destroy(observer->selector);
    observer->selector = NULL;
}

void tess__observer_clear(tess__observer *o)
{
    tess__observations *s = &o->sums;
    for (int i = 0; i < TESS_CUBES; i++)
        memset(s->cubes[i].all, 0, (size_t)s->cubes[i].n * sizeof *s->cubes[i].all);
    s->density = s->pairs = s->loss = 0.0;
    s->layers = s->losses = 0;
}

int32_t *tess__observer_budgets(const tess__observer *o, int order, int layer, int quartile)
{
    const int64_t row = ((int64_t)order * o->opts.layers + layer) * QUARTILES + quartile;
    return o->budgets + row * o->opts.heads;
}

int tess__observes(const tess__observer *o, int layer)
{
    return o && (o->layers[layer].profile || o->layers[layer].check);
}

/* ---- profile --------------------------------------------------------------------------------- */

/* Adds what the sampled groups say of a head's density, by mass. */
static tess_status add_densities(tess__observer *o, const tess_density_in *density,
                                 const tess_hook_in *in, double *to)
{
    TESS_TRY(tess_density_measure(o->ctx, density, o->values));
    for (int b = 0; b < o->opts.batch; b++) {
        const int64_t row = (int64_t)in->layer * QUARTILES + o->quartiles[b];
        for (int h = 0; h < in->heads; h++)
            to[row * o->opts.heads + in->head + h] += tess__in_units(o->values[b * in->heads + h]);
    }
    return TESS_OK;
}

static tess_status profile(tess__observer *o, int order, const tess_hook_in *in)
{
    tess__sampled *s = &o->sampled;
    tess__cube_sums *sums = &o->sums.cubes[order];
    const int batch = o->opts.batch, heads = in->heads;
    const tess_sel_shape groups = {.batch = batch,
                                   .heads = heads,
                                   .tokens_q = s->rows,
                                   .tokens_k = o->opts.tokens,
                                   .bounds_q = s->bounds,
                                   .n_q = s->groups,
                                   .unit = 1};
    const tess_view q = tess__sampled_view(s, heads, s->q, o->opts.head_dim);
    const tess_density_in density = {.q = &q,
                                     .k = in->k,
                                     .head_dim = o->opts.head_dim,
                                     .groups = &groups,
                                     .mass = o->opts.mass,
                                     .lse = in->lse && o->layers[in->layer].dense ? s->lse : NULL};
    TESS_TRY(o->opts.error > 0.0 ? tess__observe_change(o, order, in)
                                 : add_densities(o, &density, in, sums->density));
    for (int b = 0; b < batch; b++)
        sums->profiles[(int64_t)in->layer * QUARTILES + o->quartiles[b]] += in->head == 0;
    if (o->opts.group == TESS_GROUP_AUTO && o->layers[in->layer].dense)
        TESS_TRY(tess__observe_groups(o, order, in, &density));
    if (!o->overlap)
        return TESS_OK;
    TESS_TRY(tess_overlap_measure(o->ctx, &density, 0, o->values));
    for (int i = 0; i < batch * heads; i++)
        sums->overlap[0] += tess__in_units(o->values[i]);
    sums->overlap[1] += batch * heads;
    return TESS_OK;
}

/* ---- check ----------------------------------------------------------------------------------- */

/* Copies the budgets of the samples' quartiles; 0: one of them is not known yet. */
static int fill_keys(const tess__observer *o, int order, const tess_hook_in *in)
{
    for (int i = 0; i < o->opts.batch * in->heads; i++) {
        const int b = i / in->heads, h = in->head + i % in->heads;
        o->keys[i] = tess__observer_budgets(o, order, in->layer, o->quartiles[b])[h];
        if (o->keys[i] == 0)
            return 0;
    }
    return 1;
}

/* Groups first .. first + n - 1 of one head of one sample: the recall of the keys selected for
 * them, times their queries, is added to *recall. */
static tess_status check_groups(tess__observer *o, const tess_hook_in *in, int64_t at,
                                int32_t first, int32_t n, double *recall)
{
    tess__sampled *s = &o->sampled;
    const int64_t sample = at / in->heads, head = at % in->heads, row = s->bounds[first];
    const tess_view all[] = {tess__sampled_view(s, in->heads, s->q, o->opts.head_dim), *in->k,
                             tess__sampled_view(s, in->heads, s->low, in->proj_dim), *in->k_low};
    tess_view one[4];
    for (int i = 0; i < 4; i++) {
        const int64_t skip = i % 2 ? 0 : row * all[i].stride_s;
        one[i] = all[i];
        one[i].data =
            (float *)all[i].data + sample * all[i].stride_b + head * all[i].stride_h + skip;
    }
    for (int32_t i = 0; i <= n; i++)
        s->checked[i] = s->bounds[first + i] - row;
    const tess_sel_shape shape = {.batch = 1,
                                  .heads = 1,
                                  .tokens_q = s->checked[n],
                                  .tokens_k = o->opts.tokens,
                                  .bounds_q = s->checked,
                                  .n_q = n,
                                  .unit = 1};
    const tess_select_in select = {
        .q = &one[2], .k = &one[3], .head_dim = in->proj_dim, .budget = {.keys = o->keys[at]}};
    const tess_sel_measure_in measure = {.q = &one[0], .k = &one[1], .head_dim = o->opts.head_dim};
    tess_sel_stats stats;
    tess_selection *sel = NULL;
    TESS_TRY(tess_selection_create(o->ctx, &shape, (int64_t)n * o->keys[at], &sel));
    tess_status status = tess_selector_run(o->selector, &select, sel);
    if (status == TESS_OK)
        status = tess_selection_measure(o->ctx, sel, &measure, &stats);
    tess_selection_destroy(sel);
    if (status == TESS_OK)
        *recall += stats.recall * (double)shape.tokens_q;
    return status;
}

static tess_status check(tess__observer *o, int order, const tess_hook_in *in)
{
    const tess__sampled *s = &o->sampled;
    tess__cube_sums *sums = &o->sums.cubes[order];
    double *recall = sums->recall + (int64_t)in->layer * o->opts.heads + in->head;
    if (!fill_keys(o, order, in))
        return TESS_OK;
    for (int i = 0; i < o->opts.batch * in->heads; i++) {
        double sum = 0.0;
        for (int32_t first = 0; first < s->groups; first += TESS__CHECK_GROUPS) {
            const int32_t left = s->groups - first;
            TESS_TRY(check_groups(o, in, i, first,
                                  left < TESS__CHECK_GROUPS ? left : TESS__CHECK_GROUPS, &sum));
        }
        recall[i % in->heads] += tess__in_units(sum / (double)s->rows);
    }
    sums->checks[in->layer] += in->head == 0 ? o->opts.batch : 0;
    return TESS_OK;
}

/* ---- the pass -------------------------------------------------------------------------------- */

tess_status tess__pass_observe(tess_pass *p, tess__observer *observer)
{
    int any = 0;
    for (int layer = 0; layer < p->z.layers; layer++)
        any |= tess__observes(observer, layer);
    if (any && p->ranks.comm)
        TESS_TRY(tess__whole_heads_make(p));
    p->observer = observer;
    return TESS_OK;
}

static tess_status measure(tess__observer *o, const tess_hook_in *in)
{
    for (int order = 0; order < o->n_orders; order++) {
        tess__sample_groups(o, &o->orders[order]);
        tess__sample_queries(o, in);
        if (o->layers[in->layer].profile)
            TESS_TRY(profile(o, order, in));
        if (o->layers[in->layer].check)
            TESS_TRY(check(o, order, in));
    }
    return TESS_OK;
}

tess_status tess__pass_show(tess_pass *p, const tess_hook_in *in)
{
    if (tess__observes(p->observer, in->layer))
        TESS_TRY(measure(p->observer, in));
    return p->sparse.layers[in->layer].hook ? p->sparse.attend.hook(p->sparse.attend.user, in)
                                            : TESS_OK;
}

void tess__observe_attended(const tess_pass *p)
{
    const int heads = p->z.heads;
    const double all = (double)p->z.tokens * (double)p->z.tokens;
    tess__observations *s = &p->observer->sums;
    for (int64_t i = 0; i < (int64_t)p->z.layers * p->z.batch; i++) {
        const double *density = p->sparse.density + i * heads,
                     *losses = p->sparse.losses + i * heads;
        double sum = 0.0, loss = 0.0;
        for (int h = 0; h < heads; h++) {
            sum += density[h];
            loss += losses[h] / heads;
            s->pairs += nearbyint(density[h] * all);
        }
        s->density += tess__in_units(sum / heads);
        s->layers++;
        if (isnan(loss))
            continue;
        s->loss += tess__in_units(loss);
        s->losses++;
    }
}
