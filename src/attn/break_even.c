/* SPDX-License-Identifier: Apache-2.0 */
/* break_even.c - the density from which on sparse attention of a head is not worth its selection,
 * from the rates of rates.c, forward and backward together:
 *
 *   dense      queries * keys * dense
 *   sparse(d)  queries * per_row + d * queries * keys * sparse      density: sparse(d) = dense
 */
#include "break_even.h"

#include "file/out.h"

#include <unistd.h>

static tess_status measure(const tess_ctx *ctx, const tess_attn_rates_shape *shape,
                           tess_break_even_result *result)
{
    const double queries = (double)shape->queries, pairs = queries * (double)shape->keys;
    tess_attn_rates rates[2];
    TESS_TRY(tess_attn_measure(ctx, shape, rates));
    *result = (tess_break_even_result){0};
    for (int pass = 0; pass <= shape->backward; pass++) {
        result->ns_dense += pairs * rates[pass].dense;
        result->ns_sparse_fixed += queries * rates[pass].per_row;
        result->ns_sparse_per_density += pairs * rates[pass].sparse;
    }
    return TESS_OK;
}

static void find_density(tess_break_even_result *r)
{
    const double left = r->ns_dense - r->ns_sparse_fixed;
    r->density = left <= 0                          ? 0
                 : left >= r->ns_sparse_per_density ? 1
                                                    : left / r->ns_sparse_per_density;
}

/* Reads the file. One that does not fit is measured again. */
static int read_cached(tess_ctx *ctx, const tess_attn_rates_shape *shape, const char *path,
                       tess_break_even_result *result)
{
    if (access(path, F_OK) != 0)
        return 0;
    if (tess__break_even_read(ctx, shape, path, result) == TESS_OK)
        return 1;
    tess__log(ctx, TESS_LOG_WARN, "%s; measured again", tess_last_error());
    return 0;
}

tess_status tess_break_even(tess_ctx *ctx, const tess_attn_rates_shape *shape, const char *folder,
                            tess_break_even_result *result)
{
    TESS_TRY(tess__attn_rates_check("tess_break_even", ctx, shape, result));
    char path[TESS_BREAK_EVEN_PATH];
    tess_break_even_result found;
    if (folder)
        TESS_TRY(tess__break_even_path(ctx, shape, folder, path));
    if (!folder || !read_cached(ctx, shape, path, &found)) {
        TESS_TRY(measure(ctx, shape, &found));
        if (folder)
            tess__out_clean(folder);
        if (folder && tess__break_even_write(ctx, shape, path, &found) != TESS_OK)
            tess__log(ctx, TESS_LOG_WARN, "%s; break-even is measured at each start",
                      tess_last_error());
    }
    find_density(&found);
    *result = found;
    return TESS_OK;
}
