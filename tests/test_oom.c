/* SPDX-License-Identifier: Apache-2.0 */
/* test_oom.c - out of memory, everywhere: each public scenario runs with its n-th allocation
 * failing, for n = 1, 2, ... until none fails.
 *
 * Allocations are those of the context (which zlib and libpng use too) and of jansson, through its
 * hooks. Each time the call must say ENOMEM, leave no memory, temporary file or half-made output
 * behind, and succeed when it is called again. To cover a new public call, add a line to the table.
 */
#include "test.h"

#include "tessera/attn.h"
#include "tessera/cost.h"
#include "tessera/dist.h"
#ifdef TESS_TEST_TRAIN
#include "tessera/data.h"
#include "tessera/media.h"
#include "tessera/model.h"
#endif

#include <dirent.h>
#include <jansson.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- allocations that fail
 * ----------------------------------------------------------------------- */

static long countdown; /* the allocation that fails when it reaches 0; negative: none */
static long live;      /* allocations not yet freed */
static int fired;

static int fails(void)
{
    if (countdown > 0 && --countdown == 0) {
        fired = 1;
        return 1;
    }
    return 0;
}

static void *ctx_alloc(void *user, size_t bytes)
{
    (void)user;
    void *p = fails() ? NULL : aligned_alloc(64, bytes);
    live += p != NULL;
    return p;
}

static void ctx_free(void *user, void *p)
{
    (void)user;
    live -= p != NULL;
    free(p);
}

/* What failed once keeps failing until the call ends, as when memory is really short: jansson 2.14
 * ignores that the buffer of a token could not grow, and would go on with a token cut short. */
static void *json_alloc(size_t bytes)
{
    void *p = fails() || fired ? NULL : malloc(bytes ? bytes : 1);
    live += p != NULL;
    return p;
}

static void json_release(void *p)
{
    live -= p != NULL;
    free(p);
}

/* ---- the world a scenario runs in
 * ------------------------------------------------------------------ */

static char folder[] = "/tmp/tess-oom-XXXXXX";

typedef struct {
    tess_ctx *ctx;
    tess_file *file;
    tess_selection *sel;
} world;

static const float values[24] = {1, 2, 3, -4, 5.5f};
static const tess_tensor tensors[] = {
    {"a.weight", TESS_DTYPE_F32, 2, {2, 3}, values},
    {"b", TESS_DTYPE_F32, 1, {24}, values},
    {"c.scalar", TESS_DTYPE_F32, 0, {0}, values},
};
static const tess_meta metas[] = {{"format", "pt"}, {"made by", "tests"}};
static const tess_sel_shape sel_shape = {
    .batch = 1, .heads = 2, .tokens_q = 40, .tokens_k = 50, .group = 8, .unit = 5};

static const char *in_folder(const char *name)
{
    static char path[2][256];
    static int turn;
    turn = !turn;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static tess_status open_and_close(world *w, const char *name)
{
    tess_file *file = NULL;
    const tess_status status = tess_file_open(w->ctx, in_folder(name), &file);
    if (status == TESS_OK)
        tess_file_close(file);
    else
        assert_null(file);
    return status;
}

static tess_status write_file(world *w, const char *name, int n, int compress)
{
    const int safe = strstr(name, "safetensors") != NULL;
    const tess_file_opts opts = {.metas = safe ? metas : NULL,
                                 .n_metas = safe ? 2 : 0,
                                 .shard_bytes = 64,
                                 .compress = compress};
    return tess_file_write(w->ctx, in_folder(name), tensors, n, &opts);
}

static tess_status read_all(world *w)
{
    tess_file_info info;
    tess_status status = tess_file_query(w->file, &info);
    for (int i = 0; i < info.tensors && status == TESS_OK; i++) {
        tess_tensor t;
        uint16_t half[24];
        status = tess_file_describe(w->file, i, &t);
        int64_t n = 1;
        for (int d = 0; d < t.rank; d++)
            n *= t.shape[d];
        if (status == TESS_OK)
            status = tess_file_tensor(w->file, t.name, &t);
        if (status == TESS_OK)
            status =
                tess_file_read(w->file, t.name, TESS_DTYPE_BF16, half, (size_t)n * sizeof *half);
    }
    return status;
}

/* ---- scenarios
 * --------------------------------------------------------------------------------------- */

static tess_status s_context(world *w)
{
    (void)w;
    tess_ctx *ctx = NULL;
    const tess_status status =
        tess_ctx_create(&(tess_ctx_opts){.allocator = {ctx_alloc, ctx_free, NULL}}, &ctx);
    tess_ctx_destroy(ctx);
    return status;
}

static tess_status s_comm(world *w)
{
    tess_comm *comm = NULL;
    const tess_status status = tess_comm_self(w->ctx, &comm);
    tess_comm_destroy(comm);
    return status;
}

static tess_status s_open_npy(world *w)
{
    return open_and_close(w, "x.npy");
}

static tess_status s_open_npz(world *w)
{
    return open_and_close(w, "x.npz");
}

static tess_status s_open_safetensors(world *w)
{
    return open_and_close(w, "x.safetensors");
}

static tess_status s_open_shards(world *w)
{
    return open_and_close(w, "x.safetensors.index.json");
}

static tess_status s_write_npy(world *w)
{
    return write_file(w, "y.npy", 1, 0);
}

static tess_status s_write_npz(world *w)
{
    return write_file(w, "y.npz", 3, 0);
}

static tess_status s_write_npz_deflated(world *w)
{
    return write_file(w, "y.npz", 3, 1);
}

static tess_status s_write_safetensors(world *w)
{
    return write_file(w, "y.safetensors", 3, 0);
}

static tess_status s_write_shards(world *w)
{
    return write_file(w, "y.safetensors.index.json", 3, 0);
}

static tess_status s_stats(world *w)
{
    tess_stats stats;
    return tess_tensor_stats(w->ctx, &tensors[1], &stats);
}

static tess_status nothing(void *user)
{
    (void)user;
    return TESS_OK;
}

static tess_status s_timing(world *w)
{
    tess_timing timing;
    return tess_timing_run(w->ctx, &(tess_timing_opts){.samples = 1}, nothing, NULL, &timing);
}

static tess_status s_measure(world *w)
{
    tess_speed speed;
    return tess_machine_measure(w->ctx, &speed);
}

#include "oom_plan.h"

static tess_status s_cluster(world *w)
{
    tess_cluster *cluster = NULL;
    const tess_status status = tess_cluster_load(w->ctx, "h100", &cluster);
    tess_cluster_destroy(cluster);
    return status;
}

static tess_status s_selection(world *w)
{
    tess_selection *sel = NULL;
    const tess_status status = tess_selection_create(w->ctx, &sel_shape, 100, &sel);
    tess_selection_destroy(sel);
    return status;
}

static tess_status s_selection_set(world *w)
{
    uint8_t mask[2 * 5 * 10];
    memset(mask, 1, sizeof mask);
    return tess_selection_set_mask(w->sel, mask, TESS_MASK_BYTES);
}

static tess_status s_selection_transpose(world *w)
{
    return tess_selection_transpose(w->sel);
}

static tess_status s_selection_coarsen(world *w)
{
    tess_sel_shape coarse = sel_shape;
    coarse.group = 16;
    coarse.unit = 7;
    tess_selection *out = NULL;
    const tess_status status = tess_selection_coarsen(w->ctx, w->sel, &coarse, &out);
    tess_selection_destroy(out);
    return status;
}

static tess_status s_attn(world *w)
{
    const tess_attn_shape shape = {
        .batch = 1, .heads = 2, .head_dim = 16, .tokens_q = 40, .tokens_k = 50};
    tess_attn *attn = NULL;
    const tess_status status = tess_attn_create(w->ctx, &shape, &attn);
    tess_attn_destroy(attn);
    return status;
}

#ifdef TESS_TEST_TRAIN
static tess_status s_image(world *w)
{
    static const uint8_t pixels[16 * 16 * 3];
    return tess_image_write(w->ctx, in_folder("y.png"), &(tess_image){16, 16, 3, pixels});
}

static const tess_model_config model_config = {.patch = {1, 2, 2},
                                               .heads = 2,
                                               .head_dim = 8,
                                               .in_channels = 3,
                                               .out_channels = 3,
                                               .text_dim = 8,
                                               .text_len = 4,
                                               .freq_dim = 8,
                                               .ffn_dim = 32,
                                               .layers = 1,
                                               .cross_attn_norm = 1,
                                               .qk_norm = 1,
                                               .eps = 1e-6,
                                               .rope_max = 16};

static tess_status s_model(world *w)
{
    tess_model *model = NULL;
    const tess_status status =
        tess_model_create(w->ctx, &model_config, &(tess_model_opts){.gradients = 1}, &model);
    assert_true((status == TESS_OK) == (model != NULL));
    tess_model_destroy(model);
    return status;
}

static tess_clip two_clips(int which)
{
    static const uint8_t pixels[2][3 * 16 * 16 * 3] = {{1}};
    return (tess_clip){3, 16, 16, 8, pixels[which]};
}

static tess_status write_clips(world *w, const char *name)
{
    const tess_clip clips[] = {two_clips(0), two_clips(1)};
    return tess_clip_write(w->ctx, in_folder(name), clips, 2);
}

static tess_status read_clip(world *w, const char *name)
{
    tess_clip_file *file = NULL;
    const tess_clip_opts opts = {.height = 8, .width = 12, .fps = 6};
    const tess_status status = tess_clip_open(w->ctx, in_folder(name), &opts, &file);
    assert_true((status == TESS_OK) == (file != NULL));
    tess_clip_close(file);
    return status;
}

static tess_status s_write_y4m(world *w)
{
    return write_clips(w, "y.y4m");
}

static tess_status s_write_gif(world *w)
{
    return write_clips(w, "y.gif");
}

static tess_status s_write_sheet(world *w)
{
    return write_clips(w, "sheet.png");
}

static tess_status s_write_mp4(world *w)
{
    const tess_status status = write_clips(w, "y.mp4");
    return status == TESS_ENOTSUP ? TESS_OK : status; /* a build without FFmpeg */
}

static tess_status s_read_y4m(world *w)
{
    return read_clip(w, "y.y4m");
}

static tess_status s_read_pictures(world *w)
{
    return read_clip(w, "pictures");
}

static tess_status s_read_video(world *w)
{
    const tess_status status = read_clip(w, "y.gif");
    return status == TESS_ENOTSUP ? TESS_OK : status;
}

static tess_status s_data(world *w)
{
    tess_data *data = NULL;
    const tess_status status = tess_data_open(w->ctx, NULL, &data);
    tess_data_close(data);
    return status;
}

static tess_status sample_data(world *w, const tess_data_opts *opts)
{
    static float x[3 * 3 * 8 * 8], text[16 * 64];
    tess_data *data = NULL;
    tess_status status = tess_data_open(w->ctx, opts, &data);
    assert_true((status == TESS_OK) == (data != NULL));
    if (status == TESS_OK)
        status = tess_data_sample(data, TESS_SPLIT_TRAIN, 0, x, text, NULL, 0);
    tess_data_close(data);
    return status;
}

static tess_status s_data_clips(world *w)
{
    return sample_data(
        w, &(tess_data_opts){
               .source = in_folder("clips"), .frames = 3, .height = 8, .width = 8, .cache = -1});
}

static tess_status s_data_latents(world *w)
{
    return sample_data(w, &(tess_data_opts){.source = in_folder("latents"),
                                            .text = in_folder("text.safetensors")});
}

static tess_status s_model_save(world *w)
{
    tess_model *model = NULL;
    tess_status status = tess_model_create(w->ctx, &model_config, NULL, &model);
    if (status == TESS_OK)
        status = tess_model_save(model, in_folder("model"), TESS_WEIGHTS_ORIGINAL);
    tess_model_destroy(model);
    return status;
}

static tess_status s_model_load(world *w)
{
    tess_model *model = NULL;
    const tess_status status = tess_model_load(w->ctx, in_folder("model"), NULL, &model);
    assert_true((status == TESS_OK) == (model != NULL));
    tess_model_destroy(model);
    return status;
}

static tess_status s_config_write(world *w)
{
    return tess_model_config_write(w->ctx, in_folder("y.json"), &model_config);
}

static tess_status s_config_read(world *w)
{
    tess_model_config config;
    return tess_model_config_read(w->ctx, in_folder("y.json"), &config);
}

static tess_status s_pass(world *w)
{
    const tess_pass_shape shape = {.batch = 1,
                                   .frames = 1,
                                   .height = 4,
                                   .width = 4,
                                   .train = 1,
                                   .cube = (const int[3]){1, 2, 1}};
    tess_model *model = NULL;
    tess_pass *pass = NULL;
    tess_status status =
        tess_model_create(w->ctx, &model_config, &(tess_model_opts){.gradients = 1}, &model);
    if (status == TESS_OK)
        status = tess_pass_create(model, &shape, &pass);
    assert_true((status == TESS_OK) == (pass != NULL));
    tess_pass_destroy(pass);
    tess_model_destroy(model);
    return status;
}
#endif

/* `file` names a file that is opened before, and `sel` asks for a selection, both with all the
 * memory they need. */
static const struct {
    const char *name;
    tess_status (*run)(world *w);
    const char *file;
    int sel;
} scenarios[] = {
    {"create a context", s_context, NULL, 0},
    {"create a communicator", s_comm, NULL, 0},
    {"open npy", s_open_npy, NULL, 0},
    {"open npz", s_open_npz, NULL, 0},
    {"open safetensors", s_open_safetensors, NULL, 0},
    {"open shards", s_open_shards, NULL, 0},
    {"read npy", read_all, "x.npy", 0},
    {"read npz", read_all, "x.npz", 0},
    {"read deflated npz", read_all, "z.npz", 0},
    {"read safetensors", read_all, "x.safetensors", 0},
    {"read unaligned safetensors", read_all, "odd.safetensors", 0},
    {"read shards", read_all, "x.safetensors.index.json", 0},
    {"write npy", s_write_npy, NULL, 0},
    {"write npz", s_write_npz, NULL, 0},
    {"write deflated npz", s_write_npz_deflated, NULL, 0},
    {"write safetensors", s_write_safetensors, NULL, 0},
    {"write shards", s_write_shards, NULL, 0},
    {"statistics", s_stats, NULL, 0},
    {"timing", s_timing, NULL, 0},
    {"measure", s_measure, NULL, 0},
    {"create a selection", s_selection, NULL, 0},
    {"set a selection", s_selection_set, NULL, 1},
    {"transpose a selection", s_selection_transpose, NULL, 1},
    {"coarsen a selection", s_selection_coarsen, NULL, 1},
    {"create attention", s_attn, NULL, 0},
    {"work from masks", s_work_masks, NULL, 0},
    {"work from a file", s_work_load, NULL, 0},
    {"work from a selection", s_work_selection, NULL, 1},
    {"work from weights and densities", s_work_heads, NULL, 0},
    {"open a profile", s_profile, NULL, 0},
    {"load a cluster", s_cluster, NULL, 0},
    {"make a plan", s_plan, NULL, 0},
    {"carry a ring plan out", s_plan_ring, NULL, 0},
    {"carry a selective plan out", s_plan_selective, NULL, 0},
#ifdef TESS_TEST_TRAIN
    {"write a picture", s_image, NULL, 0},
    {"create a model", s_model, NULL, 0},
    {"write a Y4M clip", s_write_y4m, NULL, 0},
    {"write a GIF", s_write_gif, NULL, 0},
    {"write a sheet of frames", s_write_sheet, NULL, 0},
    {"write an MP4", s_write_mp4, NULL, 0},
    {"read a Y4M clip", s_read_y4m, NULL, 0},
    {"read pictures as a clip", s_read_pictures, NULL, 0},
    {"read a video", s_read_video, NULL, 0},
    {"open drawn data", s_data, NULL, 0},
    {"sample clips", s_data_clips, NULL, 0},
    {"sample latents", s_data_latents, NULL, 0},
    {"save a model", s_model_save, NULL, 0},
    {"load a model", s_model_load, NULL, 0},
    {"write a model's sizes", s_config_write, NULL, 0},
    {"read a model's sizes", s_config_read, NULL, 0},
    {"create a pass", s_pass, NULL, 0},
#endif
};

/* ---- the run
 * ------------------------------------------------------------------------------------------ */

static int files_in_folder(void)
{
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    int n = 0;
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static world make_world(size_t scenario)
{
    world w = {0};
    CHECK_OK(tess_ctx_create(
        &(tess_ctx_opts){.threads = 2, .allocator = {ctx_alloc, ctx_free, NULL}}, &w.ctx));
    if (scenarios[scenario].file)
        CHECK_OK(tess_file_open(w.ctx, in_folder(scenarios[scenario].file), &w.file));
    if (scenarios[scenario].sel)
        CHECK_OK(tess_selection_create(w.ctx, &sel_shape, 100, &w.sel));
    return w;
}

static void every_allocation_may_fail_once(void **state)
{
    (void)state;
    json_set_alloc_funcs(json_alloc, json_release);
    for (size_t s = 0; s < sizeof scenarios / sizeof scenarios[0]; s++) {
        long n = 0;
        int more;
        do {
            countdown = -1;
            world w = make_world(s);
            const long before = live;
            const int files = files_in_folder();
            fired = 0;
            countdown = ++n;
            const tess_status status = scenarios[s].run(&w);
            countdown = -1;
            const int failed = fired;
            fired = 0;
            if (failed) {
                if (status != TESS_ENOMEM || !tess_last_error()[0])
                    fail_msg("%s, allocation %ld: %s: %s", scenarios[s].name, n,
                             tess_status_name(status), tess_last_error());
                assert_int_equal(files_in_folder(), files);
                /* What an object keeps between calls may have grown; what a call makes is gone.
                 */
                if (!w.file && !w.sel)
                    assert_int_equal(live, before);
                CHECK_OK(scenarios[s].run(&w));
            } else {
                CHECK_OK(status);
            }
            tess_file_close(w.file);
            tess_selection_destroy(w.sel);
            tess_ctx_destroy(w.ctx);
            assert_int_equal(live, 0);
            more = failed;
        } while (more);
        print_message("%s: %ld allocations\n", scenarios[s].name, n - 1);
    }
    json_set_alloc_funcs(malloc, free);
}

/* A header of odd length puts the data at an odd place. */
static void write_odd(void)
{
    const char header[] = "{\"t\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}} ";
    const uint64_t length = sizeof header - 1 - (sizeof header - 1) % 2 + 1;
    FILE *f = fopen(in_folder("odd.safetensors"), "wb");
    assert_non_null(f);
    fwrite(&length, 8, 1, f);
    fwrite(header, 1, sizeof header - 1, f);
    for (size_t i = sizeof header - 1; i < length; i++)
        fputc(' ', f);
    fwrite(values, 4, 2, f);
    fclose(f);
}

static int make_files(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    countdown = -1;
    world w = {0};
    CHECK_OK(tess_ctx_create(NULL, &w.ctx));
    /* Both names: what a scenario writes exists already, and must survive its failures. */
    static const char *const names[] = {
        "x.npy", "x.npz", "x.safetensors", "x.safetensors.index.json",
        "y.npy", "y.npz", "y.safetensors", "y.safetensors.index.json"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        CHECK_OK(write_file(&w, names[i], strstr(names[i], ".npy") ? 1 : 3, 0));
    CHECK_OK(write_file(&w, "z.npz", 3, 1));
    write_odd();
    const tess_tensor mask = {"mask", TESS_DTYPE_U8, 3, {3, 4, 5}, some_masks};
    CHECK_OK(tess_file_write(w.ctx, in_folder("mask.npy"), &mask, 1, NULL));
    CHECK_OK(s_plan_ring(&w));
    FILE *csv = fopen(in_folder("p.csv"), "w");
    assert_non_null(csv);
    fputs("step,layer,head,density\n", csv);
    for (int i = 1199; i >= 0; i--) /* enough lines for their memory to grow */
        fprintf(csv, "%d,%d,%d,0.5\n", i / 600, i / 20 % 30, i % 20);
    fclose(csv);
#ifdef TESS_TEST_TRAIN
    CHECK_OK(s_image(&w));
    CHECK_OK(s_model_save(&w));
    CHECK_OK(s_config_write(&w));
    CHECK_OK(s_write_y4m(&w));
    CHECK_OK(s_write_gif(&w));
    CHECK_OK(s_write_sheet(&w));
    CHECK_OK(s_write_mp4(&w));
    if (mkdir(in_folder("pictures"), 0777) != 0 || mkdir(in_folder("clips"), 0777) != 0 ||
        mkdir(in_folder("latents"), 0777) != 0)
        return -1;
    CHECK_OK(write_clips(&w, "clips/a.y4m"));
    CHECK_OK(write_clips(&w, "clips/b.y4m"));
    const tess_tensor latent = {"x", TESS_DTYPE_F32, 4, {2, 3, 2, 2}, values};
    const tess_tensor text = {"a", TESS_DTYPE_F32, 2, {2, 3}, values};
    CHECK_OK(tess_file_write(w.ctx, in_folder("latents/a.npy"), &latent, 1, NULL));
    CHECK_OK(tess_file_write(w.ctx, in_folder("text.safetensors"), &text, 1, NULL));
    CHECK_OK(tess_image_write(w.ctx, in_folder("pictures/1.png"),
                              &(tess_image){16, 16, 3, two_clips(0).pixels}));
    CHECK_OK(tess_image_write(w.ctx, in_folder("pictures/2.png"),
                              &(tess_image){16, 16, 3, two_clips(1).pixels}));
#endif
    tess_ctx_destroy(w.ctx);
    return 0;
}

static int drop_files(void **state)
{
    (void)state;
    char command[64];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_allocation_may_fail_once),
};
RUN_TESTS_WITH(tests, make_files, drop_files)
