/* SPDX-License-Identifier: Apache-2.0 */
/* train_report.c - the result of a training run, as text and as JSON. */
#include "bf16_use.h"
#include "train_job.h"

#include <math.h>
#include <stdlib.h>

static int ranks_context(const train_job *j)
{
    return j->opts.ranks_context ? j->opts.ranks_context : j->c->ranks;
}

static tess_status print_result(cli *c, const train_job *j, const tess_train_info *info,
                                double step_ms, int64_t peak)
{
    tess_bf16_use use;
    char text[32], products[PRECISION_TEXT];
    fprintf(c->out, "steps        %lld\n", (long long)info->step);
    if (!isnan(info->loss_mean))
        fprintf(c->out, "train loss   %.4f\n", info->loss_mean);
    if (!isnan(info->val_loss))
        fprintf(c->out, "val loss     %.4f\n", info->val_loss);
    if (j->validated)
        fprintf(c->out, "by noise     0-25 %% %.4f, 25-50 %% %.4f, 50-75 %% %.4f, 75-100 %% %.4f\n",
                j->buckets[0], j->buckets[1], j->buckets[2], j->buckets[3]);
    if (!isnan(step_ms))
        fprintf(c->out, "step         %.1f ms, %.0f tokens/s\n", step_ms,
                1e3 * (double)info->tokens / step_ms);
    if (j->opts.attention.kind != TESS_ATTENTION_DENSE && j->n_times > 0)
        fprintf(c->out, "attention    %.0f of %d layers sparse, density %.3f\n", j->sparse_layers,
                j->config.layers, j->density);
    if (c->ranks > 1 && j->info.sizes > 1)
        fprintf(c->out, "ranks        %d, each with clips of its own\n", c->ranks);
    else if (c->ranks > 1)
        fprintf(c->out, "ranks        %d, of which %d share the tokens of a clip\n", c->ranks,
                ranks_context(j));
    TRY(world_sent(c, "sent         ", &info->sent));
    fprintf(c->out, "memory       %s at most\n", out_bytes(peak, text));
    if (j->opts.precision == TESS_PRECISION_BF16) {
        TRY(precision_text(c, &use, products));
        fprintf(c->out, "precision    bf16, %s\n", products);
    }
    if (info->checkpoint)
        fprintf(c->out, "checkpoint   %s\n", info->checkpoint);
    if (info->checkpoint && c->rank == 0)
        train_next(j);
    return TESS_OK;
}

tess_status train_report(train_job *j)
{
    cli *c = j->c;
    tess_train_info info;
    tess_ctx_info memory;
    TRY(tess_train_query(j->train, &info));
    TRY(tess_ctx_query(c->ctx, &memory));
    const double step_ms = out_median(j->times, j->n_times);
    if (!c->json)
        return print_result(c, j, &info, step_ms, memory.bytes_peak);
    out_set(c, c->json, "run", out_text(j->v->out));
    out_set(c, c->json, "steps", json_integer(info.step));
    out_set(c, c->json, "train_loss", out_number(info.loss_mean));
    out_set(c, c->json, "val_loss", out_number(info.val_loss));
    out_set(c, c->json, "step_ms_median", out_number(step_ms));
    out_set(c, c->json, "tokens_per_s", out_number(1e3 * (double)info.tokens / step_ms));
    out_set(c, c->json, "sparse_layers", json_integer((json_int_t)j->sparse_layers));
    out_set(c, c->json, "density", out_number(j->n_times > 0 ? j->density : (double)NAN));
    if (c->ranks > 1) {
        out_set(c, c->json, "ranks", json_integer(c->ranks));
        out_set(c, c->json, "ranks_context", json_integer(ranks_context(j)));
    }
    TRY(world_sent(c, NULL, &info.sent));
    TRY(precision_json(c, c->json, j->opts.precision));
    out_set(c, c->json, "peak_memory_gib", out_number((double)memory.bytes_peak / (1 << 30)));
    out_set(c, c->json, "checkpoint", info.checkpoint ? out_text(info.checkpoint) : json_null());
    return TESS_OK;
}
