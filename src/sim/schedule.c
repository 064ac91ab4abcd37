/* SPDX-License-Identifier: Apache-2.0 */
/* schedule.c - the passes of a step through the pipeline, in closed form.
 *
 * With T_i = F_i + B_i of a stage and a micro-batch, M = max T_i + its sends, m micro-batches:
 *
 *   1F1B          sum T_i + (m - 1) M: the first batch goes down and the last one up through all
 *                 stages, between them the slowest stage works without a pause
 *   gpipe         sum T_i + (m - 1) (max F_i + max B_i): all forward, then all backward passes
 *   interleaved, gpipe-looped
 *                 m M + (sum T_i - M) / v: with v chunks a stage, a v-th of a stage is waited for
 *   zero bubble, interleaved-zb
 *                 m M + (p - 1) (F + B - 2 W) / v of the mean stage: weight gradients W fill what
 *                 they can (v = 1: ZB-H1, with the memory of 1F1B); B includes W
 *   zb-v          m M + (p - 1) (B - W) / 2
 *   dualpipe      m M + (p / 2 - 1) (F + 2 B - 3 W), T_i the mean of stages i and p - 1 - i
 *
 * A schedule from a file has no closed form: its passes are replayed (passes_of_file).
 *
 * A hop between stages is waited for twice a micro-batch and chunk, (p - 1) / p of it, where sends
 * are not overlapped, and on the way of the first and of the last batch always. A test replays the
 * schedules event by event and finds these within 1 %.
 */
#include "sim_internal.h"
#include "timeline/timeline_internal.h"

#include <math.h>

int tess__other_stage(const tess_sim *sim, int stage)
{
    return sim->s.layout.schedule == TESS_SIM_DUALPIPE ? sim->s.layout.pp - 1 - stage : stage;
}

int tess__head_stage(const tess_sim *sim)
{
    const tess_sim_layout *l = &sim->s.layout;
    if (l->schedule == TESS_SIM_SCHEDULE_FILE && sim->schedule)
        return sim->schedule->rank_of[sim->schedule->stages - 1];
    return l->schedule == TESS_SIM_ZB_V ? 0 : l->pp - 1;
}

double tess__pipeline_seconds(const tess__pipeline *p, int *slowest)
{
    double sum = 0.0, most = 0.0, forward = 0.0, backward = 0.0;
    int at = 0;
    for (int i = 0; i < p->stages; i++) {
        const double t = p->forward[i] + p->backward[i];
        sum += t;
        forward = fmax(forward, p->forward[i]);
        backward = fmax(backward, p->backward[i]);
        if (t > most) {
            most = t;
            at = i;
        }
    }
    *slowest = at;
    const double m = (double)p->batches, v = p->chunks, stages = p->stages;
    const double steady = 2.0 * v * p->hop_waited * (stages - 1.0) / stages;
    const double pace = most + steady;
    const double fill = p->stages > 1 ? 2.0 * (stages - 1.0) * p->hop : 0.0;
    const double mean = sum / stages;
    switch (p->schedule) {
    case TESS_SIM_GPIPE: return sum + (m - 1.0) * (forward + backward + steady) + fill;
    case TESS_SIM_INTERLEAVED:
    case TESS_SIM_GPIPE_LOOPED: return m * pace + (sum - most) / v + fill;
    case TESS_SIM_ZERO_BUBBLE:
    case TESS_SIM_INTERLEAVED_ZB:
        return m * pace + (stages - 1.0) * fmax(mean - 2.0 * p->weight, 0.0) / v + fill;
    case TESS_SIM_ZB_V: return m * pace + (stages - 1.0) * p->input / 2.0 + fill;
    case TESS_SIM_DUALPIPE: {
        const double mean_backward = p->input + p->weight;
        return m * pace + (stages / 2.0 - 1.0) * fmax(mean + mean_backward - 3.0 * p->weight, 0.0) +
               fill;
    }
    default: return sum + (m - 1.0) * pace + fill;
    }
}
