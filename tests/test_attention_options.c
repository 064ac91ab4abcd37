/* SPDX-License-Identifier: Apache-2.0 */
/* test_attention_options.c - the options of sparse attention: what is refused, and the room that
 * they give to lists of keys. */
#include "dsv/control.h"
#include "test.h"

/* Of 512 keys, with lists of 512, 64 or 8 groups. */
static void lists_have_the_room_that_the_dispatcher_can_use(void **state)
{
    (void)state;
    static const struct {
        double density, max_density, break_even;
        const char *dispatch;
        int train, sparse, cube;
        int64_t memory;
        int32_t want;
    } cases[] = {
        {0, 1, NAN, NULL, 1, 0, 2, 0, 0},              /* stage 1 */
        {0, 1, NAN, NULL, 1, 1, 2, 0, 512},            /* not known yet */
        {0, 0.25, NAN, NULL, 1, 1, 2, 0, 136},         /* a cap, and rounding up to 8 */
        {0.25, 1, NAN, NULL, 1, 1, 2, 0, 136},         /* given */
        {0, 1, 0.2, NULL, 1, 1, 2, 0, 112},            /* 1.1 * 0.2 * 512 = 112.6 */
        {0, 1, 0.0, NULL, 1, 1, 2, 0, 0},              /* sparse never pays */
        {0, 1, 0.2, "sparse", 1, 1, 2, 40 << 13, 512}, /* whatever it costs */
        {0, 1, 0.2, NULL, 0, 1, 2, 40 << 13, 512},     /* sampling takes choices as they are */
        {0, 1, NAN, NULL, 1, 1, 2, 40 << 13, 32},      /* 8 KiB for 64 lists */
        {0, 1, NAN, NULL, 1, 1, 1, 40 << 13, 4},
        {0, 1, NAN, NULL, 1, 1, 4, 40 << 13, 256},
        {0, 1, 0.05, NULL, 1, 1, 2, 40 << 13, 28}, /* the smaller one */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int grid[3] = {8, 8, 8}, side = cases[i].cube, cube[3] = {side, side, side};
        const tess_attention_opts opts = {TESS_ATTENTION_OPTS_DEFAULTS,
                                          .kind = TESS_ATTENTION_DSV,
                                          .proj_dim = 16,
                                          .density = cases[i].density,
                                          .max_density = cases[i].max_density,
                                          .dispatch = cases[i].dispatch};
        const tess__attention_at at = {.grid = grid,
                                       .cube = cube,
                                       .train = cases[i].train,
                                       .sparse = cases[i].sparse,
                                       .break_even = cases[i].break_even,
                                       .memory = cases[i].memory};
        tess_sparse_opts room;
        tess__attention_room(&opts, &at, &room);
        assert_int_equal(tess__attention_units(&opts, &at), cases[i].want);
        assert_int_equal(room.dense, cases[i].want == 0);
        assert_true(fabs(room.max_density - cases[i].want / 512.0) < 1e-12);
    }
}

static void wrong_options_are_named(void **state)
{
    (void)state;
    static const struct {
        tess_attention_opts opts;
        const char *sentence;
    } cases[] = {
        {{TESS_ATTENTION_OPTS_DEFAULTS, .kind = 9},
         "t: attention.kind is 9, must be one of dense, dsv, oracle, pooled, search, window, "
         "random, own"},
        {{TESS_ATTENTION_OPTS_DEFAULTS, .density = 1.5},
         "t: attention.density is 1.5, must be 0..1"},
        {{TESS_ATTENTION_OPTS_DEFAULTS, .mass = -1}, "t: attention.mass is -1, must be 1e-06..1"},
        {{TESS_ATTENTION_OPTS_DEFAULTS, .min_density = 0.5, .max_density = 0.25},
         "t: attention.min_density is 0.5, must be at most max_density, 0.25"},
        {{TESS_ATTENTION_OPTS_DEFAULTS, .kind = TESS_ATTENTION_POOLED, .error = 0.1},
         "t: attention.error is 0.1, kind must be dsv, oracle or search"},
        {{TESS_ATTENTION_OPTS_DEFAULTS, .error = 0.1, .density = 0.25},
         "t: attention.error is 0.1, density is 0.25, must be 0"},
        {{TESS_ATTENTION_OPTS_DEFAULTS, .back_recall = 0.97},
         "t: attention.back_recall is 0.97, must be at most switch_recall, 0.95"},
        {{TESS_ATTENTION_OPTS_DEFAULTS, .proj_dim = 12},
         "t: attention.proj_dim is 12, must be a multiple of 8 up to 64"},
        {{TESS_ATTENTION_OPTS_DEFAULTS, .switch_step = -1},
         "t: attention.switch_step is -1, must be 1..1000000000 steps"},
        {{TESS_ATTENTION_OPTS_DEFAULTS, .cube = {2, 0, 2}},
         "t: attention.cube[1] is 0, must be 1 or more"},
        {{TESS_ATTENTION_OPTS_DEFAULTS, .lr = (double)NAN},
         "t: attention.lr is nan, must be 1e-12..1000"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tess_attention_opts opts = cases[i].opts;
        CHECK_FAILS(tess__attention_options("t", &opts), TESS_EINVAL, cases[i].sentence);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(lists_have_the_room_that_the_dispatcher_can_use),
    cmocka_unit_test(wrong_options_are_named),
};
RUN_TESTS(tests)
