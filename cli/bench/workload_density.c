/* SPDX-License-Identifier: Apache-2.0 */
/* workload_density.c - densities of the heads of a problem: one for all, or those of a profile. */
#include "workload.h"

#include "tessera/plan.h"

/* What layer or head number i of n stands for in a profile: evenly spaced in first..end-1, so that
 * n of them are each once, and of twice as many each is twice. */
static int spaced(int i, int n, int first, int end)
{
    return first + (2 * i + 1) * (end - first) / (2 * n);
}

static tess_status from_profile(workload *w, const tess_profile_view *v)
{
    const problem *p = &w->p;
    const int end = p->end_layer ? p->end_layer : v->layers;
    const int layers = (int)p->layers, heads = (int)p->heads;
    double *densities = w->sparse.densities;
    if (end > v->layers)
        return out_fail(w->c, TESS_EINVAL, "%s: has %d layers, the %s asks for layers %d:%d",
                        p->profile, v->layers, problem_keys[p->kind].name, p->first_layer, end);
    w->profile_heads = v->heads;
    for (int i = 0; i < layers * heads; i++) {
        const int layer = spaced(i / heads, layers, p->first_layer, end);
        const int head = spaced(i % heads, heads, 0, v->heads);
        densities[i] = 0;
        for (int step = 0; step < v->steps; step++)
            densities[i] += v->density[(step * v->layers + layer) * v->heads + head] / v->steps;
    }
    return TESS_OK;
}

tess_status workload_densities(workload *w)
{
    const problem *p = &w->p;
    void *data;
    TRY(workload_take(w, p->layers * p->heads, TESS_DTYPE_F64, &data));
    w->sparse.densities = data;
    for (int64_t i = 0; i < p->layers * p->heads; i++)
        w->sparse.densities[i] = p->density;
    if (!p->profile[0])
        return TESS_OK;
    tess_profile *profile = NULL;
    tess_profile_view view;
    TRY(tess_profile_open(w->c->ctx, p->profile, NULL, &profile));
    tess_status status = tess_profile_query(profile, &view);
    if (status == TESS_OK)
        status = from_profile(w, &view);
    tess_profile_close(profile);
    return status;
}
