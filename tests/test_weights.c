/* SPDX-License-Identifier: Apache-2.0 */
/* test_weights.c - models saved and loaded: both sides' names, every type of number, shards, and
 * the exact sentence for files that are not this model. */
#include "files.h"
#include "tessera/advanced/pass.h"
#include "tessera/file.h"
#include "tessera/model.h"

#include <dirent.h>

#define FILE_NAME "diffusion_pytorch_model.safetensors"

/* Small, and with every side of another length where the rules allow it. */
static const tess_model_config odd = {.patch = {1, 2, 3},
                                      .heads = 2,
                                      .head_dim = 8,
                                      .in_channels = 3,
                                      .out_channels = 5,
                                      .text_dim = 7,
                                      .text_len = 4,
                                      .freq_dim = 10,
                                      .ffn_dim = 20,
                                      .layers = 2,
                                      .cross_attn_norm = 1,
                                      .qk_norm = 1,
                                      .eps = 1e-6,
                                      .rope_max = 1024};

/* ---- models and their files ------------------------------------------------------------------ */

/* A model whose numbers are all random: a new one has zeros and ones. */
static tess_model *make_model(const tess_model_config *config, uint64_t seed)
{
    tess_model *model = NULL;
    tess_model_info info;
    CHECK_OK(tess_model_create(ctx, config, NULL, &model));
    CHECK_OK(tess_model_query(model, &info));
    fill_normal(info.values, (size_t)info.count, seed);
    return model;
}

static void save_model(const tess_model_config *config, uint64_t seed, const char *dir,
                       tess_weight_names names)
{
    tess_model *model = make_model(config, seed);
    CHECK_OK(tess_model_save(model, dir, names));
    tess_model_destroy(model);
}

/* The model at path has the numbers of the seed, each within a share of itself. */
static void assert_loads(const char *path, const tess_model_config *config, uint64_t seed,
                         double share)
{
    tess_model *want = make_model(config, seed), *got = NULL;
    tess_model_info a, b;
    CHECK_OK(tess_model_load(ctx, path, NULL, &got));
    CHECK_OK(tess_model_query(want, &a));
    CHECK_OK(tess_model_query(got, &b));
    assert_int_equal(a.count, b.count);
    assert_null(b.gradients);
    assert_int_equal(b.config.text_len, config->text_len);
    for (int64_t i = 0; i < a.count; i++)
        if (!(fabs(a.values[i] - b.values[i]) <= share * fabs(a.values[i])))
            fail_msg("number %lld is %g, must be %g", (long long)i, b.values[i], a.values[i]);
    tess_model_destroy(want);
    tess_model_destroy(got);
}

/* Changes one tensor of a file, or all of them where only is NULL; returns 0 to leave it out. */
typedef int (*change_fn)(tess_tensor *tensor, void *user);

enum { TENSORS_MAX = 128 };

/* Rewrites the weights of a folder under another name with every tensor changed. `extra` is added
 * unless it is NULL. */
static void rewrite(const char *from, const char *to, change_fn change, void *user,
                    const tess_tensor *extra)
{
    tess_file *file = NULL;
    tess_file_info info;
    static tess_tensor tensors[TENSORS_MAX];
    int n = 0;
    CHECK_OK(tess_file_open(ctx, from, &file));
    CHECK_OK(tess_file_query(file, &info));
    assert_true(info.tensors < TENSORS_MAX - 1);
    for (int i = 0; i < info.tensors; i++) {
        CHECK_OK(tess_file_describe(file, i, &tensors[n]));
        CHECK_OK(tess_file_tensor(file, tensors[n].name, &tensors[n]));
        n += change ? change(&tensors[n], user) : 1;
    }
    if (extra)
        tensors[n++] = *extra;
    CHECK_OK(tess_file_write(ctx, to, tensors, n, &(tess_file_opts){.shard_bytes = 4096}));
    tess_file_close(file);
}

/* A folder of its own for each test, with the odd model in it. */
static void fresh(const char *dir)
{
    char command[256];
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    assert_int_equal(system(command), 0);
    save_model(&odd, 5, dir, TESS_WEIGHTS_DIFFUSERS);
}

/* ---- what works ------------------------------------------------------------------------------ */

static void a_saved_model_loads_with_the_same_bits(void **state)
{
    (void)state;
    save_model(&odd, 5, "theirs", TESS_WEIGHTS_DIFFUSERS);
    assert_loads("theirs", &odd, 5, 0.0);
    assert_loads("theirs/", &odd, 5, 0.0);
    assert_loads("theirs/" FILE_NAME, &odd, 5, 0.0);
    save_model(&odd, 6, "original", TESS_WEIGHTS_ORIGINAL);
    assert_loads("original", &odd, 6, 0.0);
    tess_model_config bare = odd;
    bare.cross_attn_norm = bare.qk_norm = 0;
    save_model(&bare, 7, "bare", TESS_WEIGHTS_DIFFUSERS);
    assert_loads("bare", &bare, 7, 0.0);
    assert_int_equal(chdir("theirs"), 0);
    assert_loads(FILE_NAME, &odd, 5, 0.0);
    assert_loads(".", &odd, 5, 0.0);
    assert_int_equal(chdir(".."), 0);
}

static void the_seed_and_gradients_of_the_options_are_heard(void **state)
{
    (void)state;
    tess_model *model = NULL;
    tess_model_info info;
    fresh("m");
    CHECK_OK(tess_model_load(ctx, "m", &(tess_model_opts){.gradients = 1, .seed = 9}, &model));
    CHECK_OK(tess_model_query(model, &info));
    assert_non_null(info.gradients);
    for (int64_t i = 0; i < info.count; i++)
        assert_true(info.gradients[i] == 0.0f);
    tess_model_destroy(model);
}

static void the_original_names_are_the_original_ones(void **state)
{
    (void)state;
    static const char *const names[] = {"patch_embedding.weight",
                                        "time_embedding.0.weight",
                                        "time_embedding.2.bias",
                                        "time_projection.1.weight",
                                        "text_embedding.0.weight",
                                        "text_embedding.2.weight",
                                        "blocks.1.modulation",
                                        "blocks.0.self_attn.q.weight",
                                        "blocks.0.self_attn.o.bias",
                                        "blocks.1.self_attn.norm_q.weight",
                                        "blocks.1.cross_attn.k.weight",
                                        "blocks.1.cross_attn.norm_k.weight",
                                        "blocks.0.norm3.weight",
                                        "blocks.0.ffn.0.weight",
                                        "blocks.0.ffn.2.bias",
                                        "head.head.weight",
                                        "head.modulation"};
    save_model(&odd, 6, "orig", TESS_WEIGHTS_ORIGINAL);
    tess_file *file = NULL;
    CHECK_OK(tess_file_open(ctx, "orig/" FILE_NAME, &file));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        tess_tensor t;
        CHECK_OK(tess_file_tensor(file, names[i], &t));
    }
    tess_file_close(file);
}

static uint16_t half_data[TENSORS_MAX][8192];
static int halves;

static int narrow(tess_tensor *t, void *user)
{
    const tess_dtype dtype = *(tess_dtype *)user;
    int64_t n = 1;
    for (int d = 0; d < t->rank; d++)
        n *= t->shape[d];
    assert_true(n <= 8192 && halves < TENSORS_MAX);
    CHECK_OK(tess_convert(ctx, t->dtype, t->data, dtype, half_data[halves], n));
    t->data = half_data[halves++];
    t->dtype = dtype;
    return 1;
}

/* Rounding to 8 or 11 bits is off by at most 2^-8 or 2^-11 of the number; normal numbers below
 * 2^-14, where F16 is coarser, are off by 2^-25 at most: the seed has none below 2^-13. */
static void numbers_of_sixteen_bits_are_widened(void **state)
{
    (void)state;
    fresh("m");
    tess_dtype dtype = TESS_DTYPE_BF16;
    halves = 0;
    rewrite("m/" FILE_NAME, "m/bf16.safetensors", narrow, &dtype, NULL);
    assert_loads("m/bf16.safetensors", &odd, 5, 0x1p-8);
    dtype = TESS_DTYPE_F16;
    halves = 0;
    rewrite("m/" FILE_NAME, "m/f16.safetensors", narrow, &dtype, NULL);
    assert_loads("m/f16.safetensors", &odd, 5, 0x1p-11);
}

static void shards_with_an_index_are_one_model(void **state)
{
    (void)state;
    fresh("m");
    rewrite("m/" FILE_NAME, "m/" FILE_NAME ".index.json", NULL, NULL, NULL);
    tess_file *file = NULL;
    tess_file_info info;
    CHECK_OK(tess_file_open(ctx, "m/" FILE_NAME ".index.json", &file));
    CHECK_OK(tess_file_query(file, &info));
    assert_true(info.shards > 2);
    tess_file_close(file);
    assert_int_equal(unlink("m/" FILE_NAME), 0);
    assert_loads("m", &odd, 5, 0.0);
    assert_loads("m/" FILE_NAME ".index.json", &odd, 5, 0.0);
    char shard[96];
    snprintf(shard, sizeof shard, "m/diffusion_pytorch_model-00002-of-%05d.safetensors",
             info.shards);
    assert_int_equal(unlink(shard), 0);
    tess_model *none = NULL;
    assert_int_equal(tess_model_load(ctx, "m", NULL, &none), TESS_EIO);
    assert_null(none);
}

static char prefixed[TENSORS_MAX][128];

static int add_prefix(tess_tensor *t, void *user)
{
    int *n = user;
    snprintf(prefixed[*n], sizeof prefixed[*n], "model.diffusion_model.%s", t->name);
    t->name = prefixed[(*n)++];
    return 1;
}

static void a_prefix_of_collections_is_understood(void **state)
{
    (void)state;
    int n = 0;
    save_model(&odd, 6, "coll", TESS_WEIGHTS_ORIGINAL);
    rewrite("coll/" FILE_NAME, "coll/all.safetensors", add_prefix, &n, NULL);
    assert_loads("coll/all.safetensors", &odd, 6, 0.0);
}

static void a_pipeline_leads_to_its_transformer(void **state)
{
    (void)state;
    assert_int_equal(mkdir("pipe", 0777), 0);
    save_model(&odd, 5, "pipe/transformer", TESS_WEIGHTS_DIFFUSERS);
    assert_loads("pipe", &odd, 5, 0.0);
}

static char warning[512];

static void keep_warning(void *user, tess_log_level level, const char *message)
{
    (void)user;
    (void)level;
    snprintf(warning, sizeof warning, "%s", message);
}

static void tables_of_the_rotary_embedding_are_passed_over(void **state)
{
    (void)state;
    static const float table[4];
    const tess_tensor extra = {"rope.freqs_cos", TESS_DTYPE_F32, 2, {2, 2}, table};
    tess_ctx *loud = NULL;
    tess_model *model = NULL;
    fresh("m");
    rewrite("m/" FILE_NAME, "m/rope.safetensors", NULL, NULL, &extra);
    CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.log = keep_warning}, &loud));
    CHECK_OK(tess_model_load(loud, "m/rope.safetensors", NULL, &model));
    assert_string_equal(warning, "m/rope.safetensors: tensor \"rope.freqs_cos\" is passed over");
    tess_model_destroy(model);
    tess_ctx_destroy(loud);
}

/* "qk_norm" of the config in folder m becomes this. */
static void set_qk_norm(const char *value)
{
    char command[256];
    snprintf(command, sizeof command, "sed -i 's/\"qk_norm\": .*,/\"qk_norm\": %s,/' m/config.json",
             value);
    assert_int_equal(system(command), 0);
}

static void norms_are_read_off_the_tensors(void **state)
{
    (void)state;
    static const struct {
        const char *value, *warning;
    } cases[] = {
        {"null", "m/config.json: \"qk_norm\" says that q and k have no norms, but m/" FILE_NAME
                 " has their weights: they are applied"},
        {"\"layer_norm\"", "m/config.json: \"qk_norm\" is \"layer_norm\", which diffusers does not "
                           "read: taken as rms_norm_across_heads"},
        {"\"rms_norm_across_heads\"", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tess_ctx *loud = NULL;
        tess_model *model = NULL;
        fresh("m");
        set_qk_norm(cases[i].value);
        warning[0] = 0;
        CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.log = keep_warning}, &loud));
        CHECK_OK(tess_model_load(loud, "m", NULL, &model));
        assert_string_equal(warning, cases[i].warning);
        tess_model_destroy(model);
        tess_ctx_destroy(loud);
        assert_loads("m", &odd, 5, 0.0);
    }
}

static void check_load(const char *path, tess_status status, const char *sentence);

static void the_only_variant_is_taken(void **state)
{
    (void)state;
    fresh("m");
    assert_int_equal(rename("m/" FILE_NAME, "m/diffusion_pytorch_model.fp16.safetensors"), 0);
    assert_loads("m", &odd, 5, 0.0);
    rewrite("m/diffusion_pytorch_model.fp16.safetensors",
            "m/diffusion_pytorch_model.fp16.safetensors.index.json", NULL, NULL, NULL);
    assert_int_equal(unlink("m/diffusion_pytorch_model.fp16.safetensors"), 0);
    assert_int_equal(rename("m/diffusion_pytorch_model.fp16.safetensors.index.json",
                            "m/" FILE_NAME ".index.fp16.json"),
                     0);
    assert_loads("m", &odd, 5, 0.0);
    assert_int_equal(rename("m/" FILE_NAME ".index.fp16.json", "m/" FILE_NAME ".fp16.index.json"),
                     0);
    assert_loads("m", &odd, 5, 0.0);
    assert_int_equal(system("touch m/diffusion_pytorch_model.bf16.safetensors"), 0);
    check_load("m", TESS_EIO,
               "m: holds weights of the variants bf16 and fp16; one is opened by its path");
}

static void a_config_is_found_from_its_weights(void **state)
{
    (void)state;
    tess_model_config config;
    fresh("m");
    CHECK_OK(tess_model_config_read(ctx, "m/" FILE_NAME, &config));
    assert_int_equal(config.ffn_dim, odd.ffn_dim);
    assert_int_equal(system("rm -rf p; mkdir p; mv m p/transformer"), 0);
    CHECK_OK(tess_model_config_read(ctx, "p", &config));
    assert_int_equal(config.ffn_dim, odd.ffn_dim);
    assert_int_equal(system("rm p/transformer/config.json"), 0);
    CHECK_FAILS(tess_model_config_read(ctx, "p/transformer/" FILE_NAME, &config), TESS_EIO,
                "p/transformer/" FILE_NAME ": there is no config.json beside it");
}

static void a_folder_opens_as_its_weights(void **state)
{
    (void)state;
    tess_file *file = NULL;
    tess_file_info info;
    fresh("m");
    CHECK_OK(tess_file_open(ctx, "m", &file));
    CHECK_OK(tess_file_query(file, &info));
    assert_true(info.tensors > 10);
    tess_file_close(file);
    assert_int_equal(system("rm -rf p; mkdir p; mv m p/transformer"), 0);
    CHECK_OK(tess_file_open(ctx, "p", &file));
    tess_file_close(file);
    CHECK_FAILS(
        tess_file_open(ctx, "/", &file), TESS_EIO,
        "/: holds no diffusion_pytorch_model.safetensors and no index of one; weights under "
        "another name are opened by their path");
}

/* ---- what is wrong with a file --------------------------------------------------------------- */

static void check_load(const char *path, tess_status status, const char *sentence)
{
    tess_model *none = NULL;
    CHECK_FAILS(tess_model_load(ctx, path, NULL, &none), status, sentence);
    assert_null(none);
}

static int leave_out(tess_tensor *t, void *user)
{
    return strcmp(t->name, user) != 0;
}

static int shorten(tess_tensor *t, void *user)
{
    if (strcmp(t->name, user) == 0)
        t->shape[1] = 8;
    return 1;
}

static int to_bytes(tess_tensor *t, void *user)
{
    if (strcmp(t->name, user) == 0)
        t->dtype = TESS_DTYPE_I32;
    return 1;
}

static void a_file_of_another_model_is_refused_by_its_tensor(void **state)
{
    (void)state;
    static const float values[256];
    char q[] = "blocks.1.attn1.to_q.weight";
    const tess_tensor extra = {"blocks.2.attn1.to_q.weight", TESS_DTYPE_F32, 2, {16, 16}, values};
    fresh("m");
    rewrite("m/" FILE_NAME, "m/x.safetensors", leave_out, q, NULL);
    check_load("m/x.safetensors", TESS_EFORMAT,
               "m/x.safetensors: lacks tensor \"blocks.1.attn1.to_q.weight\" [16,16]");
    rewrite("m/" FILE_NAME, "m/x.safetensors", shorten, q, NULL);
    check_load("m/x.safetensors", TESS_EFORMAT,
               "m/x.safetensors: tensor \"blocks.1.attn1.to_q.weight\" is [16,8], must be [16,16]");
    rewrite("m/" FILE_NAME, "m/x.safetensors", to_bytes, q, NULL);
    check_load("m/x.safetensors", TESS_EFORMAT,
               "m/x.safetensors: tensor \"blocks.1.attn1.to_q.weight\" is I32, must be F32, BF16, "
               "F16 or F64");
    rewrite("m/" FILE_NAME, "m/x.safetensors", NULL, NULL, &extra);
    check_load("m/x.safetensors", TESS_EFORMAT,
               "m/x.safetensors: tensor \"blocks.2.attn1.to_q.weight\" [16,16] has no place in a "
               "model of these sizes");
}

/* The sentence speaks the language of the file. */
static void what_an_original_file_lacks_has_its_original_name(void **state)
{
    (void)state;
    char name[] = "blocks.0.norm3.weight";
    save_model(&odd, 6, "lacks", TESS_WEIGHTS_ORIGINAL);
    rewrite("lacks/" FILE_NAME, "lacks/x.safetensors", leave_out, name, NULL);
    check_load("lacks/x.safetensors", TESS_EFORMAT,
               "lacks/x.safetensors: lacks tensor \"blocks.0.norm3.weight\" [16]");
}

static void foreign_and_broken_files_are_refused(void **state)
{
    (void)state;
    fresh("m");
    assert_int_equal(truncate("m/" FILE_NAME, 2000), 0);
    tess_model *none = NULL;
    assert_int_equal(tess_model_load(ctx, "m", NULL, &none), TESS_EFORMAT);
    assert_non_null(strstr(tess_last_error(), "m/" FILE_NAME ": "));
    blob text = {0};
    blob_text(&text, "{\"num_heads\": 2}");
    blob_save(&text, "m/config.json");
    check_load("m", TESS_EFORMAT, "m/config.json: line 1: the document lacks \"ffn_dim\"");
    blob_free(&text);
    const tess_tensor foreign = {"lm_head.weight", TESS_DTYPE_F32, 1, {4}, "0123456789abcde"};
    fresh("m");
    CHECK_OK(tess_file_write(ctx, "m/" FILE_NAME, &foreign, 1, NULL));
    check_load("m", TESS_EFORMAT,
               "m/" FILE_NAME ": lacks tensor \"patch_embedding.weight\" [16,3,1,2,3]");
}

static void missing_files_are_named(void **state)
{
    (void)state;
    check_load("nowhere", TESS_EIO, "nowhere: cannot open: No such file or directory");
    assert_int_equal(mkdir("empty", 0777), 0);
    check_load("empty", TESS_EIO, "empty: holds no config.json");
    CHECK_OK(tess_model_config_write(ctx, "empty", &odd));
    check_load("empty", TESS_EIO,
               "empty: holds no " FILE_NAME " and no index of one; weights under another name are "
               "opened by their path");
    fresh("m");
    assert_int_equal(unlink("m/config.json"), 0);
    check_load("m/" FILE_NAME, TESS_EIO, "m/" FILE_NAME ": there is no config.json beside it");
}

/* ---- saving ---------------------------------------------------------------------------------- */

static int names_in(const char *path)
{
    DIR *folder = opendir(path);
    assert_non_null(folder);
    int n = -2;
    while (readdir(folder))
        n++;
    closedir(folder);
    return n;
}

static void saving_over_a_model_keeps_other_files(void **state)
{
    (void)state;
    fresh("m");
    blob text = {0};
    blob_text(&text, "note");
    blob_save(&text, "m/notes.txt");
    blob_free(&text);
    save_model(&odd, 8, "m", TESS_WEIGHTS_ORIGINAL);
    assert_int_equal(names_in("m"), 3);
    assert_loads("m", &odd, 8, 0.0);
}

static int stop(void *user, const char *what, int64_t done, int64_t total)
{
    (void)user, (void)what, (void)done, (void)total;
    return 1;
}

static void a_stopped_save_leaves_what_was_there(void **state)
{
    (void)state;
    tess_ctx *hasty = NULL;
    tess_model *model = NULL;
    fresh("m");
    const int before = names_in(".");
    CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.progress = stop}, &hasty));
    CHECK_OK(tess_model_create(hasty, &odd, NULL, &model));
    assert_int_equal(tess_model_save(model, "m", TESS_WEIGHTS_DIFFUSERS), TESS_ESTOPPED);
    assert_int_equal(tess_model_save(model, "unborn", TESS_WEIGHTS_DIFFUSERS), TESS_ESTOPPED);
    tess_model_destroy(model);
    tess_ctx_destroy(hasty);
    assert_int_equal(names_in("m"), 2);
    assert_int_equal(names_in("."), before);
    assert_loads("m", &odd, 5, 0.0);
}

static void wrong_arguments_are_named(void **state)
{
    (void)state;
    tess_model *model = make_model(&odd, 5), *none = NULL;
    CHECK_FAILS(tess_model_load(NULL, "m", NULL, &none), TESS_EINVAL,
                "tess_model_load: ctx is NULL");
    CHECK_FAILS(tess_model_load(ctx, NULL, NULL, &none), TESS_EINVAL,
                "tess_model_load: path is NULL");
    CHECK_FAILS(tess_model_load(ctx, "m", NULL, NULL), TESS_EINVAL,
                "tess_model_load: model is NULL");
    CHECK_FAILS(tess_model_save(NULL, "m", TESS_WEIGHTS_DIFFUSERS), TESS_EINVAL,
                "tess_model_save: model is NULL");
    CHECK_FAILS(tess_model_save(model, NULL, TESS_WEIGHTS_DIFFUSERS), TESS_EINVAL,
                "tess_model_save: dir is NULL");
    CHECK_FAILS(tess_model_save(model, "m", (tess_weight_names)2), TESS_EINVAL,
                "tess_model_save: names is 2, must be 0 or 1");
    CHECK_FAILS(tess_model_save(model, "no/where", TESS_WEIGHTS_DIFFUSERS), TESS_EIO,
                "no/where: cannot create: No such file or directory");
    fresh("m");
    rewrite("m/" FILE_NAME, "m/" FILE_NAME ".index.json", NULL, NULL, NULL);
    CHECK_FAILS(tess_model_save(model, "m", TESS_WEIGHTS_DIFFUSERS), TESS_EINVAL,
                "tess_model_save: m/" FILE_NAME ".index.json would be read in place of what is "
                "written; remove it or choose another folder");
    tess_model_destroy(model);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_saved_model_loads_with_the_same_bits),
    cmocka_unit_test(the_seed_and_gradients_of_the_options_are_heard),
    cmocka_unit_test(the_original_names_are_the_original_ones),
    cmocka_unit_test(numbers_of_sixteen_bits_are_widened),
    cmocka_unit_test(shards_with_an_index_are_one_model),
    cmocka_unit_test(a_prefix_of_collections_is_understood),
    cmocka_unit_test(a_pipeline_leads_to_its_transformer),
    cmocka_unit_test(tables_of_the_rotary_embedding_are_passed_over),
    cmocka_unit_test(norms_are_read_off_the_tensors),
    cmocka_unit_test(the_only_variant_is_taken),
    cmocka_unit_test(a_config_is_found_from_its_weights),
    cmocka_unit_test(a_folder_opens_as_its_weights),
    cmocka_unit_test(a_file_of_another_model_is_refused_by_its_tensor),
    cmocka_unit_test(what_an_original_file_lacks_has_its_original_name),
    cmocka_unit_test(foreign_and_broken_files_are_refused),
    cmocka_unit_test(missing_files_are_named),
    cmocka_unit_test(saving_over_a_model_keeps_other_files),
    cmocka_unit_test(a_stopped_save_leaves_what_was_there),
    cmocka_unit_test(wrong_arguments_are_named),
};
RUN_TESTS_IN_FOLDER(tests)
