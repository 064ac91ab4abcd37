/* SPDX-License-Identifier: Apache-2.0 */
/* test_golden.c - models that diffusers saved: opened, computed with, and written again as it
 * would.
 *
 * tests/golden/make_golden.py made the folders of tests/data/golden and says what is in them. The
 * measure of distance is norm(ours - theirs) / norm(theirs) of each tensor: the output, the
 * gradient of the input, and those of every parameter. Both sides compute in fp32, where a sum of n
 * products is off by about sqrt(n) 2^-24; sums here have at most 200 terms, and a dozen of them
 * follow one another with factors near 1, so 12 * 14 * 6e-8 = 1e-5 is what to expect at worst.
 */
#include "files.h"
#include "tessera/advanced/pass.h"
#include "tessera/file.h"
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

/* ---- the same numbers come out --------------------------------------------------------------- */

static const double LIMIT = 1e-4;

typedef struct {
    tess_file *file;
    tess_tensor x, timestep, text, out, dout, dx;
} golden;

static golden open_golden(int c)
{
    golden g;
    char path[1024];
    golden_path(c, "golden.safetensors", path);
    CHECK_OK(tess_file_open(ctx, path, &g.file));
    CHECK_OK(tess_file_tensor(g.file, "x", &g.x));
    CHECK_OK(tess_file_tensor(g.file, "timestep", &g.timestep));
    CHECK_OK(tess_file_tensor(g.file, "text", &g.text));
    CHECK_OK(tess_file_tensor(g.file, "out", &g.out));
    CHECK_OK(tess_file_tensor(g.file, "dout", &g.dout));
    CHECK_OK(tess_file_tensor(g.file, "dx", &g.dx));
    return g;
}

static size_t count_of(const tess_tensor *t)
{
    size_t n = 1;
    for (int d = 0; d < t->rank; d++)
        n *= (size_t)t->shape[d];
    return n;
}

static void check_distance(int c, const char *name, const float *got, const tess_tensor *want)
{
    assert_int_equal(want->dtype, TESS_DTYPE_F32);
    const float *w = want->data;
    double apart = 0.0, size = 0.0;
    for (size_t i = 0; i < count_of(want); i++) {
        apart += ((double)got[i] - w[i]) * ((double)got[i] - w[i]);
        size += (double)w[i] * w[i];
    }
    if (!(sqrt(apart) < LIMIT * sqrt(size)))
        fail_msg("%s: %s is apart by %.3g, must be below %.3g", cases[c], name, sqrt(apart / size),
                 LIMIT);
}

static void check_gradients(int c, const golden *g, const tess_model *model)
{
    tess_model_info info;
    CHECK_OK(tess_model_query(model, &info));
    for (int i = 0; i < info.params; i++) {
        tess_param p;
        tess_tensor want;
        char name[160];
        CHECK_OK(tess_model_param(model, i, &p));
        snprintf(name, sizeof name, "grad.%s", p.name);
        CHECK_OK(tess_file_tensor(g->file, name, &want));
        assert_int_equal(count_of(&want), p.count);
        check_distance(c, name, p.gradient, &want);
    }
}

/* `cube` and `keep` are other ways to the same numbers. */
static void run_golden(int c, const int *cube, tess_keep keep)
{
    golden g = open_golden(c);
    tess_model *model = load_golden(c);
    tess_pass *pass = NULL;
    float *out = malloc(count_of(&g.out) * sizeof *out), *dx = malloc(count_of(&g.x) * sizeof *dx);
    assert_true(out && dx);
    const tess_pass_shape shape = {.batch = (int)g.x.shape[0],
                                   .frames = (int)g.x.shape[2],
                                   .height = (int)g.x.shape[3],
                                   .width = (int)g.x.shape[4],
                                   .text_len = (int)g.text.shape[1],
                                   .train = 1,
                                   .keep = keep,
                                   .cube = cube};
    CHECK_OK(tess_pass_create(model, &shape, &pass));
    CHECK_OK(
        tess_pass_forward(pass, &(tess_model_in){g.x.data, g.timestep.data, g.text.data}, out));
    check_distance(c, "out", out, &g.out);
    CHECK_OK(tess_pass_backward(pass, g.dout.data, dx));
    check_distance(c, "dx", dx, &g.dx);
    check_gradients(c, &g, model);
    tess_pass_destroy(pass);
    tess_model_destroy(model);
    tess_file_close(g.file);
    free(out);
    free(dx);
}

static void output_and_gradients_are_those_of_diffusers(void **state)
{
    (void)state;
    for (int c = 0; c < CASES; c++)
        run_golden(c, NULL, TESS_KEEP_ALL);
}

static void recomputed_in_cube_order_they_are_too(void **state)
{
    (void)state;
    for (int c = 0; c < CASES; c++)
        run_golden(c, (const int[3]){2, 2, 2}, TESS_KEEP_BLOCKS);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(output_and_gradients_are_those_of_diffusers),
    cmocka_unit_test(recomputed_in_cube_order_they_are_too),
    cmocka_unit_test(sizes_are_written_as_diffusers_wrote_them),
    cmocka_unit_test(weights_survive_both_sides_names),
};
RUN_TESTS_IN_FOLDER(tests)
