/* SPDX-License-Identifier: Apache-2.0 */
/* test_selection.c - selections and token order: every argument's sentence, round trips through
 * masks, coarsening against masks, cubes that do not divide. */
#include "attn/attn_internal.h"
#include "ctx_fixture.h"
#include "tessera/advanced/selection.h"

#include <stdlib.h>

static int make_ctx_of_two(void **state)
{
    (void)state;
    return open_ctx(&(tess_ctx_opts){.threads = 2});
}

static tess_selection_lists view(const tess_selection *sel)
{
    tess_selection_lists lists;
    CHECK_OK(tess_selection_view(sel, &lists));
    return lists;
}

/* ---- masks, the plain way ----------------------------------------------------------------- */

typedef struct {
    const char *name;
    tess_sel_shape shape;
    int of_100; /* share of the pairs of (group, unit) that a random mask selects */
} mask_case;

static const int64_t uneven_q[] = {0, 1, 8, 9, 30, 64}, uneven_k[] = {0, 5, 6, 40, 41, 42, 99};

static const mask_case mask_cases[] = {
    {"smallest", {1, 1, 1, 1, 1, 1, NULL, NULL, 0, 0}, 100},
    {"empty", {2, 3, 65, 130, 16, 8, NULL, NULL, 0, 0}, 0},
    {"full", {2, 3, 65, 130, 16, 8, NULL, NULL, 0, 0}, 100},
    {"single keys", {1, 4, 130, 257, 64, 1, NULL, NULL, 0, 0}, 10},
    {"blocks", {2, 2, 1000, 777, 128, 64, NULL, NULL, 0, 0}, 40},
    {"group and unit beyond the rows", {1, 2, 5, 3, 100, 100, NULL, NULL, 0, 0}, 50},
    {"bounds", {2, 2, 64, 99, 0, 0, uneven_q, uneven_k, 5, 6}, 50},
    {"bounds of queries only", {1, 3, 64, 99, 0, 7, uneven_q, NULL, 5, 0}, 30},
    {"no query", {1, 2, 0, 99, 4, 7, NULL, NULL, 0, 0}, 50},
    {"no key", {1, 2, 64, 0, 4, 7, NULL, NULL, 0, 0}, 50},
    {"large enough for two threads", {1, 2, 4096, 4096, 8, 4, NULL, NULL, 0, 0}, 20},
};
enum { MASK_CASES = sizeof mask_cases / sizeof mask_cases[0] };

/* One byte for each (list, unit), in a block of exactly that size. */
static uint8_t *random_mask(int64_t lists, int32_t n_k, int of_100, uint64_t seed)
{
    const size_t n = (size_t)lists * (size_t)n_k;
    uint8_t *mask = malloc(n ? n : 1);
    uint32_t *bits = malloc((n ? n : 1) * sizeof *bits);
    assert_non_null(mask);
    assert_non_null(bits);
    CHECK_OK(tess_random_bits(seed, 0, 0, bits, n));
    for (size_t i = 0; i < n; i++) /* any byte but 0 selects */
        mask[i] = bits[i] % 100 < (uint32_t)of_100 ? (uint8_t)(1 + bits[i] / 100 % 255) : 0;
    free(bits);
    return mask;
}

static tess_selection *make(const tess_sel_shape *shape, int64_t capacity)
{
    tess_selection *sel = NULL;
    CHECK_OK(tess_selection_create(ctx, shape, capacity, &sel));
    return sel;
}

/* The mask's selection, with room for exactly what it selects. */
static tess_selection *make_from_mask(const mask_case *c, uint64_t seed, uint8_t **mask)
{
    tess_selection *sizes = make(&c->shape, 0);
    *mask = random_mask(sizes->lists, sizes->n_k, c->of_100, seed);
    int64_t n = 0;
    for (int64_t i = 0; i < sizes->lists * sizes->n_k; i++)
        n += (*mask)[i] != 0;
    tess_selection_destroy(sizes);
    tess_selection *sel = make(&c->shape, n);
    CHECK_OK(tess_selection_set_mask(sel, *mask, TESS_MASK_BYTES));
    return sel;
}

/* The lists are the mask's, ascending, and the pairs are counted one by one. */
static void check_is_mask(const tess_selection *sel, const uint8_t *mask)
{
    const tess_selection_lists l = view(sel);
    const tess_sel_shape *s = &l.shape;
    int64_t at = 0, pairs = 0;
    for (int64_t list = 0; list < l.lists; list++) {
        assert_int_equal(l.offsets[list], at);
        const int64_t g = list % s->n_q;
        for (int32_t u = 0; u < s->n_k; u++)
            if (mask[list * s->n_k + u]) {
                assert_int_equal(l.indices[at], u);
                at++;
                pairs +=
                    (s->bounds_q[g + 1] - s->bounds_q[g]) * (s->bounds_k[u + 1] - s->bounds_k[u]);
            }
    }
    assert_int_equal(l.offsets[l.lists], at);
    assert_int_equal(l.pairs, pairs);
    const double all = (double)s->batch * s->heads * (double)(s->tokens_q * s->tokens_k);
    assert_true(l.density == (all > 0 ? (double)pairs / all : 0.0));
}

/* ---- creation ----------------------------------------------------------------------------- */

static void a_selection_begins_empty(void **state)
{
    (void)state;
    tess_selection *sel = make(&(tess_sel_shape){2, 3, 100, 50, 16, 8, NULL, NULL, 0, 0}, 9);
    const tess_selection_lists l = view(sel);
    assert_int_equal(l.lists, 2 * 3 * 7);
    assert_int_equal(l.shape.n_q, 7);
    assert_int_equal(l.shape.n_k, 7);
    assert_int_equal(l.shape.group, 16);
    assert_int_equal(l.shape.bounds_q[6], 96);
    assert_int_equal(l.shape.bounds_q[7], 100);
    assert_int_equal(l.shape.bounds_k[7], 50);
    for (int64_t i = 0; i <= l.lists; i++)
        assert_int_equal(l.offsets[i], 0);
    assert_int_equal(l.capacity, 9);
    assert_int_equal(l.pairs, 0);
    assert_true(l.density == 0.0);
    tess_selection_destroy(sel);
    tess_selection_destroy(NULL);
}

static void a_view_of_one_selection_is_the_shape_of_another(void **state)
{
    (void)state;
    const mask_case *c = &mask_cases[6];
    tess_selection *a = make(&c->shape, 0);
    const tess_selection_lists l = view(a);
    tess_selection *b = make(&l.shape, 0);
    const tess_selection_lists m = view(b);
    assert_int_equal(m.shape.n_q, 5);
    assert_int_equal(m.shape.n_k, 6);
    assert_memory_equal(m.shape.bounds_q, uneven_q, sizeof uneven_q);
    assert_memory_equal(m.shape.bounds_k, uneven_k, sizeof uneven_k);
    assert_true(m.shape.bounds_q != l.shape.bounds_q); /* copied */
    assert_int_equal(m.shape.group, 0);
    tess_selection_destroy(a);
    tess_selection_destroy(b);
}

static void wrong_shapes_get_a_sentence(void **state)
{
    (void)state;
    static const int64_t late[] = {1, 64}, falls[] = {0, 9, 9, 64}, ends[] = {0, 63};
    static const struct {
        tess_sel_shape shape;
        const char *rule;
    } cases[] = {
        {{0, 1, 64, 64, 1, 1, NULL, NULL, 0, 0}, "batch is 0, must be 1..65536"},
        {{65537, 1, 64, 64, 1, 1, NULL, NULL, 0, 0}, "batch is 65537, must be 1..65536"},
        {{1, -1, 64, 64, 1, 1, NULL, NULL, 0, 0}, "heads is -1, must be 1..65536"},
        {{1, 1, -1, 64, 1, 1, NULL, NULL, 0, 0}, "tokens_q is -1, must be 0..2147483647"},
        {{1, 1, 64, 1ll << 31, 1, 1, NULL, NULL, 0, 0},
         "tokens_k is 2147483648, must be 0..2147483647"},
        {{1, 1, 64, 64, 0, 1, NULL, NULL, 0, 0},
         "group is 0, must be 1 or more, or bounds_q given"},
        {{1, 1, 64, 64, 1, -5, NULL, NULL, 0, 0},
         "unit is -5, must be 1 or more, or bounds_k given"},
        {{1, 1, 64, 64, 1, 1, late, NULL, 0, 0}, "n_q is 0, must be 1..64 for 64 tokens"},
        {{1, 1, 64, 64, 1, 1, late, NULL, 65, 0}, "n_q is 65, must be 1..64 for 64 tokens"},
        {{1, 1, 0, 64, 1, 1, late, NULL, 1, 0}, "n_q is 1, must be 0..0 for 0 tokens"},
        {{1, 1, 64, 64, 1, 1, late, NULL, 1, 0}, "bounds_q[0] is 1, must be 0"},
        {{1, 1, 64, 64, 1, 1, NULL, falls, 0, 3}, "bounds_k[2] is 9, must be above 9 before it"},
        {{1, 1, 64, 64, 1, 1, NULL, ends, 0, 1}, "bounds_k[1] is 63, must be tokens_k, 64"},
        {{2, 2, INT32_MAX, INT32_MAX, 1, 1, NULL, NULL, 0, 0},
         "2147483647 x 2147483647 tokens in 4 heads, must be below 2^63 pairs"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char sentence[256];
        snprintf(sentence, sizeof sentence, "tess_selection_create: %s", cases[i].rule);
        tess_selection *sel = NULL;
        CHECK_FAILS(tess_selection_create(ctx, &cases[i].shape, 0, &sel), TESS_EINVAL, sentence);
        assert_null(sel);
    }
    const tess_sel_shape good = {1, 1, 64, 64, 1, 1, NULL, NULL, 0, 0};
    tess_selection *sel = NULL;
    CHECK_FAILS(tess_selection_create(NULL, &good, 0, &sel), TESS_EINVAL,
                "tess_selection_create: ctx is NULL");
    CHECK_FAILS(tess_selection_create(ctx, NULL, 0, &sel), TESS_EINVAL,
                "tess_selection_create: shape is NULL");
    CHECK_FAILS(tess_selection_create(ctx, &good, 0, NULL), TESS_EINVAL,
                "tess_selection_create: sel is NULL");
    CHECK_FAILS(tess_selection_create(ctx, &good, -1, &sel), TESS_EINVAL,
                "tess_selection_create: capacity is -1, must be 0 or more");
    assert_null(sel);
}

static void hostile_sizes_are_out_of_memory(void **state)
{
    (void)state;
    const tess_sel_shape small = {1, 1, 64, 64, 1, 1, NULL, NULL, 0, 0};
    const tess_sel_shape wide = {65536, 65536, INT32_MAX, 0, 1, 1, NULL, NULL, 0, 0};
    tess_selection *sel = NULL;
    const int64_t capacities[] = {INT64_MAX, INT64_MAX / 4, INT64_MAX / 4 - 1000};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tess_selection_create(ctx, &small, capacities[i], &sel), TESS_ENOMEM);
        assert_null(sel);
    }
    assert_int_equal(tess_selection_create(ctx, &wide, 0, &sel), TESS_ENOMEM);
    assert_null(sel);
}

/* Gives memory as long as *user is above 0, which each allocation lowers. */
static void *counted_alloc(void *user, size_t bytes)
{
    return (*(int *)user)-- > 0 ? aligned_alloc(64, (bytes + 63) / 64 * 64) : NULL;
}

static void counted_free(void *user, void *memory)
{
    (void)user;
    free(memory);
}

static void out_of_memory_leaves_everything_usable(void **state)
{
    (void)state;
    int left = 1;
    tess_ctx *poor = NULL;
    CHECK_OK(tess_ctx_create(
        &(tess_ctx_opts){.threads = 1, .allocator = {counted_alloc, counted_free, &left}}, &poor));
    const tess_sel_shape shape = {1, 1, 2, 3, 1, 1, NULL, NULL, 0, 0};
    tess_selection *sel = NULL;
    left = 0;
    assert_int_equal(tess_selection_create(poor, &shape, 4, &sel), TESS_ENOMEM);
    assert_null(sel);
    left = 1; /* a selection is one allocation */
    CHECK_OK(tess_selection_create(poor, &shape, 4, &sel));
    CHECK_OK(tess_selection_set_lists(sel, (int64_t[]){0, 1, 2}, (int32_t[]){0, 2}));
    tess_selection *coarse = NULL;
    for (int given = 0; given < 3; given++) {
        left = given;
        assert_int_equal(tess_selection_coarsen(poor, sel, &shape, &coarse), TESS_ENOMEM);
        assert_null(coarse);
    }
    left = 3;
    CHECK_OK(tess_selection_coarsen(poor, sel, &shape, &coarse));
    tess_selection_destroy(coarse);
    tess_selection_destroy(sel);
    tess_ctx_info info;
    CHECK_OK(tess_ctx_query(poor, &info));
    assert_int_equal(info.bytes_now, 0);
    tess_ctx_destroy(poor);
}

/* ---- lists -------------------------------------------------------------------------------- */

static void wrong_lists_get_a_sentence_and_change_nothing(void **state)
{
    (void)state;
    tess_selection *sel = make(&(tess_sel_shape){1, 2, 4, 8, 2, 1, NULL, NULL, 0, 0}, 6);
    const int64_t good_offsets[] = {0, 2, 2, 3, 6};
    const int32_t good[] = {0, 7, 3, 1, 2, 5};
    CHECK_OK(tess_selection_set_lists(sel, good_offsets, good));
    static const struct {
        int64_t offsets[5];
        int32_t indices[6];
        const char *rule;
    } cases[] = {
        {{1, 2, 2, 3, 6}, {0}, "offsets[0] is 1, must be 0"},
        {{0, 2, 1, 0, 6}, {0}, "offsets[2] is 1, must be 2 or more as before it"},
        {{0, INT64_MAX, 2, 3, 6},
         {0},
         "offsets[2] is 2, must be 9223372036854775807 or more as before it"},
        {{0, -1, 2, 3, 6}, {0}, "offsets[1] is -1, must be 0 or more as before it"},
        {{0, 2, 2, 3, 7}, {0}, "7 indices, the selection has room for 6"},
        {{0, 2, 2, 3, 6},
         {0, 8, 3, 1, 2, 5},
         "indices[1] is 8 in list 0, must be below 8 and not negative"},
        {{0, 2, 2, 3, 6},
         {-1, 1, 3, 1, 1, 5},
         "indices[0] is -1 in list 0, must be below 8 and not negative"},
        {{0, 2, 2, 3, 6},
         {0, 1, INT32_MAX, 1, 1, 5},
         "indices[2] is 2147483647 in list 2, must be below 8 and not negative"},
        {{0, 2, 2, 3, 6},
         {0, 1, 3, 1, 1, 9},
         "indices[4] is 1 in list 3, must be above 1 before it"},
        {{0, 2, 2, 3, 6},
         {1, 0, 3, 9, 1, 5},
         "indices[1] is 0 in list 0, must be above 1 before it"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char sentence[256];
        snprintf(sentence, sizeof sentence, "tess_selection_set_lists: %s", cases[i].rule);
        CHECK_FAILS(tess_selection_set_lists(sel, cases[i].offsets, cases[i].indices), TESS_EINVAL,
                    sentence);
        const tess_selection_lists l = view(sel);
        assert_memory_equal(l.offsets, good_offsets, sizeof good_offsets);
        assert_memory_equal(l.indices, good, sizeof good);
    }
    CHECK_FAILS(tess_selection_set_lists(NULL, good_offsets, good), TESS_EINVAL,
                "tess_selection_set_lists: sel is NULL");
    CHECK_FAILS(tess_selection_set_lists(sel, NULL, good), TESS_EINVAL,
                "tess_selection_set_lists: offsets is NULL");
    CHECK_FAILS(tess_selection_set_lists(sel, good_offsets, NULL), TESS_EINVAL,
                "tess_selection_set_lists: indices is NULL");
    CHECK_OK(tess_selection_set_lists(sel, (int64_t[]){0, 0, 0, 0, 0}, NULL));
    tess_selection_lists l;
    CHECK_FAILS(tess_selection_view(sel, NULL), TESS_EINVAL, "tess_selection_view: lists is NULL");
    CHECK_FAILS(tess_selection_view(NULL, &l), TESS_EINVAL, "tess_selection_view: sel is NULL");
    tess_selection_destroy(sel);
}

/* Many lists, so that several threads check at once: the earliest mistake is the one reported. */
static void the_first_of_many_mistakes_is_reported(void **state)
{
    (void)state;
    enum { LISTS = 4000, N = 64 };
    tess_selection *sel =
        make(&(tess_sel_shape){1, 1, LISTS, 128, 1, 1, NULL, NULL, 0, 0}, LISTS * N);
    int64_t *offsets = malloc((LISTS + 1) * sizeof *offsets);
    int32_t *indices = malloc(LISTS * N * sizeof *indices);
    for (int i = 0; i <= LISTS; i++)
        offsets[i] = (int64_t)i * N;
    for (int i = 0; i < LISTS * N; i++)
        indices[i] = 2 * (i % N);
    CHECK_OK(tess_selection_set_lists(sel, offsets, indices));
    for (int i = 1001 * N + 5; i < LISTS * N; i += 777)
        indices[i] = -7;
    for (int run = 0; run < 20; run++)
        CHECK_FAILS(tess_selection_set_lists(sel, offsets, indices), TESS_EINVAL,
                    "tess_selection_set_lists: indices[64069] is -7 in list 1001, must be below "
                    "128 and not negative");
    for (int i = 3; i < LISTS; i += 500)
        offsets[i] = 0;
    CHECK_FAILS(tess_selection_set_lists(sel, offsets, indices), TESS_EINVAL,
                "tess_selection_set_lists: offsets[3] is 0, must be 128 or more as before it");
    free(offsets);
    free(indices);
    tess_selection_destroy(sel);
}

/* ---- masks -------------------------------------------------------------------------------- */

static void a_mask_becomes_its_lists(void **state)
{
    (void)state;
    for (int i = 0; i < MASK_CASES; i++) {
        uint8_t *mask;
        tess_selection *sel = make_from_mask(&mask_cases[i], (uint64_t)i, &mask);
        check_is_mask(sel, mask);
        /* The lists of one selection give the same to another. */
        const tess_selection_lists l = view(sel);
        tess_selection *copy = make(&mask_cases[i].shape, l.offsets[l.lists]);
        CHECK_OK(tess_selection_set_lists(copy, l.offsets, l.indices));
        check_is_mask(copy, mask);
        tess_selection_destroy(copy);
        tess_selection_destroy(sel);
        free(mask);
    }
}

static void a_selection_takes_the_shape_of_another(void **state)
{
    (void)state;
    /* More lists and units than any case has. */
    const tess_sel_shape largest = {2, 4, 4096, 4096, 1, 1, NULL, NULL, 0, 0};
    tess_selection *sel = make(&largest, 1 << 20);
    for (int i = 0; i < MASK_CASES; i++) {
        uint8_t *mask;
        tess_selection *want = make_from_mask(&mask_cases[i], (uint64_t)i, &mask);
        tess__selection_reshape(sel, &mask_cases[i].shape);
        assert_int_equal(view(sel).pairs, 0);
        CHECK_OK(tess_selection_set_mask(sel, mask, TESS_MASK_BYTES));
        check_is_mask(sel, mask);
        const tess_selection_lists l = view(sel), w = view(want);
        assert_int_equal(l.shape.group, w.shape.group);
        assert_int_equal(l.shape.unit, w.shape.unit);
        assert_int_equal(l.shape.tokens_q, w.shape.tokens_q);
        assert_int_equal(l.shape.tokens_k, w.shape.tokens_k);
        tess_selection_destroy(want);
        free(mask);
    }
    tess_selection_destroy(sel);
}

/* The bits behind a row's last element are set: they must not select. */
static void a_mask_of_bits_is_the_mask_of_bytes(void **state)
{
    (void)state;
    for (int i = 0; i < MASK_CASES; i++) {
        uint8_t *mask;
        tess_selection *sel = make_from_mask(&mask_cases[i], (uint64_t)i, &mask);
        const int32_t n_k = sel->n_k;
        const size_t row = ((size_t)n_k + 7) / 8, size = row * (size_t)sel->lists;
        uint8_t *bits = malloc(size ? size : 1);
        assert_non_null(bits);
        memset(bits, 0xff, size);
        for (int64_t list = 0; list < sel->lists; list++)
            for (int32_t u = 0; u < n_k; u++)
                if (!mask[list * n_k + u])
                    bits[(size_t)list * row + (size_t)u / 8] &= (uint8_t) ~(1u << (u % 8));
        tess_selection *other = make(&mask_cases[i].shape, sel->offsets[sel->lists]);
        CHECK_OK(tess_selection_set_mask(other, bits, TESS_MASK_BITS));
        check_is_mask(other, mask);
        free(bits);
        free(mask);
        tess_selection_destroy(sel);
        tess_selection_destroy(other);
    }
}

static void wrong_masks_get_a_sentence_and_change_nothing(void **state)
{
    (void)state;
    tess_selection *sel = make(&(tess_sel_shape){1, 1, 2, 9, 1, 1, NULL, NULL, 0, 0}, 3);
    const uint8_t mask[18] = {[1] = 1, [8] = 255, [9] = 2, [17] = 1};
    CHECK_FAILS(tess_selection_set_mask(sel, mask, TESS_MASK_BYTES), TESS_EINVAL,
                "tess_selection_set_mask: the mask selects 4 units, the selection has room for 3");
    assert_int_equal(view(sel).pairs, 0);
    CHECK_FAILS(tess_selection_set_mask(NULL, mask, TESS_MASK_BYTES), TESS_EINVAL,
                "tess_selection_set_mask: sel is NULL");
    CHECK_FAILS(tess_selection_set_mask(sel, NULL, TESS_MASK_BYTES), TESS_EINVAL,
                "tess_selection_set_mask: mask is NULL");
    CHECK_FAILS(tess_selection_set_mask(sel, mask, (tess_mask_kind)2), TESS_EINVAL,
                "tess_selection_set_mask: kind is 2, must be 0 or 1");
    tess_selection_destroy(sel);
}

/* ---- coarsening --------------------------------------------------------------------------- */

/* Marks rows one by one: the mask of `to`'s ranges in which `from`'s mask has a pair of rows. */
static uint8_t *coarse_mask(const tess_selection *from, const uint8_t *mask,
                            const tess_selection *to)
{
    uint8_t *coarse = calloc((size_t)to->lists * (size_t)to->n_k + 1, 1);
    assert_non_null(coarse);
    for (int64_t list = 0; list < from->lists; list++)
        for (int32_t u = 0; u < from->n_k; u++) {
            if (!mask[list * from->n_k + u])
                continue;
            const int64_t head = list / from->n_q, g = list % from->n_q;
            for (int32_t cg = 0; cg < to->n_q; cg++)
                for (int32_t cu = 0; cu < to->n_k; cu++)
                    if (to->bounds_q[cg] < from->bounds_q[g + 1] &&
                        from->bounds_q[g] < to->bounds_q[cg + 1] &&
                        to->bounds_k[cu] < from->bounds_k[u + 1] &&
                        from->bounds_k[u] < to->bounds_k[cu + 1])
                        coarse[(head * to->n_q + cg) * to->n_k + cu] = 1;
        }
    return coarse;
}

static const int64_t parts_q[] = {0, 5, 9, 17, 63, 64}, parts_k[] = {0, 6, 41, 98, 99};

static void coarsening_selects_what_shares_a_pair_of_rows(void **state)
{
    (void)state;
    static const struct {
        mask_case from;
        tess_sel_shape to;
    } cases[] = {
        {{"nested", {2, 2, 65, 130, 8, 1, NULL, NULL, 0, 0}, 5},
         {2, 2, 65, 130, 32, 16, NULL, NULL, 0, 0}},
        {{"not nested", {1, 3, 64, 99, 5, 3, NULL, NULL, 0, 0}, 10},
         {1, 3, 64, 99, 7, 8, NULL, NULL, 0, 0}},
        {{"bounds to bounds", {2, 1, 64, 99, 0, 0, uneven_q, uneven_k, 5, 6}, 20},
         {2, 1, 64, 99, 0, 0, parts_q, parts_k, 5, 4}},
        {{"to finer ones", {1, 2, 64, 99, 16, 16, NULL, NULL, 0, 0}, 30},
         {1, 2, 64, 99, 3, 1, NULL, NULL, 0, 0}},
        {{"to one", {1, 2, 64, 99, 4, 4, NULL, NULL, 0, 0}, 1},
         {1, 2, 64, 99, 64, 99, NULL, NULL, 0, 0}},
        {{"empty", {1, 2, 64, 99, 4, 4, NULL, NULL, 0, 0}, 0},
         {1, 2, 64, 99, 8, 8, NULL, NULL, 0, 0}},
        {{"no query", {1, 2, 0, 99, 4, 4, NULL, NULL, 0, 0}, 50},
         {1, 2, 0, 99, 8, 8, NULL, NULL, 0, 0}},
        {{"no key", {1, 2, 64, 0, 4, 4, NULL, NULL, 0, 0}, 50},
         {1, 2, 64, 0, 8, 8, NULL, NULL, 0, 0}},
        {{"beyond one word of the summary", {1, 1, 3, 9000, 1, 1, NULL, NULL, 0, 0}, 2},
         {1, 1, 3, 9000, 2, 1, NULL, NULL, 0, 0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint8_t *mask;
        tess_selection *sel = make_from_mask(&cases[i].from, 100 + i, &mask), *coarse = NULL;
        CHECK_OK(tess_selection_coarsen(ctx, sel, &cases[i].to, &coarse));
        uint8_t *want = coarse_mask(sel, mask, coarse);
        check_is_mask(coarse, want);
        assert_int_equal(coarse->capacity, coarse->offsets[coarse->lists]);
        assert_true(view(coarse).pairs >= view(sel).pairs);
        free(want);
        free(mask);
        tess_selection_destroy(sel);
        tess_selection_destroy(coarse);
    }
}

/* Large enough for two threads: twice the same bits, and the same as on one. */
static void coarsening_is_the_same_for_every_number_of_threads(void **state)
{
    (void)state;
    tess_ctx *one = NULL;
    CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.threads = 1}, &one));
    const tess_sel_shape to = {1, 2, 4096, 4096, 48, 20, NULL, NULL, 0, 0};
    mask_case sparse = mask_cases[MASK_CASES - 1];
    sparse.of_100 = 20;
    uint8_t *mask;
    tess_selection *sel = make_from_mask(&sparse, 7, &mask), *a = NULL, *b = NULL;
    assert_true(sel->offsets[sel->lists] > 1 << 16);
    CHECK_OK(tess_selection_coarsen(ctx, sel, &to, &a));
    CHECK_OK(tess_selection_coarsen(one, sel, &to, &b));
    assert_int_equal(a->capacity, b->capacity);
    assert_memory_equal(a->offsets, b->offsets, ((size_t)a->lists + 1) * sizeof *a->offsets);
    assert_memory_equal(a->indices, b->indices, (size_t)a->capacity * sizeof *a->indices);
    free(mask);
    tess_selection_destroy(sel);
    tess_selection_destroy(a);
    tess_selection_destroy(b);
    tess_ctx_destroy(one);
}

static void wrong_coarsening_gets_a_sentence(void **state)
{
    (void)state;
    const tess_sel_shape good = {1, 2, 64, 99, 8, 8, NULL, NULL, 0, 0};
    tess_sel_shape bad = good;
    tess_selection *sel = make(&good, 0), *coarse = NULL;
    CHECK_FAILS(tess_selection_coarsen(NULL, sel, &good, &coarse), TESS_EINVAL,
                "tess_selection_coarsen: ctx is NULL");
    CHECK_FAILS(tess_selection_coarsen(ctx, NULL, &good, &coarse), TESS_EINVAL,
                "tess_selection_coarsen: sel is NULL");
    CHECK_FAILS(tess_selection_coarsen(ctx, sel, NULL, &coarse), TESS_EINVAL,
                "tess_selection_coarsen: shape is NULL");
    CHECK_FAILS(tess_selection_coarsen(ctx, sel, &good, NULL), TESS_EINVAL,
                "tess_selection_coarsen: coarse is NULL");
    bad.unit = 0;
    CHECK_FAILS(tess_selection_coarsen(ctx, sel, &bad, &coarse), TESS_EINVAL,
                "tess_selection_coarsen: unit is 0, must be 1 or more, or bounds_k given");
    bad = good;
    bad.heads = 3;
    CHECK_FAILS(tess_selection_coarsen(ctx, sel, &bad, &coarse), TESS_EINVAL,
                "tess_selection_coarsen: the selection's heads is 2, must be 3");
    assert_null(coarse);
    tess_selection_destroy(sel);
}

/* ---- token order -------------------------------------------------------------------------- */

static void check_order(const int grid[3], const int cube[3], int32_t want_groups)
{
    int32_t n = -1;
    CHECK_OK(tess_order_cubes(grid, cube, NULL, NULL, NULL, &n));
    assert_int_equal(n, want_groups);
    const int64_t tokens = (int64_t)grid[0] * grid[1] * grid[2];
    int64_t *perm = malloc((size_t)tokens * sizeof *perm);
    int64_t *inverse = malloc((size_t)tokens * sizeof *inverse);
    int64_t *bounds = malloc(((size_t)n + 1) * sizeof *bounds);
    CHECK_OK(tess_order_cubes(grid, cube, perm, inverse, bounds, NULL));

    int32_t group = -1;
    int64_t last_cube = -1, last_raster = -1;
    for (int64_t i = 0; i < tokens; i++) {
        const int64_t r = perm[i];
        assert_in_range(r, 0, tokens - 1);
        assert_int_equal(inverse[r], i);
        const int64_t x = r % grid[2], y = r / grid[2] % grid[1], f = r / grid[2] / grid[1];
        const int64_t rows = 1 + (grid[1] - 1) / cube[1];
        const int64_t columns = 1 + (grid[2] - 1) / cube[2];
        const int64_t at = (f / cube[0] * rows + y / cube[1]) * columns + x / cube[2];
        if (at != last_cube) { /* a cube begins: the next one in raster order, at its bound */
            assert_int_equal(at, last_cube + 1);
            group++;
            assert_int_equal(bounds[group], i);
        } else {
            assert_true(r > last_raster);
        }
        last_cube = at;
        last_raster = r;
    }
    assert_int_equal(group + 1, n);
    assert_int_equal(bounds[n], tokens);
    /* The bounds make a selection's groups. */
    tess_sel_shape shape = {.batch = 1, .heads = 1, .tokens_q = tokens, .tokens_k = tokens};
    shape.bounds_q = shape.bounds_k = bounds;
    shape.n_q = shape.n_k = n;
    tess_selection_destroy(make(&shape, 0));
    free(perm);
    free(inverse);
    free(bounds);
}

static void cubes_cover_the_grid_in_order(void **state)
{
    (void)state;
    check_order((int[]){1, 1, 1}, (int[]){1, 1, 1}, 1);
    check_order((int[]){4, 8, 8}, (int[]){2, 4, 4}, 8);
    check_order((int[]){5, 7, 9}, (int[]){2, 4, 4}, 3 * 2 * 3);
    check_order((int[]){3, 1, 5}, (int[]){2, 9, 2}, 2 * 1 * 3);
    check_order((int[]){5, 7, 9}, (int[]){INT32_MAX, INT32_MAX, INT32_MAX}, 1);
    check_order((int[]){21, 30, 52}, (int[]){4, 4, 4}, 6 * 8 * 13); /* 32760 tokens of Wan */
    check_order((int[]){21, 30, 52}, (int[]){3, 5, 4}, 7 * 6 * 13);
}

static void whole_rows_as_cubes_keep_the_raster_order(void **state)
{
    (void)state;
    int64_t perm[24], bounds[3];
    CHECK_OK(tess_order_cubes((int[]){4, 2, 3}, (int[]){2, 2, 3}, perm, NULL, bounds, NULL));
    for (int i = 0; i < 24; i++)
        assert_int_equal(perm[i], i);
    assert_memory_equal(bounds, ((int64_t[]){0, 12, 24}), sizeof bounds);
}

static void wrong_grids_get_a_sentence(void **state)
{
    (void)state;
    int32_t n = -1;
    const int one[3] = {1, 1, 1};
    CHECK_FAILS(tess_order_cubes(NULL, one, NULL, NULL, NULL, &n), TESS_EINVAL,
                "tess_order_cubes: grid is NULL");
    CHECK_FAILS(tess_order_cubes(one, NULL, NULL, NULL, NULL, &n), TESS_EINVAL,
                "tess_order_cubes: cube is NULL");
    CHECK_FAILS(tess_order_cubes((int[]){1, 0, 1}, one, NULL, NULL, NULL, &n), TESS_EINVAL,
                "tess_order_cubes: grid[1] is 0, must be 1 or more");
    CHECK_FAILS(tess_order_cubes(one, (int[]){1, 1, -2}, NULL, NULL, NULL, &n), TESS_EINVAL,
                "tess_order_cubes: cube[2] is -2, must be 1 or more");
    CHECK_FAILS(
        tess_order_cubes((int[]){INT32_MAX, INT32_MAX, INT32_MAX}, one, NULL, NULL, NULL, &n),
        TESS_EINVAL,
        "tess_order_cubes: grid is 2147483647 x 2147483647 x 2147483647, must be below 2^31 "
        "tokens");
    CHECK_FAILS(tess_order_cubes((int[]){2, 1, 1 << 30}, one, NULL, NULL, NULL, &n), TESS_EINVAL,
                "tess_order_cubes: grid is 2 x 1 x 1073741824, must be below 2^31 tokens");
    assert_int_equal(n, -1);
    CHECK_OK(tess_order_cubes((int[]){1, INT32_MAX, 1}, one, NULL, NULL, NULL, &n));
    assert_int_equal(n, INT32_MAX);
}

/* ---- checks that other calls use ---------------------------------------------------------- */

static void a_selection_of_another_shape_gets_a_sentence(void **state)
{
    (void)state;
    tess_selection *sel = make(&(tess_sel_shape){2, 3, 40, 50, 1, 1, NULL, NULL, 0, 0}, 0);
    CHECK_OK(tess__selection_fits("f", sel, 2, 3, 40, 50));
    CHECK_FAILS(tess__selection_fits("f", sel, 1, 3, 40, 50), TESS_EINVAL,
                "f: the selection's batch is 2, must be 1");
    CHECK_FAILS(tess__selection_fits("f", sel, 2, 4, 40, 50), TESS_EINVAL,
                "f: the selection's heads is 3, must be 4");
    CHECK_FAILS(tess__selection_fits("f", sel, 2, 3, 41, 50), TESS_EINVAL,
                "f: the selection's tokens_q is 40, must be 41");
    CHECK_FAILS(tess__selection_fits("f", sel, 2, 3, 40, 51), TESS_EINVAL,
                "f: the selection's tokens_k is 50, must be 51");
    tess_selection_destroy(sel);
}

static void wrong_views_get_a_sentence(void **state)
{
    (void)state;
    float x[2] = {0};
    const tess_view f32 = {x, TESS_DTYPE_F32, 0, 0, 0}, none = {NULL, TESS_DTYPE_BF16, 0, 0, 0};
    const tess_dtype f = TESS_DTYPE_F32, b = TESS_DTYPE_BF16;
    CHECK_OK(tess__view_check("f", "q", &f32, f, f, 1));
    CHECK_OK(tess__view_check("f", "q", &none, f, b, 0));
    CHECK_FAILS(tess__view_check("f", "q", NULL, f, b, 0), TESS_EINVAL, "f: q is NULL");
    CHECK_FAILS(tess__view_check("f", "k", &none, f, b, 1), TESS_EINVAL, "f: k.data is NULL");
    CHECK_FAILS(tess__view_check("f", "k", &none, f, f, 0), TESS_EINVAL,
                "f: k.dtype is BF16, must be F32");
    CHECK_FAILS(tess__view_check("f", "k", &(tess_view){x, TESS_DTYPE_I64, 0, 0, 0}, f, b, 1),
                TESS_EINVAL, "f: k.dtype is I64, must be F32 or BF16");
    CHECK_FAILS(tess__view_check("f", "k", &(tess_view){x, (tess_dtype)99, 0, 0, 0}, f, b, 1),
                TESS_EINVAL, "f: k.dtype is unknown, must be F32 or BF16");
    char sentence[128];
    tess_view odd = {(char *)x + 1, TESS_DTYPE_F32, 0, 0, 0};
    snprintf(sentence, sizeof sentence, "f: k.data is %p, must be aligned to its 4-byte elements",
             odd.data);
    CHECK_FAILS(tess__view_check("f", "k", &odd, f, b, 1), TESS_EINVAL, sentence);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_selection_begins_empty),
    cmocka_unit_test(a_view_of_one_selection_is_the_shape_of_another),
    cmocka_unit_test(wrong_shapes_get_a_sentence),
    cmocka_unit_test(hostile_sizes_are_out_of_memory),
    cmocka_unit_test(out_of_memory_leaves_everything_usable),
    cmocka_unit_test(wrong_lists_get_a_sentence_and_change_nothing),
    cmocka_unit_test(the_first_of_many_mistakes_is_reported),
    cmocka_unit_test(a_mask_becomes_its_lists),
    cmocka_unit_test(a_selection_takes_the_shape_of_another),
    cmocka_unit_test(a_mask_of_bits_is_the_mask_of_bytes),
    cmocka_unit_test(wrong_masks_get_a_sentence_and_change_nothing),
    cmocka_unit_test(coarsening_selects_what_shares_a_pair_of_rows),
    cmocka_unit_test(coarsening_is_the_same_for_every_number_of_threads),
    cmocka_unit_test(wrong_coarsening_gets_a_sentence),
    cmocka_unit_test(cubes_cover_the_grid_in_order),
    cmocka_unit_test(whole_rows_as_cubes_keep_the_raster_order),
    cmocka_unit_test(wrong_grids_get_a_sentence),
    cmocka_unit_test(a_selection_of_another_shape_gets_a_sentence),
    cmocka_unit_test(wrong_views_get_a_sentence),
};
RUN_TESTS_WITH(tests, make_ctx_of_two, drop_ctx)
