/* SPDX-License-Identifier: Apache-2.0 */
/* calibrate.c - the parameters of collectives, fitted to measured rows.
 *
 * Minimised is the mean of |predicted / measured - 1| over the rows, plus for each parameter
 *
 *   weight / 20 * ((r - 1/r) / 2)^2,   r = parameter / what it was
 *
 * so that a parameter the rows say nothing about stays. The search tries each parameter times and
 * over 1 + step in turn, keeps what is better, and halves the step when a round found nothing
 * (Hooke and Jeeves); then every value is rounded to four digits. Only + - * / are used, so the
 * result has the same bits everywhere. Cost: rounds x parameters x rows x 0.1 us, about 0.1 s.
 */
#include "cost_internal.h"

#include <string.h>

enum { KNOBS_MAX = 32, ROUNDS_MAX = 400 };

/* A parameter that may move: within [min, max], at a price. */
typedef struct {
    double *value;
    double min, max, weight, start;
} knob;

typedef struct {
    const tess_collective_row *rows;
    int64_t n;
    tess_cluster_info info;
    knob knobs[KNOBS_MAX];
    int n_knobs;
} fit;

static double error_of(const fit *f, const tess_collective_row *row)
{
    tess_collective_result result;
    tess__collective_ns(&f->info, &row->work, &result);
    const double error = (double)result.ns / (row->us * 1e3) - 1.0;
    return error < 0.0 ? -error : error;
}

static double mean_error(const fit *f, int64_t from_bytes, int64_t *counted)
{
    double sum = 0.0;
    int64_t n = 0;
    for (int64_t i = 0; i < f->n; i++)
        if (f->rows[i].work.bytes >= from_bytes) {
            sum += error_of(f, &f->rows[i]);
            n++;
        }
    *counted = n;
    return n ? sum / (double)n : 0.0;
}

static double objective(const fit *f)
{
    int64_t n;
    double sum = mean_error(f, 0, &n);
    for (int i = 0; i < f->n_knobs; i++) {
        const double r = *f->knobs[i].value / f->knobs[i].start;
        const double far = 0.5 * (r - 1.0 / r);
        sum += 0.0005 * f->knobs[i].weight * far * far;
    }
    return sum;
}

/* ---- what may move --------------------------------------------------------------------------- */

static void add(fit *f, double *value, double min, double max, double weight)
{
    if (*value <= 0.0) /* what is switched off stays off */
        return;
    *value = *value < min ? min : *value > max ? max : *value;
    f->knobs[f->n_knobs++] = (knob){value, min, max, weight, *value};
}

static void add_hops(fit *f, double hops[2][TESS_PROTOCOLS], int trees)
{
    for (int a = 0; a < 1 + trees; a++)
        for (int p = 0; p < TESS_PROTOCOLS; p++)
            add(f, &hops[a][p], 50.0, 2e5, a == 0 && p == 0 ? 1.0 : 4.0);
}

/* Bandwidths and the floor are free: every log determines them; hops and shares have a weight. */
static void choose_knobs(fit *f)
{
    tess_collective_params *p = &f->info.collectives;
    int inside = 0, between = 0, nvls = 0;
    for (int64_t i = 0; i < f->n; i++) {
        const tess_collective *w = &f->rows[i].work;
        inside |= w->gpus <= w->per_node;
        between |= w->gpus > w->per_node;
        nvls |= w->op == TESS_ALL_REDUCE && w->per_node >= p->nvls_gpus;
    }
    add(f, &p->call, 100.0, 1e6, 0.0);
    add(f, &p->channel, 10.0, 2e4, 0.2);
    add(f, &p->share_ll, 0.05, 0.5, 2.0);
    add(f, &p->share_ll128, 0.3, 0.95, 20.0);
    add(f, &p->extra[TESS_PROTOCOL_LL128], 100.0, 5e5, 1.0);
    add(f, &p->extra[TESS_PROTOCOL_SIMPLE], 100.0, 5e5, 1.0);
    add_hops(f, p->hop, between);
    if (inside) {
        add(f, &p->ring, 1e8, 1e13, 0.0);
        add(f, &p->loop, 100.0, 1e6, 1.0);
    }
    if (between) {
        add(f, &p->network, 1e8, 1e13, 0.0);
        add(f, &p->share_tree, 0.3, 1.0, 100.0);
        add_hops(f, p->net_hop, 1);
    }
    if (nvls) {
        add(f, &p->nvls, 100.0, 1e6, 2.0);
        add(f, &p->nvls_bandwidth, 1e8, 1e13, 0.0);
    }
}

/* ---- the search ------------------------------------------------------------------------------ */

static int try_knob(const fit *f, const knob *k, double factor, double *best)
{
    const double before = *k->value;
    double value = before * factor;
    value = value < k->min ? k->min : value > k->max ? k->max : value;
    *k->value = value;
    const double now = objective(f);
    if (now < *best) {
        *best = now;
        return 1;
    }
    *k->value = before;
    return 0;
}

static tess_status search(tess_ctx *ctx, fit *f)
{
    double best = objective(f), step = 0.5;
    for (int round = 0; round < ROUNDS_MAX && step > 0.0005; round++) {
        int found = 0;
        for (int i = 0; i < f->n_knobs; i++) {
            const knob *k = &f->knobs[i];
            TESS_TRY(tess__progress(ctx, "fitting collectives", round, ROUNDS_MAX));
            found |= try_knob(f, k, 1.0 + step, &best) || try_knob(f, k, 1.0 / (1.0 + step), &best);
        }
        if (!found)
            step *= 0.5;
    }
    return TESS_OK;
}

/* x with four digits: 128.56912 -> 128.6. Powers of ten that are whole are exact, so the result is
 * the double nearest to what is read. */
static double four_digits(double x)
{
    double over = 1.0, times = 1.0;
    while (x / over >= 10000.0)
        over *= 10.0;
    while (x * times < 1000.0)
        times *= 10.0;
    return (double)(int64_t)(x / over * times + 0.5) * over / times;
}

/* ---- the call -------------------------------------------------------------------------------- */

static tess_status check_rows(const tess_cluster *like, const tess_collective_row *rows, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        tess_collective_result result;
        TESS_TRY(tess_collective_time(like, &rows[i].work, &result));
        if (!(rows[i].us > 0.0 && rows[i].us <= 1e15))
            return tess__fail(TESS_EINVAL,
                              "tess_cluster_calibrate: row %lld took %g us, must be above 0, at "
                              "most 1e15",
                              (long long)i, rows[i].us);
    }
    return TESS_OK;
}

tess_status tess_cluster_calibrate(tess_ctx *ctx, const tess_cluster *like,
                                   const tess_collective_row *rows, int64_t n, const char *origin,
                                   tess_cluster **cluster, tess_collective_fit *report)
{
    TESS_REQUIRE(ctx, like, rows, origin, cluster);
    TESS_TRY(tess__check_range(__func__, "n", n, 1, 1 << 20));
    TESS_TRY(check_rows(like, rows, n));
    fit *f = TESS_ALLOC_ZERO(ctx, sizeof *f);
    tess_collective_fit errors;
    f->rows = rows;
    f->n = n;
    f->info = like->info;
    const int64_t large = 16 << 20;
    errors.before = mean_error(f, 0, &errors.rows);
    errors.before_large = mean_error(f, large, &errors.rows_large);
    choose_knobs(f);
    const tess_status searched = search(ctx, f);
    if (searched != TESS_OK) {
        tess__free(ctx, f);
        return searched;
    }
    for (int i = 0; i < f->n_knobs; i++) {
        const double value = four_digits(*f->knobs[i].value);
        *f->knobs[i].value = value > f->knobs[i].max ? f->knobs[i].max : value;
    }
    errors.after = mean_error(f, 0, &errors.rows);
    errors.after_large = mean_error(f, large, &errors.rows_large);
    f->info.collectives.origin = origin;
    const tess_status status = tess_cluster_create(ctx, &f->info, cluster);
    tess__free(ctx, f);
    if (status == TESS_OK && report)
        *report = errors;
    return status;
}
