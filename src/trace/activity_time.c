/* SPDX-License-Identifier: Apache-2.0 */
/* activity_time.c - where the time of a file goes, by unions of intervals.
 *
 *   span = compute + exposed + copy + idle
 *
 * With C, M and A the times in which a compute kernel, a communication kernel and anything runs:
 * compute = |C|, comm = |M|, exposed = |C u M| - |C|, hidden = |M| - exposed, copy = |A| - |C u M|,
 * idle = span - |A|. One pass over the activity in order of begin; exact: stamps are integers.
 */
#include "activity_internal.h"

typedef struct {
    int64_t total, end;
    int any;
} covered;

/* Intervals come in order of begin. */
static void cover(covered *u, const tess__act *act)
{
    const int64_t end = act->begin + act->ns;
    if (!u->any || act->begin > u->end)
        u->total += act->ns;
    else if (end > u->end)
        u->total += end - u->end;
    u->end = u->any ? TESS_MAX(u->end, end) : end;
    u->any = 1;
}

static int64_t add(int64_t a, int64_t b)
{
    int64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

void tess__activity_times(tess_activity *f)
{
    tess_activity_info *info = &f->info;
    covered compute = {0}, comm = {0}, busy = {0}, all = {0};
    for (int64_t i = 0; i < f->n_acts; i++) {
        const tess__act *act = &f->acts[i];
        tess_activity_class *sum = &info->classes[act->kernel_class];
        sum->kernels++;
        sum->ns = add(sum->ns, act->ns);
        info->kernels += act->kind == TESS__ACT_KERNEL;
        cover(&all, act);
        if (act->kind != TESS__ACT_KERNEL)
            continue;
        cover(&busy, act);
        cover(act->kernel_class == TESS_KERNEL_COMMUNICATION ? &comm : &compute, act);
    }
    info->begin_ns = f->n_acts ? f->acts[0].begin : 0;
    info->span_ns = f->n_acts ? all.end - f->acts[0].begin : 0;
    info->compute_ns = compute.total;
    info->comm_ns = comm.total;
    info->exposed_ns = busy.total - compute.total;
    info->hidden_ns = comm.total - info->exposed_ns;
    info->copy_ns = all.total - busy.total;
    info->idle_ns = info->span_ns - all.total;
}
