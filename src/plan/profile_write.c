/* SPDX-License-Identifier: Apache-2.0 */
/* profile_write.c - a density profile as a CSV file, which profile.c reads.
 *
 * Densities are written in millionths by whole numbers: with a point in every locale.
 */
#include "plan_internal.h"

#include "file/out.h"

#include <math.h>
#include <string.h>

static tess_status check(const char *who, const tess_profile_view *v)
{
    if (v->steps < 1 || v->layers < 1 || v->heads < 1)
        return tess__invalid(who, "view has %d steps, %d layers, %d heads, needs 1 of each",
                             v->steps, v->layers, v->heads);
    if (!v->step || !v->layer || !v->density)
        return tess__invalid(who, "view.%s is NULL",
                             !v->step    ? "step"
                             : !v->layer ? "layer"
                                         : "density");
    for (int i = 0; i < v->steps; i++)
        if (v->step[i] < 0 || (i > 0 && v->step[i] <= v->step[i - 1]))
            return tess__invalid(who, "step[%d] is %lld, must be 0 or more and ascend", i,
                                 (long long)v->step[i]);
    for (int i = 0; i < v->layers; i++)
        if (v->layer[i] < 0 || (i > 0 && v->layer[i] <= v->layer[i - 1]))
            return tess__invalid(who, "layer[%d] is %lld, must be 0 or more and ascend", i,
                                 (long long)v->layer[i]);
    const int64_t n = (int64_t)v->steps * v->layers * v->heads;
    for (int64_t i = 0; i < n; i++)
        if (!(v->density[i] >= 0.0 && v->density[i] <= 1.0))
            return tess__invalid(who, "density[%lld] is %g, must be 0..1", (long long)i,
                                 v->density[i]);
    return TESS_OK;
}

size_t tess__profile_line(char line[TESS_PROFILE_LINE], int64_t step, int64_t layer, int head,
                          double density)
{
    const long long parts = llround(1e6 * density);
    return (size_t)snprintf(line, TESS_PROFILE_LINE, "%lld,%lld,%d,%lld.%06lld\n", (long long)step,
                            (long long)layer, head, parts / 1000000, parts % 1000000);
}

static tess_status write_lines(tess__out *out, const tess_profile_view *v)
{
    char line[TESS_PROFILE_LINE];
    const double *density = v->density;
    TESS_TRY(tess__out_write(out, TESS_PROFILE_HEAD, strlen(TESS_PROFILE_HEAD)));
    for (int s = 0; s < v->steps; s++)
        for (int l = 0; l < v->layers; l++)
            for (int h = 0; h < v->heads; h++, density++) {
                const size_t n = tess__profile_line(line, v->step[s], v->layer[l], h, *density);
                TESS_TRY(tess__out_write(out, line, n));
            }
    return TESS_OK;
}

tess_status tess_profile_write(tess_ctx *ctx, const char *path, const tess_profile_view *view)
{
    TESS_REQUIRE(ctx, path, view);
    tess__out *out = NULL;
    TESS_TRY(check(__func__, view));
    TESS_TRY(tess__out_open(ctx, path, &out));
    const tess_status status = write_lines(out, view);
    if (status != TESS_OK) {
        tess__out_abort(out);
        return status;
    }
    return tess__out_commit(out);
}
