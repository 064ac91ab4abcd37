/* SPDX-License-Identifier: Apache-2.0 */
/* test_plugin.c - selectors of others: the example chooses as the library's rule of the same kind
 * does, faults are named, recorded masks are read. PLUGINS is the folder of the shared objects. */
#include "tessera/advanced/plugin.h"
#include "tessera/file.h"
#include "tessera/select.h"

#include "test.h"

#include <stdlib.h>
#include <unistd.h>

enum { GROUPS = 40, GROUP = 4, TOKENS = GROUPS * GROUP, DIM = 16, KEYS = 12 };

static float q[TOKENS * DIM], k[TOKENS * DIM];
static int64_t bounds[GROUPS + 1];
static const tess_sel_shape shape = {
    .batch = 1, .heads = 1, .tokens_q = TOKENS, .tokens_k = TOKENS, .group = GROUP, .unit = 1};

/* Small integers: means of four and their products are exact, so that ties are ties everywhere. */
static tess_selector_task make_task(int layer)
{
    uint32_t bits[TOKENS * DIM];
    for (int tensor = 0; tensor < 2; tensor++) {
        CHECK_OK(tess_random_bits(9, (uint64_t)tensor, 0, bits, TOKENS * DIM));
        for (int i = 0; i < TOKENS * DIM; i++)
            (tensor ? k : q)[i] = (float)(int)(bits[i] % 9) - 4;
    }
    for (int i = 0; i <= GROUPS; i++)
        bounds[i] = (int64_t)i * GROUP;
    return (tess_selector_task){.layer = layer,
                                .head = 1,
                                .grid = {1, 1, TOKENS},
                                .cube = {1, 1, GROUP},
                                .head_dim = DIM,
                                .scale = 0.25f,
                                .q = q,
                                .k = k,
                                .stride_q = DIM,
                                .stride_k = DIM,
                                .tokens_k = TOKENS,
                                .n_cubes = GROUPS,
                                .cubes = bounds,
                                .bounds_q = bounds,
                                .keys = KEYS};
}

static tess_selection *new_selection(tess_ctx *ctx)
{
    tess_selection *sel = NULL;
    CHECK_OK(tess_selection_create(ctx, &shape, (int64_t)GROUPS * TOKENS, &sel));
    return sel;
}

static void check_equal(const tess_selection *a, const tess_selection *b)
{
    tess_selection_lists x, y;
    CHECK_OK(tess_selection_view(a, &x));
    CHECK_OK(tess_selection_view(b, &y));
    assert_memory_equal(x.offsets, y.offsets, ((size_t)x.lists + 1) * sizeof *x.offsets);
    assert_memory_equal(x.indices, y.indices, (size_t)x.offsets[x.lists] * sizeof *x.indices);
}

static void the_example_chooses_as_the_rule_of_mean_proxies(void **state)
{
    static const int threads[] = {1, 2, 7};
    const tess_selector_task task = make_task(0);
    const tess_view vq = {q, TESS_DTYPE_F32, 0, 0, DIM}, vk = {k, TESS_DTYPE_F32, 0, 0, DIM};
    (void)state;
    for (int i = 0; i < 3; i++) {
        tess_ctx *ctx = NULL;
        tess_plugin *plugin = NULL;
        tess_selector *rule = NULL;
        CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.threads = threads[i]}, &ctx));
        tess_selection *got = new_selection(ctx), *want = new_selection(ctx);
        CHECK_OK(tess_plugin_open(ctx, PLUGINS "/selector.so", &plugin));
        CHECK_OK(tess_plugin_run(plugin, &task, got));
        CHECK_OK(tess_selector_create(ctx, NULL, &rule));
        const tess_select_in in = {.q = &vq, .k = &vk, .head_dim = DIM, .budget = {.keys = KEYS}};
        CHECK_OK(tess_selector_run(rule, &in, want));
        check_equal(got, want);
        tess_selector_destroy(rule);
        tess_selection_destroy(got);
        tess_selection_destroy(want);
        tess_plugin_close(plugin);
        tess_ctx_destroy(ctx);
    }
}

static void what_a_plugin_returns_is_checked(void **state)
{
    static const char *const sentences[] = {
        NULL,
        "key 160 is chosen, must be 0..159",
        "key 5 is chosen twice",
        "0 keys are chosen, must be 1..12",
        "13 keys are chosen, must be 1..12",
        "the function returned 7, must return 0",
        "key -1 is chosen, must be 0..159",
    };
    tess_ctx *ctx = NULL;
    tess_plugin *plugin = NULL;
    (void)state;
    CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.threads = 3}, &ctx));
    CHECK_OK(tess_plugin_open(ctx, PLUGINS "/plugin_wrong.so", &plugin));
    tess_selection *sel = new_selection(ctx), *before = new_selection(ctx);
    for (int layer = 0; layer < 7; layer++) {
        tess_selector_task task = make_task(layer);
        if (!sentences[layer]) {
            CHECK_OK(tess_plugin_run(plugin, &task, sel));
            CHECK_OK(tess_plugin_run(plugin, &task, before));
            continue;
        }
        char text[512];
        /* A run of groups is asked for at once: what the function returns is of its first. */
        snprintf(text, sizeof text, "%s/plugin_wrong.so: layer %d, head 1, group %d: %s", PLUGINS,
                 layer, layer == 5 ? 16 : 20, sentences[layer]);
        CHECK_FAILS(tess_plugin_run(plugin, &task, sel), TESS_EINVAL, text);
        check_equal(sel, before);
    }
    tess_selection_destroy(sel);
    tess_selection_destroy(before);
    tess_plugin_close(plugin);
    tess_ctx_destroy(ctx);
}

static void what_is_no_plugin_is_refused(void **state)
{
    tess_ctx *ctx = NULL;
    tess_plugin *plugin = NULL;
    (void)state;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    CHECK_FAILS(tess_plugin_open(ctx, PLUGINS "/plugin_symbol.so", &plugin), TESS_EFORMAT,
                PLUGINS "/plugin_symbol.so: has no symbol tessera_selector, must have "
                        "TESS_SELECTOR(function) of tessera/selector.h");
    CHECK_FAILS(tess_plugin_open(ctx, PLUGINS "/plugin_version.so", &plugin), TESS_EFORMAT,
                PLUGINS "/plugin_version.so: was compiled for version 99 of tessera/selector.h, "
                        "must be 1");
    CHECK_FAILS(tess_plugin_open(ctx, "no.so", &plugin), TESS_EIO,
                "no.so: cannot open: No such file or directory");
    CHECK_FAILS(tess_plugin_open(ctx, "/", &plugin), TESS_EIO,
                "/: is no file, must be a shared object or masks");
    char path[] = "/tmp/test_plugin_XXXXXX";
    const int f = mkstemp(path);
    assert_true(f >= 0 && write(f, "\177ELF and no more", 16) == 16 && close(f) == 0);
    assert_int_equal(tess_plugin_open(ctx, path, &plugin), TESS_EFORMAT);
    assert_non_null(strstr(tess_last_error(), ": cannot be loaded: "));
    unlink(path);
    assert_null(plugin);
    tess_ctx_destroy(ctx);
}

/* ---- recorded masks -------------------------------------------------------------------------- */

static char mask_path[] = "/tmp/test_plugin_masks.npy";

static void write_mask(tess_ctx *ctx, int rank, const int64_t *sizes, const uint8_t *mask)
{
    tess_tensor t = {.name = "mask", .dtype = TESS_DTYPE_BOOL, .rank = rank, .data = mask};
    memcpy(t.shape, sizes, (size_t)rank * sizeof *sizes);
    snprintf(mask_path, sizeof mask_path, "/tmp/plugin_%d.npy", (int)getpid());
    CHECK_OK(tess_file_write(ctx, mask_path, &t, 1, NULL));
}

/* Layer l of two attends to cubes g and g + l + 1, by cubes and by keys; also for some groups. */
static void masks_by_cubes_and_by_keys_are_the_same(void **state)
{
    enum { PART = 5 };
    static uint8_t cubes[2][GROUPS][GROUPS], keys[2][GROUPS][TOKENS];
    static const int32_t numbers[PART] = {3, 4, 17, 38, 39};
    tess_ctx *ctx = NULL;
    (void)state;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    for (int l = 0; l < 2; l++)
        for (int g = 0; g < GROUPS; g++)
            for (int c = 0; c < GROUPS; c++) {
                cubes[l][g][c] = c == g || c == (g + l + 1) % GROUPS;
                memset(&keys[l][g][(size_t)c * GROUP], cubes[l][g][c], GROUP);
            }
    for (int by_keys = 0; by_keys < 2; by_keys++) {
        const int64_t sizes[4] = {2, 1, GROUPS, by_keys ? TOKENS : GROUPS};
        write_mask(ctx, 4, sizes, by_keys ? &keys[0][0][0] : &cubes[0][0][0]);
        tess_plugin *plugin = NULL;
        tess_plugin_info info;
        CHECK_OK(tess_plugin_open(ctx, mask_path, &plugin));
        CHECK_OK(tess_plugin_query(plugin, &info));
        assert_int_equal(info.masks, 1);
        assert_int_equal(info.longest, by_keys ? 2 * GROUP : 2);
        tess_selector_task task = make_task(1);
        tess_selection *sel = new_selection(ctx);
        CHECK_OK(tess_plugin_run(plugin, &task, sel));
        tess_selection *want = new_selection(ctx);
        CHECK_OK(tess_selection_set_mask(want, keys[1], TESS_MASK_BYTES));
        check_equal(sel, want);
        /* Some of the groups: their rows of the mask. */
        tess_sel_shape some = shape;
        some.tokens_q = PART * GROUP;
        tess_selection *part = NULL;
        CHECK_OK(tess_selection_create(ctx, &some, (int64_t)PART * TOKENS, &part));
        task.numbers = numbers;
        CHECK_OK(tess_plugin_run(plugin, &task, part));
        tess_selection_lists l;
        CHECK_OK(tess_selection_view(part, &l));
        assert_int_equal(l.indices[l.offsets[2]], 17 * GROUP);
        assert_int_equal(l.indices[l.offsets[4]], 1 * GROUP); /* 39 + 2, round the end */
        task.keys = 7;
        char text[256];
        snprintf(text, sizeof text, "%s: layer 1, head 1, group 3: 8 keys are chosen, must be 1..7",
                 mask_path);
        CHECK_FAILS(tess_plugin_run(plugin, &task, part), TESS_EINVAL, text);
        task.n_cubes = GROUPS - 1;
        snprintf(text, sizeof text,
                 "%s: has masks of %d x %d, must be %d cubes x %d tokens, or cubes x cubes: of the "
                 "same clips, and the same cube",
                 mask_path, GROUPS, by_keys ? TOKENS : GROUPS, GROUPS - 1, TOKENS);
        CHECK_FAILS(tess_plugin_run(plugin, &task, part), TESS_EINVAL, text);
        tess_selection_destroy(part);
        tess_selection_destroy(want);
        tess_selection_destroy(sel);
        tess_plugin_close(plugin);
    }
    const int64_t flat[2] = {GROUPS, GROUPS};
    write_mask(ctx, 2, flat, &cubes[0][0][0]);
    tess_plugin *plugin = NULL;
    char text[256];
    snprintf(text, sizeof text,
             "%s: the mask is BOOL of 2 dimensions, must be BOOL or U8 of (layers, heads, cubes, "
             "tokens or cubes)",
             mask_path);
    CHECK_FAILS(tess_plugin_open(ctx, mask_path, &plugin), TESS_EFORMAT, text);
    unlink(mask_path);
    tess_ctx_destroy(ctx);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_example_chooses_as_the_rule_of_mean_proxies),
    cmocka_unit_test(what_a_plugin_returns_is_checked),
    cmocka_unit_test(what_is_no_plugin_is_refused),
    cmocka_unit_test(masks_by_cubes_and_by_keys_are_the_same),
};
RUN_TESTS(tests)
