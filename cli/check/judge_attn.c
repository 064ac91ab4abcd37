/* SPDX-License-Identifier: Apache-2.0 */
/* judge_attn.c - `tessera check attn --q ...`: what is compared, and at how many rows.
 *
 * Everything is compared where that takes a few seconds. Beyond, rows of q are sampled in all
 * heads, and dk and dv, sums over all queries, are compared in some heads, whose number is printed;
 * a head that takes longer than minutes leaves them out, unless --all is given.
 */
#include "judge.h"

#include <math.h>
#include <stdlib.h>

static const double FLOP_MAX = 6e9; /* a few seconds of one thread */
static const double HEAD_MAX = 4e11;

static tess_status check_usage(cli *c, const judge_files *f)
{
    static const int needed[] = {JUDGE_Q, JUDGE_K, JUDGE_V};
    int outputs = 0, gradients = 0;
    for (int i = 0; i < 3; i++)
        if (!f->in[needed[i]])
            return out_usage(c, "--%s is missing, attention needs --q, --k and --v",
                             judge_in_names[needed[i]]);
    for (int o = 0; o < JUDGE_OUTPUTS; o++) {
        outputs += f->out[o] != NULL;
        gradients += f->out[o] != NULL && o >= JUDGE_DQ;
    }
    if (outputs == 0 && !f->dump)
        return out_usage(c, "nothing is compared, needs --o, --lse, --dq, --dk, --dv or --dump");
    if (gradients && !f->in[JUDGE_DOUT])
        return out_usage(c, "--do is missing, --dq, --dk and --dv are gradients from it");
    if (f->mask && f->lists)
        return out_usage(c, "--mask and --lists are both given, must be one of them");
    if (!f->mask && (f->group || f->unit))
        return out_usage(c, "--%s belongs to a mask, needs --mask", f->group ? "group" : "unit");
    return TESS_OK;
}

/* Pairs of queries and keys of a row; those of a selection are counted at some rows. */
static double keys_per_row(const judge *j)
{
    int64_t *keys = malloc((size_t)j->tokens_k * 2 * sizeof *keys);
    double sum = 0;
    enum { ROWS = 16 };
    for (int i = 0; keys && i < ROWS; i++)
        sum += (double)judge_keys_of(&j->keys, i % j->batch, i % j->heads,
                                     i * (j->tokens_q - 1) / (ROWS - 1), keys);
    free(keys);
    return fmax(sum / ROWS, 1);
}

static unsigned wanted(const judge *j)
{
    unsigned outputs = 0;
    for (int o = 0; o < JUDGE_OUTPUTS; o++)
        if (j->out[o].data || j->reference[o])
            outputs |= 1U << o;
    return outputs;
}

/* rows: to be freed. */
static tess_status make_plan(judge *j, judge_plan *plan, int64_t **rows)
{
    const int heads = j->batch * j->heads_k;
    const double row = (j->in[JUDGE_DOUT].data ? 45.0 : 14.0) * j->dim * keys_per_row(j);
    const double head = row * (double)j->tokens_q * j->heads / j->heads_k;
    *plan = (judge_plan){.outputs = wanted(j), .n_heads = heads, .n_whole = heads};
    if (j->files->all || j->files->dump || head * heads <= FLOP_MAX)
        return TESS_OK;
    plan->n_whole = 0;
    if (plan->outputs & (1U << JUDGE_DK | 1U << JUDGE_DV)) {
        plan->n_whole = head * 2 <= FLOP_MAX ? (int)(FLOP_MAX / head) : head <= HEAD_MAX ? 1 : 0;
        plan->n_whole = plan->n_whole < heads ? plan->n_whole : heads;
    }
    int64_t n = (int64_t)(FLOP_MAX / (row * j->batch * j->heads));
    n = n < 2 ? 2 : n;
    n = n > j->tokens_q ? j->tokens_q : n;
    *rows = malloc((size_t)n * sizeof **rows);
    if (!*rows)
        return out_fail(j->c, TESS_ENOMEM, "no memory for %lld rows", (long long)n);
    for (int64_t i = 0; i < n; i++) {
        const int64_t begin = (int64_t)((double)i * (double)j->tokens_q / (double)n);
        const int64_t end = (int64_t)((double)(i + 1) * (double)j->tokens_q / (double)n);
        uint32_t bits;
        TRY(tess_random_bits((uint64_t)j->c->common->seed, 100, (uint64_t)i, &bits, 1));
        (*rows)[i] = i == 0       ? 0
                     : i == n - 1 ? j->tokens_q - 1
                                  : begin + (int64_t)bits % (end - begin);
    }
    plan->rows = *rows;
    plan->n_rows = n;
    return TESS_OK;
}

/* Room for the reference, where it is written. */
static tess_status make_reference(judge *j)
{
    for (int o = 0; o < JUDGE_OUTPUTS && j->files->dump; o++) {
        if (o >= JUDGE_DQ && !j->in[JUDGE_DOUT].data)
            continue;
        const int64_t n = judge_rows_of(j, o) * judge_heads_of(j, o) * j->batch * judge_width(j, o);
        j->reference[o] = malloc((size_t)n * sizeof(double));
        if (!j->reference[o])
            return out_fail(j->c, TESS_ENOMEM, "no memory for %lld numbers", (long long)n);
    }
    return TESS_OK;
}

static tess_status compare(judge *j, const judge_plan *plan)
{
    judge_worst worst[JUDGE_OUTPUTS];
    char text[JUDGE_OUTPUTS][JUDGE_TEXT_MAX] = {{0}};
    const judge_variant right = {.scale = j->scale,
                                 .q = j->in[JUDGE_Q].data,
                                 .k = j->in[JUDGE_K].data,
                                 .v = j->in[JUDGE_V].data,
                                 .keys = &j->keys};
    TRY(judge_run(j, &right, plan, NULL, worst));
    TRY(judge_dump(j));
    unsigned off = 0;
    for (int o = 0; o < JUDGE_OUTPUTS; o++) {
        off |= (unsigned)(worst[o].compared > 0 && worst[o].ratio > 1) << o;
        free(j->reference[o]); /* a mistake must not overwrite it */
        j->reference[o] = NULL;
    }
    if (off)
        TRY(judge_explain(j, plan, worst, off, text));
    j->c->code = off ? EXIT_MISMATCH : 0;
    return judge_show(j, plan, worst, text);
}

tess_status judge_attn(cli *c, const judge_files *files)
{
    judge j;
    judge_plan plan;
    int64_t *rows = NULL;
    TRY(check_usage(c, files));
    tess_status status = judge_open(c, files, &j);
    if (status == TESS_OK)
        status = make_reference(&j);
    if (status == TESS_OK)
        status = make_plan(&j, &plan, &rows);
    if (status == TESS_OK)
        status = compare(&j, &plan);
    free(rows);
    judge_close(&j);
    return status;
}
