/* SPDX-License-Identifier: Apache-2.0 */
/* break_even.c - from which density on sparse attention of a head is not worth its selection.
 *
 * Dense attention and sparse attention at two densities, selection included, are timed in turn on
 * random numbers, as they are called for one head of one sample. One thread does it, by its own
 * clock: what others take of the machine, or wait for, would be most of what is seen otherwise, and
 * more threads divide both sides alike. Rounds go on for about a second; the best time of each kind
 * of call counts.
 *
 *   sparse(d) = fixed + d per_density   through the two densities      density: sparse(d) = dense
 *
 * A long sequence would take minutes. It is measured on some of its queries and at most KEYS_MOST
 * keys: a call of few queries, taken off, leaves what each query costs, and beyond KEYS_MOST all
 * times grow with the keys. The predictor's maps of q and of k are timed apart.
 */
#include "break_even.h"

#include "tessera/select.h"

#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DENSE, SPARSER, DENSER, MAPS, KINDS };
static const double densities[KINDS] = {[SPARSER] = 0.1, [DENSER] = 0.3};

enum {
    KEYS_MOST = 32768,
    ROWS_LEAST = 192,               /* two tiles of dense attention */
    PERIOD = 65521,                 /* of the numbers: a prime, so that no two rows are the same */
    BUDGET_NS = 1000 * 1000 * 1000, /* of all rounds */
    ROUNDS_LEAST = 3,
    ROUNDS_MOST = 50,
};
static const double flop_round = 4e9; /* of dense attention in a round, about */

/* Attention of some queries. */
typedef struct {
    int64_t rows;
    tess_attn *attn;
    tess_selection *sel;
    double best[KINDS]; /* nanoseconds */
    double density[KINDS];
} part;

typedef struct {
    tess_ctx *ctx;
    const tess_break_even_shape *shape;
    tess__arena arena;
    int64_t keys, rows; /* measured */
    tess_view q, k, v, o, dout, dq, dk, dv, q_low, k_low;
    float *lse, *map;
    tess_predict *predict;
    tess_selector *selector;
    part parts[2]; /* all rows; few of them, if those are not all of the sequence */
    int n_parts;
} bench;

/* ---- what is measured ------------------------------------------------------------------------ */

static tess_status take(bench *b, int64_t rows, int64_t dim, const float *numbers, int64_t turn,
                        tess_view *view)
{
    float *x = tess__arena_take(&b->arena, (size_t)(rows * dim) * sizeof *x);
    if (!x)
        return TESS_ENOMEM;
    for (int64_t i = 0; i < rows * dim; i++)
        x[i] = numbers[(i + turn * 1009) % PERIOD];
    *view = (tess_view){x, TESS_DTYPE_F32, rows * dim, rows * dim, dim};
    return TESS_OK;
}

static tess_status make_tensors(bench *b)
{
    const int64_t dim = b->shape->head_dim, rank = b->shape->rank;
    const struct {
        tess_view *view;
        int64_t rows, dim;
    } all[] = {{&b->k, b->keys, dim},     {&b->v, b->keys, dim},    {&b->dk, b->keys, dim},
               {&b->dv, b->keys, dim},    {&b->q, b->rows, dim},    {&b->o, b->rows, dim},
               {&b->dq, b->rows, dim},    {&b->dout, b->rows, dim}, {&b->q_low, b->keys, rank},
               {&b->k_low, b->keys, rank}};
    float *numbers = tess__arena_take(&b->arena, PERIOD * sizeof *numbers);
    b->lse = tess__arena_take(&b->arena, (size_t)b->rows * sizeof *b->lse);
    if (!numbers || !b->lse)
        return TESS_ENOMEM;
    TESS_TRY(tess_random_normal(1, 0, 0, numbers, PERIOD));
    for (int i = 0; i < 10; i++)
        TESS_TRY(take(b, all[i].rows, all[i].dim, numbers, i, all[i].view));
    b->map = numbers; /* rank * head_dim of them */
    return TESS_OK;
}

static tess_status make_part(bench *b, int64_t rows, part *p)
{
    const tess_break_even_shape *s = b->shape;
    const tess_attn_shape attn = {.batch = 1,
                                  .heads = 1,
                                  .head_dim = s->head_dim,
                                  .tokens_q = rows,
                                  .tokens_k = b->keys,
                                  .compensate = s->compensate};
    const tess_sel_shape sel = {.batch = 1,
                                .heads = 1,
                                .tokens_q = rows,
                                .tokens_k = b->keys,
                                .group = s->group,
                                .unit = s->unit};
    const tess_select_in in = {
        .q = &b->q_low, .k = &b->k_low, .head_dim = s->rank, .budget.density = densities[DENSER]};
    int64_t capacity;
    p->rows = rows;
    for (int i = 0; i < KINDS; i++)
        p->best[i] = INFINITY;
    TESS_TRY(tess_attn_create(b->ctx, &attn, &p->attn));
    TESS_TRY(tess_selector_capacity(b->selector, &sel, &in, &capacity));
    return tess_selection_create(b->ctx, &sel, capacity, &p->sel);
}

/* Queries to measure: about flop_round, whole groups. */
static int64_t choose_rows(const tess_break_even_shape *s, int64_t keys)
{
    const double flop = (s->backward ? 14.0 : 4.0) * (double)keys * s->head_dim;
    int64_t rows = (int64_t)(flop_round / flop);
    rows = rows < ROWS_LEAST ? ROWS_LEAST : rows;
    rows = (rows + s->group - 1) / s->group * s->group;
    rows = TESS_MIN(rows, keys);
    return rows < s->tokens / 2 ? rows : s->tokens < keys ? s->tokens : keys;
}

static tess_status make(bench *b)
{
    const tess_break_even_shape *s = b->shape;
    const tess_selector_opts rule = {.kind = s->rank ? TESS_SELECT_PREDICTOR : TESS_SELECT_RANDOM};
    b->keys = TESS_MIN(s->tokens, KEYS_MOST);
    b->rows = choose_rows(s, b->keys);
    TESS_TRY(make_tensors(b));
    TESS_TRY(tess_selector_create(b->ctx, &rule, &b->selector));
    if (s->rank)
        TESS_TRY(tess_predict_create(b->ctx,
                                     &(tess_predict_shape){.batch = 1,
                                                           .heads = 1,
                                                           .head_dim = s->head_dim,
                                                           .rank = s->rank,
                                                           .tokens = b->keys,
                                                           .rows = 1},
                                     &b->predict));
    b->n_parts = 1;
    TESS_TRY(make_part(b, b->rows, &b->parts[0]));
    if (b->rows == s->tokens)
        return TESS_OK;
    b->n_parts = 2;
    return make_part(b, s->group < b->rows ? s->group : 1, &b->parts[1]);
}

static void drop(bench *b)
{
    for (int i = 0; i < b->n_parts; i++) {
        tess_attn_destroy(b->parts[i].attn);
        tess_selection_destroy(b->parts[i].sel);
    }
    tess_selector_destroy(b->selector);
    tess_predict_destroy(b->predict);
    tess__arena_free(&b->arena);
}

/* ---- measuring ------------------------------------------------------------------------------- */

/* One call as it would be made. */
static tess_status call(const bench *b, part *p, int kind)
{
    const tess_attn_saved saved = {&b->q, &b->k, &b->v, &b->o, b->lse};
    const tess_select_in in = {.q = &b->q_low,
                               .k = &b->k_low,
                               .head_dim = b->shape->rank,
                               .seed = 1,
                               .budget.density = densities[kind]};
    const tess_selection *sel = kind == DENSE ? NULL : p->sel;
    if (kind == MAPS) {
        TESS_TRY(tess_predict_map(b->predict, &b->k, b->map, &b->k_low));
        return tess_predict_map(b->predict, &b->v, b->map, &b->q_low);
    }
    if (sel && b->shape->rank)
        TESS_TRY(tess_selector_run(b->selector, &in, p->sel));
    TESS_TRY(tess_attn_forward(p->attn, sel, &b->q, &b->k, &b->v, &b->o, b->lse));
    if (!b->shape->backward)
        return TESS_OK;
    return tess_attn_backward(p->attn, sel, &saved, &b->dout, NULL, &b->dq, &b->dk, &b->dv);
}

static tess_status time_part(const bench *b, part *p)
{
    for (int kind = 0; kind < KINDS; kind++) {
        const tess_select_in in = {.seed = 1, .budget.density = densities[kind]};
        if (kind == MAPS && (!b->shape->rank || p != b->parts))
            continue;
        if (densities[kind] > 0 && !b->shape->rank) /* not part of the time */
            TESS_TRY(tess_selector_run(b->selector, &in, p->sel));
        const int64_t start = tess__cpu_ns();
        TESS_TRY(call(b, p, kind));
        const double ns = fmax((double)(tess__cpu_ns() - start), 1);
        p->best[kind] = ns < p->best[kind] ? ns : p->best[kind];
        if (densities[kind] > 0) {
            tess_selection_lists lists;
            TESS_TRY(tess_selection_view(p->sel, &lists));
            p->density[kind] = lists.density;
        }
    }
    return TESS_OK;
}

static tess_status time_all(bench *b)
{
    const int64_t start = tess_clock_ns();
    for (int round = 0; round < ROUNDS_MOST; round++) {
        if (round > ROUNDS_LEAST && tess_clock_ns() - start > BUDGET_NS)
            break;
        for (int i = 0; i < b->n_parts; i++)
            TESS_TRY(time_part(b, &b->parts[i]));
    }
    return TESS_OK;
}

/* Nanoseconds for the whole sequence. */
static double whole(const bench *b, int kind)
{
    const part *all = &b->parts[0], *few = &b->parts[1];
    const double longer = (double)b->shape->tokens / (double)b->keys;
    if (b->n_parts == 1 || kind == MAPS)
        return all->best[kind] * longer;
    const double slope = (all->best[kind] - few->best[kind]) / (double)(all->rows - few->rows);
    return (few->best[kind] + fmax(slope, 0) * (double)(b->shape->tokens - few->rows)) * longer;
}

static void conclude(const bench *b, tess_break_even_result *r)
{
    const double *d = b->parts[0].density, low = whole(b, SPARSER), high = whole(b, DENSER);
    const double apart = d[DENSER] - d[SPARSER];
    r->ns_dense = whole(b, DENSE);
    r->ns_sparse_per_density = apart > 0 ? fmax((high - low) / apart, 0) : 0;
    r->ns_sparse_fixed = fmax(low - d[SPARSER] * r->ns_sparse_per_density, 0);
    if (b->shape->rank)
        r->ns_sparse_fixed += whole(b, MAPS);
}

static void find_density(tess_break_even_result *r)
{
    const double left = r->ns_dense - r->ns_sparse_fixed;
    r->density = left <= 0                          ? 0
                 : left >= r->ns_sparse_per_density ? 1
                                                    : left / r->ns_sparse_per_density;
}

/* ---- the call -------------------------------------------------------------------------------- */

static tess_status check(const tess_ctx *ctx, const tess_break_even_shape *s,
                         const tess_break_even_result *result)
{
    static const char who[] = "tess_break_even";
    if (!ctx || !s || !result)
        return tess__fail(TESS_EINVAL, "%s: %s is NULL", who,
                          !ctx ? "ctx"
                          : !s ? "shape"
                               : "result");
    TESS_TRY(tess__check_eights(who, "head_dim", s->head_dim, TESS_DIM_MAX));
    TESS_TRY(tess__check_range(who, "tokens", s->tokens, 1, INT32_MAX));
    if (s->group < 1 || s->unit < 1)
        return tess__fail(TESS_EINVAL, "%s: %s is %d, must be 1 or more", who,
                          s->group < 1 ? "group" : "unit",
                          (int)(s->group < 1 ? s->group : s->unit));
    if (s->rank < 0 || s->rank > 64 || s->rank % 8 != 0)
        return tess__fail(TESS_EINVAL, "%s: rank is %d, must be 0 or a multiple of 8 up to 64", who,
                          s->rank);
    if (s->compensate != 0 && s->compensate != 1)
        return tess__fail(TESS_EINVAL, "%s: compensate is %d, must be 0 or 1", who, s->compensate);
    if (s->backward != 0 && s->backward != 1)
        return tess__fail(TESS_EINVAL, "%s: backward is %d, must be 0 or 1", who, s->backward);
    return TESS_OK;
}

/* A context of its own keeps the caller's as it is: other threads may be using that one. */
static tess_status measure(const tess_ctx *ctx, const tess_break_even_shape *shape,
                           tess_break_even_result *result)
{
    const tess_ctx_opts opts = {.isa = ctx->isa,
                                .threads = 1,
                                .allocator = ctx->allocator,
                                .log = ctx->log,
                                .log_user = ctx->log_user,
                                .log_level = ctx->log_level,
                                .progress = ctx->progress,
                                .progress_user = ctx->progress_user};
    tess_ctx *alone = NULL;
    TESS_TRY(tess_ctx_create(&opts, &alone));
    bench b = {.ctx = alone, .shape = shape, .arena = {.ctx = alone}};
    tess_status status = make(&b);
    if (status == TESS_OK)
        status = time_all(&b);
    if (status == TESS_OK) {
        *result = (tess_break_even_result){0};
        conclude(&b, result);
    }
    drop(&b);
    tess_ctx_destroy(alone);
    return status;
}

/* What the folder has. A file that does not fit is as good as none. */
static int find_kept(tess_ctx *ctx, const tess_break_even_shape *shape, const char *path,
                     tess_break_even_result *result)
{
    if (access(path, F_OK) != 0)
        return 0;
    if (tess__break_even_read(ctx, shape, path, result) == TESS_OK)
        return 1;
    tess__log(ctx, TESS_LOG_WARN, "%s; measured again", tess_last_error());
    return 0;
}

/* With the folders it is in. If it is there, or cannot be, who writes into it knows. */
static void make_folder(const char *folder)
{
    char path[TESS_BREAK_EVEN_PATH]; /* the folder's is shorter: it fitted with a file's name */
    strcpy(path, folder);
    for (char *at = strchr(path, '/'); at; at = strchr(at + 1, '/')) {
        *at = 0;
        mkdir(path, 0777);
        *at = '/';
    }
    mkdir(path, 0777);
}

tess_status tess_break_even(tess_ctx *ctx, const tess_break_even_shape *shape, const char *folder,
                            tess_break_even_result *result)
{
    TESS_TRY(check(ctx, shape, result));
    char path[TESS_BREAK_EVEN_PATH];
    tess_break_even_result found;
    if (folder)
        TESS_TRY(tess__break_even_path(ctx, shape, folder, path));
    if (!folder || !find_kept(ctx, shape, path, &found)) {
        TESS_TRY(measure(ctx, shape, &found));
        if (folder) {
            make_folder(folder);
            if (tess__break_even_write(ctx, shape, path, &found) != TESS_OK)
                tess__log(ctx, TESS_LOG_WARN, "%s; break-even is measured at each start",
                          tess_last_error());
        }
    }
    find_density(&found);
    *result = found;
    return TESS_OK;
}
