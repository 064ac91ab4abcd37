/* SPDX-License-Identifier: Apache-2.0 */
/* test_mix.c - mixtures of clips on ranks: every token and place once, memory, speeds, the bars of
 * imbalance, exchanges against a count row by row, small cases against every assignment. */
#include "draw.h"
#include "files.h"

#include "tessera/advanced/explain.h"
#include "tessera/advanced/mix.h"
#include "tessera/cluster.h"

static const char *const CODES[] = {
    "g3b16i256f1s0,g2b8i512f1s0,g2b4i1024f1s0,g1b1i2048f1s0",
    "g8b4i256f1s0,g2b5i512f1s0,g2b5i1024f1s0,g4b1i2048f1s0,g1b10i256f4s0,g3b1i512f4s0,"
    "g8b2i256f85s1,g4b1i512f85s1",
};

static const double PAIR = 14.0 * 128.0; /* FLOP of a pair of tokens and head, trained */

static double token_flop(double width, double ffn)
{
    return 6.0 * (4.0 * width * width + 2.0 * width * ffn);
}

/* ---- invariants ------------------------------------------------------------------------------ */

typedef struct {
    const tess_mix_clip *clips;
    int64_t n;
    const tess_mix_opts *opts;
    int heads;
    tess_mix_view v;
} laid;

static int64_t blocks_of(const laid *l, int64_t clip)
{
    return (l->clips[clip].tokens + l->opts->group - 1) / l->opts->group;
}

/* Every token and every place of every clip is in one part, parts of a clip in one step. */
static void check_once(const laid *l)
{
    for (int64_t i = 0; i < l->n; i++) {
        int64_t token = 0, place = 0;
        int32_t step = -1, rank = -1;
        for (int64_t k = 0; k < l->v.n_parts; k++) {
            const tess_mix_part *p = &l->v.parts[k];
            if (p->clip != i)
                continue;
            if (step >= 0)
                assert_int_equal(p->step, step);
            assert_true(p->rank > rank);
            assert_int_equal(p->token_begin, token);
            assert_int_equal(p->begin, place);
            assert_true(p->token_end >= token && p->end >= place);
            step = p->step;
            rank = p->rank;
            token = p->token_end;
            place = p->end;
        }
        assert_int_equal(token, l->clips[i].tokens);
        assert_int_equal(place, blocks_of(l, i) * l->heads);
    }
}

/* FLOP of a part, pair by pair of its blocks. */
static double part_flop(const laid *l, const tess_mix_part *p)
{
    const tess_mix_clip *c = &l->clips[p->clip];
    const double width = l->opts->width, ffn = l->opts->ffn ? l->opts->ffn : 4.0 * width;
    const int64_t blocks = blocks_of(l, p->clip);
    double flop = (double)(p->token_end - p->token_begin) * token_flop(width, ffn);
    for (int64_t at = p->begin; at < p->end; at++) {
        const int64_t first = at % blocks * l->opts->group;
        const int64_t rows =
            c->tokens - first < l->opts->group ? c->tokens - first : l->opts->group;
        const double density = c->heads ? c->heads[at / blocks] : c->density;
        flop += (double)rows * (double)c->tokens * density * PAIR;
    }
    return flop * l->opts->layers;
}

/* Loads, imbalance and counts are those of the parts; without a cluster. */
static void check_numbers(const laid *l)
{
    const tess_mix_view *v = &l->v;
    double fastest = 1.0, worst = 0.0;
    int64_t at = 0, pieces = 0;
    for (int p = 0; l->opts->speeds && p < v->ranks; p++)
        fastest = l->opts->speeds[p] > fastest ? l->opts->speeds[p] : fastest;
    for (int s = 0; s < v->steps; s++) {
        double slowest = 0.0, sum = 0.0, speeds = 0.0;
        for (int p = 0; p < v->ranks; p++) {
            const tess_mix_rank *r = &v->rank[(int64_t)s * v->ranks + p];
            const double speed = l->opts->speeds ? l->opts->speeds[p] / fastest : 1.0;
            double flop = 0.0;
            int64_t tokens = 0;
            assert_int_equal(v->first[(int64_t)s * v->ranks + p], at);
            for (; at < v->n_parts && v->parts[at].step == s && v->parts[at].rank == p; at++) {
                flop += part_flop(l, &v->parts[at]);
                tokens += v->parts[at].token_end - v->parts[at].token_begin;
                pieces++;
            }
            assert_true(fabs(flop / speed - r->compute) <= 1e-9 * (flop / speed + 1.0));
            assert_int_equal(tokens, r->tokens);
            assert_int_equal(r->exchange, 0);
            if (l->opts->memory)
                assert_true(r->memory <= l->opts->memory);
            slowest = flop / speed > slowest ? flop / speed : slowest;
            sum += flop;
            speeds += speed;
        }
        const double rho = sum > 0.0 ? slowest * speeds / sum : 1.0; /* more steps than clips */
        assert_true(fabs(v->step[s].rho - rho) < 1e-9);
        worst = v->step[s].rho > worst ? v->step[s].rho : worst;
    }
    assert_int_equal(at, v->n_parts);
    assert_int_equal(pieces - l->n, v->cuts);
    assert_true(worst == v->rho_max);
}

static tess_mix_plan *plan_of(laid *l, const tess_cluster *cluster)
{
    tess_mix_plan *plan = NULL;
    CHECK_OK(tess_mix_plan_create(ctx, l->clips, l->n, cluster, l->opts, &plan));
    CHECK_OK(tess_mix_plan_query(plan, &l->v));
    l->heads = l->opts->heads ? l->opts->heads : l->opts->width / 128;
    return plan;
}

enum { CLIPS = 600 };
static tess_mix_clip drawn[CLIPS];
static double head_densities[64];

/* n clips of 2^low .. 2^high tokens. */
static void draw_clips(int n, int low, int high, int heads)
{
    for (int h = 0; h < heads; h++)
        head_densities[h] = between(0, 100) / 100.0;
    for (int i = 0; i < n; i++) {
        const int64_t least = (int64_t)1 << between(low, high - 1);
        drawn[i] = (tess_mix_clip){.tokens = least + draw((uint32_t)least),
                                   .density = between(1, 100) / 100.0,
                                   .drawn_by = -1};
        if (between(0, 3) == 0) {
            drawn[i].heads = head_densities;
            drawn[i].n_heads = heads;
        }
    }
}

static void random_mixtures_compute_everything_once(void **state)
{
    (void)state;
    int32_t speeds[40];
    for (int round = 0; round < 300; round++) {
        tess_mix_opts opts = TESS_MIX_OPTS_INIT;
        opts.ranks = between(1, 40);
        opts.nodes = between(0, opts.ranks);
        opts.steps = between(1, 3);
        opts.heads = between(1, 12);
        opts.width = opts.heads * 128;
        opts.group = between(1, 100);
        opts.whole_clips = between(0, 5) == 0;
        for (int p = 0; p < opts.ranks; p++)
            speeds[p] = between(1, 9);
        opts.speeds = between(0, 1) ? speeds : NULL;
        const int n = between(1, 60);
        draw_clips(n, 3, between(6, 12), opts.heads);
        laid l = {.clips = drawn, .n = n, .opts = &opts};
        tess_mix_plan *plan = plan_of(&l, NULL);
        check_once(&l);
        check_numbers(&l);
        if (opts.whole_clips)
            assert_int_equal(l.v.cuts, 0);
        assert_true(l.v.cuts <= (int64_t)opts.steps * (opts.ranks - 1));
        tess_mix_plan_destroy(plan);
    }
}

/* Least memory for which the clips of a step are known to fit: ranks times the mean, and room for
 * the keys of cut clips. */
static void memory_is_never_exceeded(void **state)
{
    (void)state;
    int fitted = 0, refused = 0;
    for (int round = 0; round < 300; round++) {
        tess_mix_opts opts = TESS_MIX_OPTS_INIT;
        opts.ranks = between(1, 16);
        opts.heads = 4;
        opts.width = 512;
        opts.layers = between(1, 8);
        opts.whole_clips = between(0, 3) == 0;
        const int n = between(1, 50);
        draw_clips(n, 5, 11, opts.heads);
        int64_t tokens = 0;
        for (int i = 0; i < n; i++)
            tokens += drawn[i].tokens;
        const int64_t token_bytes = (9 + 8) * 512 * 2 * (int64_t)opts.layers;
        opts.memory = tokens * token_bytes * between(80, 300) / 100 / opts.ranks;
        laid l = {.clips = drawn, .n = n, .opts = &opts};
        tess_mix_plan *plan = NULL;
        if (tess_mix_plan_create(ctx, drawn, n, NULL, &opts, &plan) == TESS_OK) {
            tess_mix_plan_destroy(plan);
            plan = plan_of(&l, NULL);
            check_once(&l);
            check_numbers(&l);
            tess_mix_plan_destroy(plan);
            fitted++;
        } else {
            assert_non_null(strstr(tess_last_error(), "GiB"));
            refused++;
        }
        if (tokens * token_bytes > opts.memory * opts.ranks && !opts.whole_clips)
            assert_non_null(strstr(tess_last_error(), "too little"));
    }
    assert_true(fitted > 50 && refused > 20);
}

static void memory_that_binds_spreads_tokens(void **state)
{
    (void)state;
    /* One clip has half of the time, and 64 others have nearly all tokens: laid apart, half of the
     * ranks would need twice the mean memory. */
    tess_mix_clip clips[65] = {{.tokens = 32768, .density = 1.0, .drawn_by = -1}};
    for (int i = 1; i < 65; i++)
        clips[i] = (tess_mix_clip){.tokens = 4096, .density = 0.01, .drawn_by = -1};
    tess_mix_opts opts = TESS_MIX_OPTS_INIT;
    opts.ranks = 8;
    opts.width = 512;
    int64_t tokens = 32768 + 64 * 4096;
    opts.memory = tokens * 17 * 512 * 2 / 8 * 13 / 10;
    laid l = {.clips = clips, .n = 65, .opts = &opts};
    tess_mix_plan *plan = plan_of(&l, NULL);
    check_once(&l);
    check_numbers(&l);
    assert_true(l.v.rho_max < 1.03);
    tess_mix_plan_destroy(plan);
}

static void what_does_not_fit_is_said_with_the_amount(void **state)
{
    (void)state;
    const tess_mix_clip clips[2] = {{.tokens = 65536, .density = 1.0, .drawn_by = -1},
                                    {.tokens = 1024, .density = 1.0, .drawn_by = -1}};
    tess_mix_opts opts = TESS_MIX_OPTS_INIT;
    tess_mix_plan *plan = NULL;
    opts.ranks = 2;
    opts.token_bytes = 1 << 20;
    opts.memory = (int64_t)16 << 30;
    CHECK_FAILS(tess_mix_plan_create(ctx, clips, 2, NULL, &opts, &plan), TESS_EINVAL,
                "tess_mix_plan_create: the clips of a step need 65 GiB, and 2 ranks of 16 GiB have "
                "32: 33 GiB too little");
    opts.memory = (int64_t)48 << 30;
    opts.whole_clips = 1;
    CHECK_FAILS(
        tess_mix_plan_create(ctx, clips, 2, NULL, &opts, &plan), TESS_EINVAL,
        "tess_mix_plan_create: clip 0 of 65536 tokens needs 64 GiB in one piece, a rank has 48");
    opts.whole_clips = 0;
    opts.memory = ((int64_t)32 << 30) + ((int64_t)1 << 29);
    CHECK_FAILS(tess_mix_plan_create(ctx, clips, 2, NULL, &opts, &plan), TESS_EINVAL,
                "tess_mix_plan_create: the clips of a step need 65 GiB of the 65 GiB of 2 ranks, "
                "but keys of cut clips do not go within 32.5 GiB a rank");
    assert_null(plan);
}

/* ---- imbalance ------------------------------------------------------------------------------- */

/* 512..75,600, even in powers of two. */
static int64_t random_tokens(void)
{
    const int64_t least = (int64_t)512 << between(0, 7);
    const int64_t tokens = least + draw((uint32_t)least);
    return tokens < 75600 ? tokens : 75600;
}

/* Of the mixtures below, with equal speeds and with others, without and with a cluster. */
static void mixtures_are_even(void **state)
{
    (void)state;
    static int32_t speeds[512];
    tess_cluster *cluster = NULL;
    CHECK_OK(tess_cluster_load(ctx, "h100", &cluster));
    double sum = 0.0, worst = 0.0;
    int cases = 0;
    for (int ranks = 8; ranks <= 512; ranks *= 2)
        for (int kind = 0; kind < 3; kind++)
            for (int form = 0; form < 4; form++) {
                tess_mix_opts opts = TESS_MIX_OPTS_INIT;
                tess_mix *mix = NULL;
                opts.ranks = ranks;
                for (int p = 0; p < ranks; p++)
                    speeds[p] = 50 + between(0, 50);
                opts.speeds = form & 1 ? speeds : NULL;
                laid l = {.opts = &opts};
                if (kind < 2) {
                    CHECK_OK(tess_mix_parse(ctx, CODES[kind], ranks, 1, &mix));
                    l.clips = tess_mix_clips(mix, &l.n);
                } else { /* 512 .. 75,600 tokens */
                    l.n = ranks < 64 ? 8 * ranks : 512;
                    for (int64_t i = 0; i < l.n; i++)
                        drawn[i] = (tess_mix_clip){.tokens = random_tokens(),
                                                   .density = 0.1 + between(0, 9) / 10.0,
                                                   .drawn_by = -1};
                    l.clips = drawn;
                }
                tess_mix_plan *plan = plan_of(&l, form & 2 ? cluster : NULL);
                sum += l.v.rho_mean;
                worst = l.v.rho_max > worst ? l.v.rho_max : worst;
                cases++;
                if (l.v.rho_max > 1.01)
                    print_message("ranks %d mixture %d form %d: %.4f, %lld cuts\n", ranks, kind,
                                  form, l.v.rho_max, (long long)l.v.cuts);
                assert_true(l.v.rho_max <= l.v.rho_before_max + 1e-9);
                tess_mix_plan_destroy(plan);
                tess_mix_destroy(mix);
            }
    print_message("imbalance of %d mixtures: mean %.4f, worst %.4f\n", cases, sum / cases, worst);
    assert_true(sum / cases <= 1.01);
    assert_true(worst <= 1.03);
    tess_cluster_destroy(cluster);
}

/* Steps of a window have the same time, and each is even. */
static void steps_of_a_window_are_even(void **state)
{
    (void)state;
    tess_mix_opts opts = TESS_MIX_OPTS_INIT;
    opts.ranks = 32;
    opts.steps = 6;
    laid l = {.clips = drawn, .n = CLIPS, .opts = &opts};
    for (int i = 0; i < CLIPS; i++)
        drawn[i] = (tess_mix_clip){.tokens = random_tokens(), .density = 0.3, .drawn_by = -1};
    tess_mix_plan *plan = plan_of(&l, NULL);
    check_once(&l);
    check_numbers(&l);
    double least = l.v.step[0].time, most = least;
    for (int s = 1; s < 6; s++) {
        least = l.v.step[s].time < least ? l.v.step[s].time : least;
        most = l.v.step[s].time > most ? l.v.step[s].time : most;
    }
    assert_true(most / least < 1.02);
    assert_true(l.v.rho_max < 1.01);
    tess_mix_plan_destroy(plan);
}

/* ---- small cases: every assignment of whole clips -------------------------------------------- */

static double best_whole(const double *flop, int n, double *loads, int ranks, int at)
{
    if (at == n) {
        double most = 0.0;
        for (int p = 0; p < ranks; p++)
            most = loads[p] > most ? loads[p] : most;
        return most;
    }
    double best = INFINITY;
    for (int p = 0; p < ranks; p++) {
        loads[p] += flop[at];
        const double time = best_whole(flop, n, loads, ranks, at + 1);
        best = time < best ? time : best;
        loads[p] -= flop[at];
    }
    return best;
}

/* Where whole clips can be as even as the slack, clips are hardly ever cut; and no assignment of
 * whole clips is much faster than what is planned. */
static void small_mixtures_against_every_assignment(void **state)
{
    (void)state;
    int perfect = 0, cut = 0;
    for (int round = 0; round < 400; round++) {
        tess_mix_opts opts = TESS_MIX_OPTS_INIT;
        double flop[8], loads[3] = {0}, total = 0.0;
        const int n = between(1, 7);
        opts.ranks = between(1, 3);
        opts.width = 256;
        for (int i = 0; i < n; i++) {
            drawn[i] =
                (tess_mix_clip){.tokens = 64 * between(1, 6), .density = 0.0, .drawn_by = -1};
            flop[i] = (double)drawn[i].tokens * token_flop(256, 1024);
            total += flop[i];
        }
        laid l = {.clips = drawn, .n = n, .opts = &opts};
        tess_mix_plan *plan = plan_of(&l, NULL);
        const double whole = best_whole(flop, n, loads, opts.ranks, 0), mean = total / opts.ranks;
        check_once(&l);
        check_numbers(&l);
        assert_true(l.v.step[0].time <= mean * 1.01 || l.v.step[0].time <= whole * (1.0 + 1e-9));
        if (whole <= mean * (1.0 + 1e-9)) {
            perfect++;
            cut += l.v.cuts > 0;
        }
        tess_mix_plan_destroy(plan);
    }
    print_message("%d of %d mixtures that need no cut have one\n", cut, perfect);
    assert_true(perfect > 40 && cut * 20 <= perfect);
}

/* ---- exchanges, row by row ------------------------------------------------------------------- */

static void exchanges_are_those_of_every_row(void **state)
{
    (void)state;
    tess_cluster *cluster = NULL;
    CHECK_OK(tess_cluster_load(ctx, "h100", &cluster));
    for (int round = 0; round < 40; round++) {
        tess_mix_opts opts = TESS_MIX_OPTS_INIT;
        opts.ranks = between(2, 8);
        opts.nodes = between(1, 2);
        opts.heads = between(1, 4);
        opts.width = 128 * opts.heads;
        opts.group = between(8, 64);
        opts.pass = TESS_PLAN_FORWARD;
        const int n = between(1, 3);
        draw_clips(n, 7, 10, opts.heads);
        laid l = {.clips = drawn, .n = n, .opts = &opts};
        tess_mix_plan *plan = plan_of(&l, cluster);
        check_once(&l);
        int64_t sent[8] = {0};
        for (int64_t i = 0; i < l.v.n_parts; i++)
            for (int64_t k = 0; k < l.v.n_parts; k++) {
                const tess_mix_part *to = &l.v.parts[i], *from = &l.v.parts[k];
                if (to->clip != from->clip || i == k)
                    continue;
                const int64_t blocks = blocks_of(&l, to->clip);
                for (int h = 0; h < opts.heads; h++) {
                    int has_head = 0;
                    for (int64_t b = 0; b < blocks; b++) {
                        const int64_t place = h * blocks + b;
                        if (place < to->begin || place >= to->end)
                            continue;
                        has_head = 1;
                        for (int64_t row = b * opts.group;
                             row < (b + 1) * opts.group && row < drawn[to->clip].tokens; row++)
                            if (row >= from->token_begin && row < from->token_end) {
                                sent[from->rank]++; /* q */
                                sent[to->rank]++;   /* o */
                            }
                    }
                    if (has_head) /* k and v */
                        sent[from->rank] += 2 * (from->token_end - from->token_begin);
                }
            }
        for (int p = 0; p < opts.ranks; p++)
            assert_int_equal(l.v.rank[p].sent, sent[p] * 128 * 2);
        tess_mix_plan_destroy(plan);
    }
    tess_cluster_destroy(cluster);
}

/* ---- clips as plans -------------------------------------------------------------------------- */

static void a_cut_clip_is_a_plan_of_fractional_heads(void **state)
{
    (void)state;
    tess_mix_opts opts = TESS_MIX_OPTS_INIT;
    opts.ranks = 6;
    opts.width = 1024;
    laid l = {.clips = drawn, .n = 9, .opts = &opts};
    for (int i = 0; i < 9; i++)
        drawn[i] = (tess_mix_clip){.tokens = i ? 1000 : 30000, .density = 0.5, .drawn_by = -1};
    tess_mix_plan *plan = plan_of(&l, NULL);
    for (int64_t clip = 0; clip < 9; clip++) {
        tess_plan *made = NULL;
        tess_plan_info info;
        int ranks = 0;
        for (int64_t i = 0; i < l.v.n_parts; i++)
            ranks += l.v.parts[i].clip == clip;
        CHECK_OK(tess_mix_clip_plan(plan, clip, &made));
        CHECK_OK(tess_plan_check(made, NULL));
        CHECK_OK(tess_plan_query(made, &info));
        assert_int_equal(info.ranks, ranks);
        assert_int_equal(info.heads, 8);
        assert_int_equal(info.tokens_q, drawn[clip].tokens);
        tess_plan_destroy(made);
    }
    tess_plan *none = NULL;
    CHECK_FAILS(tess_mix_clip_plan(plan, 9, &none), TESS_EINVAL,
                "tess_mix_clip_plan: clip is 9, must be 0..8");
    tess_mix_plan_destroy(plan);
}

static void the_same_for_any_number_of_threads(void **state)
{
    (void)state;
    tess_mix_opts opts = TESS_MIX_OPTS_INIT;
    opts.ranks = 48;
    laid l = {.clips = drawn, .n = 300, .opts = &opts};
    for (int i = 0; i < 300; i++)
        drawn[i] = (tess_mix_clip){.tokens = random_tokens(), .density = 0.5, .drawn_by = -1};
    tess_mix_plan *plan = plan_of(&l, NULL);
    for (int threads = 1; threads <= 4; threads++) {
        tess_ctx *other = NULL;
        tess_mix_plan *again = NULL;
        tess_mix_view v;
        CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.threads = threads}, &other));
        CHECK_OK(tess_mix_plan_create(other, drawn, 300, NULL, &opts, &again));
        CHECK_OK(tess_mix_plan_query(again, &v));
        assert_int_equal(v.n_parts, l.v.n_parts);
        assert_memory_equal(v.parts, l.v.parts, (size_t)v.n_parts * sizeof *v.parts);
        tess_mix_plan_destroy(again);
        tess_ctx_destroy(other);
    }
    tess_mix_plan_destroy(plan);
}

/* ---- codes and files ------------------------------------------------------------------------- */

static void codes_draw_what_knapformer_draws(void **state)
{
    (void)state;
    tess_mix *mix = NULL;
    int64_t n;
    CHECK_OK(tess_mix_parse(ctx, CODES[0], 12, 2, &mix));
    const tess_mix_clip *clips = tess_mix_clips(mix, &n);
    /* 8 ranks of a group draw 48 + 16 + 8 + 1, the next 4: 3 x 16 and 8. */
    assert_int_equal(n, 2 * (73 + 48 + 8));
    assert_int_equal(clips[0].tokens, 256);
    assert_int_equal(clips[72].tokens, 128 * 128);
    assert_int_equal(clips[72].drawn_by, 7);
    assert_int_equal(clips[73].drawn_by, 8);
    assert_int_equal(clips[128].drawn_by, 11);
    assert_int_equal(clips[129].drawn_by, 0);
    tess_mix_destroy(mix);
    CHECK_OK(tess_mix_parse(ctx, "g1b1i256f85s1,g1b1i512f3s1,g1b1i250f4s0", 3, 1, &mix));
    clips = tess_mix_clips(mix, &n);
    assert_int_equal(n, 3);
    assert_int_equal(clips[0].tokens, 256 * 25);
    assert_int_equal(clips[1].tokens, 1024);
    assert_int_equal(clips[2].tokens, 15 * 15 * 4);
    tess_mix_destroy(mix);
    mix = NULL;
    CHECK_FAILS(
        tess_mix_parse(ctx, "g8b32i256", 8, 1, &mix), TESS_EINVAL,
        "tess_mix_parse: code \"g8b32i256\" must be like g8b32i256f1s0: ranks, batch, side, "
        "frames, 1 for shortened ones");
    CHECK_FAILS(tess_mix_parse(ctx, "g1b1i256f1s0,g0b1i256f1s0", 8, 1, &mix), TESS_EINVAL,
                "tess_mix_parse: code \"g0b1i256f1s0\": g is 0, must be 1..65536");
    CHECK_FAILS(tess_mix_parse(ctx, "g1b1i8f1s0", 8, 1, &mix), TESS_EINVAL,
                "tess_mix_parse: code \"g1b1i8f1s0\": i is 8, must be 16..65536 pixels");
    CHECK_FAILS(tess_mix_parse(ctx, "g1b1i256f1s2", 8, 1, &mix), TESS_EINVAL,
                "tess_mix_parse: code \"g1b1i256f1s2\": s is 2, must be 0 or 1");
    assert_null(mix);
}

static void write_text(const char *name, const char *text)
{
    FILE *f = fopen(name, "w");
    assert_non_null(f);
    assert_int_equal(fputs(text, f) < 0, 0);
    assert_int_equal(fclose(f), 0);
}

static void files_have_clips_by_size_and_noise(void **state)
{
    (void)state;
    tess_mix *mix = NULL;
    int64_t n;
    write_text("heads.csv", "step,layer,head,density\n1,0,0,0.2\n1,0,1,0.4\n1,1,0,0.4\n1,1,1,0.8\n"
                            "2,0,0,0.1\n2,0,1,0.1\n2,1,0,0.1\n2,1,1,0.1\n");
    write_text("mix.csv", "frames,height,width,count,noise,density,density_1,density_2,density_3,"
                          "density_4,profile,remark\n"
                          "81,480,832,2,0.3,,0.9,0.5,0.3,0.1,,a\n"
                          "1,256,256,,,0.25,,,,,,b\n"
                          "5,256,256,1,0.9,,,,,,heads.csv,c\n");
    CHECK_OK(tess_mix_open(ctx, "mix.csv", &mix));
    const tess_mix_clip *clips = tess_mix_clips(mix, &n);
    assert_int_equal(n, 4);
    assert_int_equal(clips[1].tokens, 32760);
    assert_true(clips[1].density == 0.5);
    assert_int_equal(clips[2].tokens, 256);
    assert_true(clips[2].density == 0.25);
    assert_int_equal(clips[3].tokens, 512);
    assert_int_equal(clips[3].n_heads, 2);
    assert_true(fabs(clips[3].heads[0] - 0.3) < 1e-12 && fabs(clips[3].heads[1] - 0.6) < 1e-12);
    tess_mix_destroy(mix);
    mix = NULL;
    static const struct {
        const char *text, *sentence;
    } wrong[] = {
        {"", "w.csv: line 1: no names of columns"},
        {"count\n1\n", "w.csv: line 1: the columns must have tokens, or frames, height and width"},
        {"tokens,frames\n1,1\n",
         "w.csv: line 1: the columns must have tokens, or frames, height and width"},
        {"tokens\n", "w.csv: no clips after the names of columns"},
        {"tokens\n0\n", "w.csv: line 2: tokens is \"0\", must be an integer 1..2147483647"},
        {"tokens,density\n5,2\n", "w.csv: line 2: density is \"2\", must be a number 0..1"},
        {"tokens,density_1\n5,1\n",
         "w.csv: line 1: 1 of the columns density_1 to density_4, must be all or none"},
        {"tokens,noise,density_1,density_2,density_3,density_4\n5,,1,1,1,1\n",
         "w.csv: line 2: density_1 to density_4 need a noise level"},
        {"tokens,count\n5,1,1\n", "w.csv: line 2: 3 fields, the first line has 2"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        write_text("w.csv", wrong[i].text);
        CHECK_FAILS(tess_mix_open(ctx, "w.csv", &mix), TESS_EFORMAT, wrong[i].sentence);
    }
    assert_null(mix);
}

/* Times that were measured take the place of FLOP: pairs and tokens are counted by hand. */
static void measured_times_are_counted_with(void **state)
{
    (void)state;
    const tess_mix_clip clips[] = {{.tokens = 1000, .density = 0.5, .drawn_by = -1},
                                   {.tokens = 300, .density = 1.0, .drawn_by = -1}};
    tess_mix_opts opts = TESS_MIX_OPTS_INIT;
    opts.ranks = 1;
    opts.width = 256;
    opts.heads = 4;
    opts.layers = 3;
    opts.pair_ns = 2.0;
    opts.token_ns = 50.0;
    tess_mix_plan *plan;
    tess_mix_view view;
    CHECK_OK(tess_mix_plan_create(ctx, clips, 2, NULL, &opts, &plan));
    CHECK_OK(tess_mix_plan_query(plan, &view));
    const double pairs = 4.0 * (0.5 * 1000 * 1000 + 300.0 * 300), tokens = 1300;
    assert_true(fabs(view.step[0].time / (3.0 * (2.0 * pairs + 50.0 * tokens)) - 1.0) < 1e-12);
    tess_mix_plan_destroy(plan);
    opts.token_ns = 0.0;
    CHECK_FAILS(tess_mix_plan_create(ctx, clips, 2, NULL, &opts, &plan), TESS_EINVAL,
                "tess_mix_plan_create: pair_ns is 2 and token_ns 0, both must be 0, or finite and "
                "above 0");
}

static void wrong_options_are_named(void **state)
{
    (void)state;
    tess_mix_clip clip = {.tokens = 100, .density = 1.0, .drawn_by = -1};
    tess_mix_opts opts = TESS_MIX_OPTS_INIT;
    tess_mix_plan *plan = NULL;
    CHECK_FAILS(tess_mix_plan_create(ctx, &clip, 1, NULL, &opts, &plan), TESS_EINVAL,
                "tess_mix_plan_create: ranks is 0, must be 1..65536");
    opts.ranks = 2;
    opts.heads = 3;
    CHECK_FAILS(tess_mix_plan_create(ctx, &clip, 1, NULL, &opts, &plan), TESS_EINVAL,
                "tess_mix_plan_create: width is 4096, must be a multiple of the 3 heads");
    opts.heads = 0;
    opts.speeds = (const int32_t[]){1, 0};
    CHECK_FAILS(tess_mix_plan_create(ctx, &clip, 1, NULL, &opts, &plan), TESS_EINVAL,
                "tess_mix_plan_create: speeds[1] is 0, must be 1..1000000");
    opts.speeds = NULL;
    clip.density = 1.5;
    CHECK_FAILS(tess_mix_plan_create(ctx, &clip, 1, NULL, &opts, &plan), TESS_EINVAL,
                "tess_mix_plan_create: clip 0 has density 1.5, must be 0..1");
    clip.density = 1.0;
    clip.drawn_by = 2;
    CHECK_FAILS(tess_mix_plan_create(ctx, &clip, 1, NULL, &opts, &plan), TESS_EINVAL,
                "tess_mix_plan_create: clip 0 has drawn_by 2, must be -1..1");
    assert_null(plan);
}

/* When the slowest rank is done: cut clips first, the widest first; their ranks begin together. */
static double together_time(const laid *l, const double *speeds)
{
    double done[512] = {0.0}, last = 0.0;
    int used[CLIPS] = {0};
    for (int width = l->opts->ranks; width >= 1; width--)
        for (int64_t k = 0; k < l->v.n_parts; k++) {
            const int64_t clip = l->v.parts[k].clip;
            int n = 0, first = 0;
            double begin = 0.0, slowest = 1.0, flop = 0.0;
            for (int64_t i = 0; i < l->v.n_parts && !used[clip]; i++)
                if (l->v.parts[i].clip == clip) {
                    const int p = l->v.parts[i].rank;
                    first = n++ ? first : p;
                    begin = fmax(begin, done[p]);
                    slowest = fmin(slowest, speeds[p]);
                    flop += part_flop(l, &l->v.parts[i]);
                }
            if (n != width)
                continue;
            used[clip] = 1;
            int found = 0;
            for (int depth = 0; depth < 16 && !found; depth++) {
                int from, end;
                tess_mix_range(l->opts->ranks, 1, depth, first, &from, &end);
                found = from == first && end == first + n;
            }
            assert_true(found);
            for (int p = first; p < first + n; p++)
                done[p] = begin + flop / n / slowest;
        }
    for (int p = 0; p < l->opts->ranks; p++)
        last = fmax(last, done[p]);
    return last;
}

/* The order of clips that are cut over different ranges of one width is the test's own, so that
 * times are compared where at most one clip is cut. */
static void ranks_of_a_cut_clip_compute_it_together(void **state)
{
    (void)state;
    for (int round = 0; round < 300; round++) {
        const int ranks = between(1, 9), n = between(1, 40);
        int32_t speeds[16];
        double relative[16];
        draw_clips(n, 7, 13, 4);
        for (int p = 0; p < ranks; p++) {
            speeds[p] = between(0, 2) ? 4 : between(2, 4);
            relative[p] = speeds[p];
        }
        double most = 0.0;
        for (int p = 0; p < ranks; p++)
            most = fmax(most, relative[p]);
        for (int p = 0; p < ranks; p++)
            relative[p] /= most;
        tess_mix_opts opts = TESS_MIX_OPTS_INIT;
        opts.ranks = ranks;
        opts.width = 512;
        opts.together = ranks;
        opts.speeds = speeds;
        laid l = {.clips = drawn, .n = n, .opts = &opts};
        tess_mix_plan *plan = plan_of(&l, NULL);
        check_once(&l);
        const double time = together_time(&l, relative), cut = l.v.step[0].time;
        assert_true(cut <= time * (1.0 + 1e-9) || l.v.cut_clips > 1);
        tess_mix_plan_destroy(plan);
        opts.together = 0;
        opts.whole_clips = 1;
        laid whole = {.clips = drawn, .n = n, .opts = &opts};
        plan = plan_of(&whole, NULL);
        assert_true(cut <= whole.v.step[0].time * (1.0 + 1e-9));
        tess_mix_plan_destroy(plan);
    }
}

/* Clips of 512, 2k and 8k tokens, and KnapFormer's codes: as even as with parts of any length. */
static void ranges_are_even(void **state)
{
    (void)state;
    for (int code = 0; code < 3; code++)
        for (int ranks = 2; ranks <= 64; ranks *= 2) {
            tess_mix *mix = NULL;
            int64_t n = 0;
            tess_mix_opts opts = TESS_MIX_OPTS_INIT;
            opts.ranks = opts.together = ranks;
            if (code < 2)
                CHECK_OK(tess_mix_parse(context(), CODES[code], ranks, 1, &mix));
            const tess_mix_clip *clips = mix ? tess_mix_clips(mix, &n) : drawn;
            for (int i = 0; code == 2 && i < 12 * ranks && i < CLIPS; i++, n++)
                drawn[i] = (tess_mix_clip){.tokens = i % 9 == 0   ? 8192
                                                     : i % 9 <= 3 ? 2048
                                                                  : 512,
                                           .density = 0.25,
                                           .drawn_by = -1};
            laid l = {.clips = clips, .n = n, .opts = &opts};
            tess_mix_plan *plan = plan_of(&l, NULL);
            check_once(&l);
            print_message("mixture %d, %d ranks: %.4f, %lld of %lld clips cut\n", code, ranks,
                          l.v.rho_max, (long long)l.v.cut_clips, (long long)n);
            assert_true(l.v.rho_max <= 1.03);
            tess_mix_plan_destroy(plan);
            tess_mix_destroy(mix);
        }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(ranks_of_a_cut_clip_compute_it_together),
    cmocka_unit_test(ranges_are_even),
    cmocka_unit_test(random_mixtures_compute_everything_once),
    cmocka_unit_test(memory_is_never_exceeded),
    cmocka_unit_test(memory_that_binds_spreads_tokens),
    cmocka_unit_test(what_does_not_fit_is_said_with_the_amount),
    cmocka_unit_test(mixtures_are_even),
    cmocka_unit_test(steps_of_a_window_are_even),
    cmocka_unit_test(small_mixtures_against_every_assignment),
    cmocka_unit_test(exchanges_are_those_of_every_row),
    cmocka_unit_test(a_cut_clip_is_a_plan_of_fractional_heads),
    cmocka_unit_test(the_same_for_any_number_of_threads),
    cmocka_unit_test(codes_draw_what_knapformer_draws),
    cmocka_unit_test(files_have_clips_by_size_and_noise),
    cmocka_unit_test(measured_times_are_counted_with),
    cmocka_unit_test(wrong_options_are_named),
};
RUN_TESTS_IN_FOLDER(tests)
