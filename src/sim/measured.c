/* SPDX-License-Identifier: Apache-2.0 */
/* measured.c - a database of measured matrix products, which replace the formulas.
 *
 * It comes from a table of operations through the table's map (validate.h): each row that says
 * which fraction of the peak a product of m x n x k reached becomes seconds = FLOP / (peak x
 * fraction).
 * Entries are sorted and found by bisection: of the GPU's family (its name up to the first '-'),
 * precision, kind (a weight gradient or not), batch, m, n and k, all of them equal.
 */
#include "case.h"
#include "sim_internal.h"

#include <stdlib.h>
#include <string.h>

enum { FAMILY = 16 };

typedef struct {
    char family[FAMILY];
    int precision, weight;
    double batch, m, n, k;
    double seconds;
} entry;

struct tess_sim_measured {
    tess_ctx *ctx;
    entry *entries;
    int count;
};

static void set_family(const char *gpu, char family[FAMILY])
{
    size_t n = strcspn(gpu, "-");
    n = TESS_MIN(n, FAMILY - 1);
    memset(family, 0, FAMILY);
    memcpy(family, gpu, n);
}

static int compare(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    const int family = strcmp(x->family, y->family);
    if (family)
        return family;
    const double left[] = {x->precision, x->weight, x->batch, x->m, x->n, x->k};
    const double right[] = {y->precision, y->weight, y->batch, y->m, y->n, y->k};
    for (int i = 0; i < 6; i++)
        if (left[i] != right[i])
            return left[i] < right[i] ? -1 : 1;
    return 0;
}

int tess__measured_find(const tess_sim *sim, const tess__op *op, int precision, double *seconds)
{
    const tess_sim_measured *db = sim->measured;
    entry key = {.precision = precision == TESS_SIM_FP16 ? TESS_SIM_BF16 : precision,
                 .weight = op->pass == TESS__WEIGHT,
                 .batch = op->batch,
                 .m = op->m,
                 .n = op->n,
                 .k = op->k};
    if (!db)
        return 0;
    set_family(sim->cluster->gpu, key.family);
    const entry *found =
        bsearch(&key, db->entries, (size_t)db->count, sizeof *db->entries, compare);
    if (found)
        *seconds = found->seconds;
    return found != NULL;
}

/* ---- loading --------------------------------------------------------------------------------- */

static entry entry_of(const tess__cases *cases, const tess__case *c)
{
    const tess_cluster_info *info = &cases->clusters[c->cluster].cluster->info;
    const int precision = c->scenario.training.precision;
    const tess__product *p = &c->product;
    const double peak = precision >= TESS_SIM_FP8    ? info->flops_fp8
                        : precision == TESS_SIM_FP32 ? info->flops_fp32
                                                     : info->flops_bf16;
    entry e = {.precision = precision == TESS_SIM_FP16 ? TESS_SIM_BF16 : precision,
               .weight = p->weight,
               .batch = p->batch > 0.0 ? p->batch : 1.0,
               .m = p->m,
               .n = p->n,
               .k = p->k};
    if (peak > 0.0 && c->measured > 0.0)
        e.seconds = 2.0 * e.batch * e.m * e.n * e.k / (peak * c->measured);
    set_family(info->gpu, e.family);
    return e;
}

/* Of entries that are equal the first is kept. */
static void sort_entries(tess_sim_measured *db)
{
    int n = 0;
    qsort(db->entries, (size_t)db->count, sizeof *db->entries, compare);
    for (int i = 0; i < db->count; i++)
        if (n == 0 || compare(&db->entries[n - 1], &db->entries[i]) != 0)
            db->entries[n++] = db->entries[i];
    db->count = n;
}

static tess_status add_cases(tess_sim_measured *db, const char *path, const tess__cases *cases)
{
    db->entries = TESS_ALLOC(db->ctx, tess__bytes((size_t)cases->n, sizeof *db->entries));
    for (int i = 0; i < cases->n; i++) {
        if (cases->cases[i].what != TESS__MEASURED_GEMM_SHARE)
            continue;
        const entry e = entry_of(cases, &cases->cases[i]);
        if (e.seconds > 0.0)
            db->entries[db->count++] = e;
    }
    if (db->count == 0)
        return tess__fail(TESS_EFORMAT, "%s: has no measured products", path);
    sort_entries(db);
    return TESS_OK;
}

static tess_status read_table(tess_sim_measured *db, const char *path, const char *map_path)
{
    tess__table table = {0};
    tess__map map = {0};
    tess__cases cases = {.ctx = db->ctx, .arena = {.ctx = db->ctx}};
    TESS_TRY(tess__table_open(db->ctx, path, &table));
    tess_status status = map_path ? tess__map_parse(db->ctx, map_path, NULL, 0, &map)
                                  : tess__map_find(db->ctx, &table, &map);
    if (status == TESS_OK) {
        status = tess__cases_add(&cases, &map, &table);
        if (status == TESS_OK)
            status = add_cases(db, path, &cases);
        tess__cases_free(&cases);
        tess__map_close(&map);
    }
    tess__table_close(&table);
    return status;
}

tess_status tess_sim_measured_load(tess_ctx *ctx, const char *path, const char *map,
                                   tess_sim_measured **measured)
{
    TESS_REQUIRE(ctx, path, measured);
    tess_sim_measured *db = TESS_ALLOC_ZERO(ctx, sizeof *db);
    db->ctx = ctx;
    const tess_status status = read_table(db, path, map);
    if (status == TESS_OK)
        *measured = db;
    else
        tess_sim_measured_destroy(db);
    return status;
}

void tess_sim_measured_destroy(tess_sim_measured *measured)
{
    if (!measured)
        return;
    tess__free(measured->ctx, measured->entries);
    tess__free(measured->ctx, measured);
}

tess_status tess_sim_use_measured(tess_sim *sim, const tess_sim_measured *measured)
{
    TESS_REQUIRE(sim);
    sim->measured = measured;
    return TESS_OK;
}
