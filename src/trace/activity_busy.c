/* SPDX-License-Identifier: Apache-2.0 */
/* activity_busy.c - activity by kernel name, and over time in equal parts of the span. */
#include "activity_internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- names ----------------------------------------------------------------------------------- */

static int by_time(const void *x, const void *y)
{
    const tess_activity_kernel *a = x, *b = y;
    return a->ns != b->ns ? (a->ns > b->ns ? -1 : 1) : strcmp(a->name, b->name);
}

tess_status tess_activity_kernels(const tess_activity *file, tess_activity_kernel *kernels,
                                  int64_t room, int64_t *n)
{
    TESS_REQUIRE(file, n);
    TESS_TRY(tess__check_least(__func__, "room", room, 0));
    if (room > 0)
        TESS_REQUIRE(kernels);
    const size_t bytes = (size_t)file->names.n * sizeof *kernels;
    tess_activity_kernel *all = TESS_ALLOC_ZERO(file->ctx, bytes);
    int64_t used = 0;
    for (int64_t i = 0; i < file->names.n; i++)
        all[i].name = file->names.items[i].text;
    for (int64_t i = 0; i < file->n_acts; i++) {
        tess_activity_kernel *k = &all[file->acts[i].name];
        k->kernel_class = (tess_kernel_class)file->acts[i].kernel_class;
        k->kernels++;
        k->ns += file->acts[i].ns;
    }
    for (int64_t i = 0; i < file->names.n; i++)
        if (all[i].kernels > 0)
            all[used++] = all[i];
    qsort(all, (size_t)used, sizeof *all, by_time);
    if (room > 0 && used > 0)
        memcpy(kernels, all, (size_t)TESS_MIN(room, used) * sizeof *all);
    *n = used;
    tess__free(file->ctx, all);
    return TESS_OK;
}

/* ---- parts of the span ----------------------------------------------------------------------- */

/* A union of intervals that come in order of begin, laid on the parts. */
typedef struct {
    int64_t end;
    double *parts;
    double sign; /* 1 adds, -1 takes away */
} layer;

typedef struct {
    int64_t begin;
    double width; /* of a part, ns */
    int n;
} scale;

static void lay(const scale *s, layer *l, const tess__act *act)
{
    const int64_t end = act->begin + act->ns;
    const int64_t from = TESS_MAX(act->begin, l->end);
    if (end <= from)
        return;
    l->end = end;
    const double a = (double)(from - s->begin) / s->width, b = (double)(end - s->begin) / s->width;
    for (int i = (int)a; i < s->n && (double)i < b; i++)
        l->parts[i] += l->sign * (TESS_MIN(b, (double)i + 1.0) - TESS_MAX(a, (double)i));
}

tess_status tess_activity_busy(const tess_activity *file, int n, double *compute, double *comm,
                               double *copy)
{
    TESS_REQUIRE(file, compute, comm, copy);
    TESS_TRY(tess__check_range(__func__, "n", n, 1, 1 << 20));
    const scale s = {file->info.begin_ns, (double)file->info.span_ns / n, n};
    layer computing = {INT64_MIN, compute, 1.0}, communicating = {INT64_MIN, comm, 1.0};
    /* Copies that nothing hides: anything, less kernels. */
    layer any = {INT64_MIN, copy, 1.0}, kernels = {INT64_MIN, copy, -1.0};
    memset(compute, 0, (size_t)n * sizeof *compute);
    memset(comm, 0, (size_t)n * sizeof *comm);
    memset(copy, 0, (size_t)n * sizeof *copy);
    if (file->info.span_ns == 0)
        return TESS_OK;
    for (int64_t i = 0; i < file->n_acts; i++) {
        const tess__act *act = &file->acts[i];
        lay(&s, &any, act);
        if (act->kind != TESS__ACT_KERNEL)
            continue;
        lay(&s, act->kernel_class == TESS_KERNEL_COMMUNICATION ? &communicating : &computing, act);
        lay(&s, &kernels, act);
    }
    return TESS_OK;
}
