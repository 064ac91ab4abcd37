/* SPDX-License-Identifier: Apache-2.0 */
/* overlap_fit.c - slowdowns that make totals of measured rows right.
 *
 * The slowdown s of some rows solves
 *
 *   sum alone / ((1 - share) + share / (1 + s)) = sum beside
 *
 * and is 0 where they ran no slower beside communication. The left side grows with s: 100 halvings
 * of [0, 100] find it. Totals and not means of ratios: kernels of a few microseconds that wait for
 * a unit of the GPU have ratios up to 30 and would set the mean alone.
 *
 * A kernel has a value of its own where it has three rows, or communication ran beside it for half
 * of its time; two rows that communication touched for a moment say nothing. Cost: linear in the
 * rows for each name.
 */
#include "overlap_internal.h"

#include <string.h>

enum { ROWS_MIN = 3 };

/* Which rows count. */
typedef struct {
    const char *kernel, *without; /* NULL: any, none */
    int kernel_class;             /* -1: any */
} choice;

static int counts(const tess__overlap_row *r, const choice *c)
{
    return r->share > 0 && (!c->kernel || strcmp(r->kernel, c->kernel) == 0) &&
           (c->kernel_class < 0 || r->kernel_class == c->kernel_class) &&
           (!c->without || strcmp(r->kernel, c->without) != 0);
}

typedef struct {
    int rows;
    double alone, measured; /* ns */
    double beside;          /* ns with communication beside them, of `measured` */
    double slowdown;
} fitted;

static double total(const tess__overlap_row *rows, int n, const choice *c, double slowdown)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        if (counts(&rows[i], c))
            sum += rows[i].alone_ns * tess__overlap_ratio(rows[i].share, slowdown);
    return sum;
}

static fitted fit(const tess__overlap_row *rows, int n, const choice *c)
{
    fitted f = {0};
    for (int i = 0; i < n; i++) {
        if (!counts(&rows[i], c))
            continue;
        f.rows++;
        f.alone += rows[i].alone_ns;
        f.measured += rows[i].beside_ns;
        f.beside += rows[i].share * rows[i].beside_ns;
    }
    double low = 0, high = TESS__OVERLAP_MAX;
    for (int k = 0; f.measured > f.alone && k < 100; k++) {
        const double middle = 0.5 * (low + high);
        *(total(rows, n, c, middle) > f.measured ? &high : &low) = middle;
    }
    f.slowdown = low;
    return f;
}

static tess_status put(tess__overlap_list *list, tess__arena *arena, tess__overlap_param param,
                       const fitted *f)
{
    char origin[128];
    snprintf(origin, sizeof origin, "fitted: %d row%s, %.3g ms beside communication", f->rows,
             f->rows == 1 ? "" : "s", 1e-6 * f->beside);
    param.origin = origin;
    param.value = f->slowdown;
    return tess__overlap_put(list, arena, &param);
}

static int is_first(const tess__overlap_row *rows, int i)
{
    for (int j = 0; j < i; j++)
        if (strcmp(rows[j].kernel, rows[i].kernel) == 0)
            return 0;
    return 1;
}

tess_status tess__overlap_fit(tess__overlap_list *list, tess__arena *arena, int hardware,
                              const tess__overlap_row *rows, int n, const char *without)
{
    for (int i = 0; i < n; i++) {
        const choice c = {rows[i].kernel, without, -1};
        if (!is_first(rows, i))
            continue;
        const fitted f = fit(rows, n, &c);
        if (f.rows >= ROWS_MIN || (f.rows > 0 && 2 * f.beside >= f.measured))
            TESS_TRY(put(list, arena,
                         (tess__overlap_param){.hardware = hardware,
                                               .kind = TESS__OVERLAP_KERNEL,
                                               .kernel = rows[i].kernel},
                         &f));
    }
    for (int k = 0; k < TESS_KERNEL_CLASSES; k++) {
        const fitted f = fit(rows, n, &(choice){NULL, without, k});
        if (f.rows > 0 && k != TESS_KERNEL_COMMUNICATION && k != TESS_KERNEL_OTHER)
            TESS_TRY(put(list, arena,
                         (tess__overlap_param){.hardware = hardware,
                                               .kind = TESS__OVERLAP_CLASS,
                                               .kernel = "",
                                               .kernel_class = k},
                         &f));
    }
    const fitted f = fit(rows, n, &(choice){NULL, without, -1});
    return f.rows == 0
               ? TESS_OK
               : put(list, arena,
                     (tess__overlap_param){
                         .hardware = hardware, .kind = TESS__OVERLAP_CONSTANT, .kernel = ""},
                     &f);
}

tess_status tess__overlap_leave_out(tess_ctx *ctx, tess__overlap_row *rows, int n, int *names)
{
    *names = 0;
    for (int i = 0; i < n; i++) {
        tess__overlap_list list = {.ctx = ctx};
        tess__arena arena = {.ctx = ctx};
        if (!is_first(rows, i))
            continue;
        const tess_status status = tess__overlap_fit(&list, &arena, 0, rows, n, rows[i].kernel);
        const double s = tess__overlap_find(&list, 0, rows[i].kernel, rows[i].kernel_class);
        tess__arena_free(&arena);
        tess__free(ctx, list.items);
        TESS_TRY(status);
        for (int j = i; j < n; j++)
            if (strcmp(rows[j].kernel, rows[i].kernel) == 0)
                rows[j].ratio = tess__overlap_ratio(rows[j].share, s);
        (*names)++;
    }
    return TESS_OK;
}
