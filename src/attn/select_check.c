/* SPDX-License-Identifier: Apache-2.0 */
/* select_check.c - the rules that options and inputs of selectors must keep, and their budget. */
#include "select_internal.h"

#include <math.h>

enum { REUSE_MAX = 1 << 30 };

static const tess__select_rule rules[TESS_SELECT_COUNT] = {
    [TESS_SELECT_PREDICTOR] = {"predictor", tess__rule_proxy, 1, 64, 1, 0, 0, TESS__ROWS},
    [TESS_SELECT_ORACLE] = {"oracle", tess__rule_mass, 1, 256, 1, 1, 0, 1},
    [TESS_SELECT_POOLED] = {"pooled", tess__rule_pooled, 1, 256, 1, 1, 1, TESS__ROWS},
    [TESS_SELECT_SEARCH] = {"search", tess__rule_mass, 1, 256, 1, 1, 0, 1},
    [TESS_SELECT_WINDOW] = {"window", tess__rule_window, 0, 0, 0, 0, 0, TESS__ROWS},
    [TESS_SELECT_EDGES] = {"edges", tess__rule_edges, 0, 0, 0, 0, 0, TESS__ROWS},
    [TESS_SELECT_RANDOM] = {"random", tess__rule_random, 0, 0, 1, 0, 0, TESS__ROWS},
};
static const tess__select_rule rule_softmax = {"predictor", tess__rule_mass, 1, 64, 1, 0, 0, 1};

const tess__select_rule *tess__rule_of(const tess_selector_opts *opts)
{
    if (opts->kind == TESS_SELECT_PREDICTOR && opts->proxy == TESS_PROXY_SOFTMAX)
        return &rule_softmax;
    return &rules[opts->kind];
}

const char *tess_select_kind_name(tess_select_kind kind)
{
    return (unsigned)kind < TESS_SELECT_COUNT ? rules[kind].name : NULL;
}

/* ---- options -------------------------------------------------------------------------------- */

typedef struct {
    const char *name;
    int64_t value, least, most;
} bound;

static tess_status check_bounds(const char *who, const bound *bounds, size_t n)
{
    for (size_t i = 0; i < n; i++)
        TESS_TRY(tess__check_range(who, bounds[i].name, bounds[i].value, bounds[i].least,
                                   bounds[i].most));
    return TESS_OK;
}

tess_status tess__select_check_opts(const char *who, const tess_selector_opts *opts)
{
    TESS_TRY(tess__check_range(who, "kind", (int64_t)opts->kind, 0, TESS_SELECT_COUNT - 1));
    const int32_t *g = opts->grid, *c = opts->cube, *w = opts->window;
    const bound predictor[] = {
        {"proxy", (int64_t)opts->proxy, 0, TESS_PROXY_SOFTMAX},
    };
    const bound window[] = {
        {"grid[0]", g[0], 1, INT32_MAX},   {"grid[1]", g[1], 1, INT32_MAX},
        {"grid[2]", g[2], 1, INT32_MAX},   {"cube[0]", c[0], 1, INT32_MAX},
        {"cube[1]", c[1], 1, INT32_MAX},   {"cube[2]", c[2], 1, INT32_MAX},
        {"window[0]", w[0], 1, INT32_MAX}, {"window[1]", w[1], 1, INT32_MAX},
        {"window[2]", w[2], 1, INT32_MAX},
    };
    const bound edges[] = {
        {"local", opts->local, 0, INT32_MAX},
        {"random", opts->random, 0, INT32_MAX},
        {"global_k", opts->global_k, 0, INT32_MAX},
        {"global_q", opts->global_q, 0, INT32_MAX},
    };
    switch (opts->kind) {
    case TESS_SELECT_PREDICTOR:
        return check_bounds(who, predictor, sizeof predictor / sizeof predictor[0]);
    case TESS_SELECT_SEARCH: return tess__check_range(who, "reuse", opts->reuse, 0, REUSE_MAX);
    case TESS_SELECT_WINDOW: return check_bounds(who, window, sizeof window / sizeof window[0]);
    case TESS_SELECT_EDGES: return check_bounds(who, edges, sizeof edges / sizeof edges[0]);
    default: return TESS_OK;
    }
}

/* ---- inputs --------------------------------------------------------------------------------- */

tess_status tess__select_check_qk(const char *who, const tess_view *q, const tess_view *k,
                                  int head_dim, int dim_max, float scale, int64_t tokens_q,
                                  int64_t tokens_k)
{
    TESS_TRY(tess__check_eights(who, "head_dim", head_dim, dim_max));
    if (!(scale >= 0.0f) || isinf(scale))
        return tess__invalid(who, "scale is %g, must be finite and not below 0", (double)scale);
    TESS_TRY(tess__view_check(who, "q", q, TESS_DTYPE_F32, TESS_DTYPE_F32, tokens_q));
    return tess__view_check(who, "k", k, TESS_DTYPE_F32, TESS_DTYPE_F32, tokens_k);
}

/* The tokens are the grid's; only those of the keys where groups are given. */
static tess_status check_grid(const char *who, const int32_t grid[3], const tess_sel_shape *shape,
                              int some)
{
    const double tokens = (double)grid[0] * grid[1] * grid[2];
    const int64_t both[] = {shape->tokens_q, shape->tokens_k};
    for (int i = some; i < 2; i++)
        if ((double)both[i] != tokens)
            return tess__invalid(who, "tokens_%c is %lld, must be grid's %d x %d x %d", "qk"[i],
                                 (long long)both[i], grid[0], grid[1], grid[2]);
    return TESS_OK;
}

/* Numbers of groups in a whole, which for WINDOW are those of the cubes. */
static tess_status check_groups(const char *who, const tess_selector_opts *opts,
                                const int32_t *groups, int32_t n_q)
{
    int32_t most = INT32_MAX;
    if (opts->kind == TESS_SELECT_EDGES)
        return tess__invalid(who, "groups are given, edges takes whole selections");
    if (opts->kind == TESS_SELECT_WINDOW) {
        TESS_TRY(tess_order_cubes(opts->grid, opts->cube, NULL, NULL, NULL, &most));
        most--;
    }
    for (int32_t i = 0; i < n_q; i++)
        if (groups[i] < 0 || groups[i] > most)
            return tess__invalid(who, "groups[%d] is %d, must be 0..%d", i, groups[i], most);
    return TESS_OK;
}

/* ---- budgets -------------------------------------------------------------------------------- */

/* ceil(density * n), where a product that misses a whole number by its rounding counts as it. */
static int32_t units_of(double density, int32_t n)
{
    const double x = density * n, near = nearbyint(x);
    const double units = fabs(x - near) <= 1e-9 * x ? near : ceil(x);
    return units < 1.0 ? (n > 0) : (int32_t)units;
}

static tess_status check_keys(const char *who, const char *name, int32_t keys, int32_t least,
                              int32_t n_k)
{
    return tess__check_range(who, name, keys, least, n_k > 0 ? n_k : INT32_MAX);
}

static tess_status check_share(const char *who, const char *name, double share, int zero)
{
    if (share >= 0.0 && share <= 1.0 && (zero || share > 0.0))
        return TESS_OK;
    return tess__fail(TESS_EINVAL,
                      zero ? "%s: %s is %g, must be 0..1"
                           : "%s: %s is %g, must be above 0 and at most 1",
                      who, name, share);
}

/* Units per group of head h of one sample; head counts over samples and heads. */
static tess_status head_keys(const char *who, const tess_budget *b, int64_t head, int h,
                             int32_t n_k, int32_t *keys)
{
    char name[48];
    if (b->keys_each) {
        snprintf(name, sizeof name, "budget.keys_each[%lld]", (long long)head);
        TESS_TRY(check_keys(who, name, b->keys_each[head], 0, n_k));
        *keys = n_k > 0 ? b->keys_each[head] : 0;
    } else if (b->keys_head) {
        snprintf(name, sizeof name, "budget.keys_head[%d]", h);
        TESS_TRY(check_keys(who, name, b->keys_head[h], 1, n_k));
        *keys = n_k > 0 ? b->keys_head[h] : 0;
    } else if (b->density_head) {
        snprintf(name, sizeof name, "budget.density_head[%d]", h);
        TESS_TRY(check_share(who, name, b->density_head[h], 1));
        *keys = units_of(b->density_head[h], n_k);
    } else if (b->keys != 0) {
        TESS_TRY(check_keys(who, "budget.keys", b->keys, 1, n_k));
        *keys = n_k > 0 ? b->keys : 0;
    } else {
        TESS_TRY(check_share(who, "budget.density", b->density, 0));
        *keys = units_of(b->density, n_k);
    }
    return TESS_OK;
}

static tess_status check_budget(const char *who, const tess__select_rule *rule,
                                const tess_budget *b, const tess_sel_shape *shape, int32_t n_k,
                                int32_t *keys)
{
    const int given = (b->keys != 0) + (b->density != 0.0) + (b->keys_head != NULL) +
                      (b->density_head != NULL) + (b->keys_each != NULL) + (b->mass != 0.0);
    if (given != rule->budget)
        return tess__invalid(who, "%d budgets are given, %s takes %s", given, rule->name,
                             rule->budget ? "exactly one" : "none");
    if (b->mass != 0.0) {
        if (!rule->mass)
            return tess__invalid(who, "budget.mass is %g, %s takes keys or a density", b->mass,
                                 rule->name);
        return check_share(who, "budget.mass", b->mass, 0);
    }
    const int64_t heads = rule->budget ? (int64_t)shape->batch * shape->heads : 0;
    for (int64_t head = 0; head < heads; head++)
        TESS_TRY(head_keys(who, b, head, (int)(head % shape->heads), n_k, &keys[head]));
    return TESS_OK;
}

tess_status tess__select_check_tokens(const char *who, int64_t tokens_k)
{
    /* Places of a list are int32, with room for top-K's padding behind the last. */
    return tess__check_range(who, "tokens_k", tokens_k, 0, INT32_MAX - 4 * TESS_TOPK_PAD);
}

tess_status tess__select_check_size(const char *who, const tess_selector_opts *opts,
                                    const tess_select_in *in, const tess_sel_shape *shape,
                                    int32_t n_q, int32_t n_k, int32_t *keys)
{
    TESS_TRY(tess__select_check_tokens(who, shape->tokens_k));
    if (opts->kind == TESS_SELECT_WINDOW)
        TESS_TRY(check_grid(who, opts->grid, shape, in->groups != NULL));
    if (in->groups)
        TESS_TRY(check_groups(who, opts, in->groups, n_q));
    return check_budget(who, tess__rule_of(opts), &in->budget, shape, n_k, keys);
}
