/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.c - ranks that share the tokens of a pass: which rows are whose, time, whole latents.
 *
 * The output's rows are gathered by every rank: batch * tokens * patch_out numbers in all, each
 * sent to every other rank.
 */
#include "ranks.h"

#include "tessera/advanced/collectives.h"

/* ---- the context ----------------------------------------------------------------------------- */

/* Sets that the executor keeps for the gradients. */
static int saves_of(const tess_pass_shape *shape, int layers)
{
    return !shape->train ? 0 : shape->keep == TESS_KEEP_ALL ? layers : 1;
}

static tess_status check_lists(const char *who, const tess_cp_opts *o, const tess_pass_shape *shape,
                               const tess__sizes *z)
{
    const struct {
        const char *name;
        int have, want;
    } sizes[] = {{"n_groups", o->n_groups, z->n_q},
                 {"n_units", o->n_units, shape->sparse->unit_cubes ? z->n_k : 0},
                 {"proj_dim", o->proj_dim, shape->sparse->proj_dim},
                 {"compensate", o->compensate, shape->sparse->compensate},
                 {"group_rows", o->group_rows, shape->sparse->group != TESS_GROUP_CUBE}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].have != sizes[i].want)
            return tess__invalid(who, "the context's %s is %d, must be the pass's, %d",
                                 sizes[i].name, sizes[i].have, sizes[i].want);
    if (o->units_most != 0 && o->units_most < z->units_most)
        return tess__invalid(who, "the context's units_most is %d, must be %d or more",
                             o->units_most, z->units_most);
    return TESS_OK;
}

tess_status tess__ranks_fit(const char *who, const tess_pass_shape *shape, tess__sizes *z)
{
    tess_cp_info info;
    TESS_TRY(tess_cp_view(shape->context, &info));
    const tess_cp_opts *o = info.opts;
    const struct {
        const char *name;
        int64_t have, want;
    } sizes[] = {{"layers", o->layers, z->layers},
                 {"heads", o->heads, z->heads},
                 {"head_dim", o->head_dim, z->head_dim},
                 {"batch", o->batch, z->batch},
                 {"tokens", o->tokens, z->tokens}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].have != sizes[i].want)
            return tess__invalid(who, "the context's %s is %lld, must be the pass's, %lld",
                                 sizes[i].name, (long long)sizes[i].have, (long long)sizes[i].want);
    if (z->exact && !o->exact)
        return tess__invalid(who, "the context's exact is 0, must be the pass's, 1");
    const int saves = saves_of(shape, z->layers);
    if (o->saves < saves)
        return tess__invalid(who, "the context's saves is %d, must be %d or more", o->saves, saves);
    if (shape->sparse && !shape->sparse->dense)
        TESS_TRY(check_lists(who, o, shape, z));
    z->first = info.first;
    z->local = info.rows;
    return TESS_OK;
}

tess__ranks tess__ranks_of(const tess_cp *context)
{
    tess_cp_info info;
    if (!context || tess_cp_view(context, &info) != TESS_OK)
        return (tess__ranks){0};
    return (tess__ranks){.comm = info.comm,
                         .attn = info.attn,
                         .unions = info.unions,
                         .rank = info.rank,
                         .ranks = info.ranks,
                         .bounds = info.bounds};
}

tess_status tess__ranks_end(const tess_pass *p, tess_status status)
{
    return p->ranks.comm && status != TESS_OK ? tess_comm_fail(p->ranks.comm, status) : status;
}

/* ---- time ------------------------------------------------------------------------------------ */

tess__lap tess__lap_begin(const tess_pass *p)
{
    tess_comm_counts counts;
    if (!p->ranks.comm || tess_comm_counts_read(p->ranks.comm, &counts) != TESS_OK)
        return (tess__lap){tess_clock_ns(), 0};
    return (tess__lap){tess_comm_clock(p->ranks.comm), counts.wait_ns};
}

int64_t tess__lap_end(const tess_pass *p, tess__lap begin)
{
    const tess__lap end = tess__lap_begin(p);
    return end.clock - begin.clock - (end.waited - begin.waited);
}

/* ---- latents --------------------------------------------------------------------------------- */

/* Writes to ranks.message the bytes of each rank's rows of all samples, of `width` floats each. */
static int64_t *row_bytes(const tess_pass *p, int64_t width)
{
    const int64_t row = p->z.batch * width * (int64_t)sizeof(float);
    for (int r = 0; r < p->ranks.ranks; r++)
        p->ranks.message[r] = (p->ranks.bounds[r + 1] - p->ranks.bounds[r]) * row;
    return p->ranks.message;
}

float *tess__whole_place(const tess_pass *p, float *rows, int64_t width)
{
    return rows + p->z.batch * p->z.first * width;
}

tess_status tess__whole_latent(tess_pass *p, float *rows, int channels, int channel_last, float *x)
{
    const int64_t width = channel_last ? p->z.patch_out : p->z.patch_in;
    if (!p->ranks.comm) {
        tess__patches_scatter(p, (tess__token_range){0, p->z.tokens}, rows, channels, channel_last,
                              x);
        return TESS_OK;
    }
    const int64_t *bytes = row_bytes(p, width), *bounds = p->ranks.bounds;
    TESS_TRY(tess_comm_allgatherv(p->ranks.comm, TESS_TRAFFIC_PAYLOAD,
                                  tess__whole_place(p, rows, width), bytes[p->ranks.rank], rows,
                                  bytes));
    for (int r = 0; r < p->ranks.ranks; r++) {
        const tess__token_range span = {bounds[r], bounds[r + 1] - bounds[r]};
        tess__patches_scatter(p, span, rows + p->z.batch * span.first * width, channels,
                              channel_last, x);
    }
    return TESS_OK;
}
