/* SPDX-License-Identifier: Apache-2.0 */
/* schedule.c - the passes of a step through the pipeline, in closed form.
 *
 * With T_i = F_i + B_i of a stage and a micro-batch, M = max T_i + its sends, m micro-batches:
 *
 *   1F1B          sum T_i + (m - 1) M: the first batch goes down and the last one up through all
 *                 stages, between them the slowest stage works without a pause
 *   interleaved   m M + (sum T_i - M) / v: with v chunks a stage, a v-th of a stage is waited for
 *   zero bubble   m M + (p - 1) (F + B - W) of the mean stage: weight gradients W fill what they
 *                 can (ZB-H1, with the memory of 1F1B); B includes W, so F + (B - W) - W
 *
 * A hop between stages is waited for twice a micro-batch and chunk, (p - 1) / p of it, where sends
 * are not overlapped, and on the way of the first and of the last batch always. A test replays the
 * schedules event by event and finds these within 1 %.
 */
#include "sim_internal.h"

#include <math.h>

double tess__pipeline_seconds(const tess__pipeline *p, int *slowest)
{
    double sum = 0.0, most = 0.0;
    int at = 0;
    for (int i = 0; i < p->stages; i++) {
        const double t = p->forward[i] + p->backward[i];
        sum += t;
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
    if (p->schedule == TESS_SIM_INTERLEAVED)
        return m * pace + (sum - most) / v + fill;
    if (p->schedule == TESS_SIM_ZERO_BUBBLE) {
        const double mean = sum / stages;
        return m * pace + (stages - 1.0) * fmax(mean - 2.0 * p->weight, 0.0) + fill;
    }
    return sum + (m - 1.0) * pace + fill;
}
