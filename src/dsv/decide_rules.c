/* SPDX-License-Identifier: Apache-2.0 */
/* decide_rules.c - when a layer begins to attend sparsely, in which cubes, and which heads do not.
 *
 *   stage 1 -> 2   by recall: the layer's recall reached switch_recall on two checks in a row, and
 *                  its density differs by less than a tenth of itself between the last five checks;
 *                  of a profile by error: its density has settled likewise;
 *                  by loss: the running mean of the predictors' loss is below switch_loss;
 *                  by step: switch_step steps are done.
 *                  In all cases budgets must be known: a density was given or measured.
 *   group          (auto) a head of a layer that switches shares keys by content where that raises
 *                  the overlap by 0.02 or more, or of a profile by error needs a twentieth fewer
 *                  keys; else, and where it was not measured, in cubes
 *   cube           the largest one whose overlap is at least 0.9, or the smallest; chosen when the
 *                  first layer would switch in it
 *                  (a profile by error gives no layer back: a head whose keys are chosen badly
 *                  gets more of them, and is dense where they are too many to pay)
 *   back, again    a head of a sparse layer whose recall is below back_recall on a check is dense,
 *                  until it has reached switch_recall on two checks in a row. So is a layer whose
 *                  mean is below, or all of whose heads went back: it is in stage 1 again, and any
 *                  rule asks for two good checks then
 *   dispatch       a head is sparse in a noise-level quartile if its budget's density is below the
 *                  break-even density; once it is, until it is a tenth above. Its lists must have
 *                  room (attention_shape.c)
 */
#include "decide.h"
#include "options/option_check.h"

#include <math.h>
#include <string.h>

enum { QUARTILES = TESS_NOISE_BUCKETS };
static const double overlap_limit = 0.9, settled_within = 0.1;
static const double overlap_gain = 0.02, fewer_keys = 0.95; /* of groups by content */

/* ---- when ------------------------------------------------------------------------------------ */

static double layer_recall(const tess__dsv_state *d, int cube, int layer)
{
    double sum = 0.0;
    for (int h = 0; h < d->heads; h++)
        sum += d->cubes[cube].recall[(int64_t)layer * d->heads + h];
    return sum / d->heads;
}

/* How much of its largest value the density moved in the history; NaN: there are too few. */
static double change_of(const tess__dsv_state *d, int cube, int layer)
{
    const double *history = d->cubes[cube].history + (int64_t)layer * TESS__HISTORY;
    double least = INFINITY, most = 0.0;
    for (int i = 0; i < TESS__HISTORY; i++) {
        if (isnan(history[i]))
            return (double)NAN;
        least = fmin(least, history[i]);
        most = fmax(most, history[i]);
    }
    return most > 0.0 ? (most - least) / most : 0.0;
}

static int settled(const tess__dsv_state *d, const tess__rules *rules, int cube, int layer)
{
    return rules->density > 0.0 || change_of(d, cube, layer) < settled_within;
}

static int ready(const tess__dsv_state *d, const tess__rules *rules, int64_t step, int cube,
                 int layer)
{
    if (rules->density == 0.0 && isnan(tess__layer_density(d, cube, layer)))
        return 0;
    const int went_back = d->since[layer] > 0;
    if (went_back && d->cubes[cube].good[layer] < 2)
        return 0;
    switch (rules->switch_by) {
    case TESS_SWITCH_STEP: return step > rules->switch_step;
    case TESS_SWITCH_LOSS: return d->loss < rules->switch_loss;
    default:
        return (rules->error > 0.0 || d->cubes[cube].good[layer] >= 2) &&
               settled(d, rules, cube, layer);
    }
}

/* ---- cubes ----------------------------------------------------------------------------------- */

int tess__best_cube(const tess__dsv_state *d)
{
    int best = 0;
    for (int c = 1; c < d->n_cubes; c++)
        if (d->cubes[c].overlap >= overlap_limit)
            best = c;
    return best;
}

static void choose_cube(tess__dsv_state *d, const tess__rules *rules, int64_t step,
                        tess__event_list *events)
{
    const int best = tess__best_cube(d);
    int any = 0;
    for (int layer = 0; layer < d->layers && !any; layer++)
        any = ready(d, rules, step, best, layer);
    if (!any)
        return;
    tess__event event = {.kind = TESS__EVENT_CUBE,
                         .step = step,
                         .layer = -1,
                         .head = -1,
                         .why = {{"overlap", d->cubes[best].overlap}, {"limit", overlap_limit}},
                         .n_why = 2};
    if (best + 1 < d->n_cubes) {
        event.why[2].name = "overlap_of_larger";
        event.why[2].value = d->cubes[best + 1].overlap;
        event.n_why = 3;
    }
    memcpy(event.sizes, d->cubes[best].cube, sizeof event.sizes);
    d->cubes[0] = d->cubes[best];
    d->n_cubes = 1;
    d->cube_chosen = 1;
    tess__event_add(events, &event);
}

/* ---- stages ---------------------------------------------------------------------------------- */

/* Stage 1 again: heads and choices begin anew. */
static void send_layer_back(const tess__dsv_state *d, const tess__rules *rules, int64_t step,
                            int layer, tess__event_list *events)
{
    const int64_t heads = d->heads;
    const double recall = layer_recall(d, 0, layer);
    const int by_mean = recall < rules->back_recall;
    d->sparse[layer] = 0;
    d->since[layer] = step;
    d->cubes[0].good[layer] = 0;
    memset(d->cubes[0].good_heads + layer * heads, 0,
           (size_t)heads * sizeof *d->cubes[0].good_heads);
    memset(d->back + layer * heads, 0, (size_t)heads);
    memset(d->choice + layer * QUARTILES * heads, 0, (size_t)(QUARTILES * heads));
    tess__event_add(events,
                    &(tess__event){.kind = TESS__EVENT_BACK,
                                   .step = step,
                                   .layer = layer,
                                   .head = -1,
                                   .why = {{"recall", recall},
                                           {"limit", by_mean ? rules->back_recall : (double)NAN},
                                           {"heads_back", by_mean ? (double)NAN : (double)heads}},
                                   .n_why = 3});
}

static int falls(const tess__dsv_state *d, const tess__rules *rules, int64_t place)
{
    return !d->back[place] && d->cubes[0].recall[place] < rules->back_recall;
}

static int rises(const tess__dsv_state *d, int64_t place)
{
    return d->back[place] && d->cubes[0].good_heads[place] >= 2;
}

static void send_back(const tess__dsv_state *d, const tess__rules *rules, int64_t step, int layer,
                      tess__event_list *events)
{
    const tess__cube_stats *m = &d->cubes[0];
    const int64_t first = (int64_t)layer * d->heads;
    int back = 0;
    for (int64_t i = first; i < first + d->heads; i++)
        back += falls(d, rules, i) || (d->back[i] && !rises(d, i));
    if (back == d->heads || layer_recall(d, 0, layer) < rules->back_recall) {
        send_layer_back(d, rules, step, layer, events);
        return;
    }
    for (int h = 0; h < d->heads; h++) {
        const int64_t place = first + h;
        const int down = falls(d, rules, place);
        if (!down && !rises(d, place))
            continue;
        d->back[place] = (uint8_t)down;
        tess__event_add(events, &(tess__event){.kind = down ? TESS__EVENT_BACK : TESS__EVENT_AGAIN,
                                               .step = step,
                                               .layer = layer,
                                               .head = h,
                                               .why = {{"recall", m->recall[place]},
                                                       {"limit", down ? rules->back_recall
                                                                      : rules->switch_recall}},
                                               .n_why = 2});
    }
}

/* Cubes or content, for each head of a layer. */
static void choose_groups(const tess__dsv_state *d, const tess__rules *rules, int64_t step,
                          int layer, tess__event_list *events)
{
    const int64_t first = (int64_t)layer * d->heads, all = (int64_t)d->layers * d->heads;
    const double *cubes = d->cubes[0].shared + first, *content = cubes + all;
    const int by_error = rules->error > 0.0;
    double mean[2] = {0.0, 0.0};
    int n = 0;
    for (int h = 0; h < d->heads; h++) {
        d->content[first + h] = (uint8_t)(by_error ? content[h] <= fewer_keys * cubes[h]
                                                   : content[h] >= cubes[h] + overlap_gain);
        n += d->content[first + h];
        mean[0] += cubes[h] / d->heads;
        mean[1] += content[h] / d->heads;
    }
    tess__event_add(
        events,
        &(tess__event){.kind = TESS__EVENT_GROUP,
                       .step = step,
                       .layer = layer,
                       .head = -1,
                       .why = {{"content", n},
                               {"of", d->heads},
                               {by_error ? "density_in_cubes" : "overlap_in_cubes", mean[0]},
                               {by_error ? "density_by_content" : "overlap_by_content", mean[1]}},
                       .n_why = 4});
}

static void switch_layer(const tess__dsv_state *d, const tess__rules *rules, int64_t step,
                         int layer, tess__event_list *events)
{
    const int settles = rules->switch_by == TESS_SWITCH_RECALL;
    const int by_error = settles && rules->error > 0.0, by_recall = settles && !by_error;
    const int by_loss = rules->switch_by == TESS_SWITCH_LOSS;
    d->sparse[layer] = 1;
    d->since[layer] = step;
    tess__event_add(
        events,
        &(tess__event){.kind = TESS__EVENT_SWITCH,
                       .step = step,
                       .layer = layer,
                       .head = -1,
                       .rule = by_error ? "error"
                                        : tess__option_words(TESS_OPTIONS_ATTENTION,
                                                             "switch_by")[rules->switch_by],
                       .why = {{"recall", rules->learns ? layer_recall(d, 0, layer) : (double)NAN},
                               {"recall_limit", by_recall ? rules->switch_recall : (double)NAN},
                               {"density", tess__layer_density(d, 0, layer)},
                               {"density_change", settles ? change_of(d, 0, layer) : (double)NAN},
                               {"error_limit", by_error ? rules->error : (double)NAN},
                               {"loss", rules->learns ? d->loss : (double)NAN},
                               {"loss_limit", by_loss ? rules->switch_loss : (double)NAN}},
                       .n_why = 7});
}

int tess__decide_stages(tess__dsv_state *d, const tess__rules *rules, int64_t step,
                        tess__event_list *events)
{
    int any = 0;
    if (!d->cube_chosen)
        choose_cube(d, rules, step, events);
    for (int layer = 0; layer < d->layers && d->cube_chosen; layer++) {
        if (!d->sparse[layer] && ready(d, rules, step, 0, layer)) {
            switch_layer(d, rules, step, layer, events);
            if (rules->groups)
                choose_groups(d, rules, step, layer, events);
        }
        if (d->sparse[layer] && rules->learns && rules->error == 0.0)
            send_back(d, rules, step, layer, events);
        any |= d->sparse[layer];
    }
    return any;
}

/* What is missing, by its rule; and recall, where a layer went back. */
void tess__decide_end(const tess__dsv_state *d, const tess__rules *rules, int64_t step,
                      tess__event_list *events)
{
    static const double none = (double)NAN;
    const int cube = tess__best_cube(d);
    const int by_loss = rules->switch_by == TESS_SWITCH_LOSS;
    const int by_step = rules->switch_by == TESS_SWITCH_STEP;
    for (int layer = 0; layer < d->layers; layer++) {
        const int64_t since = d->since[layer];
        const int by_recall = (!by_loss && !by_step) || since > 0;
        if (d->sparse[layer])
            continue;
        tess__event_add(
            events,
            &(tess__event){.kind = TESS__EVENT_STAYED,
                           .step = step,
                           .layer = layer,
                           .head = -1,
                           .why = {{"since", since > 0 ? (double)since : none},
                                   {"recall", layer_recall(d, cube, layer)},
                                   {"recall_limit",
                                    by_recall && rules->error == 0.0 ? rules->switch_recall : none},
                                   {"density", tess__layer_density(d, cube, layer)},
                                   {"density_change", by_recall ? change_of(d, cube, layer) : none},
                                   {"loss", by_loss ? d->loss : none},
                                   {"loss_limit", by_loss ? rules->switch_loss : none},
                                   {"switch_step", by_step ? (double)rules->switch_step : none}},
                           .n_why = 8});
    }
}

/* ---- dispatch -------------------------------------------------------------------------------- */

/* Whether a head would be sparse if memory were no matter. */
static int worth_it(const tess__dsv_state *d, const tess__rules *rules, int64_t place, int head,
                    int32_t units, int32_t n)
{
    const int layer = (int)(place / QUARTILES / d->heads);
    if (d->back[(int64_t)layer * d->heads + head] || units == 0 || units >= n)
        return 0;
    if (rules->choosing != TESS__CHOOSE_TABLE)
        return rules->choosing == TESS__CHOOSE_SPARSE || rules->imposed[place];
    return (double)units / n < d->break_even * (d->choice[place] ? TESS__SLACK : 1.0);
}

static int has_room(const tess__rules *rules, int32_t units)
{
    return rules->choosing != TESS__CHOOSE_TABLE || rules->units_most == 0 ||
           units <= rules->units_most;
}

static void dispatch_layer(const tess__dsv_state *d, const tess__rules *rules, int64_t step,
                           int layer, int32_t n, tess__event_list *events)
{
    int changed = 0, sparse = 0, tight = 0, by_quartile[QUARTILES] = {0};
    double density = 0.0;
    for (int b = 0; b < QUARTILES; b++)
        for (int h = 0; h < d->heads; h++) {
            const int64_t place = ((int64_t)layer * QUARTILES + b) * d->heads + h;
            const int32_t units = tess__budget(d, rules, 0, layer, b, h, n);
            const int worth = worth_it(d, rules, place, h, units, n);
            const int now = worth && has_room(rules, units);
            tight += worth && !now;
            changed += now != d->choice[place];
            sparse += now;
            by_quartile[b] += now;
            density += now ? (double)units / n : 1.0;
            d->choice[place] = (uint8_t)now;
        }
    if (!changed && d->since[layer] != step)
        return;
    const int table = rules->choosing == TESS__CHOOSE_TABLE;
    tess__event event = {.kind = TESS__EVENT_DISPATCH,
                         .step = step,
                         .layer = layer,
                         .head = -1,
                         .rule = table                                    ? "table"
                                 : rules->choosing == TESS__CHOOSE_SPARSE ? "sparse"
                                                                          : "imposed",
                         .why = {{"sparse", sparse},
                                 {"of", QUARTILES * d->heads},
                                 {"changed", changed},
                                 {"density", density / (QUARTILES * d->heads)},
                                 {"break_even", table ? d->break_even : (double)NAN},
                                 {"room", tight ? (double)rules->units_most / n : (double)NAN}},
                         .n_why = 6};
    memcpy(event.heads, by_quartile, sizeof event.heads);
    tess__event_add(events, &event);
}

void tess__decide_heads(tess__dsv_state *d, const tess__rules *rules, int64_t step, int32_t n,
                        tess__event_list *events)
{
    for (int layer = 0; layer < d->layers; layer++)
        if (d->sparse[layer])
            dispatch_layer(d, rules, step, layer, n, events);
}
