/* SPDX-License-Identifier: Apache-2.0 */
/* sparse_reference.h - sparse passes against double precision, on the lists they chose. */
#ifndef TESS_SPARSE_REFERENCE_H
#define TESS_SPARSE_REFERENCE_H

#include "sparse_data.h"

enum { LISTS = LAYERS * BATCH * HEADS };

/* Every sample and head has another budget, and one of each layer is dense. */
static const int32_t mixed[LAYERS][BATCH * HEADS] = {{9, 0, 20, 13, 5, 33}, {40, 7, 11, 0, 22, 3}};
static const int32_t all_keys[BATCH * HEADS] = {75, 75, 75, 75, 75, 75};

static tess_attend attend_with(tess_select_kind kind, const int32_t *first, const int32_t *second,
                               tess_attend_layer layers[LAYERS])
{
    layers[0] = (tess_attend_layer){.kind = kind, .keys = first};
    layers[1] = (tess_attend_layer){.kind = kind, .keys = second};
    return (tess_attend){.layers = layers, .window = {1, 2, 1}, .seed = 5, .step = 7};
}

/* ---- beside dense ---------------------------------------------------------------------------- */

static void a_sparse_pass_without_settings_is_dense(void **state)
{
    (void)state;
    const tess_sparse_opts room = {.proj_dim = 8};
    const tess_pass_shape sparse = shape_with(&room), dense = shape_with(NULL);
    world a = make_world(2, &config, &sparse), b = make_world(2, &config, &dense);
    run_both(&a);
    run_both(&b);
    check_same(&a, &b);
    drop_world(&a);
    drop_world(&b);
}

/* A full list gives the bits of dense attention forward; backward cuts keys into other ranges, so
 * sums of up to 75 terms come in another order: 75^0.5 2^-24 a few times over. */
static void full_lists_are_dense(void **state)
{
    (void)state;
    const tess_sparse_opts room = {.proj_dim = 8};
    const tess_pass_shape sparse = shape_with(&room), dense = shape_with(NULL);
    tess_attend_layer layers[LAYERS];
    const tess_attend attend = attend_with(TESS_SELECT_RANDOM, all_keys, all_keys, layers);
    world a = make_world(2, &config, &sparse), b = make_world(2, &config, &dense);
    CHECK_OK(tess_pass_attend(a.pass, &attend));
    run_both(&a);
    run_both(&b);
    assert_memory_equal(a.out, b.out, a.n_out * sizeof(float));
    double *want = widened(b.info.gradients, (size_t)b.info.count);
    CHECK_CLOSE(a.info.gradients, want, (size_t)a.info.count, 3e-6);
    free(want);
    drop_world(&a);
    drop_world(&b);
}

/* ---- against double precision ---------------------------------------------------------------- */

/* What each query attends to, by raster index. */
typedef struct {
    uint8_t sees[LISTS][TOKENS][TOKENS];
    int clusters, labels[LISTS][TOKENS]; /* where there are several virtual keys */
    float weights[TOKENS];               /* of the keys of one head, in the pass's order */
    tess_ctx *ctx;
    const tess_attend *attend;
    int64_t perm[TOKENS], bounds[GROUPS + 1];
    int calls;
} hook_lists;

static int attends(void *user, int layer, int sample, int head, int64_t query, int64_t key)
{
    const doubles *d = user;
    const hook_lists *s = d->lists;
    return s->sees[(layer * BATCH + sample) * HEADS + head][query][key];
}

static void mark(hook_lists *s, int list, const tess_selection *sel, const int32_t *rows)
{
    tess_selection_lists l;
    CHECK_OK(tess_selection_view(sel, &l));
    memset(s->sees[list], 0, sizeof s->sees[list]);
    for (int32_t g = 0; g < l.shape.n_q; g++)
        for (int64_t i = l.offsets[g]; i < l.offsets[g + 1]; i++)
            for (int64_t q = l.shape.bounds_q[g]; q < l.shape.bounds_q[g + 1]; q++)
                for (int64_t k = l.shape.bounds_k[l.indices[i]];
                     k < l.shape.bounds_k[l.indices[i] + 1]; k++)
                    s->sees[list][s->perm[rows ? rows[q] : q]][s->perm[k]] = 1;
}

static int cluster_of(void *user, int layer, int sample, int head, int64_t key)
{
    const doubles *d = user;
    const hook_lists *s = d->lists;
    return s->labels[(layer * BATCH + sample) * HEADS + head][key];
}

/* The nearest of the centroids, the first of several; in double precision. */
static int nearest(const double *centroids, int n, const float *row, float *distance)
{
    double least = INFINITY;
    int label = 0;
    for (int c = 0; c < n; c++) {
        double sum = 0.0;
        for (int i = 0; i < config.head_dim; i++)
            sum += pow((double)row[i] - centroids[c * config.head_dim + i], 2);
        if (sum < least) {
            least = sum;
            label = c;
        }
    }
    *distance = (float)sqrt(least);
    return label;
}

/* Clusters of one head's keys: by the centroids given, or by k-means as key_clusters.c says. */
static void label(hook_lists *s, int list, const tess_view *k, const float *given)
{
    enum { ROUNDS = 4 };
    const int dim = config.head_dim, n = s->clusters;
    double centroids[64 * 64], sums[64 * 64];
    int labels[TOKENS] = {0};
    for (int i = 0; i < n * dim; i++) {
        const float *row =
            (const float *)k->data + (TOKENS - 1) * (i / dim) / (n - 1) * k->stride_s;
        centroids[i] = given ? given[i] : row[i % dim];
    }
    for (int round = 0; round <= ROUNDS; round++) {
        int members[64] = {0};
        memset(sums, 0, sizeof sums);
        for (int t = 0; t < TOKENS; t++) {
            const float *row = (const float *)k->data + t * k->stride_s;
            labels[t] = nearest(centroids, n, row, &s->weights[t]);
            members[labels[t]]++;
            for (int i = 0; i < dim; i++)
                sums[labels[t] * dim + i] += row[i];
        }
        if (given)
            break;
        for (int i = 0; i < n * dim && round < ROUNDS; i++)
            if (members[i / dim])
                centroids[i] = sums[i] / members[i / dim];
    }
    for (int t = 0; t < TOKENS; t++)
        s->labels[list][s->perm[t]] = labels[t];
}

/* Selects what the pass selects, from the same numbers. */
static tess_status hook(void *user, const tess_hook_in *l)
{
    hook_lists *s = user;
    const tess_attend_layer *how = &s->attend->layers[l->layer];
    const int low = how->kind == TESS_SELECT_PREDICTOR;
    tess_selector *selector = NULL;
    tess_selection *sel = NULL;
    const tess_sel_shape shape = {.batch = 1,
                                  .heads = 1,
                                  .tokens_q = TOKENS,
                                  .tokens_k = TOKENS,
                                  .bounds_q = s->bounds,
                                  .n_q = GROUPS,
                                  .unit = 1};
    CHECK_OK(tess_selector_create(s->ctx,
                                  &(tess_selector_opts){.kind = how->kind,
                                                        .proxy = s->attend->proxy,
                                                        .grid = {3, 5, 5},
                                                        .cube = {2, 2, 3},
                                                        .window = {1, 2, 1}},
                                  &selector));
    CHECK_OK(tess_selection_create(s->ctx, &shape, GROUPS * TOKENS, &sel));
    for (int i = 0; i < BATCH * HEADS; i++) {
        const int list = l->layer * BATCH * HEADS + i;
        tess_view q = low ? *l->q_low : *l->q, k = low ? *l->k_low : *l->k;
        q.data = (float *)q.data + i / HEADS * q.stride_b + i % HEADS * q.stride_h;
        k.data = (float *)k.data + i / HEADS * k.stride_b + i % HEADS * k.stride_h;
        tess_select_in in = {.q = &q, .k = &k, .head_dim = low ? l->proj_dim : config.head_dim};
        in.budget.keys = how->kind == TESS_SELECT_WINDOW ? 0 : how->keys[i];
        in.weights = s->attend->by_error ? s->weights : NULL;
        memset(s->sees[list], 1, sizeof s->sees[list]);
        if (s->clusters > 1) {
            tess_view keys = *l->k;
            const int64_t set = (int64_t)s->clusters * config.head_dim;
            keys.data = (float *)keys.data + i / HEADS * keys.stride_b + i % HEADS * keys.stride_h;
            label(s, list, &keys,
                  s->attend->centroids ? s->attend->centroids + (l->layer * HEADS + i % HEADS) * set
                                       : NULL);
        }
        const int32_t *rows = l->rows && how->keys[i] > 0 ? l->rows + (ptrdiff_t)i * TOKENS : NULL;
        float grouped[TOKENS * 64];
        for (int place = 0; rows && place < TOKENS; place++)
            memcpy(grouped + place * in.head_dim, (float *)q.data + rows[place] * q.stride_s,
                   (size_t)in.head_dim * sizeof(float));
        if (rows) {
            q.data = grouped;
            q.stride_s = in.head_dim;
        }
        if (how->keys[i] > 0) {
            CHECK_OK(tess_selector_run(selector, &in, sel));
            mark(s, list, sel, rows);
        }
    }
    tess_selection_destroy(sel);
    tess_selector_destroy(selector);
    s->calls++;
    return TESS_OK;
}

/* As in test_pass.c: widths of at most 48, and fewer layers. */
static const double tolerance = 1.2e-5, step = 1e-5;

/* The output, and the whole gradient along a random direction, on the lists that were chosen. */
static void check_clusters(tess_select_kind kind, const tess_predictor_opts *opts, tess_proxy proxy,
                           const tess_sparse_opts *room, float *centroids, int by_error)
{
    hook_lists *s = calloc(1, sizeof *s);
    assert_non_null(s);
    const tess_pass_shape shape = shape_with(room);
    tess_attend_layer layers[LAYERS];
    tess_attend attend = attend_with(kind, mixed[0], mixed[1], layers);
    world w = make_world(2, &config, &shape);
    if (opts)
        CHECK_OK(tess_predictor_create(w.ctx, &config, opts, &attend.predictor));
    s->ctx = w.ctx;
    s->attend = &attend;
    s->clusters = room->compensate;
    attend.centroids = centroids;
    attend.by_error = by_error;
    CHECK_OK(tess_order_cubes((int[3]){3, 5, 5}, cube, s->perm, NULL, s->bounds, NULL));
    layers[0].hook = layers[1].hook = 1;
    attend.proxy = proxy;
    attend.hook = hook;
    attend.user = s;
    CHECK_OK(tess_pass_attend(w.pass, &attend));
    run_both(&w);
    assert_int_equal(s->calls, LAYERS);

    doubles d = make_doubles(&w);
    d.attends = attends;
    d.compensate = room->compensate;
    d.cluster = room->compensate > 1 ? cluster_of : NULL;
    d.lists = s;
    check_direction(&w, &d, tolerance, step);
    drop_doubles(&d);
    tess_predictor_destroy(attend.predictor);
    drop_world(&w);
    free(s);
}

static void check_against_reference(tess_select_kind kind, const tess_predictor_opts *opts,
                                    tess_proxy proxy, const tess_sparse_opts *room)
{
    check_clusters(kind, opts, proxy, room, NULL, 0);
}

#endif
