/* SPDX-License-Identifier: Apache-2.0 */
/* test_exchange_selection.c - the parts of a selection that slots compute: row by row what the
 * selection says of the tokens behind the packed rows, and every pair once over all ranks. */
#include "ctx_fixture.h"

#include "tessera/advanced/exchange.h"
#include "tessera/advanced/explain.h"
#include "tessera/strategy.h"

#include <stdlib.h>

enum { RANKS = 3, HEADS = 3 };

static tess_selection *draw(int64_t tokens_q, int64_t tokens_k, int32_t group, int32_t unit,
                            uint32_t every)
{
    const tess_sel_shape shape = {.batch = 1,
                                  .heads = HEADS,
                                  .tokens_q = tokens_q,
                                  .tokens_k = tokens_k,
                                  .group = group,
                                  .unit = unit};
    const int64_t n_q = (tokens_q + group - 1) / group, n_k = (tokens_k + unit - 1) / unit;
    const size_t n = (size_t)(HEADS * n_q * n_k);
    uint8_t *mask = malloc(n);
    uint32_t *bits = malloc(n * sizeof *bits);
    CHECK_OK(tess_random_bits(7, (uint64_t)unit, 0, bits, n));
    for (size_t i = 0; i < n; i++)
        mask[i] = bits[i] % every == 0;
    tess_selection *sel = NULL;
    CHECK_OK(tess_selection_create(ctx, &shape, (int64_t)n, &sel));
    CHECK_OK(tess_selection_set_mask(sel, mask, TESS_MASK_BYTES));
    free(mask);
    free(bits);
    return sel;
}

static tess_plan *plan_of(const tess_work *work, const char *strategy)
{
    tess_plan_opts opts = TESS_PLAN_OPTS_INIT;
    tess_plan *plan = NULL;
    opts.ranks = RANKS;
    CHECK_OK(tess_strategy_parse(strategy, RANKS, &opts.strategy));
    CHECK_OK(tess_plan_create(ctx, work, NULL, &opts, &plan));
    return plan;
}

/* Tokens of blocks one after the other: from which token each packed row is. */
static int64_t *tokens_of(const int32_t *ids, int32_t n, int64_t size, int64_t tokens,
                          int64_t *rows)
{
    int64_t *list = malloc(((size_t)(n * size) + 1) * sizeof *list);
    *rows = 0;
    for (int32_t i = 0; i < n; i++)
        for (int64_t t = ids[i] * size; t < (ids[i] + 1) * size && t < tokens; t++)
            list[(*rows)++] = t;
    return list;
}

static int selects(const tess_selection_lists *v, int head, int64_t q, int64_t k)
{
    int32_t g = 0;
    while (v->shape.bounds_q[g + 1] <= q)
        g++;
    const int64_t list = (int64_t)head * v->shape.n_q + g;
    for (int64_t i = v->offsets[list]; i < v->offsets[list + 1]; i++)
        if (v->shape.bounds_k[v->indices[i]] <= k && k < v->shape.bounds_k[v->indices[i] + 1])
            return 1;
    return 0;
}

static void check_part(const tess_selection_lists *whole, const tess_selection_lists *part,
                       int head, const int64_t *q, int64_t rows_q, const int64_t *k, int64_t rows_k)
{
    assert_int_equal(part->shape.tokens_q, rows_q);
    assert_int_equal(part->shape.tokens_k, rows_k);
    for (int64_t i = 0; i < rows_q; i++)
        for (int64_t j = 0; j < rows_k; j++)
            if (selects(part, 0, i, j) != selects(whole, head, q[i], k[j]))
                fail_msg("head %d, query %lld, key %lld", head, (long long)q[i], (long long)k[j]);
}

/* All slots of all ranks; returns the pairs of all parts. */
static int64_t check_plan(const tess_plan *plan, const tess_work *work, const tess_selection *sel)
{
    tess_selection_lists whole, have;
    tess_plan_info info;
    int64_t bounds[RANKS + 1], pairs = 0;
    CHECK_OK(tess_selection_view(sel, &whole));
    CHECK_OK(tess_plan_query(plan, &info));
    for (int r = 0; r <= RANKS; r++)
        bounds[r] = info.tokens_q * r / RANKS;
    for (int rank = 0; rank < RANKS; rank++) {
        tess_exchange *x = NULL;
        const tess_slot *slots;
        tess_ring_view ring;
        int64_t n;
        CHECK_OK(tess_plan_exchange(plan, work, 0, rank, bounds, NULL, &x));
        CHECK_OK(tess_exchange_slots(x, &slots, &n));
        CHECK_OK(tess_exchange_ring(x, &ring));
        for (int64_t s = 0; s < n; s++)
            for (int step = 0; step < ring.steps; step++) {
                const tess_ring_step *held = &ring.step[step];
                int64_t rows_q, rows_k;
                int64_t *q =
                    tokens_of(slots[s].q_ids, slots[s].n_q, info.group, info.tokens_q, &rows_q);
                int64_t *k = ring.steps > 1 ? tokens_of(held->k_ids, held->n_k, info.unit,
                                                        info.tokens_k, &rows_k)
                                            : tokens_of(slots[s].k_ids, slots[s].n_k, info.unit,
                                                        info.tokens_k, &rows_k);
                tess_selection *part = NULL;
                CHECK_OK(tess_exchange_selection(ctx, x, sel, s, step, &part));
                CHECK_OK(tess_selection_view(part, &have));
                check_part(&whole, &have, slots[s].head, q, rows_q, k, rows_k);
                pairs += have.pairs;
                tess_selection_destroy(part);
                free(q);
                free(k);
            }
        tess_exchange_destroy(x);
    }
    return pairs;
}

static void parts_hold_every_pair_once(void **state)
{
    (void)state;
    static const char *const strategies[] = {"fractional", "refined", "ring", "selective"};
    tess_selection *blocks = draw(45, 45, 4, 4, 3), *tokens = draw(45, 45, 6, 1, 4);
    const tess_selection *made_for = blocks;
    tess_selection_lists view;
    tess_work *work = NULL;
    CHECK_OK(tess_work_from_selection(ctx, &made_for, 1, &work));
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++) {
        tess_plan *plan = plan_of(work, strategies[i]);
        CHECK_OK(tess_selection_view(blocks, &view));
        assert_int_equal(check_plan(plan, work, blocks), view.pairs);
        if (strcmp(strategies[i], "selective") != 0) { /* in groups and units of another size */
            CHECK_OK(tess_selection_view(tokens, &view));
            assert_int_equal(check_plan(plan, NULL, tokens), view.pairs);
        }
        tess_plan_destroy(plan);
    }
    tess_work_destroy(work);
    tess_selection_destroy(blocks);
    tess_selection_destroy(tokens);
}

static void token_lists_of_32k_keys(void **state)
{
    (void)state;
    tess_selection *sel = draw(96, 32768, 48, 1, 512);
    const tess_selection *made_for = sel;
    const int64_t bounds_q[] = {0, 32, 64, 96}, bounds_k[] = {0, 1, 20000, 32768};
    tess_selection_lists whole, part;
    tess_work *work = NULL;
    tess_exchange *x = NULL;
    const tess_slot *slots;
    int64_t n, pairs = 0;
    CHECK_OK(tess_work_from_selection(ctx, &made_for, 1, &work));
    tess_plan *plan = plan_of(work, "fractional");
    for (int rank = 0; rank < RANKS; rank++) {
        CHECK_OK(tess_plan_exchange(plan, work, 0, rank, bounds_q, bounds_k, &x));
        CHECK_OK(tess_exchange_slots(x, &slots, &n));
        for (int64_t s = 0; s < n; s++) {
            tess_selection *made = NULL;
            CHECK_OK(tess_exchange_selection(ctx, x, sel, s, 0, &made));
            CHECK_OK(tess_selection_view(made, &part));
            assert_int_equal(part.shape.tokens_k, 32768);
            pairs += part.pairs;
            tess_selection_destroy(made);
        }
        tess_exchange_destroy(x);
    }
    CHECK_OK(tess_selection_view(sel, &whole));
    assert_int_equal(pairs, whole.pairs);
    tess_plan_destroy(plan);
    tess_work_destroy(work);
    tess_selection_destroy(sel);
}

static void wrong_calls_say_what_is_wrong(void **state)
{
    (void)state;
    tess_selection *sel = draw(45, 45, 4, 4, 3), *short_one = draw(40, 45, 4, 4, 3), *part = NULL;
    const tess_selection *made_for = sel;
    const int64_t bounds[] = {0, 15, 30, 45};
    tess_work *work = NULL;
    tess_exchange *x = NULL;
    tess_candidate candidate;
    CHECK_OK(tess_work_from_selection(ctx, &made_for, 1, &work));
    tess_plan *plan = plan_of(work, "selective");
    CHECK_OK(tess_plan_exchange(plan, NULL, 0, 0, bounds, NULL, &x));
    assert_int_equal(tess_exchange_selection(ctx, x, sel, 0, 0, &part), TESS_EINVAL);
    assert_non_null(strstr(tess_last_error(), "which the slot does not hold"));
    CHECK_FAILS(tess_exchange_selection(ctx, x, sel, 0, 1, &part), TESS_EINVAL,
                "tess_exchange_selection: step is 1, must be 0..0");
    CHECK_FAILS(tess_exchange_selection(ctx, x, short_one, 0, 0, &part), TESS_EINVAL,
                "tess_exchange_selection: the selection's tokens_q is 40, must be 45");
    assert_null(part);
    CHECK_OK(tess_plan_candidate(plan, 0, 0, &candidate));
    assert_int_equal(candidate.chosen, 1);
    tess_plan_layer layer;
    CHECK_OK(tess_plan_layer_view(plan, 0, &layer));
    assert_int_equal(layer.bytes, candidate.bytes);
    CHECK_FAILS(tess_plan_candidate(plan, 0, 1, &candidate), TESS_EINVAL,
                "tess_plan_candidate: index is 1, must be below 1, the candidates of the plan");
    tess_exchange_destroy(x);
    tess_plan_destroy(plan);
    tess_work_destroy(work);
    tess_selection_destroy(sel);
    tess_selection_destroy(short_one);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(parts_hold_every_pair_once),
    cmocka_unit_test(token_lists_of_32k_keys),
    cmocka_unit_test(wrong_calls_say_what_is_wrong),
};
RUN_TESTS_WITH(tests, make_ctx, drop_ctx)
