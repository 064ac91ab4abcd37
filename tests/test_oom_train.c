/* SPDX-License-Identifier: Apache-2.0 */
/* test_oom_train.c - out of memory in the calls of libtessera_train. To cover a new one, add a line
 * to the table. */
#include "oom.h"

#include "tessera/advanced/clip.h"
#include "tessera/advanced/collectives.h"
#include "tessera/advanced/sparse.h"
#include "tessera/advanced/step.h"
#include "tessera/media.h"

static const float values[24] = {1, 2, 3, -4, 5.5f};

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
    return sample_data(w, &(tess_data_opts){TESS_DATA_OPTS_DEFAULTS, .source = in_folder("clips"),
                                            .frames = 3, .height = 8, .width = 8, .cache = 0});
}

static tess_status s_data_sizes(world *w)
{
    return sample_data(w, &(tess_data_opts){TESS_DATA_OPTS_DEFAULTS, .source = in_folder("clips"),
                                            .sizes = "3x8x8,2x8x4", .stride = 1, .cache = 0});
}

static tess_status s_data_latents(world *w)
{
    return sample_data(w, &(tess_data_opts){TESS_DATA_OPTS_DEFAULTS, .source = in_folder("latents"),
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

static tess_status s_predictor_save(world *w)
{
    tess_predictor *predictor = NULL;
    tess_status status = tess_predictor_create(w->ctx, &model_config, NULL, &predictor);
    assert_true((status == TESS_OK) == (predictor != NULL));
    if (status == TESS_OK)
        status = tess_predictor_save(predictor, in_folder("predictor.safetensors"));
    tess_predictor_destroy(predictor);
    return status;
}

static tess_status s_predictor_load(world *w)
{
    tess_predictor *predictor = NULL;
    const tess_status status =
        tess_predictor_load(w->ctx, &model_config, in_folder("predictor.safetensors"), &predictor);
    assert_true((status == TESS_OK) == (predictor != NULL));
    tess_predictor_destroy(predictor);
    return status;
}

static tess_status s_learner(world *w)
{
    tess_predictor *predictor = NULL;
    tess_learner *learner = NULL;
    tess_status status = tess_predictor_create(w->ctx, &model_config, NULL, &predictor);
    if (status == TESS_OK) {
        status = tess_learner_create(w->ctx, predictor, model_config.layers, &learner);
        assert_true((status == TESS_OK) == (learner != NULL));
    }
    tess_learner_destroy(learner);
    tess_predictor_destroy(predictor);
    return status;
}

static tess_status s_reduce(world *w)
{
    tess_model *model = NULL;
    tess_comm *comm = NULL;
    tess_reduce *reduce = NULL;
    tess_status status =
        tess_model_create(w->ctx, &model_config, &(tess_model_opts){.gradients = 1}, &model);
    if (status == TESS_OK)
        status = tess_comm_self(w->ctx, &comm);
    if (status == TESS_OK) {
        status = tess_reduce_create(model, comm, TESS_OPTIM_MUON, &reduce);
        assert_true((status == TESS_OK) == (reduce != NULL));
    }
    tess_reduce_destroy(reduce);
    tess_comm_destroy(comm);
    tess_model_destroy(model);
    return status;
}

/* The selector's workspace comes with the first forward pass. */
static tess_status sparse_forward(tess_pass *pass, tess_predictor *predictor)
{
    static const int32_t keys[2] = {1, 3};
    static float x[3 * 4 * 4], timestep, text[4 * 8], out[3 * 4 * 4];
    const tess_attend_layer layer = {.kind = TESS_SELECT_PREDICTOR, .keys = keys};
    const tess_status status =
        tess_pass_attend(pass, &(tess_attend){.layers = &layer, .predictor = predictor});
    return status == TESS_OK ? tess_pass_forward(pass, &(tess_model_in){x, &timestep, text}, out)
                             : status;
}

static tess_status s_sparse(world *w)
{
    const tess_sparse_opts room = {.proj_dim = 16};
    const tess_pass_shape shape = {.batch = 1,
                                   .frames = 1,
                                   .height = 4,
                                   .width = 4,
                                   .cube = (const int[3]){1, 2, 1},
                                   .sparse = &room};
    tess_model *model = NULL;
    tess_pass *pass = NULL;
    tess_predictor *predictor = NULL;
    tess_status status = tess_model_create(w->ctx, &model_config, NULL, &model);
    if (status == TESS_OK)
        status = tess_predictor_create(w->ctx, &model_config, NULL, &predictor);
    if (status == TESS_OK)
        status = tess_pass_create(model, &shape, &pass);
    if (status == TESS_OK)
        status = sparse_forward(pass, predictor);
    tess_pass_destroy(pass);
    tess_predictor_destroy(predictor);
    tess_model_destroy(model);
    return status;
}

static tess_status see_nothing(void *user, const tess_hook_in *hook)
{
    (void)user;
    (void)hook;
    return TESS_OK;
}

/* On a context: the pass has no attention of its own, and hooks receive whole heads. */
static tess_status pass_on(const world *w, const tess_pass_shape *shape)
{
    static float x[3 * 4 * 4], timestep, text[4 * 8], out[3 * 4 * 4];
    const tess_attend_layer layer = {.hook = 1};
    tess_model *model = NULL;
    tess_pass *pass = NULL;
    tess_status status = tess_model_create(w->ctx, &model_config, NULL, &model);
    if (status == TESS_OK)
        status = tess_pass_create(model, shape, &pass);
    if (status == TESS_OK)
        status = tess_pass_attend(pass, &(tess_attend){.layers = &layer, .hook = see_nothing});
    if (status == TESS_OK)
        status = tess_pass_forward(pass, &(tess_model_in){x, &timestep, text}, out);
    tess_pass_destroy(pass);
    tess_model_destroy(model);
    return status;
}

static tess_status s_pass_ranks(world *w)
{
    const tess_cp_opts opts = {.layers = 1,
                               .heads = 2,
                               .head_dim = 8,
                               .batch = 1,
                               .tokens = 4,
                               .strategy = "fractional",
                               .cluster = "a100-80"};
    tess_pass_shape shape = {.batch = 1, .frames = 1, .height = 4, .width = 4};
    tess_comm *comm = NULL;
    tess_status status = tess_comm_self(w->ctx, &comm);
    if (status == TESS_OK)
        status = tess_cp_create(w->ctx, comm, &opts, &shape.context);
    if (status == TESS_OK)
        status = tess_cp_plan(shape.context, 0, NULL, NULL);
    if (status == TESS_OK)
        status = pass_on(w, &shape);
    tess_cp_destroy(shape.context);
    tess_comm_destroy(comm);
    return status;
}

/* A step, and its validation. */
static tess_status train_step(const world *w, tess_train *train)
{
    (void)w;
    return tess_train_run(train, 0, NULL, NULL);
}

/* A checkpoint, and the run that resumes it. */
static tess_status train_save(const world *w, tess_train *train)
{
    char path[512], command[128];
    tess_checkpoint read;
    tess_status status = tess_train_save(train, in_folder("checkpoint"));
    if (status == TESS_OK)
        status = tess_checkpoint_find(w->ctx, in_folder("checkpoint"), path, sizeof path);
    if (status == TESS_OK)
        status = tess_checkpoint_read(w->ctx, path, &read);
    if (status == TESS_OK)
        status = tess_train_resume(train, path);
    snprintf(command, sizeof command, "rm -rf %s", in_folder("checkpoint"));
    assert_int_equal(system(command), 0);
    return status;
}

/* Made once, for a disk takes its time. It is of the beginning: jansson's parser dies of numbers of
 * many digits when memory ends. */
static tess_status train_trunk(const world *w, tess_train *train)
{
    (void)w;
    return tess_train_save(train, in_folder("trunk"));
}

/* Going on from a checkpoint of sparse attention, in both ways. */
static tess_status train_branch(const world *w, tess_train *train)
{
    (void)w;
    const tess_status status = tess_train_resume(train, in_folder("trunk"));
    return status == TESS_OK ? tess_train_branch(train, in_folder("trunk")) : status;
}

static const tess_train_opts dense = {TESS_TRAIN_OPTS_DEFAULTS, .batch = 1, .steps = 1,
                                      .validate_clips = 1};
static const tess_train_opts sparse = {
    TESS_TRAIN_OPTS_DEFAULTS, .batch = 1, .steps = 3, .validate_every = 0,
    .attention = {TESS_ATTENTION_OPTS_DEFAULTS, .kind = TESS_ATTENTION_DSV, .mass = 0.875,
                  .min_density = 0.0625, .switch_by = TESS_SWITCH_STEP, .switch_step = 2,
                  .profile_every = 1, .check_every = 1, .break_even = 1}};

static tess_status with_data(world *w, const char *sizes, const tess_train_opts *opts,
                             tess_status (*run)(const world *w, tess_train *train))
{
    const tess_data_opts shape = {
        TESS_DATA_OPTS_DEFAULTS,          .sizes = sizes,         .frames = sizes ? 0 : 1,
        .height = sizes ? 0 : 8,          .width = sizes ? 0 : 8, .text_len = model_config.text_len,
        .text_dim = model_config.text_dim};
    tess_model *model = NULL;
    tess_data *data = NULL;
    tess_train *train = NULL;
    tess_status status =
        tess_model_create(w->ctx, &model_config, &(tess_model_opts){.gradients = 1}, &model);
    if (status == TESS_OK)
        status = tess_data_open(w->ctx, &shape, &data);
    if (status == TESS_OK)
        status = tess_train_create(model, data, opts, &train);
    if (status == TESS_OK)
        status = run(w, train);
    tess_train_destroy(train);
    tess_data_close(data);
    tess_model_destroy(model);
    return status;
}

static tess_status with_train(world *w, const tess_train_opts *opts,
                              tess_status (*run)(const world *w, tess_train *train))
{
    return with_data(w, NULL, opts, run);
}

static tess_status s_train_sizes(world *w)
{
    return with_data(w, "1x8x8,2x8x8", &dense, train_step);
}

static tess_status s_train(world *w)
{
    return with_train(w, &dense, train_step);
}

static tess_status s_train_save(world *w)
{
    return with_train(w, &dense, train_save);
}

static tess_status s_train_sparse(world *w)
{
    return with_train(w, &sparse, train_step);
}

static tess_status s_train_trunk(world *w)
{
    return with_train(w, &sparse, train_trunk);
}

static tess_status s_train_branch(world *w)
{
    return with_train(w, &sparse, train_branch);
}

static tess_status s_sample(world *w)
{
    float text[4 * 8] = {0}, latents[3 * 4 * 4];
    tess_model *model = NULL;
    tess_status status = tess_model_create(w->ctx, &model_config, NULL, &model);
    if (status == TESS_OK)
        status = tess_sample_run(model,
                                 &(tess_sample_opts){TESS_SAMPLE_OPTS_DEFAULTS, .steps = 1,
                                                     .frames = 1, .height = 4, .width = 4},
                                 text, latents);
    tess_model_destroy(model);
    return status;
}

/* Sparse attention with budgets measured on the way. */
static tess_status s_sample_sparse(world *w)
{
    float text[4 * 8] = {0}, latents[3 * 2 * 4 * 4];
    const tess_attention_opts attention = {TESS_ATTENTION_OPTS_DEFAULTS,
                                           .kind = TESS_ATTENTION_ORACLE, .mass = 0.5};
    double density[2 * 2];
    tess_model *model = NULL;
    tess_status status = tess_model_create(w->ctx, &model_config, NULL, &model);
    if (status == TESS_OK)
        status = tess_sample_run(model,
                                 &(tess_sample_opts){TESS_SAMPLE_OPTS_DEFAULTS, .steps = 2,
                                                     .frames = 2, .height = 4, .width = 4,
                                                     .attention = &attention, .density = density},
                                 text, latents);
    tess_model_destroy(model);
    return status;
}

static const scenario scenarios[] = {
    {"write a picture", s_image, NULL, NULL, 0},
    {"create a model", s_model, NULL, NULL, 0},
    {"write a Y4M clip", s_write_y4m, NULL, NULL, 0},
    {"write a GIF", s_write_gif, NULL, NULL, 0},
    {"write a sheet of frames", s_write_sheet, NULL, NULL, 0},
    {"write an MP4", s_write_mp4, NULL, NULL, 0},
    {"read a Y4M clip", s_read_y4m, NULL, NULL, 0},
    {"read pictures as a clip", s_read_pictures, NULL, NULL, 0},
    {"read a video", s_read_video, NULL, NULL, 0},
    {"open drawn data", s_data, NULL, NULL, 0},
    {"sample clips", s_data_clips, NULL, NULL, 0},
    {"sample clips of several sizes", s_data_sizes, NULL, NULL, 0},
    {"sample latents", s_data_latents, NULL, NULL, 0},
    {"save a model", s_model_save, NULL, NULL, 0},
    {"load a model", s_model_load, NULL, NULL, 0},
    {"write a model's sizes", s_config_write, NULL, NULL, 0},
    {"read a model's sizes", s_config_read, NULL, NULL, 0},
    {"create a pass", s_pass, NULL, NULL, 0},
    {"save a predictor", s_predictor_save, NULL, NULL, 0},
    {"load a predictor", s_predictor_load, NULL, NULL, 0},
    {"a learner", s_learner, NULL, NULL, 0},
    {"a reduce", s_reduce, NULL, NULL, 0},
    {"attend sparsely", s_sparse, NULL, NULL, 0},
    {"run a pass on a context", s_pass_ranks, NULL, NULL, 0},
    {"train", s_train, NULL, NULL, 0},
    {"train on clips of several sizes", s_train_sizes, NULL, NULL, 0},
    {"save and resume a run", s_train_save, NULL, NULL, 0},
    {"train sparsely", s_train_sparse, NULL, NULL, 0},
    {"branch off a run", s_train_branch, NULL, NULL, 0},
    {"sample", s_sample, NULL, NULL, 0},
    {"sample sparsely", s_sample_sparse, NULL, NULL, 0},
};

/* What a scenario writes exists already, and must survive its failures. */
static int make_files(void **state)
{
    (void)state;
    world w = begin_folder();
    CHECK_OK(s_image(&w));
    CHECK_OK(s_model_save(&w));
    CHECK_OK(s_config_write(&w));
    CHECK_OK(s_predictor_save(&w));
    CHECK_OK(s_train_trunk(&w));
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
    tess_ctx_destroy(w.ctx);
    return 0;
}

RUN_SCENARIOS(scenarios, make_files)
