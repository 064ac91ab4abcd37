/* SPDX-License-Identifier: Apache-2.0 */
/* test_work.c - the work of a step, against sums of single pairs of blocks. */
#include "work_model.h"

#include "attn/attn_internal.h"
#include "plan/work.h"
#include "tessera/advanced/explain.h"

/* n places in random order. */
static void shuffle(int32_t *order, int n)
{
    for (int i = 0; i < n; i++) {
        const int j = between(0, i);
        order[i] = order[j];
        order[j] = i;
    }
}

/* n + 1 ascending cuts from 0 to `end`, some parts empty. */
static void draw_cuts(int32_t *cuts, int n, int end)
{
    cuts[0] = 0;
    for (int i = 1; i < n; i++)
        cuts[i] = between(0, end);
    cuts[n] = end;
    for (int i = 1; i < n; i++)
        for (int j = i; j > 1 && cuts[j] < cuts[j - 1]; j--) {
            const int32_t c = cuts[j];
            cuts[j] = cuts[j - 1];
            cuts[j - 1] = c;
        }
}

/* ---- a work against its model ---------------------------------------------------------------- */

static void check_rows(const tess_work *work, const model *m)
{
    int64_t total = 0, loads[HEADS_MAX], rows[SIDE_MAX];
    for (int l = 0; l < m->layers; l++) {
        CHECK_OK(tess_work_loads(work, l, loads));
        for (int h = 0; h < m->heads; h++) {
            int64_t head = 0;
            CHECK_OK(tess_work_rows(work, l, h, rows));
            for (int q = 0; q < m->q; q++) {
                int64_t row = 0;
                assert_int_equal(tess__work_prefix(work, l, h, q), head);
                for (int k = 0; k < m->k; k++) {
                    const int64_t pair = model_pair(m, l, h, q, k);
                    const uint64_t *bits = tess__work_bits(work, l, h, q);
                    assert_int_equal((bits[k / 64] >> (k % 64)) & 1, pair > 0);
                    row += pair;
                }
                assert_int_equal(rows[q], row);
                head += row;
            }
            assert_int_equal(loads[h], head);
            assert_int_equal(tess__work_head(work, l, h), head);
            assert_int_equal(tess__work_prefix(work, l, h, m->q), head);
            total += head;
        }
    }
    tess_work_info info;
    CHECK_OK(tess_work_query(work, &info));
    assert_int_equal(info.total, total);
    assert_int_equal(info.masks, 1);
    assert_int_equal(info.q_blocks, m->q);
    assert_int_equal(info.k_blocks, m->k);
}

/* Some heads, in any order. */
static int draw_heads(const model *m, int32_t heads[HEADS_MAX])
{
    shuffle(heads, m->heads);
    return between(0, m->heads);
}

static void check_tiles(const tess_work *work, const model *m)
{
    enum { RING = 9 };
    int32_t heads[HEADS_MAX], q_order[SIDE_MAX], k_order[SIDE_MAX], q_cuts[RING + 1],
        k_cuts[RING + 1];
    const int ring = between(1, RING), n = draw_heads(m, heads), as_is = between(0, 1);
    const int layer = between(0, m->layers - 1);
    shuffle(q_order, m->q);
    shuffle(k_order, m->k);
    draw_cuts(q_cuts, ring, m->q);
    draw_cuts(k_cuts, ring, m->k);
    int64_t got[RING * RING], want[RING * RING] = {0};
    CHECK_OK(tess__work_tiles(work, layer, heads, n, as_is ? NULL : q_order, q_cuts,
                              as_is ? NULL : k_order, k_cuts, ring, got));
    for (int r = 0; r < ring; r++)
        for (int c = 0; c < ring; c++)
            for (int h = 0; h < n; h++)
                for (int q = q_cuts[r]; q < q_cuts[r + 1]; q++)
                    for (int k = k_cuts[c]; k < k_cuts[c + 1]; k++)
                        want[r * ring + c] += model_pair(m, layer, heads[h], as_is ? q : q_order[q],
                                                         as_is ? k : k_order[k]);
    for (int i = 0; i < ring * ring; i++)
        assert_int_equal(got[i], want[i]);
}

static void check_columns(const tess_work *work, const model *m)
{
    int32_t heads[HEADS_MAX], q_order[SIDE_MAX];
    const int n = draw_heads(m, heads), layer = between(0, m->layers - 1);
    const int begin = between(0, m->q), end = between(begin, m->q);
    shuffle(q_order, m->q);
    int64_t got[SIDE_MAX];
    tess__work_columns(work, layer, heads, n, q_order, begin, end, got);
    for (int k = 0; k < m->k; k++) {
        int64_t want = 0;
        for (int h = 0; h < n; h++)
            for (int q = begin; q < end; q++)
                want += model_pair(m, layer, heads[h], q_order[q], k);
        assert_int_equal(got[k], want);
    }
}

static void masks_as_bytes_and_as_bits_are_the_same_work(void **state)
{
    (void)state;
    for (int i = 0; i < 300; i++) {
        model m = draw_model(i < 250 ? 70 : SIDE_MAX);
        uint8_t *bits = packed(&m);
        tess_work *work = work_of(&m), *from_bits = NULL;
        const tess_mask_set set = mask_set(&m, bits, TESS_MASK_BITS);
        CHECK_OK(tess_work_from_masks(context(), &set, &from_bits));
        check_rows(work, &m);
        check_rows(from_bits, &m);
        check_tiles(work, &m);
        check_tiles(from_bits, &m);
        check_columns(work, &m);
        tess_work_destroy(work);
        tess_work_destroy(from_bits);
        free(bits);
        free(m.mask);
    }
}

/* ---- selections ------------------------------------------------------------------------------ */

/* n ranges of 1..`most` rows: uniform but for the last, or each of its own length. */
static void draw_bounds(int64_t *bounds, int n, int most, int uniform)
{
    const int rows = between(1, most);
    bounds[0] = 0;
    for (int i = 0; i < n; i++)
        bounds[i + 1] = bounds[i] + (uniform && i + 1 < n ? rows : between(1, rows));
}

static void selections_count_pairs_of_tokens(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++) {
        model m = draw_model(i < 190 ? 70 : SIDE_MAX);
        const int uniform = i % 2;
        m.by_rows = 1;
        draw_bounds(m.rows_q, m.q, 100, uniform);
        draw_bounds(m.rows_k, m.k, 200, uniform);
        tess_sel_shape shape = {.batch = 1,
                                .heads = m.heads,
                                .tokens_q = m.rows_q[m.q],
                                .tokens_k = m.rows_k[m.k],
                                .group = (int32_t)m.rows_q[1],
                                .unit = (int32_t)m.rows_k[1]};
        if (!uniform) {
            shape.bounds_q = m.rows_q;
            shape.bounds_k = m.rows_k;
            shape.n_q = m.q;
            shape.n_k = m.k;
        }
        tess_selection *sel[LAYERS_MAX] = {NULL};
        const size_t size = model_size(&m) / (size_t)m.layers;
        int64_t pairs = 0;
        for (int l = 0; l < m.layers; l++) {
            CHECK_OK(tess_selection_create(context(), &shape, (int64_t)size, &sel[l]));
            CHECK_OK(tess_selection_set_mask(sel[l], m.mask + (size_t)l * size, TESS_MASK_BYTES));
            tess_selection_lists lists;
            CHECK_OK(tess_selection_view(sel[l], &lists));
            pairs += lists.pairs;
        }
        tess_work *work = NULL;
        tess_work_info info;
        CHECK_OK(tess_work_from_selection(context(), (const tess_selection *const *)sel, m.layers,
                                          &work));
        CHECK_OK(tess_work_query(work, &info));
        assert_int_equal(info.total, pairs);
        assert_true(info.unit_pairs == 1.0);
        assert_int_equal(info.tokens_q, shape.tokens_q);
        assert_int_equal(info.unit, uniform ? shape.unit : 0);
        for (int q = 0; q <= m.q; q++)
            assert_int_equal(tess__work_q_row(work, q), m.rows_q[q]);
        for (int k = 0; k <= m.k; k++)
            assert_int_equal(tess__work_k_row(work, k), m.rows_k[k]);
        check_rows(work, &m);
        check_tiles(work, &m);
        check_columns(work, &m);
        tess_work_destroy(work);
        for (int l = 0; l < m.layers; l++)
            tess_selection_destroy(sel[l]);
        free(m.mask);
    }
}

static void selections_of_a_work_are_alike(void **state)
{
    (void)state;
    const tess_sel_shape shapes[] = {
        {.batch = 1, .heads = 2, .tokens_q = 40, .tokens_k = 50, .group = 8, .unit = 5},
        {.batch = 2, .heads = 2, .tokens_q = 40, .tokens_k = 50, .group = 8, .unit = 5},
        {.batch = 1, .heads = 3, .tokens_q = 40, .tokens_k = 50, .group = 8, .unit = 5},
        {.batch = 1, .heads = 2, .tokens_q = 40, .tokens_k = 50, .group = 8, .unit = 6},
        {.batch = 1, .heads = 2, .tokens_q = 0, .tokens_k = 50, .group = 8, .unit = 6},
    };
    tess_selection *s[5] = {NULL};
    for (int i = 0; i < 5; i++)
        CHECK_OK(tess_selection_create(context(), &shapes[i], 0, &s[i]));
    tess_work *work = NULL;
    const tess_selection *two[2] = {s[0], NULL};
#define TWO(second) (two[1] = (second), tess_work_from_selection(context(), two, 2, &work))
    CHECK_FAILS(TWO(NULL), TESS_EINVAL, "tess_work_from_selection: layers[1] is NULL");
    CHECK_FAILS(TWO(s[1]), TESS_EINVAL,
                "tess_work_from_selection: layers[1] has batch 2, must be 1");
    CHECK_FAILS(TWO(s[2]), TESS_EINVAL,
                "tess_work_from_selection: the selection's heads is 3, must be 2");
    CHECK_FAILS(TWO(s[3]), TESS_EINVAL,
                "tess_work_from_selection: layers[1] has other groups or units than layers[0]");
    CHECK_FAILS(TWO(s[4]), TESS_EINVAL, "tess_work_from_selection: layers[1] has no tokens");
#undef TWO
    CHECK_FAILS(tess_work_from_selection(context(), two, 0, &work), TESS_EINVAL,
                "tess_work_from_selection: n is 0, must be 1..65536");
    CHECK_FAILS(tess_work_from_selection(context(), NULL, 1, &work), TESS_EINVAL,
                "tess_work_from_selection: layers is NULL");
    assert_null(work);
    for (int i = 0; i < 5; i++)
        tess_selection_destroy(s[i]);
}

/* ---- loads of heads alone -------------------------------------------------------------------- */

/* Any cut of an even load adds up, and is within one unit of its share. */
static void loads_of_heads_are_spread_without_loss(void **state)
{
    (void)state;
    enum { HEADS = 7, BLOCKS = 37, RING = 5 };
    for (int i = 0; i < 300; i++) {
        int64_t weights[HEADS], rows[BLOCKS], columns[BLOCKS], tiles[RING * RING];
        const int blocks = between(1, BLOCKS), ring = between(1, RING);
        for (int h = 0; h < HEADS; h++)
            weights[h] = i == 0 ? (int64_t)1 << 60 : (int64_t)draw(1000) * draw(1u << 31);
        tess_work *work = NULL;
        CHECK_OK(tess_work_from_weights(context(), weights, 1, HEADS, blocks, &work));
        int64_t total = 0;
        for (int h = 0; h < HEADS; h++) {
            int64_t sum = 0;
            CHECK_OK(tess_work_rows(work, 0, h, rows));
            for (int q = 0; q < blocks; q++) {
                assert_true(rows[q] >= weights[h] / blocks && rows[q] <= weights[h] / blocks + 1);
                assert_int_equal(tess__work_prefix(work, 0, h, q), sum);
                sum += rows[q];
            }
            assert_int_equal(sum, weights[h]);
            total += sum;
        }
        int32_t order[BLOCKS], q_cuts[RING + 1], k_cuts[RING + 1];
        shuffle(order, blocks);
        draw_cuts(q_cuts, ring, blocks);
        draw_cuts(k_cuts, ring, blocks);
        CHECK_OK(tess__work_tiles(work, 0, NULL, HEADS, order, q_cuts, order, k_cuts, ring, tiles));
        int64_t sum = 0;
        for (int r = 0; r < ring; r++) {
            int64_t row = 0;
            for (int c = 0; c < ring; c++)
                row += tiles[r * ring + c];
            /* A place may hold up to one unit more or less of each head than its share. */
            const double share = (double)total * (q_cuts[r + 1] - q_cuts[r]) / blocks;
            assert_true(fabs((double)row - share) <= HEADS * blocks + share * 0x1p-50);
            sum += row;
        }
        assert_int_equal(sum, total);
        tess__work_columns(work, 0, NULL, HEADS, NULL, 0, blocks, columns);
        for (int k = 0; k < blocks; k++)
            sum -= columns[k];
        assert_int_equal(sum, 0);
        assert_int_equal(tess__work_words(work), 0);
        assert_null(tess__work_bits(work, 0, 0, 0));
        tess_work_destroy(work);
    }
}

static void densities_become_pairs_of_tokens(void **state)
{
    (void)state;
    const double density[6] = {0.0, 1.0, 0.7382, 0.5, 1e-30, 0.25};
    const int64_t want[6] = {0, 1073217600, 792249232, 536608800, 0, 268304400};
    tess_work *work = NULL;
    CHECK_OK(tess_work_from_density(context(), density, 2, 3, 32760, 64, &work));
    int64_t loads[6];
    tess_work_info info;
    CHECK_OK(tess_work_loads(work, 0, loads));
    CHECK_OK(tess_work_loads(work, 1, loads + 3));
    CHECK_OK(tess_work_query(work, &info));
    for (int i = 0; i < 6; i++)
        assert_int_equal(loads[i], want[i]);
    assert_int_equal(info.q_blocks, 512);
    assert_int_equal(info.k_blocks, 512);
    assert_int_equal(info.group, 64);
    assert_int_equal(info.masks, 0);
    /* The last block has 56 rows of 32,760, and so much of the load. */
    assert_int_equal(loads[1] - tess__work_prefix(work, 0, 1, 511), 56 * 32760);
    tess_work_destroy(work);
}

static void bad_loads_are_refused(void **state)
{
    (void)state;
    tess_ctx *ctx = context();
    tess_work *work = NULL;
    const int64_t weights[4] = {1, 2, 3, -1}, large[2] = {INT64_MAX, 1};
    const double density[4] = {0.5, 1.5, (double)NAN, -0.1};
    CHECK_FAILS(tess_work_from_weights(ctx, weights, 2, 2, 8, &work), TESS_EINVAL,
                "tess_work_from_weights: the weight of layer 1, head 1 is -1, must be 0 or more");
    CHECK_FAILS(tess_work_from_weights(ctx, large, 1, 2, 8, &work), TESS_EINVAL,
                "tess_work_from_weights: the loads add up to 2^63 or more");
    CHECK_FAILS(tess_work_from_weights(ctx, NULL, 1, 2, 8, &work), TESS_EINVAL,
                "tess_work_from_weights: weights is NULL");
    CHECK_FAILS(tess_work_from_weights(ctx, weights, 0, 2, 8, &work), TESS_EINVAL,
                "tess_work_from_weights: layers is 0, must be 1..65536");
    CHECK_FAILS(tess_work_from_weights(ctx, weights, 1, 65537, 8, &work), TESS_EINVAL,
                "tess_work_from_weights: heads is 65537, must be 1..65536");
    CHECK_FAILS(tess_work_from_weights(ctx, weights, 1, 2, 0, &work), TESS_EINVAL,
                "tess_work_from_weights: q_blocks is 0, must be 1..2147483647");
    CHECK_FAILS(tess_work_from_density(ctx, density, 1, 2, 100, 64, &work), TESS_EINVAL,
                "tess_work_from_density: the density of layer 0, head 1 is 1.5, must be 0..1");
    CHECK_FAILS(tess_work_from_density(ctx, density + 2, 1, 1, 100, 64, &work), TESS_EINVAL,
                "tess_work_from_density: the density of layer 0, head 0 is nan, must be 0..1");
    CHECK_FAILS(tess_work_from_density(ctx, density + 3, 1, 1, 100, 64, &work), TESS_EINVAL,
                "tess_work_from_density: the density of layer 0, head 0 is -0.1, must be 0..1");
    CHECK_FAILS(tess_work_from_density(ctx, density, 1, 1, 0, 64, &work), TESS_EINVAL,
                "tess_work_from_density: tokens is 0, must be 1..2147483647");
    CHECK_FAILS(tess_work_from_density(ctx, density, 1, 1, 100, 0, &work), TESS_EINVAL,
                "tess_work_from_density: group is 0, must be 1..2147483647");
    CHECK_FAILS(tess_work_from_density(NULL, density, 1, 1, 100, 64, &work), TESS_EINVAL,
                "tess_work_from_density: ctx is NULL");
    assert_null(work);
}

/* ---- masks ----------------------------------------------------------------------------------- */

static void new_masks_reuse_the_memory(void **state)
{
    (void)state;
    model a = draw_model(100), b = a;
    b.mask = malloc(model_size(&a));
    assert_non_null(b.mask);
    for (size_t i = 0; i < model_size(&a); i++)
        b.mask[i] = !a.mask[i];
    tess_work *work = work_of(&a);
    tess_ctx_info before, after;
    CHECK_OK(tess_ctx_query(context(), &before));
    tess_mask_set set = mask_set(&b, b.mask, TESS_MASK_BYTES);
    CHECK_OK(tess_work_set_masks(work, &set));
    CHECK_OK(tess_ctx_query(context(), &after));
    assert_int_equal(before.allocations, after.allocations);
    check_rows(work, &b);

    set.heads++;
    char sentence[128];
    snprintf(sentence, sizeof sentence,
             "tess_work_set_masks: heads is %d, must be %d as the work was made", a.heads + 1,
             a.heads);
    CHECK_FAILS(tess_work_set_masks(work, &set), TESS_EINVAL, sentence);
    check_rows(work, &b);
    tess_work_destroy(work);

    const int64_t weight = 3;
    set = mask_set(&b, b.mask, TESS_MASK_BYTES);
    CHECK_OK(tess_work_from_weights(context(), &weight, 1, 1, 1, &work));
    CHECK_FAILS(tess_work_set_masks(work, &set), TESS_EINVAL,
                "tess_work_set_masks: the work was not made from masks");
    tess_work_destroy(work);
    free(a.mask);
    free(b.mask);
}

static void bad_masks_are_refused(void **state)
{
    (void)state;
    static const uint8_t mask[2 * 3 * 4];
    const tess_mask_set good = {.layers = 1,
                                .heads = 2,
                                .q_blocks = 3,
                                .k_blocks = 4,
                                .data = mask,
                                .tokens_q = 170,
                                .tokens_k = 200,
                                .group = 64,
                                .unit = 64};
    tess_work *work = NULL;
    tess_work_info info;
    CHECK_OK(tess_work_from_masks(context(), &good, &work));
    CHECK_OK(tess_work_query(work, &info));
    assert_true(info.unit_pairs == 64.0 * 64.0);
    assert_int_equal(tess__work_q_row(work, 3), 170);
    assert_int_equal(tess__work_k_row(work, 3), 192);
    tess_work_destroy(work);
    work = NULL;
    tess_mask_set m;
#define BAD(field, value, sentence)                                                                \
    do {                                                                                           \
        m = good;                                                                                  \
        m.field = (value);                                                                         \
        CHECK_FAILS(tess_work_from_masks(context(), &m, &work), TESS_EINVAL,                       \
                    "tess_work_from_masks: " sentence);                                            \
    } while (0)
    BAD(layers, -1, "layers is -1, must be 1..65536");
    BAD(heads, 0, "heads is 0, must be 1..65536");
    BAD(q_blocks, 0, "q_blocks is 0, must be 1..2147483647");
    BAD(k_blocks, 0, "k_blocks is 0, must be 1..2147483647");
    BAD(data, NULL, "data is NULL");
    BAD(kind, (tess_mask_kind)7, "kind is 7, must be 0 or 1");
    BAD(tokens_q, 0, "tokens_q is 0, must be 1..2147483647");
    BAD(tokens_q, 128, "q_blocks is 3, but tokens_q 128 in blocks of 64 rows make 2");
    BAD(unit, 0, "unit is 0, must be 1..2147483647");
    BAD(unit, 32, "k_blocks is 4, but tokens_k 200 in blocks of 32 rows make 7");
#undef BAD
    CHECK_FAILS(tess_work_from_masks(context(), NULL, &work), TESS_EINVAL,
                "tess_work_from_masks: masks is NULL");
    m = good;
    m.layers = m.heads = 65536;
    m.q_blocks = m.k_blocks = INT32_MAX;
    m.tokens_q = m.tokens_k = m.group = m.unit = 0;
    assert_int_equal(tess_work_from_masks(context(), &m, &work), TESS_ENOMEM);
    assert_null(work);
}

static void places_out_of_range_are_refused(void **state)
{
    (void)state;
    const int64_t weights[2] = {1, 2};
    int64_t loads[2];
    tess_work *work = NULL;
    tess_work_info info;
    CHECK_OK(tess_work_from_weights(context(), weights, 1, 2, 2, &work));
    CHECK_FAILS(tess_work_loads(work, 1, loads), TESS_EINVAL,
                "tess_work_loads: layer is 1, must be 0..0");
    CHECK_FAILS(tess_work_rows(work, 0, 2, loads), TESS_EINVAL,
                "tess_work_rows: head is 2, must be 0..1");
    CHECK_FAILS(tess_work_rows(work, 0, 1, NULL), TESS_EINVAL, "tess_work_rows: loads is NULL");
    CHECK_FAILS(tess_work_query(NULL, &info), TESS_EINVAL, "tess_work_query: work is NULL");
    const uint64_t *bits = (const uint64_t *)1;
    CHECK_FAILS(tess_work_mask_row(work, 0, 1, 2, &bits), TESS_EINVAL,
                "tess_work_mask_row: q_block is 2, must be 0..1");
    CHECK_OK(tess_work_mask_row(work, 0, 1, 1, &bits));
    assert_null(bits); /* weights have no masks */
    tess_work_destroy(work);
    tess_work_destroy(NULL);
}

/* ---- mask files ------------------------------------------------------------------------------ */

static char folder[] = "/tmp/tess-work-XXXXXX";

static const char *in_folder(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* Writes the tensor as m.npy and loads it. */
static tess_status load(tess_tensor t, const tess_mask_opts *opts, tess_work **work)
{
    t.name = "m";
    CHECK_OK(tess_file_write(context(), in_folder("m.npy"), &t, 1, NULL));
    return tess_work_load(context(), in_folder("m.npy"), opts, work);
}

static void mask_files_are_masks(void **state)
{
    (void)state;
    model m = draw_model(60);
    for (size_t i = 0; i < model_size(&m); i++)
        m.mask[i] = m.mask[i] != 0;
    const tess_dtype dtypes[] = {TESS_DTYPE_BOOL, TESS_DTYPE_U8};
    for (int i = 0; i < 2; i++) {
        tess_work *work = NULL;
        CHECK_OK(load((tess_tensor){.dtype = dtypes[i],
                                    .rank = 4,
                                    .shape = {m.layers, m.heads, m.q, m.k},
                                    .data = m.mask},
                      NULL, &work));
        check_rows(work, &m);
        tess_work_destroy(work);
    }
    /* Without layers, and with the rows of blocks. */
    tess_work *work = NULL;
    const tess_mask_opts blocks = {
        .tokens_q = 64 * m.q - 5, .tokens_k = 64 * m.k, .group = 64, .unit = 64};
    CHECK_OK(load(
        (tess_tensor){
            .dtype = TESS_DTYPE_BOOL, .rank = 3, .shape = {m.heads, m.q, m.k}, .data = m.mask},
        &blocks, &work));
    m.layers = 1;
    check_rows(work, &m);
    assert_int_equal(tess__work_q_row(work, m.q), 64 * m.q - 5);
    tess_work_destroy(work);
    free(m.mask);
}

/* The sentence without the folder of the file. */
static const char *said(void)
{
    const char *name = strstr(tess_last_error(), "m.npy");
    return name ? name : tess_last_error();
}

static void masks_that_are_none_are_refused(void **state)
{
    (void)state;
    uint8_t bytes[24] = {0, 1};
    const float floats[24] = {0};
    tess_work *work = NULL;
    const tess_tensor good = {
        .dtype = TESS_DTYPE_U8, .rank = 4, .shape = {2, 2, 2, 3}, .data = bytes};
    tess_tensor t = good;
    bytes[22] = 2;
    assert_int_equal(load(t, NULL, &work), TESS_EFORMAT);
    assert_string_equal(
        said(), "m.npy: layer 1, head 1, query block 1, key block 1: value is 2, must be 0 or 1");
    bytes[22] = 0;
    t.dtype = TESS_DTYPE_F32;
    t.data = floats;
    assert_int_equal(load(t, NULL, &work), TESS_EFORMAT);
    assert_string_equal(said(), "m.npy: elements are F32, a mask's must be BOOL or U8");
    t = good;
    t.rank = 2;
    t.shape[0] = t.shape[1] = 4;
    assert_int_equal(load(t, NULL, &work), TESS_EFORMAT);
    assert_string_equal(
        said(), "m.npy: rank is 2, must be 3 or 4: [layers,] heads, query blocks, key blocks");
    t = good;
    t.shape[1] = 0;
    assert_int_equal(load(t, NULL, &work), TESS_EFORMAT);
    assert_string_equal(
        said(), "m.npy: shape is [2,0,2,3], must have 1..65536 layers and heads and 1..2147483647 "
                "blocks");
    const tess_mask_opts blocks = {.tokens_q = 128, .tokens_k = 128, .group = 64, .unit = 64};
    assert_int_equal(load(good, &blocks, &work), TESS_EINVAL);
    assert_string_equal(said(),
                        "m.npy: k_blocks is 3, but tokens_k 128 in blocks of 64 rows make 2");
    CHECK_FAILS(tess_work_load(context(), "/nowhere/m.npy", NULL, &work), TESS_EIO,
                "/nowhere/m.npy: cannot open: No such file or directory");
    CHECK_FAILS(tess_work_load(context(), NULL, NULL, &work), TESS_EINVAL,
                "tess_work_load: path is NULL");
    assert_null(work);
}

static int stop(void *user, const char *what, int64_t done, int64_t total)
{
    assert_string_equal(what, "reading masks");
    assert_int_equal(total, 4);
    *(int *)user += 1;
    return done == 2;
}

static void reading_masks_can_be_followed_and_stopped(void **state)
{
    (void)state;
    const uint8_t bytes[24] = {0};
    const tess_tensor t = {
        .name = "m", .dtype = TESS_DTYPE_BOOL, .rank = 4, .shape = {2, 2, 2, 3}, .data = bytes};
    CHECK_OK(tess_file_write(context(), in_folder("m.npy"), &t, 1, NULL));
    int calls = 0;
    tess_ctx *ctx = NULL;
    tess_work *work = NULL;
    tess_ctx_info info;
    CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.progress = stop, .progress_user = &calls}, &ctx));
    assert_int_equal(tess_work_load(ctx, in_folder("m.npy"), NULL, &work), TESS_ESTOPPED);
    assert_int_equal(calls, 3);
    assert_null(work);
    CHECK_OK(tess_ctx_query(ctx, &info));
    assert_int_equal(info.bytes_now, 0);
    tess_ctx_destroy(ctx);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int drop_folder(void **state)
{
    remove(in_folder("m.npy"));
    return drop_context(state) || remove(folder);
}

static void densities_are_spread_over_blocks_of_their_own_sizes(void **state)
{
    (void)state;
    const double density[2] = {0.5, 1.0};
    const int64_t bounds[5] = {0, 10, 64, 65, 100};
    tess_work *work = NULL;
    tess_work_info info;
    int64_t rows[4], loads[2];
    CHECK_OK(tess_work_from_density_blocks(context(), density, 1, 2, bounds, 4, &work));
    CHECK_OK(tess_work_query(work, &info));
    assert_int_equal(info.q_blocks, 4);
    assert_int_equal(info.k_blocks, 4);
    assert_int_equal(info.tokens_q, 100);
    assert_int_equal(info.group, 0);
    assert_int_equal(info.total, 15000);
    CHECK_OK(tess_work_loads(work, 0, loads));
    assert_int_equal(loads[0], 5000);
    CHECK_OK(tess_work_rows(work, 0, 1, rows));
    for (int i = 0; i < 4; i++) /* each row of the dense head has 100 pairs */
        assert_int_equal(rows[i], 100 * (bounds[i + 1] - bounds[i]));
    tess_work_destroy(work);
}

static void bad_blocks_of_densities_are_refused(void **state)
{
    (void)state;
    tess_ctx *ctx = context();
    tess_work *work = NULL;
    const double density[1] = {0.5}, beyond[1] = {1.01};
    const int64_t bounds[3] = {0, 10, 20}, late[3] = {1, 10, 20}, empty[3] = {0, 10, 10};
    const int64_t many[2] = {0, INT64_C(1) << 31};
    CHECK_FAILS(tess_work_from_density_blocks(ctx, beyond, 1, 1, bounds, 2, &work), TESS_EINVAL,
                "tess_work_from_density_blocks: the density of layer 0, head 0 is 1.01, must be "
                "0..1");
    CHECK_FAILS(tess_work_from_density_blocks(ctx, density, 1, 1, NULL, 2, &work), TESS_EINVAL,
                "tess_work_from_density_blocks: bounds is NULL");
    CHECK_FAILS(tess_work_from_density_blocks(ctx, density, 1, 1, bounds, 0, &work), TESS_EINVAL,
                "tess_work_from_density_blocks: n_blocks is 0, must be 1..2147483647");
    CHECK_FAILS(tess_work_from_density_blocks(ctx, density, 1, 1, late, 2, &work), TESS_EINVAL,
                "tess_work_from_density_blocks: bounds[0] is 1, must be 0");
    CHECK_FAILS(tess_work_from_density_blocks(ctx, density, 1, 1, empty, 2, &work), TESS_EINVAL,
                "tess_work_from_density_blocks: bounds[2] is 10, must be above 10");
    CHECK_FAILS(tess_work_from_density_blocks(ctx, density, 1, 1, many, 1, &work), TESS_EINVAL,
                "tess_work_from_density_blocks: tokens is 2147483648, must be 1..2147483647");
    CHECK_FAILS(tess_work_from_density_blocks(NULL, density, 1, 1, bounds, 2, &work), TESS_EINVAL,
                "tess_work_from_density_blocks: ctx is NULL");
    assert_null(work);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(masks_as_bytes_and_as_bits_are_the_same_work),
    cmocka_unit_test(selections_count_pairs_of_tokens),
    cmocka_unit_test(selections_of_a_work_are_alike),
    cmocka_unit_test(loads_of_heads_are_spread_without_loss),
    cmocka_unit_test(densities_become_pairs_of_tokens),
    cmocka_unit_test(densities_are_spread_over_blocks_of_their_own_sizes),
    cmocka_unit_test(bad_blocks_of_densities_are_refused),
    cmocka_unit_test(bad_loads_are_refused),
    cmocka_unit_test(new_masks_reuse_the_memory),
    cmocka_unit_test(bad_masks_are_refused),
    cmocka_unit_test(places_out_of_range_are_refused),
    cmocka_unit_test(mask_files_are_masks),
    cmocka_unit_test(masks_that_are_none_are_refused),
    cmocka_unit_test(reading_masks_can_be_followed_and_stopped),
};
RUN_TESTS_WITH(tests, make_folder, drop_folder)
