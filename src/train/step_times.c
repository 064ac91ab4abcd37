/* SPDX-License-Identifier: Apache-2.0 */
/* step_times.c - metrics of a step: learning rates, times, bytes sent.
 *
 * Times of the pass are without waiting for other ranks, and so is that of the optimiser here:
 * exchange_ms has all of it. What is left of the step is other_ms.
 */
#include "train_internal.h"

#include <math.h>

static double ms(int64_t ns)
{
    return 1e-6 * (double)ns;
}

tess_comm_counts tess__train_sent(const tess_train *t)
{
    tess_comm_counts sum = t->sent_before;
    tess__counts_add(t->pg.world, 1, &sum);
    tess__counts_add(t->pg.cp_comm, 1, &sum);
    tess__mixture_counts(t->mixture, &sum);
    return sum;
}

void tess__step_sent(const tess_train *t, const tess_comm_counts *before, tess_step *now)
{
    double *const bytes[] = {&now->payload_bytes, &now->index_bytes, &now->control_bytes};
    const tess_comm_counts sent = tess__train_sent(t);
    now->messages = 0.0;
    for (int kind = 0; kind < TESS_TRAFFIC_COUNT; kind++) {
        *bytes[kind] = (double)(sent.bytes[kind] - before->bytes[kind]);
        now->messages += (double)(sent.messages[kind] - before->messages[kind]);
    }
}

void tess__step_describe(const tess_train *t, const tess__step_times *at, double factor,
                         tess_step *now)
{
    const double all = ms(at->end - at->begin);
    const tess_pass_times *a = &at->before, *b = &at->after;
    const int64_t late = at->ended.wait_ns - at->between.wait_ns;
    *now = (tess_step){
        .step = t->step,
        .steps = t->opts.steps,
        .loss_mean = t->loss_mean,
        .lr = factor * t->opts.lr,
        .lr_muon = t->opts.optim == TESS_OPTIM_MUON ? factor * t->opts.lr_muon : 0.0,
        .step_ms = all,
        .attention_ms = ms(b->attention_ns - a->attention_ns),
        .linear_ms = ms(b->linear_ns - a->linear_ns),
        .optimiser_ms = ms(at->end - at->middle - late),
        .data_ms = ms(at->waited),
        .tokens_per_s = 1e3 * (double)t->tokens / all,
        .density = 1.0,
        .recall = (double)NAN,
        .predictor_loss = (double)NAN,
        .select_ms = ms(b->select_ns - a->select_ns),
        .learn_ms = ms(b->learn_ns - a->learn_ns),
        .profile_ms = ms(b->observe_ns - a->observe_ns),
        .exchange_ms = ms(at->ended.wait_ns - at->begun.wait_ns),
        .plan_ms = ms(t->plan_ns),
        .imbalance = tess__plans_imbalance(t),
        .val_loss = (double)NAN,
        .output_change = (double)NAN,
        .val_buckets = {(double)NAN, (double)NAN, (double)NAN, (double)NAN},
    };
    tess__mixture_describe(t, now);
    now->other_ms = all - now->attention_ms - now->linear_ms - now->select_ms - now->learn_ms -
                    now->profile_ms - now->optimiser_ms - now->data_ms - now->exchange_ms -
                    now->plan_ms;
}
