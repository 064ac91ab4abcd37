/* SPDX-License-Identifier: Apache-2.0 */
/* test_exchange.c - the exchange lists of all ranks, executed on tagged rows.
 *
 * Every row of q and k is a number that says its head and token. Messages are made by the sender's
 * list and unpacked by the receiver's; nothing else connects the two.
 */
#include "plan_data.h"

#include "tessera/advanced/exchange.h"

enum { CASES = 12000, RANKS = 9, HEADS = 5, BLOCKS = 7, NOTHING = -1, SIDE = 512, SPAN = 100000 };

typedef struct {
    int ranks, heads;
    tess_exchange *x[RANKS];
    tess_exchange_info info[RANKS];
    int64_t *shard[2][RANKS];  /* (heads, rows): q, k */
    int64_t *packed[2][RANKS]; /* what the rank computes with */
    int64_t *low[RANKS];       /* all keys of its heads */
} world;

static int64_t tag(int side, int head, int64_t token)
{
    return side * 10 * SPAN + head * SPAN + token;
}

static int64_t shard_rows(const world *w, int side, int r)
{
    return side ? w->info[r].shard_k : w->info[r].shard_q;
}

static int64_t packed_rows(const world *w, int side, int r)
{
    return side ? w->info[r].packed_k : w->info[r].packed_q;
}

static int64_t *filled(int64_t n, int64_t value)
{
    int64_t *x = memory_of((size_t)n, sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = value;
    return x;
}

static world make_world(const plan_case *c, const tess_work *work)
{
    world w = {.ranks = c->plan->info.ranks, .heads = c->plan->info.heads};
    for (int r = 0; r < w.ranks; r++) {
        CHECK_OK(tess_plan_exchange(c->plan, work, 0, r, c->bounds[0], c->bounds[1], &w.x[r]));
        CHECK_OK(tess_exchange_query(w.x[r], &w.info[r]));
        assert_int_equal(w.info[r].rank, r);
        w.low[r] = filled(w.info[r].packed_low, NOTHING);
        for (int side = 0; side < 2; side++) {
            const int64_t rows = shard_rows(&w, side, r);
            assert_int_equal(rows, c->bounds[side][r + 1] - c->bounds[side][r]);
            w.packed[side][r] = filled(packed_rows(&w, side, r), NOTHING);
            w.shard[side][r] = filled(w.heads * rows, NOTHING);
            for (int h = 0; h < w.heads; h++)
                for (int64_t i = 0; i < rows; i++)
                    w.shard[side][r][h * rows + i] = tag(side, h, c->bounds[side][r] + i);
        }
    }
    return w;
}

static void drop_world(world *w)
{
    for (int r = 0; r < w->ranks; r++) {
        tess_exchange_destroy(w->x[r]);
        free(w->low[r]);
        for (int side = 0; side < 2; side++) {
            free(w->shard[side][r]);
            free(w->packed[side][r]);
        }
    }
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Both sides of a message list the same rows: only the peer differs. Peers ascend, then places, and
 * runs that could be one are one. */
static void check_lists(const world *w, tess_rows rows)
{
    for (int p = 0; p < w->ranks; p++) {
        tess_rows_view from;
        int64_t at = 0, all = 0;
        CHECK_OK(tess_exchange_view(w->x[p], rows, &from));
        for (int c = 0; c < w->ranks; c++) {
            tess_rows_view to;
            CHECK_OK(tess_exchange_view(w->x[c], rows, &to));
            assert_int_equal(from.send_rows[c], to.recv_rows[p]);
            int64_t in = 0, count = 0;
            while (in < to.n_recvs && to.recvs[in].peer < p)
                in++;
            for (; at < from.n_sends && from.sends[at].peer == c; at++, in++) {
                const tess_run *a = &from.sends[at], *b = &to.recvs[in];
                assert_true(in < to.n_recvs && b->peer == p);
                assert_true(a->rows > 0 && a->head == b->head && a->row == b->row &&
                            a->rows == b->rows && a->place == b->place);
                if (count) {
                    assert_true(a->place >= a[-1].place + a[-1].rows);
                    assert_false(a->head == a[-1].head && a->row == a[-1].row + a[-1].rows &&
                                 a->place == a[-1].place + a[-1].rows);
                }
                count += a->rows;
            }
            assert_true(in == to.n_recvs || to.recvs[in].peer > p);
            assert_int_equal(count, from.send_rows[c]);
            all += count;
        }
        assert_int_equal(at, from.n_sends);
        assert_int_equal(all, from.send_total);
    }
}

/* All messages of one kind by the index lists: gather, concatenate, scatter. What arrives is added
 * to what is there, or replaces NOTHING. */
static void carry(const world *w, tess_rows rows, tess_layout layout, int64_t *const *source,
                  int64_t **target)
{
    for (int c = 0; c < w->ranks; c++) {
        tess_rows_view to;
        CHECK_OK(tess_exchange_view(w->x[c], rows, &to));
        int64_t *place = memory_of((size_t)to.recv_total, sizeof *place), got = 0;
        CHECK_OK(tess_exchange_index(w->x[c], rows, layout, NULL, place));
        for (int p = 0; p < w->ranks; p++) {
            tess_rows_view from;
            CHECK_OK(tess_exchange_view(w->x[p], rows, &from));
            int64_t *index = memory_of((size_t)from.send_total, sizeof *index), first = 0;
            CHECK_OK(tess_exchange_index(w->x[p], rows, layout, index, NULL));
            for (int before = 0; before < c; before++)
                first += from.send_rows[before];
            for (int64_t i = 0; i < from.send_rows[c]; i++, got++) {
                int64_t *to_row = &target[c][place[got]];
                const int64_t value = source[p][index[first + i]];
                assert_true(value != NOTHING);
                if (!to.adds)
                    assert_true(*to_row == NOTHING); /* nothing arrives twice */
                *to_row = to.adds ? *to_row + value : value;
            }
            free(index);
        }
        assert_int_equal(got, to.recv_total);
        free(place);
    }
}

/* ---- what has arrived ------------------------------------------------------------------------ */

/* The rows of blocks, one after the other. */
static void check_blocks(const plan_case *c, int side, int head, const int32_t *ids, int n,
                         const int64_t *rows, int64_t n_rows)
{
    const tess_plan_info *info = &c->plan->info;
    int64_t at = 0;
    for (int i = 0; i < n; i++) {
        const int64_t begin =
            side ? tess__plan_k_row(info, ids[i]) : tess__plan_q_row(info, ids[i]);
        const int64_t end =
            side ? tess__plan_k_row(info, ids[i] + 1) : tess__plan_q_row(info, ids[i] + 1);
        for (int64_t token = begin; token < end; token++, at++) {
            assert_true(at < n_rows);
            assert_int_equal(rows[at], tag(side, head, token));
        }
    }
    assert_int_equal(at, n_rows);
}

/* All keys of the heads of a rank's shares, once, in token order. */
static void check_low(const plan_case *c, const world *w, int r)
{
    const int64_t tokens = c->plan->info.tokens_k;
    const tess_slot *slots;
    int64_t n, heads = 0;
    CHECK_OK(tess_exchange_slots(w->x[r], &slots, &n));
    for (int64_t i = 0; i < n; i++) {
        heads += i == 0 || slots[i].head != slots[i - 1].head;
        assert_int_equal(slots[i].low_place, (heads - 1) * tokens);
        for (int64_t t = 0; t < tokens; t++)
            assert_int_equal(w->low[r][slots[i].low_place + t], tag(1, slots[i].head, t));
    }
    assert_int_equal(w->info[r].packed_low, heads * tokens);
}

/* The slots are the rank's shares, their rows are there, and nothing else is. In a selective layer
 * the keys are exactly those that the share's queries, or another share's of the head, select. */
static void check_slots(const plan_case *c, const world *w, int r)
{
    const tess_plan_info *info = &c->plan->info;
    const tess_plan_layer *layer = &c->plan->layers[0];
    const tess_slot *slots;
    int64_t n, q_rows = 0, k_rows = 0;
    CHECK_OK(tess_exchange_slots(w->x[r], &slots, &n));
    assert_int_equal(n, layer->first[r + 1] - layer->first[r]);
    for (int64_t i = 0; i < n; i++) {
        const tess_slot *s = &slots[i];
        const tess_share *share = &layer->shares[layer->first[r] + i];
        assert_int_equal(s->head, share->head);
        assert_int_equal(s->n_q, share->q_end - share->q_begin);
        check_blocks(c, 0, s->head, s->q_ids, s->n_q, w->packed[0][r] + s->q_place, s->q_rows);
        check_blocks(c, 1, s->head, s->k_ids, s->n_k, w->packed[1][r] + s->k_place, s->k_rows);
        q_rows += s->q_rows;
        const int again = i > 0 && s->head == s[-1].head;
        if (again)
            assert_true(s->k_place == s[-1].k_place && s->k_rows == s[-1].k_rows);
        k_rows += again ? 0 : s->k_rows;
        int held[SIDE] = {0}, wanted[SIDE] = {0};
        for (int j = 0; j < s->n_k; j++)
            held[s->k_ids[j]]++;
        for (int64_t j = 0; j < n; j++)
            for (int q = 0; slots[j].head == s->head && q < slots[j].n_q; q++)
                for (int k = 0; k < info->k_blocks; k++)
                    wanted[k] |= case_mask(c, s->head, slots[j].q_ids[q], k);
        for (int k = 0; k < info->k_blocks && layer->strategy.ring == 1; k++)
            assert_int_equal(held[k], layer->strategy.selective > 1 ? wanted[k] : 1);
    }
    assert_int_equal(q_rows, w->info[r].packed_q);
    if (layer->strategy.ring == 1)
        assert_int_equal(k_rows, w->info[r].packed_k);
}

/* Every row of q goes to exactly one rank, so that a rank's shard is all it sends, and what stays
 * is what its own list keeps. */
static void check_counts(const plan_case *c, const world *w)
{
    for (int r = 0; r < w->ranks; r++) {
        tess_rows_view q, kv, back;
        CHECK_OK(tess_exchange_view(w->x[r], TESS_ROWS_Q, &q));
        CHECK_OK(tess_exchange_view(w->x[r], TESS_ROWS_KV, &kv));
        CHECK_OK(tess_exchange_view(w->x[r], TESS_ROWS_O, &back));
        assert_int_equal(q.send_total, w->heads * w->info[r].shard_q);
        assert_int_equal(q.recv_total, w->info[r].packed_q);
        assert_int_equal(kv.recv_total, w->info[r].packed_k);
        assert_int_equal(q.send_rows[r], q.recv_rows[r]);
        assert_ptr_equal(back.sends, q.recvs);
        assert_ptr_equal(back.recvs, q.sends);
        if (c->plan->layers[0].strategy.ring > 1)
            assert_int_equal(kv.send_total, w->heads * w->info[r].shard_k);
    }
}

/* ---- back ------------------------------------------------------------------------------------ */

/* O and dQ: the computed rows come back to where q was, changed by a constant. */
static void check_way_back(const plan_case *c, const world *w, tess_layout layout)
{
    int64_t *out[RANKS] = {NULL}, *owned[RANKS] = {NULL};
    for (int r = 0; r < w->ranks; r++) {
        out[r] = filled(w->info[r].packed_q, 0);
        owned[r] = filled(w->heads * w->info[r].shard_q, NOTHING);
        for (int64_t i = 0; i < w->info[r].packed_q; i++)
            out[r][i] = w->packed[0][r][i] + 5;
    }
    carry(w, TESS_ROWS_DQ, layout, out, owned);
    for (int r = 0; r < w->ranks; r++) {
        const int64_t rows = w->info[r].shard_q;
        for (int h = 0; h < w->heads; h++)
            for (int64_t i = 0; i < rows; i++) {
                const int64_t at = layout == TESS_LAYOUT_HEADS ? h * rows + i : i * w->heads + h;
                assert_int_equal(owned[r][at], tag(0, h, c->bounds[0][r] + i) + 5);
            }
        free(out[r]);
        free(owned[r]);
    }
}

/* dK, dV: the owner has the sum over all ranks that computed with the row. */
static void check_key_sums(const plan_case *c, const world *w)
{
    int64_t *parts[RANKS] = {NULL}, *owned[RANKS] = {NULL};
    int64_t *want = filled(w->heads * c->plan->info.tokens_k, 0);
    for (int r = 0; r < w->ranks; r++) {
        parts[r] = filled(w->info[r].packed_k, 0);
        owned[r] = filled(w->heads * w->info[r].shard_k, 0);
        for (int64_t i = 0; i < w->info[r].packed_k; i++) {
            const int64_t name = w->packed[1][r][i] - tag(1, 0, 0);
            parts[r][i] = (r + 1) * 7 + name % 97;
            want[name / SPAN * c->plan->info.tokens_k + name % SPAN] += parts[r][i];
        }
    }
    carry(w, TESS_ROWS_DKV, TESS_LAYOUT_HEADS, parts, owned);
    for (int r = 0; r < w->ranks; r++) {
        const int64_t rows = w->info[r].shard_k;
        for (int h = 0; h < w->heads; h++)
            for (int64_t i = 0; i < rows; i++)
                assert_int_equal(owned[r][h * rows + i],
                                 want[h * c->plan->info.tokens_k + c->bounds[1][r] + i]);
        free(parts[r]);
        free(owned[r]);
    }
    free(want);
}

/* ---- rings ----------------------------------------------------------------------------------- */

/* One rank at one step: the pieces of this step are computed with the keys in hand, tag by tag. */
static void check_step(const plan_case *c, const world *w, int r, int step, const int64_t *held)
{
    const tess_plan_layer *layer = &c->plan->layers[0];
    tess_ring_view ring;
    CHECK_OK(tess_exchange_ring(w->x[r], &ring));
    const tess_ring_step *now = &ring.step[step];
    const int u = tess__rank_group(layer, r);
    int64_t n = 0, work = 0;
    CHECK_OK(tess_plan_pieces(c->plan, 0, r, NULL, &n));
    tess_piece *pieces = memory_of((size_t)n, sizeof *pieces);
    CHECK_OK(tess_plan_pieces(c->plan, 0, r, pieces, &n));
    for (int64_t i = 0; i < n; i++) {
        const tess_piece *p = &pieces[i];
        int32_t ids[BLOCKS];
        if (p->step != step)
            continue;
        int at = 0;
        while (at < ring.n_heads && ring.heads[at] != p->head)
            at++;
        assert_true(at < ring.n_heads);
        for (int k = p->k_begin; k < p->k_end; k++) {
            ids[k - p->k_begin] =
                layer->k_order ? layer->k_order[u * c->plan->info.k_blocks + k] : k;
            for (int q = p->q_begin; q < p->q_end; q++)
                work += case_mask(
                    c, p->head, layer->q_order ? layer->q_order[u * c->plan->info.q_blocks + q] : q,
                    ids[k - p->k_begin]);
        }
        if (held)
            check_blocks(c, 1, p->head, ids, p->k_end - p->k_begin, held + at * now->rows,
                         now->rows);
    }
    assert_int_equal(now->needed, work > 0);
    if (!held)
        assert_int_equal(work, 0); /* what was not passed on, no rank needs */
    free(pieces);
}

/* Keys go round: from each rank to its `next`, unless no later rank needs them. */
static void check_ring(const plan_case *c, const world *w)
{
    const int64_t *held[RANKS], *coming[RANKS];
    tess_ring_view ring[RANKS];
    for (int r = 0; r < w->ranks; r++) {
        CHECK_OK(tess_exchange_ring(w->x[r], &ring[r]));
        held[r] = w->packed[1][r];
    }
    for (int r = 0; r < w->ranks; r++) {
        assert_int_equal(ring[ring[r].next].previous, r);
        assert_int_equal(w->info[r].packed_k, ring[r].n_heads * ring[r].step[0].rows);
    }
    for (int step = 0; step < ring[0].steps; step++) {
        for (int r = 0; r < w->ranks; r++) {
            const tess_ring_step *now = &ring[r].step[step];
            check_step(c, w, r, step, held[r]);
            assert_true(held[r] || !now->passes);
            coming[ring[r].next] = now->passes ? held[r] : NULL;
            /* Passed on only where some later holder needs it. */
            int later = 0;
            for (int s = step + 1, at = ring[r].next; s < ring[0].steps; s++, at = ring[at].next) {
                assert_int_equal(ring[at].step[s].part, now->part);
                later |= ring[at].step[s].needed;
            }
            assert_int_equal(now->passes, later);
        }
        memcpy(held, coming, sizeof held);
    }
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* One case through everything. Without work a ring cannot know which keys no rank needs. */
static void run_case(const plan_case *c, const tess_work *work, tess_layout layout)
{
    world w = make_world(c, work);
    for (int rows = 0; rows < TESS_ROWS_COUNT; rows++)
        check_lists(&w, (tess_rows)rows);
    check_counts(c, &w);
    carry(&w, TESS_ROWS_Q, TESS_LAYOUT_HEADS, w.shard[0], w.packed[0]);
    carry(&w, TESS_ROWS_KV, TESS_LAYOUT_HEADS, w.shard[1], w.packed[1]);
    carry(&w, TESS_ROWS_LOW, TESS_LAYOUT_HEADS, w.shard[1], w.low);
    for (int r = 0; r < w.ranks; r++) {
        check_slots(c, &w, r);
        check_low(c, &w, r);
    }
    check_way_back(c, &w, layout);
    check_key_sums(c, &w);
    if (c->plan->layers[0].strategy.ring > 1 && work)
        check_ring(c, &w);
    drop_world(&w);
}

static void every_row_arrives_once_and_comes_back(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        plan_case c = draw_case((kind)(i % KINDS), RANKS, HEADS, BLOCKS);
        run_case(&c, c.work, (tess_layout)(i / KINDS % 2));
        drop_case(&c);
    }
}

static void shards_may_be_empty_or_all_on_one_rank(void **state)
{
    (void)state;
    for (int i = 0; i < 500; i++) {
        plan_case c = draw_case((kind)(i % KINDS), RANKS, HEADS, BLOCKS);
        const tess_plan_info *info = &c.plan->info;
        const int owner = between(0, info->ranks - 1);
        for (int r = 0; r <= info->ranks; r++) {
            c.bounds[0][r] = r > owner ? info->tokens_q : 0;
            c.bounds[1][r] = r > owner ? info->tokens_k : 0;
        }
        run_case(&c, c.plan->layers[0].strategy.selective > 1 ? c.work : NULL, TESS_LAYOUT_TOKENS);
        drop_case(&c);
    }
}

/* Wan at 480p: 32,760 tokens in blocks of 64 on 8 ranks, whose shards of 4,095 rows cut blocks. */
static plan_case wan_case(int ulysses, int ring, int selective)
{
    enum { TOKENS_WAN = 32760, BLOCKS_WAN = 512, HEADS_WAN = 2 };
    plan_case c = {0};
    const size_t n = (size_t)HEADS_WAN * BLOCKS_WAN * BLOCKS_WAN;
    c.mask = memory_of(n, 1);
    for (size_t i = 0; i < n; i++)
        c.mask[i] = draw(40) == 0;
    const tess_mask_set set = {1, HEADS_WAN,  BLOCKS_WAN, BLOCKS_WAN, c.mask,
                               0, TOKENS_WAN, TOKENS_WAN, 64,         64};
    CHECK_OK(tess_work_from_masks(context(), &set, &c.work));
    tess_plan_info info;
    tess__plan_info_of_work(c.work, &info);
    info.ranks = 8;
    info.nodes = 1;
    info.head_dim = info.element_bytes = 1;
    CHECK_OK(tess__plan_new(context(), "test", &info, &c.plan));
    const tess__layer_heads in = {.strategy = {.method = TESS_PLAN_DB_SP,
                                               .ulysses = ulysses,
                                               .ring = ring,
                                               .selective = selective,
                                               .placement = TESS_PLACE_SEQUENCE_INSIDE}};
    draw_heads(&c, &in);
    for (int r = 0; r <= 8; r++)
        c.bounds[0][r] = c.bounds[1][r] = 4095 * r;
    return c;
}

static int64_t runs_of(const plan_case *c, int rank)
{
    tess_exchange *x;
    tess_rows_view q;
    CHECK_OK(tess_plan_exchange(c->plan, c->work, 0, rank, c->bounds[0], NULL, &x));
    CHECK_OK(tess_exchange_view(x, TESS_ROWS_Q, &q));
    const int64_t n = q.n_recvs;
    tess_exchange_destroy(x);
    return n;
}

static void shards_that_cut_blocks_carry_every_row(void **state)
{
    (void)state;
    const int degrees[][3] = {{8, 1, 1}, {1, 8, 1}, {2, 4, 1}, {1, 1, 8}, {2, 1, 4}};
    for (int i = 0; i < 5; i++) {
        plan_case c = wan_case(degrees[i][0], degrees[i][1], degrees[i][2]);
        /* Without an order a rank that has a whole head gets one run from each of 8 owners. */
        c.plan->layers[0].q_order = NULL;
        const tess_plan_layer *layer = &c.plan->layers[0];
        for (int r = 0; i == 0 && r < 8; r++)
            assert_int_equal(runs_of(&c, r), 8 * (layer->first[r + 1] - layer->first[r]));
        run_case(&c, c.plan->layers[0].strategy.selective > 1 ? c.work : NULL, TESS_LAYOUT_TOKENS);
        drop_case(&c);
    }
}

static void a_ring_without_work_passes_all_keys_on(void **state)
{
    (void)state;
    plan_case c = wan_case(2, 4, 1);
    tess_exchange *x;
    tess_ring_view ring;
    CHECK_OK(tess_plan_exchange(c.plan, NULL, 0, 5, c.bounds[0], NULL, &x));
    CHECK_OK(tess_exchange_ring(x, &ring));
    assert_int_equal(ring.steps, 4);
    assert_int_equal(ring.next, 6); /* rank 5 is group 1, part 1: rank = u * S + s */
    assert_int_equal(ring.previous, 4);
    for (int t = 0; t < 4; t++) {
        assert_int_equal(ring.step[t].part, (1 - t + 4) % 4);
        assert_int_equal(ring.step[t].passes, t < 3);
    }
    tess_exchange_destroy(x);
    drop_case(&c);
}

/* Which keys are needed is known when lists are chosen; until then only queries have a place. */
static void a_selective_layer_without_work_has_its_queries_alone(void **state)
{
    (void)state;
    plan_case c = wan_case(2, 1, 4);
    world w = make_world(&c, NULL), known = make_world(&c, c.work);
    carry(&w, TESS_ROWS_Q, TESS_LAYOUT_HEADS, w.shard[0], w.packed[0]);
    carry(&w, TESS_ROWS_LOW, TESS_LAYOUT_HEADS, w.shard[1], w.low);
    for (int r = 0; r < w.ranks; r++) {
        const tess_slot *slots, *want;
        tess_rows_view kv;
        int64_t n, wanted;
        check_low(&c, &w, r);
        CHECK_OK(tess_exchange_view(w.x[r], TESS_ROWS_KV, &kv));
        assert_int_equal(kv.n_sends + kv.n_recvs + kv.send_total + kv.recv_total, 0);
        assert_int_equal(w.info[r].packed_k, 0);
        CHECK_OK(tess_exchange_slots(w.x[r], &slots, &n));
        CHECK_OK(tess_exchange_slots(known.x[r], &want, &wanted));
        assert_int_equal(n, wanted);
        for (int64_t i = 0; i < n; i++) {
            assert_true(slots[i].head == want[i].head && slots[i].q_place == want[i].q_place);
            assert_int_equal(slots[i].n_k + slots[i].k_rows, 0);
            check_blocks(&c, 0, slots[i].head, slots[i].q_ids, slots[i].n_q,
                         w.packed[0][r] + slots[i].q_place, slots[i].q_rows);
        }
    }
    drop_world(&known);
    drop_world(&w);
    drop_case(&c);
}

static void wrong_calls_say_what_is_wrong(void **state)
{
    (void)state;
    plan_case c = wan_case(1, 1, 8);
    tess_exchange *x = NULL;
    int64_t *b = c.bounds[0];
#define CALL(layer, rank, bounds, k) tess_plan_exchange(c.plan, c.work, layer, rank, bounds, k, &x)
#define REFUSED(call, sentence) CHECK_FAILS(call, TESS_EINVAL, "tess_plan_exchange: " sentence)
    REFUSED(tess_plan_exchange(NULL, c.work, 0, 0, b, NULL, &x), "plan is NULL");
    REFUSED(tess_plan_exchange(c.plan, c.work, 0, 0, NULL, NULL, &x), "bounds_q is NULL");
    REFUSED(tess_plan_exchange(c.plan, c.work, 0, 0, b, NULL, NULL), "exchange is NULL");
    REFUSED(CALL(1, 0, b, NULL), "layer is 1, must be 0..0");
    REFUSED(CALL(0, 8, b, NULL), "rank is 8, must be 0..7");
    REFUSED(CALL(0, -1, b, NULL), "rank is -1, must be 0..7");
    b[3] = 20;
    REFUSED(CALL(0, 0, b, NULL), "bounds_q: rank 2 has 8190..20, must not fall");
    b[3] = 3 * 4095;
    b[8]--;
    REFUSED(CALL(0, 0, b, NULL), "bounds_q go from 0 to 32759, must go from 0 to 32760");
    b[8]++;
    c.bounds[1][0] = 1;
    REFUSED(CALL(0, 0, b, c.bounds[1]), "bounds_k go from 1 to 32760, must go from 0 to 32760");
    const int64_t weights[2] = {3, 4};
    tess_work *other;
    CHECK_OK(tess_work_from_weights(context(), weights, 1, 2, 512, &other));
    REFUSED(tess_plan_exchange(c.plan, other, 0, 0, b, NULL, &x),
            "the plan has 32760 query tokens, the work 512");
    tess_work_destroy(other);
    const double density[2] = {0.5, 0.25};
    CHECK_OK(tess_work_from_density(context(), density, 1, 2, 32760, 64, &other));
    REFUSED(tess_plan_exchange(c.plan, other, 0, 0, b, NULL, &x),
            "layer 0 is selective, and the work has no masks");
    tess_work_destroy(other);
    assert_null(x);

    tess_rows_view view;
    tess_ring_view ring;
    int64_t n;
    const tess_slot *slots;
    CHECK_OK(CALL(0, 0, b, NULL));
    CHECK_FAILS(tess_exchange_view(x, TESS_ROWS_COUNT, &view), TESS_EINVAL,
                "tess_exchange_view: rows is 7, must be 0..6");
    CHECK_FAILS(tess_exchange_view(x, TESS_ROWS_Q, NULL), TESS_EINVAL,
                "tess_exchange_view: view is NULL");
    CHECK_FAILS(tess_exchange_view(NULL, TESS_ROWS_Q, &view), TESS_EINVAL,
                "tess_exchange_view: exchange is NULL");
    CHECK_FAILS(tess_exchange_index(x, TESS_ROWS_Q, TESS_LAYOUT_COUNT, NULL, NULL), TESS_EINVAL,
                "tess_exchange_index: layout is 2, must be 0..1");
    CHECK_FAILS(tess_exchange_slots(x, &slots, NULL), TESS_EINVAL,
                "tess_exchange_slots: n is NULL");
    CHECK_FAILS(tess_exchange_slots(x, NULL, &n), TESS_EINVAL,
                "tess_exchange_slots: slots is NULL");
    CHECK_FAILS(tess_exchange_ring(NULL, &ring), TESS_EINVAL,
                "tess_exchange_ring: exchange is NULL");
    CHECK_FAILS(tess_exchange_query(x, NULL), TESS_EINVAL, "tess_exchange_query: info is NULL");
    tess_exchange_destroy(x);
    tess_exchange_destroy(NULL);
    drop_case(&c);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_row_arrives_once_and_comes_back),
    cmocka_unit_test(shards_may_be_empty_or_all_on_one_rank),
    cmocka_unit_test(shards_that_cut_blocks_carry_every_row),
    cmocka_unit_test(a_ring_without_work_passes_all_keys_on),
    cmocka_unit_test(a_selective_layer_without_work_has_its_queries_alone),
    cmocka_unit_test(wrong_calls_say_what_is_wrong),
};
RUN_TESTS_WITH(tests, NULL, drop_context)
