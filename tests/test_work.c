/* SPDX-License-Identifier: Apache-2.0 */
/* test_work.c - work and imbalance: against sums of single blocks, and against cases solved by
 * hand. */
#include "test.h"

#include "attn/attn.h"
#include "plan/work.h"

#include <stdlib.h>

/* ---- random cases --------------------------------------------------------------------------- */

static uint64_t draws; /* numbers drawn so far, of one stream */

static uint32_t draw(uint32_t below)
{
    uint32_t bits;
    CHECK_OK(tess_random_bits(5, 0, draws++, &bits, 1));
    return (uint32_t)(((uint64_t)bits * below) >> 32);
}

static int between(int least, int most)
{
    return least + (int)draw((uint32_t)(most - least + 1));
}

static tess_ctx *context(void)
{
    static tess_ctx *ctx;
    if (!ctx)
        CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.threads = 1}, &ctx));
    return ctx;
}

static int drop_context(void **state)
{
    (void)state;
    tess_ctx_info info;
    CHECK_OK(tess_ctx_query(context(), &info));
    assert_int_equal(info.bytes_now, 0);
    tess_ctx_destroy(context());
    return 0;
}

/* A mask as bytes, and what each pair of blocks counts. */
enum { SIDE_MAX = 200, HEADS_MAX = 6, LAYERS_MAX = 2 };
typedef struct {
    int layers, heads, q, k;
    uint8_t *mask;                                      /* (layers, heads, q, k) */
    int64_t rows_q[SIDE_MAX + 1], rows_k[SIDE_MAX + 1]; /* where blocks begin; all 1: no rows */
    int by_rows;
} model;

static int64_t model_pair(const model *m, int layer, int head, int q, int k)
{
    const size_t at =
        (((size_t)layer * (size_t)m->heads + (size_t)head) * (size_t)m->q + (size_t)q) *
            (size_t)m->k +
        (size_t)k;
    if (!m->mask[at])
        return 0;
    return m->by_rows ? (m->rows_q[q + 1] - m->rows_q[q]) * (m->rows_k[k + 1] - m->rows_k[k]) : 1;
}

static size_t model_size(const model *m)
{
    return (size_t)m->layers * (size_t)m->heads * (size_t)m->q * (size_t)m->k;
}

/* Densities differ by head, and may be 0 and 1; bytes that select are any but 0. */
static model draw_model(int side)
{
    model m = {.layers = between(1, LAYERS_MAX),
               .heads = between(1, HEADS_MAX),
               .q = between(1, side),
               .k = between(1, side)};
    m.mask = malloc(model_size(&m));
    assert_non_null(m.mask);
    const size_t n = (size_t)m.q * (size_t)m.k;
    for (size_t h = 0; h < (size_t)(m.layers * m.heads); h++) {
        const uint32_t density = draw(11) * 100;
        for (size_t i = 0; i < n; i++)
            m.mask[h * n + i] = draw(1000) < density ? (uint8_t)between(1, 255) : 0;
    }
    return m;
}

static uint8_t *packed(const model *m)
{
    const size_t row = ((size_t)m->k + 7) / 8, rows = model_size(m) / (size_t)m->k;
    uint8_t *bits = malloc(rows * row);
    assert_non_null(bits);
    for (size_t r = 0; r < rows; r++)
        for (size_t b = 0; b < row; b++) {
            uint8_t byte = 0;
            for (size_t i = 0; i < 8; i++) {
                /* What lies past the end of a row is nobody's business: ones. */
                const size_t k = 8 * b + i;
                const int set = k >= (size_t)m->k || m->mask[r * (size_t)m->k + k];
                byte |= (uint8_t)(set << i);
            }
            bits[r * row + b] = byte;
        }
    return bits;
}

static tess_mask_set mask_set(const model *m, const void *data, tess_mask_kind kind)
{
    return (tess_mask_set){.layers = m->layers,
                           .heads = m->heads,
                           .q_blocks = m->q,
                           .k_blocks = m->k,
                           .data = data,
                           .kind = kind};
}

static tess_work *work_of(const model *m)
{
    tess_work *work = NULL;
    const tess_mask_set set = mask_set(m, m->mask, TESS_MASK_BYTES);
    CHECK_OK(tess_work_from_masks(context(), &set, &work));
    return work;
}

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

static void check_union(const tess_work *work, const model *m)
{
    const int layer = between(0, m->layers - 1), head = between(0, m->heads - 1);
    const int begin = between(0, m->q), end = between(begin, m->q);
    uint64_t bits[SIDE_MAX / 64 + 1] = {0};
    int64_t want = 0;
    const int64_t got = tess__work_union(work, layer, head, begin, end, bits);
    for (int k = 0; k < m->k; k++) {
        int any = 0;
        for (int q = begin; q < end; q++)
            any |= model_pair(m, layer, head, q, k) > 0;
        assert_int_equal((bits[k / 64] >> (k % 64)) & 1, any);
        want += any;
    }
    assert_int_equal(got, want);
    assert_int_equal(tess__work_union(work, layer, head, begin, end, NULL), want);
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
        check_union(work, &m);
        tess_work_destroy(work);
        tess_work_destroy(from_bits);
        free(bits);
        free(m.mask);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(masks_as_bytes_and_as_bits_are_the_same_work),
};
RUN_TESTS_WITH(tests, NULL, drop_context)
