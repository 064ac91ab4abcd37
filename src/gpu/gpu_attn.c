/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_attn.c - attention on the device: arguments checked, then kernels on the caller's stream.
 *
 * A backward pass takes its workspace in this order, each piece aligned to 256 bytes:
 *
 *   | lists by key: first (heads (n_k + 1)), group (indices), place (indices) |
 *   | units of 16 rows or more: delta (heads tokens_q) |
 *   | smaller ones: rows of dk, rows of dv: of as many lists as fit |
 *
 * heads counts those of all samples. A round of lists is the longest run whose rows fit.
 */
#include "gpu_internal.h"

#include <limits.h>
#include <math.h>

enum { ALIGN = 256, OWNER_SHIFT = 4 }; /* from 16 rows a block of keys owns its gradients */

typedef struct {
    const char *who;
    tess_gpu *gpu;
    const tess_gpu_selection *sel;
    const tess_gpu_kernel *kernel; /* of a block of queries */
    tess_gpu_lists lists;
    int64_t heads;
    int tiles; /* blocks for each group */
    tess_dtype dtype;
    float scale;
} call;

static tess_status check_shape(const char *who, const tess_gpu_attn_shape *shape,
                               const tess_gpu_selection *sel)
{
    const tess_attn_shape *const a = &shape->attn;
    const tess_sel_shape *const s = &sel->shape;
    if (a->head_dim != 64 && a->head_dim != 128)
        return tess__fail(TESS_ENOTSUP, "%s: head_dim is %d, must be 64 or 128", who, a->head_dim);
    if (a->compensate)
        return tess__fail(TESS_ENOTSUP,
                          "%s: compensate is %d, must be 0: there are no virtual keys", who,
                          a->compensate);
    if (!isfinite(a->scale) || a->scale < 0.0f)
        return tess__invalid(who, "scale is %g, must be positive, or 0 for 1/sqrt(head_dim)",
                             (double)a->scale);
    TESS_TRY(tess__check_flag(who, "atomic", shape->atomic));
    if (a->batch != s->batch || a->heads != s->heads || a->tokens_q != s->tokens_q ||
        a->tokens_k != s->tokens_k)
        return tess__invalid(who,
                             "the selection is of %d x %d heads with %lld queries and %lld keys, "
                             "must be of %d x %d with %lld and %lld",
                             s->batch, s->heads, (long long)s->tokens_q, (long long)s->tokens_k,
                             a->batch, a->heads, (long long)a->tokens_q, (long long)a->tokens_k);
    return TESS_OK;
}

static tess_status begin(const char *who, tess_gpu_kind kind, tess_gpu *gpu,
                         const tess_gpu_attn_shape *shape, const tess_gpu_selection *sel,
                         tess_dtype dtype, call *c)
{
    TESS_TRY(check_shape(who, shape, sel));
    TESS_TRY(tess__gpu_check_device(who, gpu, sel));
    if (dtype != TESS_DTYPE_BF16 && dtype != TESS_DTYPE_F16)
        return tess__fail(TESS_ENOTSUP, "%s: q.dtype is %s, must be BF16 or F16", who,
                          tess_dtype_name(dtype));
    const tess_gpu_kernel *const kernel =
        tess__gpu_find(kind, dtype, shape->attn.head_dim, sel->group_max);
    tess__gpu_warn(gpu);
    *c = (call){.who = who,
                .gpu = gpu,
                .sel = sel,
                .kernel = kernel,
                .lists = tess__gpu_lists(sel),
                .heads = (int64_t)sel->shape.batch * sel->shape.heads,
                .tiles = (sel->group_max + kernel->rows - 1) / kernel->rows,
                .dtype = dtype,
                .scale = shape->attn.scale != 0.0f
                             ? shape->attn.scale
                             : (float)(1.0 / sqrt((double)shape->attn.head_dim))};
    return TESS_OK;
}

/* ---- forward --------------------------------------------------------------------------------- */

static tess_status forward(const call *c, const tess_view *q, const tess_view *k,
                           const tess_view *v, const tess_view *o, float *lse, void *stream)
{
    tess_gpu_forward_args args = {.lists = c->lists,
                                  .lse = lse,
                                  .tiles = c->tiles,
                                  .scale2 = c->scale * 1.44269504088896341f};
    if (c->sel->lists == 0)
        return TESS_OK;
    TESS_TRY(tess__gpu_rows(c->who, c->gpu, "q", q, c->dtype, &args.q));
    if (c->lists.tokens_k > 0) {
        TESS_TRY(tess__gpu_rows(c->who, c->gpu, "k", k, c->dtype, &args.k));
        TESS_TRY(tess__gpu_rows(c->who, c->gpu, "v", v, c->dtype, &args.v));
    }
    TESS_TRY(tess__gpu_rows(c->who, c->gpu, "o", o, c->dtype, &args.o));
    TESS_TRY(tess__gpu_pointer(c->who, c->gpu, "lse", lse, 4));
    return tess__gpu_launch(c->who, c->gpu, c->kernel, &args, c->sel->lists * c->tiles, stream);
}

tess_status tess_gpu_attn_forward(tess_gpu *gpu, const tess_gpu_attn_shape *shape,
                                  const tess_gpu_selection *sel, const tess_view *q,
                                  const tess_view *k, const tess_view *v, const tess_view *o,
                                  float *lse, void *stream)
{
    call c;
    TESS_REQUIRE(gpu, shape, sel, q, k, v, o);
    TESS_TRY(begin("tess_gpu_attn_forward", TESS_GPU_FORWARD, gpu, shape, sel, q->dtype, &c));
    TESS_TRY(tess__gpu_enter(c.who, gpu));
    const tess_status status = forward(&c, q, k, v, o, lse, stream);
    tess__gpu_leave(gpu);
    return status;
}

/* ---- the workspace of a backward pass -------------------------------------------------------- */

typedef struct {
    int64_t first, group, place, delta, rows; /* where each begins */
    int64_t row_bytes;                        /* of one entry of a list: rows of dk and of dv */
} layout;

static int64_t aligned(int64_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static int is_owned(const call *c)
{
    return c->lists.shift >= OWNER_SHIFT;
}

static layout lay_out(const call *c, int dim)
{
    const int64_t entries = tess__gpu_offsets(c->sel)[c->sel->lists];
    layout l = {.row_bytes =
                    ((int64_t)c->tiles << c->lists.shift) * dim * 2 * (int64_t)sizeof(float)};
    l.group = aligned(c->heads * (c->lists.n_k + 1) * (int64_t)sizeof(int));
    l.place = l.group + aligned(entries * (int64_t)sizeof(int));
    l.delta = l.place + aligned(entries * (int64_t)sizeof(int));
    l.rows = l.delta;
    if (is_owned(c))
        l.rows += aligned(c->heads * c->lists.tokens_q * (int64_t)sizeof(float));
    return l;
}

/* Entries that fit into so many bytes beside the rest. */
static int64_t room(const layout *l, int64_t bytes)
{
    return bytes < l->rows + 2 * ALIGN ? 0 : (bytes - l->rows - 2 * ALIGN) / l->row_bytes;
}

static int64_t longest(const call *c)
{
    const int64_t *const offsets = tess__gpu_offsets(c->sel);
    int64_t most = 0;
    for (int64_t i = 0; i < c->sel->lists; i++)
        most = TESS_MAX(most, offsets[i + 1] - offsets[i]);
    return most;
}

/* What the lists take in one round; *least: in rounds of the longest list. */
static int64_t need(const call *c, int dim, int64_t *least)
{
    const layout l = lay_out(c, dim);
    const int64_t entries = tess__gpu_offsets(c->sel)[c->sel->lists];
    *least = is_owned(c) ? l.rows : l.rows + 2 * ALIGN + longest(c) * l.row_bytes;
    return is_owned(c) ? l.rows : l.rows + 2 * ALIGN + entries * l.row_bytes;
}

tess_status tess_gpu_attn_workspace(tess_gpu *gpu, const tess_gpu_attn_shape *shape,
                                    const tess_gpu_selection *sel, int64_t budget, int64_t *bytes)
{
    static const char who[] = "tess_gpu_attn_workspace";
    call c;
    int64_t least = 0;
    TESS_REQUIRE(gpu, shape, sel, bytes);
    TESS_TRY(tess__check_least(who, "budget", budget, 0));
    TESS_TRY(begin(who, TESS_GPU_BACKWARD, gpu, shape, sel, TESS_DTYPE_BF16, &c));
    if ((shape->atomic && !is_owned(&c)) || sel->lists == 0) {
        *bytes = 0;
        return TESS_OK;
    }
    const int64_t all = need(&c, shape->attn.head_dim, &least);
    if (budget > 0 && budget < least)
        return tess__invalid(who, "budget is %lld, must be at least %lld for these lists",
                             (long long)budget, (long long)least);
    *bytes = budget > 0 ? TESS_MIN(budget, all) : all;
    return TESS_OK;
}

/* ---- backward -------------------------------------------------------------------------------- */

typedef struct {
    const call *c;
    int dim;
    tess_gpu_backward_args args;
    int *first, *group, *place;
    float *delta;
    unsigned char *work;
    int64_t work_bytes;
    void *stream;
} gradient;

static tess_status launch(const gradient *g, tess_gpu_kind kind, int rows, const void *args,
                          int64_t blocks)
{
    const call *const c = g->c;
    return tess__gpu_launch(c->who, c->gpu, tess__gpu_find(kind, c->dtype, g->dim, rows), args,
                            blocks, g->stream);
}

static tess_status lists_by_key(const gradient *g)
{
    const call *const c = g->c;
    const tess_gpu_transpose_args args = {c->lists, g->first, g->group, g->place};
    const int64_t blocks = c->heads * ((c->lists.n_k + 255) / 256);
    TESS_TRY(launch(g, TESS_GPU_COUNT, 0, &args, blocks));
    TESS_TRY(launch(g, TESS_GPU_SUM, 0, &args, c->heads));
    return launch(g, TESS_GPU_FILL, 0, &args, blocks);
}

static tess_status backward_owned(gradient *g)
{
    const call *const c = g->c;
    const int keys = TESS_MIN(1 << c->lists.shift, 64);
    const tess_gpu_kernel *const owner =
        tess__gpu_find(TESS_GPU_KEY_BLOCKS, c->dtype, g->dim, keys < 64 ? 16 : 64);
    const tess_gpu_backward_args *const a = &g->args;
    const tess_gpu_delta_args delta = {a->o,     a->dout,        a->dlse,
                                       g->delta, c->lists.heads, c->lists.tokens_q};
    const tess_gpu_keys_args own = {c->lists, a->q,   a->k,     a->v,     a->dout,  a->dk,
                                    a->dv,    a->lse, g->delta, g->first, g->group, c->scale};
    TESS_TRY(lists_by_key(g));
    g->args.mode = TESS_GPU_QUERIES;
    TESS_TRY(launch(g, TESS_GPU_BACKWARD, c->sel->group_max, &g->args, c->sel->lists * c->tiles));
    TESS_TRY(launch(g, TESS_GPU_DELTA, 0, &delta, c->heads * ((c->lists.tokens_q + 3) / 4)));
    return tess__gpu_launch(c->who, c->gpu, owner, &own,
                            c->heads * ((c->lists.tokens_k + owner->rows - 1) / owner->rows),
                            g->stream);
}

static tess_gpu_sum_args sum_args(const gradient *g)
{
    return (tess_gpu_sum_args){.lists = g->c->lists,
                               .dk = g->args.dk,
                               .dv = g->args.dv,
                               .first = g->first,
                               .group = g->group,
                               .place = g->place,
                               .tiles = g->c->tiles,
                               .rows = g->c->kernel->rows,
                               .begin = 1};
}

static tess_status backward_atomic(gradient *g)
{
    const call *const c = g->c;
    const tess_gpu_sum_args sum = sum_args(g);
    g->args.mode = TESS_GPU_ATOMIC;
    TESS_TRY(launch(g, TESS_GPU_ZERO_ROWS, 0, &sum, c->heads * c->lists.tokens_k));
    return launch(g, TESS_GPU_BACKWARD, c->sel->group_max, &g->args, c->sel->lists * c->tiles);
}

/* Rounds of lists, each as long as the workspace has room. */
static tess_status backward_ordered(gradient *g, const layout *l)
{
    const call *const c = g->c;
    const int64_t *const offsets = tess__gpu_offsets(c->sel);
    const int64_t most = room(l, g->work_bytes);
    tess_gpu_sum_args sum = sum_args(g);
    g->args.row_dk = (float *)(void *)(g->work + l->rows);
    g->args.row_dv = g->args.row_dk + aligned(most * (l->row_bytes / 2)) / (int64_t)sizeof(float);
    sum.row_dk = g->args.row_dk;
    sum.row_dv = g->args.row_dv;
    TESS_TRY(lists_by_key(g));
    for (int64_t i = 0, end = 0; i < c->sel->lists; i = end) {
        while (end < c->sel->lists && offsets[end + 1] - offsets[i] <= most)
            end++;
        g->args.list0 = (int)i;
        g->args.entry0 = sum.entry0 = offsets[i];
        sum.entry1 = offsets[end];
        sum.scale = end == c->sel->lists ? c->scale : 1.0f;
        TESS_TRY(launch(g, TESS_GPU_BACKWARD, c->sel->group_max, &g->args, (end - i) * c->tiles));
        TESS_TRY(launch(g, TESS_GPU_SUM_ROWS, 0, &sum, c->heads * c->lists.tokens_k));
        sum.begin = 0;
    }
    return TESS_OK;
}

static tess_status read_views(gradient *g, const tess_attn_saved *saved, const tess_view *dout,
                              const float *dlse, const tess_view *const out[3])
{
    const call *const c = g->c;
    const struct {
        const char *name;
        const tess_view *view;
        tess_dtype dtype;
        tess_gpu_rows *rows;
        int keys;
    } views[] = {
        {"q", saved->q, c->dtype, &g->args.q, 0},
        {"k", saved->k, c->dtype, &g->args.k, 1},
        {"v", saved->v, c->dtype, &g->args.v, 1},
        {"o", saved->o, c->dtype, &g->args.o, 0},
        {"dout", dout, c->dtype, &g->args.dout, 0},
        {"dq", out[0], TESS_DTYPE_F32, &g->args.dq, 0},
        {"dk", out[1], TESS_DTYPE_F32, &g->args.dk, 1},
        {"dv", out[2], TESS_DTYPE_F32, &g->args.dv, 1},
    };
    for (size_t i = 0; i < sizeof views / sizeof *views; i++)
        if ((views[i].keys ? c->lists.tokens_k : c->lists.tokens_q) > 0)
            TESS_TRY(tess__gpu_rows(c->who, c->gpu, views[i].name, views[i].view, views[i].dtype,
                                    views[i].rows));
    if (c->lists.tokens_q > 0)
        TESS_TRY(tess__gpu_pointer(c->who, c->gpu, "saved.lse", saved->lse, 4));
    if (dlse)
        TESS_TRY(tess__gpu_pointer(c->who, c->gpu, "dlse", dlse, 4));
    g->args.lse = saved->lse;
    g->args.dlse = dlse;
    return TESS_OK;
}

static tess_status backward(gradient *g, const tess_gpu_attn_shape *shape, void *work)
{
    const call *const c = g->c;
    int64_t least = 0;
    const int atomic = (shape->atomic && !is_owned(c)) || c->sel->lists == 0;
    const layout l = lay_out(c, g->dim);
    need(c, g->dim, &least);
    if (atomic)
        return backward_atomic(g);
    if (g->work_bytes < least)
        return tess__invalid(c->who, "work_bytes is %lld, must be at least %lld for these lists",
                             (long long)g->work_bytes, (long long)least);
    TESS_TRY(tess__gpu_pointer(c->who, c->gpu, "work", work, ALIGN));
    const int64_t *const offsets = tess__gpu_offsets(c->sel);
    for (int64_t h = 0; h < c->heads; h++) {
        const int64_t n = offsets[(h + 1) * c->lists.n_q] - offsets[h * c->lists.n_q];
        if (n > INT_MAX)
            return tess__invalid(c->who, "head %lld has %lld indices, must be at most %d",
                                 (long long)h, (long long)n, INT_MAX);
    }
    g->work = work;
    g->first = (int *)work;
    g->group = (int *)(void *)(g->work + l.group);
    g->place = (int *)(void *)(g->work + l.place);
    g->delta = (float *)(void *)(g->work + l.delta);
    return is_owned(c) ? backward_owned(g) : backward_ordered(g, &l);
}

tess_status tess_gpu_attn_backward(tess_gpu *gpu, const tess_gpu_attn_shape *shape,
                                   const tess_gpu_selection *sel, const tess_attn_saved *saved,
                                   const tess_view *dout, const float *dlse, const tess_view *dq,
                                   const tess_view *dk, const tess_view *dv, void *work,
                                   int64_t work_bytes, void *stream)
{
    static const char who[] = "tess_gpu_attn_backward";
    call c;
    TESS_REQUIRE(gpu, shape, sel, saved, dout, dq, dk, dv);
    TESS_REQUIRE(saved->q, saved->k, saved->v, saved->o);
    TESS_TRY(begin(who, TESS_GPU_BACKWARD, gpu, shape, sel, saved->q->dtype, &c));
    gradient g = {.c = &c,
                  .dim = shape->attn.head_dim,
                  .args = {.lists = c.lists, .tiles = c.tiles, .scale = c.scale},
                  .work_bytes = work_bytes,
                  .stream = stream};
    const tess_view *const out[3] = {dq, dk, dv};
    TESS_TRY(tess__gpu_enter(who, gpu));
    tess_status status = read_views(&g, saved, dout, dlse, out);
    if (status == TESS_OK)
        status = backward(&g, shape, work);
    tess__gpu_leave(gpu);
    return status;
}
