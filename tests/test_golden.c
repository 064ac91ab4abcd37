/* SPDX-License-Identifier: Apache-2.0 */
/* test_golden.c - models that diffusers saved: opened, and written again as it would.
 *
 * tests/golden/make_golden.py made the folders of tests/data/golden and says what is in them.
 */
#include "files.h"
#include "tessera/model.h"

static const char *const cases[] = {"one_file", "shards", "bf16"};
enum { CASES = sizeof cases / sizeof cases[0] };

static void golden_path(int c, const char *name, char path[1024])
{
    snprintf(path, 1024, "%s/golden/%s/%s", TESS_TEST_DATA, cases[c], name);
}

static tess_model *load_golden(int c)
{
    char path[1024];
    tess_model *model = NULL;
    golden_path(c, "", path);
    CHECK_OK(tess_model_load(ctx, path, &(tess_model_opts){.gradients = 1}, &model));
    return model;
}

static void get(const char *path, char text[4096])
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    text[fread(text, 1, 4095, file)] = '\0';
    fclose(file);
}

static void sizes_are_written_as_diffusers_wrote_them(void **state)
{
    (void)state;
    for (int c = 0; c < CASES; c++) {
        char path[1024], theirs[4096], ours[4096];
        tess_model_config config;
        golden_path(c, "config.json", path);
        CHECK_OK(tess_model_config_read(ctx, path, &config));
        CHECK_OK(tess_model_config_write(ctx, "config.json", &config));
        get(path, theirs);
        get("config.json", ours);
        assert_string_equal(ours, theirs);
    }
}

/* Through the other side's names and back: the same bits. */
static void weights_survive_both_sides_names(void **state)
{
    (void)state;
    for (int c = 0; c < CASES; c++) {
        tess_model *model = load_golden(c), *again = NULL;
        tess_model_info a, b;
        CHECK_OK(tess_model_save(model, "again", TESS_WEIGHTS_ORIGINAL));
        CHECK_OK(tess_model_load(ctx, "again", NULL, &again));
        CHECK_OK(tess_model_query(model, &a));
        CHECK_OK(tess_model_query(again, &b));
        assert_int_equal(a.count, b.count);
        assert_memory_equal(a.values, b.values, (size_t)a.count * sizeof *a.values);
        tess_model_destroy(model);
        tess_model_destroy(again);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(sizes_are_written_as_diffusers_wrote_them),
    cmocka_unit_test(weights_survive_both_sides_names),
};
RUN_TESTS_IN_FOLDER(tests)
