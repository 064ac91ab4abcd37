/* SPDX-License-Identifier: Apache-2.0 */
/* activity_link.c - activity in order of time, and the call on the host that launched each.
 *
 * A kernel and its launch have the same correlation. Where a correlation comes again (files put
 * together, one launch of a graph with many kernels), a kernel belongs to the last launch that
 * began before it. Cost: four sorts and a binary search for each kernel.
 */
#include "activity_internal.h"

#include <stdlib.h>

static int compare(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

static int by_begin(const void *x, const void *y)
{
    const tess__act *a = x, *b = y;
    const int c = compare(a->begin, b->begin);
    return c ? c : compare(a->order, b->order);
}

static int by_correlation(const void *x, const void *y)
{
    const tess__launch *a = x, *b = y;
    const int c = compare(a->correlation, b->correlation);
    return c ? c : compare(a->begin, b->begin);
}

/* By thread, then by begin; of two that begin together the outer one first. */
static int by_thread(const void *x, const void *y)
{
    const tess__host_op *a = x, *b = y;
    if (a->thread != b->thread)
        return a->thread < b->thread ? -1 : 1;
    const int c = compare(a->begin, b->begin);
    return c ? c : compare(b->end, a->end);
}

static int by_sync(const void *x, const void *y)
{
    const tess__host_sync *a = x, *b = y;
    if (a->thread != b->thread)
        return a->thread < b->thread ? -1 : 1;
    const int c = compare(a->begin, b->begin);
    return c ? c : compare(a->end, b->end);
}

/* Files are often in order: then there is nothing to do. */
static void sort(void *items, int64_t n, size_t size, int (*order)(const void *, const void *))
{
    const char *at = items;
    int64_t i = 1;
    while (i < n && order(at + (size_t)(i - 1) * size, at + (size_t)i * size) <= 0)
        i++;
    if (i < n)
        qsort(items, (size_t)n, size, order);
}

/* The last launch of the correlation that began before the act, or else the first; -1: none. */
static int64_t find_launch(const tess_activity *f, const tess__act *act)
{
    const tess__launch key = {.correlation = act->correlation, .begin = act->begin};
    int64_t low = 0, high = f->n_launches; /* launches[low - 1] <= key < launches[high] */
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (by_correlation(&f->launches[middle], &key) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (low > 0 && f->launches[low - 1].correlation == act->correlation)
        return low - 1;
    return low < f->n_launches && f->launches[low].correlation == act->correlation ? low : -1;
}

tess_status tess__activity_link(tess_activity *f)
{
    sort(f->acts, f->n_acts, sizeof *f->acts, by_begin);
    sort(f->launches, f->n_launches, sizeof *f->launches, by_correlation);
    sort(f->host, f->n_host, sizeof *f->host, by_thread);
    sort(f->syncs, f->n_syncs, sizeof *f->syncs, by_sync);
    for (int64_t i = 0; i < f->n_acts; i++) {
        tess__act *act = &f->acts[i];
        const int64_t at = act->correlation < 0 ? -1 : find_launch(f, act);
        if (at < 0) {
            f->counts.no_launch += act->correlation >= 0;
            continue;
        }
        act->launch = f->launches[at].begin;
        act->launch_ns = f->launches[at].ns;
        act->thread = f->launches[at].thread;
    }
    tess__free(f->ctx, f->launches);
    f->launches = NULL;
    f->n_launches = f->room_launches = 0;
    return TESS_OK;
}

/* What the step launched; where the launch is not known, what began during it. */
tess_status tess__activity_step(tess_activity *f, int64_t step)
{
    const tess__step_span *span = NULL;
    int64_t n = 0;
    for (int64_t i = 0; i < f->n_steps; i++)
        if (f->steps[i].step == step)
            span = &f->steps[i];
    if (!span && f->n_steps == 0)
        return tess__fail(TESS_EINVAL, "%s: no ProfilerStep#%lld, the file has no steps", f->path,
                          (long long)step);
    if (!span)
        return tess__fail(TESS_EINVAL,
                          "%s: no ProfilerStep#%lld, the file has %lld steps from %lld on", f->path,
                          (long long)step, (long long)f->n_steps, (long long)f->steps[0].step);
    for (int64_t i = 0; i < f->n_acts; i++) {
        const int64_t at =
            f->acts[i].launch == TESS__NO_LAUNCH ? f->acts[i].begin : f->acts[i].launch;
        if (at >= span->begin && at < span->end)
            f->acts[n++] = f->acts[i];
    }
    f->n_acts = n;
    n = 0;
    for (int64_t i = 0; i < f->n_syncs; i++)
        if (f->syncs[i].begin >= span->begin && f->syncs[i].begin < span->end)
            f->syncs[n++] = f->syncs[i];
    f->n_syncs = n;
    return TESS_OK;
}
