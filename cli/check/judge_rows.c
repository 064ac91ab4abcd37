/* SPDX-License-Identifier: Apache-2.0 */
/* judge_rows.c - attention and its gradients in double precision, with the error that is allowed.
 *
 * For a query i that attends to the keys J (docs/numerics.md derives the errors):
 *
 *   s_j = scale q_i . k_j     lse = log sum exp(s_j)     p_j = exp(s_j - lse)     o = sum p_j v_j
 *   dp_j = do_i . v_j         delta = do_i . o           ds_j = p_j (dp_j - delta)
 *   dq_i = scale sum ds_j k_j     dk_j += scale ds_j q_i     dv_j += p_j do_i
 *
 * u is the unit roundoff of stored numbers, e that of sums (fp32, or fp64 of fp64). The error of a
 * score is (sqrt(D) + 4) e A_j + 4 e, A_j = scale sum |q k|, taken at its worst; and u (|s_j| + R_j
 * + 1), R_j = scale sqrt(sum (q k)^2), where scores, q times scale and p are stored: these are
 * independent, and add up as squares, of which the allowed error is 4 times the root.
 *
 * Work: about 14 D flop for a pair forward, 45 D with gradients. A head of k and v is computed by
 * one thread, its heads of q one after the other: the bits do not depend on the threads.
 */
#include "judge.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

static const double SPREAD = 4; /* standard deviations of errors that are independent */

/* A sum with its worst error and the sum of squares of its independent errors. */
typedef struct {
    double *x, *worst, *squares;
} numbers;

typedef struct {
    int64_t n, i;         /* keys of the row; the row */
    int64_t *keys;        /* room for 2 tokens_k */
    double *s, *e, *t;    /* scores; their worst and their independent errors */
    double *p, *dp, *b;   /* b: sum |do v| */
    double max, sum, lse; /* sum of exp(s - max) */
    double lse_worst, lse_squares;
    double delta, delta_worst, delta_squares;
    numbers o, dq;             /* (D) */
    double *mean_k, *allow;    /* (D) */
    numbers dk, dv;            /* (tokens_k, D) */
    double *heads_k, *heads_v; /* (tokens_k, D): sums of magnitudes over heads of q */
    judge_worst worst[JUDGE_OUTPUTS];
} row_work;

typedef struct {
    const judge *j;
    const judge_variant *v;
    const judge_plan *plan;
    const judge_reading *reading;
    int gradients;
} run_job;

/* ---- scores and softmax ---------------------------------------------------------------------- */

static void score(const run_job *r, row_work *w, const double *q, const double *k, int64_t at)
{
    const judge *j = r->j;
    const double scale = fabs(r->v->scale);
    double s[4] = {0}, a[4] = {0}, m[4] = {0};
    int64_t c = 0;
    for (; c + 4 <= j->dim; c += 4)
        for (int l = 0; l < 4; l++) {
            const double x = q[c + l] * k[c + l];
            s[l] += x;
            a[l] += fabs(x);
            m[l] += x * x;
        }
    for (; c < j->dim; c++) {
        const double x = q[c] * k[c];
        s[0] += x;
        a[0] += fabs(x);
        m[0] += x * x;
    }
    const double all = scale * (a[0] + a[1] + a[2] + a[3]);
    w->s[at] = r->v->scale * ((s[0] + s[1]) + (s[2] + s[3]));
    w->e[at] = j->sum_unit * ((sqrt(j->dim) + 4) * all + 4);
    w->t[at] = j->unit * (fabs(w->s[at]) + scale * sqrt(m[0] + m[1] + m[2] + m[3]) + 1);
}

static void softmax(const run_job *r, row_work *w)
{
    const double zeros = (double)r->v->zeros;
    w->max = zeros > 0 ? 0 : -INFINITY;
    for (int64_t a = 0; a < w->n; a++)
        w->max = fmax(w->max, w->s[a]);
    w->sum = zeros > 0 ? zeros * exp(-w->max) : 0;
    for (int64_t a = 0; a < w->n; a++)
        w->sum += w->p[a] = exp(w->s[a] - w->max);
    w->lse = w->max + log(w->sum);
    w->lse_worst = r->j->sum_unit * sqrt((double)w->n);
    w->lse_squares = 0;
    for (int64_t a = 0; a < w->n; a++) {
        w->p[a] /= w->sum;
        w->lse_worst += w->p[a] * w->e[a];
        w->lse_squares += w->p[a] * w->p[a] * w->t[a] * w->t[a];
    }
}

static void score_all(const run_job *r, row_work *w, const double *q, const double *k)
{
    for (int64_t a = 0; a < w->n; a++)
        score(r, w, q, k + w->keys[a] * r->j->dim, a);
}

/* ---- forward --------------------------------------------------------------------------------- */

static void clear(numbers x, int64_t n)
{
    memset(x.x, 0, (size_t)n * sizeof *x.x);
    memset(x.worst, 0, (size_t)n * sizeof *x.worst);
    memset(x.squares, 0, (size_t)n * sizeof *x.squares);
}

static void allow(const judge *j, const numbers *x, double *allowed)
{
    for (int c = 0; c < j->dim; c++)
        allowed[c] = x->worst[c] + SPREAD * sqrt(x->squares[c]) + 2 * j->unit * fabs(x->x[c]) +
                     j->least + 0x1p-149;
}

static void attend(const run_job *r, row_work *w, const double *v)
{
    const int dim = r->j->dim;
    const double longest = r->j->sum_unit * sqrt((double)w->n);
    clear(w->o, dim);
    for (int64_t a = 0; a < w->n; a++)
        for (int c = 0; c < dim; c++)
            w->o.x[c] += w->p[a] * v[w->keys[a] * dim + c];
    for (int64_t a = 0; a < w->n; a++) {
        const double *row = v + w->keys[a] * dim, p = w->p[a];
        const double squares = p * p * w->t[a] * w->t[a] + r->j->least * r->j->least;
        for (int c = 0; c < dim; c++) {
            const double apart = row[c] - w->o.x[c];
            w->o.worst[c] += p * (w->e[a] * fabs(apart) + longest * fabs(row[c]));
            w->o.squares[c] += squares * (apart * apart + row[c] * row[c]);
        }
    }
}

static void compare_forward(const run_job *r, row_work *w, int64_t b, int64_t h)
{
    const judge *j = r->j;
    const double factor = r->v->wrong & WRONG_O_SUM ? w->sum : 1;
    allow(j, &w->o, w->allow);
    for (int c = 0; factor != 1 && c < j->dim; c++) {
        w->o.x[c] *= factor;
        w->allow[c] *= factor;
    }
    judge_compare(j, r->reading, JUDGE_O, b, h, w->i, w->o.x, w->allow, &w->worst[JUDGE_O]);
    for (int c = 0; factor != 1 && c < j->dim; c++)
        w->o.x[c] /= factor;
    const unsigned wrong = r->v->wrong;
    const double lse = wrong & WRONG_LSE_BASE2 ? w->lse / M_LN2
                       : wrong & WRONG_LSE_MAX ? w->max
                       : wrong & WRONG_LSE_SUM ? log(w->sum)
                                               : w->lse;
    const double allowed = (w->lse_worst + SPREAD * sqrt(w->lse_squares)) / M_LN2 +
                           4 * j->sum_unit * (fabs(lse) + fabs(w->max) + 1) +
                           j->out[JUDGE_LSE].unit * fabs(lse);
    judge_compare(j, r->reading, JUDGE_LSE, b, h, w->i, &lse, &allowed, &w->worst[JUDGE_LSE]);
}

/* ---- backward -------------------------------------------------------------------------------- */

/* The probabilities that the gradients are made of. */
static void set_backward_p(const run_job *r, row_work *w, const double *q, const double *k)
{
    const unsigned wrong = r->v->wrong;
    if (wrong & WRONG_P_ALL) {
        for (w->n = 0; w->n < r->j->tokens_k; w->n++)
            w->keys[w->n] = w->n;
        score_all(r, w, q, k);
        for (int64_t a = 0; a < w->n; a++)
            w->p[a] = exp(w->s[a] - w->lse);
    }
    for (int64_t a = 0; a < w->n && wrong & (WRONG_P_SUM | WRONG_P_BASE2 | WRONG_P_UNSCALED); a++)
        w->p[a] = wrong & WRONG_P_SUM     ? w->p[a] * w->sum
                  : wrong & WRONG_P_BASE2 ? w->p[a] * exp(w->lse - w->lse / M_LN2)
                                          : exp(w->s[a] / r->v->scale - w->lse);
}

static void set_delta(const run_job *r, row_work *w, const double *dout, const double *v)
{
    const judge *j = r->j;
    double magnitude = 0, squares = 0;
    w->delta = w->delta_worst = w->delta_squares = 0;
    for (int c = 0; c < j->dim; c++) {
        const double x = dout[c] * w->o.x[c];
        w->delta += x;
        magnitude += fabs(x);
        squares += x * x;
    }
    w->delta_worst = j->sum_unit * sqrt(j->dim) * magnitude;
    w->delta_squares = j->unit * j->unit * squares;
    for (int64_t a = 0; a < w->n; a++) {
        const double *row = v + w->keys[a] * j->dim;
        double dp = 0, b = 0;
        for (int c = 0; c < j->dim; c++) {
            dp += dout[c] * row[c];
            b += fabs(dout[c] * row[c]);
        }
        w->dp[a] = dp;
        w->b[a] = b;
        const double apart = dp - w->delta, p = w->p[a];
        w->delta_worst += p * w->e[a] * fabs(apart);
        w->delta_squares +=
            (p * p * w->t[a] * w->t[a] + j->least * j->least) * (apart * apart + dp * dp);
    }
    if (r->v->wrong & WRONG_DELTA)
        w->delta = 0;
}

/* The row's share of all gradients. into: dk and dv get it too. */
static void differentiate(const run_job *r, row_work *w, const double *q, const double *dout,
                          const double *k, int into)
{
    const judge *j = r->j;
    const int dim = j->dim;
    const unsigned wrong = r->v->wrong;
    const double u = j->unit, e = j->sum_unit, least = j->least,
                 scale = wrong & WRONG_DS_UNSCALED ? 1
                         : wrong & WRONG_DS_TWICE  ? r->v->scale * r->v->scale
                                                   : r->v->scale;
    const double longest_q = e * sqrt((double)w->n), longest_k = e * sqrt((double)j->tokens_q);
    clear(w->dq, dim);
    memset(w->mean_k, 0, (size_t)dim * sizeof *w->mean_k);
    for (int64_t a = 0; a < w->n; a++) {
        const double *key = k + w->keys[a] * dim, p = w->p[a], apart = w->dp[a] - w->delta;
        const double ds = scale * p * apart, weight = fabs(scale) * p;
        const double e_p = w->e[a] + w->lse_worst, t_p = w->t[a] * w->t[a] + w->lse_squares;
        const double worst =
            weight * (e_p * fabs(apart) + e * sqrt(dim) * w->b[a] + w->delta_worst);
        const double squares =
            weight * weight * (t_p * apart * apart + u * u * w->dp[a] * w->dp[a]) +
            u * u * ds * ds + least * least * (scale * scale * (apart * apart + 1) + 1);
        for (int c = 0; c < dim; c++) {
            w->dq.x[c] += ds * key[c];
            w->dq.worst[c] += (worst + longest_q * fabs(ds)) * fabs(key[c]);
            w->dq.squares[c] += squares * key[c] * key[c];
            w->mean_k[c] += weight * key[c];
        }
        if (!into)
            continue;
        double *const dk = w->dk.x + w->keys[a] * dim, *const dk_w = w->dk.worst + w->keys[a] * dim,
                      *const dk_s = w->dk.squares + w->keys[a] * dim;
        double *const dv = w->dv.x + w->keys[a] * dim, *const dv_w = w->dv.worst + w->keys[a] * dim,
                      *const dv_s = w->dv.squares + w->keys[a] * dim;
        const double all = squares + weight * weight * w->delta_squares;
        for (int c = 0; c < dim; c++) {
            dk[c] += ds * q[c];
            dk_w[c] += (worst + longest_k * fabs(ds)) * fabs(q[c]);
            dk_s[c] += all * q[c] * q[c];
            dv[c] += p * dout[c];
            dv_w[c] += p * (e_p + longest_k) * fabs(dout[c]);
            dv_s[c] += (p * p * t_p + least * least) * dout[c] * dout[c];
        }
    }
    /* An error of delta is the same for all keys of the row. */
    for (int c = 0; c < dim; c++)
        w->dq.squares[c] += w->delta_squares * w->mean_k[c] * w->mean_k[c];
}

/* ---- heads ----------------------------------------------------------------------------------- */

static int reads(const judge *j, const judge_variant *v, int h, int head_k)
{
    return v->interleaved ? h % j->heads_k == head_k : h / (j->heads / j->heads_k) == head_k;
}

static void run_row(const run_job *r, row_work *w, int64_t b, int64_t h, int64_t head_k, int whole)
{
    const judge *j = r->j;
    const judge_variant *v = r->v;
    const int64_t at = ((b * j->heads + h) * j->tokens_q + w->i) * j->dim;
    const int64_t base = (b * j->heads_k + head_k) * j->tokens_k * j->dim;
    const double *q = v->q + at, *k = v->k + base, *values = v->v + base;
    w->n = judge_keys_of(v->keys, b, h, w->i, w->keys);
    score_all(r, w, q, k);
    softmax(r, w);
    attend(r, w, values);
    compare_forward(r, w, b, h);
    if (!r->gradients)
        return;
    const double *dout = j->in[JUDGE_DOUT].data + at;
    set_backward_p(r, w, q, k);
    set_delta(r, w, dout, values);
    differentiate(r, w, q, dout, k,
                  whole && (v->last_rows == 0 || w->i >= j->tokens_q - v->last_rows));
    allow(j, &w->dq, w->allow);
    judge_compare(j, r->reading, JUDGE_DQ, b, h, w->i, w->dq.x, w->allow, &w->worst[JUDGE_DQ]);
}

/* Heads of q that round their part of dk and dv before it is added: so much more is allowed. */
static void add_magnitudes(const judge *j, row_work *w)
{
    for (int64_t i = 0; i < j->tokens_k * j->dim; i++) {
        w->heads_k[i] += fabs(w->dk.x[i]);
        w->heads_v[i] += fabs(w->dv.x[i]);
    }
}

static void compare_keys(const run_job *r, row_work *w, int64_t b, int head_k)
{
    const judge *j = r->j;
    const int group = j->heads / j->heads_k;
    const double factor = r->v->wrong & WRONG_HEAD_MEAN ? 1.0 / group : 1;
    for (int output = JUDGE_DK; output <= JUDGE_DV; output++) {
        numbers all = output == JUDGE_DK ? w->dk : w->dv;
        const double *heads = output == JUDGE_DK ? w->heads_k : w->heads_v;
        for (int64_t row = 0; row < j->tokens_k; row++) {
            numbers x = {all.x + row * j->dim, all.worst + row * j->dim,
                         all.squares + row * j->dim};
            allow(j, &x, w->allow);
            for (int c = 0; c < j->dim; c++) {
                w->allow[c] += group > 1 ? j->unit * heads[row * j->dim + c] : 0;
                w->allow[c] *= factor;
                x.x[c] *= factor;
            }
            judge_compare(j, r->reading, output, b, head_k, row, x.x, w->allow, &w->worst[output]);
        }
    }
}

static void run_head(const run_job *r, row_work *w, int number, int whole)
{
    const judge *j = r->j;
    const int64_t b = number / j->heads_k, keys = j->tokens_k * j->dim;
    const int head_k = number % j->heads_k;
    if (r->gradients && whole) {
        clear(w->dk, keys);
        clear(w->dv, keys);
        memset(w->heads_k, 0, (size_t)keys * sizeof *w->heads_k);
        memset(w->heads_v, 0, (size_t)keys * sizeof *w->heads_v);
    }
    for (int h = 0; h < j->heads; h++) {
        if (!reads(j, r->v, h, head_k))
            continue;
        if (r->v->wrong & WRONG_HEAD_LAST && r->gradients && whole) {
            clear(w->dk, keys);
            clear(w->dv, keys);
        }
        for (int64_t i = 0; i < (whole ? j->tokens_q : r->plan->n_rows); i++) {
            w->i = whole ? i : r->plan->rows[i];
            run_row(r, w, b, h, head_k, whole);
        }
        if (r->gradients && whole && j->heads > j->heads_k)
            add_magnitudes(j, w);
    }
    if (r->gradients && whole)
        compare_keys(r, w, b, head_k);
}

/* ---- memory and threads ---------------------------------------------------------------------- */

static double *cut(double **rest, int64_t n)
{
    double *part = *rest;
    *rest += n;
    return part;
}

static numbers cut_numbers(double **rest, int64_t n)
{
    numbers x;
    x.x = cut(rest, n);
    x.worst = cut(rest, n);
    x.squares = cut(rest, n);
    return x;
}

/* One block of doubles; the keys lie in its first part. */
static int take(const run_job *r, row_work *w, double **memory)
{
    const judge *j = r->j;
    const int64_t row = 2 * j->tokens_k, keys = r->gradients ? j->tokens_k * j->dim : 0;
    double *rest = calloc((size_t)(7 * row + 8 * (int64_t)j->dim + 8 * keys), sizeof *rest);
    *memory = rest;
    if (!rest)
        return -1;
    w->keys = (int64_t *)(void *)cut(&rest, row);
    w->s = cut(&rest, row);
    w->e = cut(&rest, row);
    w->t = cut(&rest, row);
    w->p = cut(&rest, row);
    w->dp = cut(&rest, row);
    w->b = cut(&rest, row);
    w->o = cut_numbers(&rest, j->dim);
    w->dq = cut_numbers(&rest, j->dim);
    w->mean_k = cut(&rest, j->dim);
    w->allow = cut(&rest, j->dim);
    w->dk = cut_numbers(&rest, keys);
    w->dv = cut_numbers(&rest, keys);
    w->heads_k = cut(&rest, keys);
    w->heads_v = cut(&rest, keys);
    return 0;
}

tess_status judge_run(const judge *j, const judge_variant *variant, const judge_plan *plan,
                      const judge_reading *reading, judge_worst worst[JUDGE_OUTPUTS])
{
    const unsigned gradients = 1U << JUDGE_DQ | 1U << JUDGE_DK | 1U << JUDGE_DV;
    const run_job r = {j, variant, plan, reading, (plan->outputs & gradients) != 0};
    tess_ctx_info info;
    TRY(tess_ctx_query(j->c->ctx, &info));
    const int threads = info.threads < plan->n_heads ? info.threads : plan->n_heads;
    judge_worst *each = calloc((size_t)plan->n_heads, JUDGE_OUTPUTS * sizeof *each);
    int failed = !each;
#pragma omp parallel num_threads(threads) reduction(| : failed)
    {
        row_work w = {0};
        double *memory = NULL;
        failed |= take(&r, &w, &memory) != 0;
#pragma omp for schedule(dynamic)
        for (int a = 0; a < plan->n_heads; a++) {
            if (failed)
                continue;
            memset(w.worst, 0, sizeof w.worst);
            run_head(&r, &w, plan->heads ? plan->heads[a] : a, a < plan->n_whole);
            memcpy(each + (size_t)a * JUDGE_OUTPUTS, w.worst, sizeof w.worst);
        }
        free(memory);
    }
    memset(worst, 0, JUDGE_OUTPUTS * sizeof *worst);
    for (int a = 0; !failed && a < plan->n_heads; a++)
        for (int output = 0; output < JUDGE_OUTPUTS; output++)
            judge_merge(&worst[output], &each[(size_t)a * JUDGE_OUTPUTS + (size_t)output]);
    free(each);
    return failed ? out_fail(j->c, TESS_ENOMEM, "no memory for rows of %lld keys",
                             (long long)j->tokens_k)
                  : TESS_OK;
}
