/* SPDX-License-Identifier: Apache-2.0 */
/* test_train.c - the loop: schedule, noise, resuming bit for bit, checkpoints, failures. */
#include "train_data.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

static const tess_train_opts small = {
    TESS_TRAIN_OPTS_DEFAULTS, .batch = 2,          .accumulate = 2,      .steps = 8, .warmup = 2,
    .validate_every = 4,      .validate_clips = 2, .weight_decay = 0.01, .seed = 3};

static run start_with(int threads, const tess_train_opts *opts, tess_log_fn log, void *user)
{
    return start_run(&(tess_ctx_opts){.threads = threads, .log = log, .log_user = user}, 2, opts);
}

static run start(int threads, const tess_train_opts *opts)
{
    return start_with(threads, opts, NULL, NULL);
}

/* ---- schedule and noise ---------------------------------------------------------------------- */

static void rates_rise_stay_and_fall(void **state)
{
    (void)state;
    tess_train_opts o;
    CHECK_OK(tess__train_options(
        "t", &(tess_train_opts){TESS_TRAIN_OPTS_DEFAULTS, .steps = 100, .warmup = 10}, &o));
    assert_true(tess_train_schedule(&o, 0) == 0.1);
    assert_true(tess_train_schedule(&o, 9) == 1.0);
    assert_true(tess_train_schedule(&o, 50) == 1.0);
    assert_true(tess_train_schedule(&o, 75) == 0.5);
    assert_true(fabs(tess_train_schedule(&o, 99) - 0.02) < 1e-12);
    CHECK_OK(tess__train_options(
        "t",
        &(tess_train_opts){TESS_TRAIN_OPTS_DEFAULTS, .steps = 100, .warmup = 0, .decay_from = 1},
        &o));
    for (int i = 0; i < 100; i++)
        assert_true(tess_train_schedule(&o, i) == 1.0);
}

static void levels_are_one_in_each_part(void **state)
{
    (void)state;
    for (int64_t step = 0; step < 50; step++)
        for (int64_t i = 0; i < 8; i++) {
            const double u = tess__noise_level(7, step, i, 8);
            assert_true(u >= (double)i / 8 && u < (double)(i + 1) / 8);
        }
    assert_true(tess__noise_level(7, 0, 0, 8) != tess__noise_level(7, 1, 0, 8));
    assert_true(tess__shifted(2, 0.5) == 2.0 / 3.0 && tess__shifted(1, 0.3) == 0.3);
    assert_true(tess__shifted(5, 0) == 0 && tess__shifted(5, 1) == 1);
}

static void noise_lies_between_clip_and_normal_numbers(void **state)
{
    (void)state;
    enum { N = 3000 };
    static float clip[N], x[N], target[N], eps[N];
    tess_ctx *ctx = NULL;
    CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.threads = 3}, &ctx));
    fill_normal(clip, N, 1);
    CHECK_OK(tess_random_normal(5, 6, 7, eps, N));
    tess__flow_noise(ctx, &(tess__noising){5, 6, 7, 0.25}, clip, N, x, target);
    for (int i = 0; i < N; i++) {
        assert_true(x[i] == 0.75f * clip[i] + 0.25f * eps[i]);
        assert_true(target[i] == eps[i] - clip[i]);
    }
    tess_ctx_destroy(ctx);
}

static void the_loss_is_a_mean_and_its_gradient_a_slope(void **state)
{
    (void)state;
    enum { N = TESS_PIECE + 100 };
    float *out = malloc(2 * N * sizeof *out), *target = out + N;
    double sums[2], want = 0;
    tess_ctx *ctx = NULL;
    assert_non_null(out);
    CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.threads = 2}, &ctx));
    fill_normal(out, 2 * N, 1);
    const float first = out[0] - target[0];
    for (int i = 0; i < N; i++)
        want += ((double)out[i] - target[i]) * ((double)out[i] - target[i]) / N;
    const double loss = tess__flow_loss(ctx, target, N, 0.5, out, sums);
    assert_true(fabs(loss / want - 1) < 1e-6); /* differences are rounded to float: 2^-24 each */
    assert_true(fabsf(out[0] - first / N) <= 1e-6f * fabsf(first / N));
    free(out);
    tess_ctx_destroy(ctx);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void a_resumed_run_is_the_run_that_was_not_stopped(void **state)
{
    (void)state;
    run whole = start(2, &small);
    CHECK_OK(tess_train_run(whole.train, 0, NULL, NULL));
    assert_int_equal(whole.train->step, 8);
    assert_false(isnan(whole.train->val_loss));
    for (int at = 3; at < 8; at += 4) {
        run first = start(3, &small);
        run second = start(1, &small);
        hand_over(&first, at, &second);
        check_same_training(&whole, &second);
        end(&second);
    }
    end(&whole);
}

static void training_lowers_the_loss(void **state)
{
    (void)state;
    tess_train_opts opts = small;
    double before, after, change, buckets[TESS_NOISE_BUCKETS];
    opts.steps = 40;
    run r = start(1, &opts);
    CHECK_OK(tess__train_validate(r.train, &before, buckets, &change));
    CHECK_OK(tess_train_run(r.train, 0, NULL, NULL));
    CHECK_OK(tess__train_validate(r.train, &after, buckets, &change));
    assert_true(after < 0.9 * before);
    assert_true(isnan(change)); /* a dense run has none */
    assert_true(after == r.train->val_loss);
    assert_true(fabs((buckets[0] + buckets[1] + buckets[2] + buckets[3]) / 4 - after) < 1e-12);
    end(&r);
}

static int count_allocations(void *user, const tess_step *step)
{
    tess_ctx_info info;
    const run *r = user;
    static int64_t before;
    CHECK_OK(tess_ctx_query(r->ctx, &info));
    if (step->step > 1)
        assert_int_equal(info.allocations, before);
    before = info.allocations;
    return 0;
}

static void a_step_allocates_nothing(void **state)
{
    (void)state;
    run r = start(1, &small);
    CHECK_OK(tess_train_run(r.train, 0, count_allocations, &r));
    end(&r);
}

static int stop_at_three(void *user, const tess_step *step)
{
    (void)user;
    assert_int_equal(step->steps, 8);
    return step->step == 3;
}

static void a_callback_that_stops_leaves_a_checkpoint(void **state)
{
    (void)state;
    tess_train_opts opts = small;
    tess_train_info info;
    opts.folder = in_root("stopped");
    opts.settings = "{}";
    run r = start(1, &opts);
    CHECK_FAILS(tess_train_run(r.train, 0, stop_at_three, NULL), TESS_ESTOPPED,
                "tess_train_run: stopped by the caller after step 3");
    CHECK_OK(tess_train_query(r.train, &info));
    assert_string_equal(info.checkpoint, in_root("stopped/checkpoints/step-000003"));
    assert_true(exists(in_root("stopped/checkpoints/step-000003/settings.json")));
    assert_int_equal(info.step, 3);
    CHECK_OK(tess_train_run(r.train, 0, NULL, NULL));
    assert_true(exists(in_root("stopped/checkpoints/step-000008/ema/config.json")));
    end(&r);
}

static void a_loss_that_is_not_finite_keeps_the_state_before(void **state)
{
    (void)state;
    tess_train_opts opts = small;
    opts.folder = in_root("nan");
    run r = start(1, &opts), other = start(1, &small);
    CHECK_OK(tess_train_run(r.train, 2, NULL, NULL));
    CHECK_OK(tess_train_run(other.train, 2, NULL, NULL));
    const float kept = r.info.values[0];
    r.info.values[0] = NAN;
    char want[PATH_MAX];
    snprintf(want, sizeof want,
             "tess_train_run: the loss of step 3 is NaN, must be finite; %s holds the state before "
             "it",
             in_root("nan/checkpoints/step-000002"));
    CHECK_FAILS(tess_train_run(r.train, 0, NULL, NULL), TESS_EINVAL, want);
    r.info.values[0] = kept;
    check_same_training(&r, &other);
    end(&r);
    end(&other);
}

/* A file where the folder of checkpoints was: what ended the run is reported all the same. */
static void a_checkpoint_that_fails_hides_no_reason(void **state)
{
    (void)state;
    tess_train_opts opts = small;
    char lost[PATH_MAX], want[2 * PATH_MAX];
    opts.folder = in_root("lost");
    snprintf(lost, sizeof lost, "%s", in_root("lost/checkpoints"));
    run r = start(1, &opts);
    CHECK_OK(tess_train_run(r.train, 1, NULL, NULL));
    tess__remove_folder(lost);
    fclose(fopen(lost, "w"));
    snprintf(want, sizeof want,
             "tess_train_run: stopped by the caller after step 3; and its checkpoint failed: "
             "%s/step-000003: cannot remove: Not a directory",
             lost);
    CHECK_FAILS(tess_train_run(r.train, 0, stop_at_three, NULL), TESS_EIO, want);
    r.info.values[0] = NAN;
    snprintf(want, sizeof want,
             "tess_train_run: the loss of step 4 is NaN, must be finite; and its checkpoint "
             "failed: %s/step-000003: cannot remove: Not a directory",
             lost);
    CHECK_FAILS(tess_train_run(r.train, 0, NULL, NULL), TESS_EINVAL, want);
    end(&r);
}

/* ---- the folder of a run --------------------------------------------------------------------- */

static int count_lines(const char *path)
{
    FILE *f = fopen(path, "r");
    int lines = 0, c;
    assert_non_null(f);
    while ((c = fgetc(f)) != EOF)
        lines += c == '\n';
    fclose(f);
    return lines;
}

static int count_entries(const char *path)
{
    DIR *dir = opendir(path);
    int n = 0;
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n - 2;
}

static void the_last_checkpoints_are_kept_and_the_newest_is_found(void **state)
{
    (void)state;
    char path[PATH_MAX];
    tess_train_opts opts = small;
    tess_checkpoint got;
    opts.folder = in_root("kept");
    opts.checkpoint_every = 1;
    opts.checkpoint_limit = 2;
    run r = start(1, &opts);
    CHECK_OK(tess_train_run(r.train, 5, NULL, NULL));
    assert_int_equal(count_entries(in_root("kept/checkpoints")), 2);
    CHECK_OK(tess_checkpoint_find(r.ctx, in_root("kept"), path, sizeof path));
    assert_string_equal(path, in_root("kept/checkpoints/step-000005"));
    CHECK_OK(tess_checkpoint_read(r.ctx, path, &got));
    assert_int_equal(got.step, 5);
    assert_string_equal(got.kind, "shapes");
    assert_int_equal(got.data.channels, 12);
    assert_int_equal(got.data.pack, 2);
    assert_true(got.ema && !got.external && got.shift == 2 && got.guidance == 2);
    end(&r);
}

static void note_warning(void *user, tess_log_level level, const char *message)
{
    (void)level;
    snprintf(user, 512, "%s", message);
}

static void what_a_killed_process_left_is_passed_over(void **state)
{
    (void)state;
    char path[PATH_MAX], warning[512] = "";
    tess_train_opts opts = small;
    opts.folder = in_root("left");
    opts.checkpoint_every = 2;
    run r = start_with(1, &opts, note_warning, warning);
    CHECK_OK(tess_train_run(r.train, 4, NULL, NULL));
    end(&r);
    /* One in the making, and one whose state is cut short: only a broken disk makes the latter. */
    assert_int_equal(mkdir(in_root("left/checkpoints/.step-000006.tmp"), 0777), 0);
    assert_int_equal(mkdir(in_root("left/checkpoints/step-000006"), 0777), 0);
    FILE *f = fopen(in_root("left/checkpoints/step-000006/state.json"), "w");
    assert_non_null(f);
    fputs("{\"format\": 1", f);
    fclose(f);
    f = fopen(in_root("left/metrics.jsonl"), "a");
    assert_non_null(f);
    fputs("{\"step\": 5, \"loss\": 1}\n{\"step\": 6, \"lo", f);
    fclose(f);

    r = start_with(1, &opts, note_warning, warning);
    CHECK_OK(tess_checkpoint_find(r.ctx, in_root("left"), path, sizeof path));
    assert_string_equal(path, in_root("left/checkpoints/step-000004"));
    assert_non_null(strstr(warning, "step-000006 is skipped: "));
    CHECK_OK(tess_train_resume(r.train, path));
    CHECK_OK(tess_train_run(r.train, 0, NULL, NULL));
    assert_false(exists(in_root("left/checkpoints/.step-000006.tmp")));
    assert_int_equal(count_lines(in_root("left/metrics.jsonl")), 8);
    assert_int_equal(count_lines(in_root("left/metrics.csv")), 9);
    run whole = start(1, &small);
    CHECK_OK(tess_train_run(whole.train, 0, NULL, NULL));
    check_same_training(&whole, &r);
    end(&whole);
    end(&r);
}

/* A run that an older version began: its files lack columns, or have them elsewhere. */
static void columns_of_another_version_go_below_their_names(void **state)
{
    (void)state;
    static const char head[] = "step,layer,words,added,bytes\n";
    char line[256];
    tess_ctx *ctx = NULL;
    FILE *f = fopen(in_root("old.csv"), "w");
    assert_non_null(f);
    fputs("step,words,gone,layer,bytes\n1,\"a, b\",x,0,7\n2,\"c\",y,1,8\n2,,,,\n3,d,z,1,9\n", f);
    fclose(f);
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    for (int i = 0; i < 2; i++) { /* what has the right columns stays as it is */
        CHECK_OK(tess__lines_cut(ctx, in_root("old.csv"), head, 2));
        static const char *const want[] = {head, "1,0,\"a, b\",,7\n", "2,1,\"c\",,8\n", "2,,,,\n"};
        f = fopen(in_root("old.csv"), "r");
        assert_non_null(f);
        for (int n = 0; n < 4; n++) {
            assert_non_null(fgets(line, sizeof line, f));
            assert_string_equal(line, want[n]);
        }
        assert_null(fgets(line, sizeof line, f));
        fclose(f);
    }
    tess_ctx_destroy(ctx);
}

static void a_folder_with_checkpoints_must_be_resumed(void **state)
{
    (void)state;
    char want[PATH_MAX];
    tess_train_opts opts = small;
    opts.folder = in_root("again");
    run r = start(1, &opts);
    CHECK_OK(tess_train_run(r.train, 0, NULL, NULL));
    end(&r);
    snprintf(want, sizeof want,
             "%s: holds checkpoints of a run, must be resumed or be another folder", opts.folder);
    r = start(1, &opts);
    CHECK_FAILS(tess_train_run(r.train, 0, NULL, NULL), TESS_EINVAL, want);
    end(&r);
}

/* A limit on the size of files stands in for a full disk: the write fails midway. */
static void a_full_disk_leaves_the_last_checkpoint(void **state)
{
    (void)state;
    char want[PATH_MAX + 128], path[PATH_MAX];
    tess_train_opts opts = small;
    struct rlimit old, low;
    opts.folder = in_root("full");
    opts.checkpoint_every = 2;
    run r = start(1, &opts);
    CHECK_OK(tess_train_run(r.train, 3, NULL, NULL));
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    low = old;
    low.rlim_cur = 20000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    const tess_status status = tess_train_run(r.train, 0, NULL, NULL);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    snprintf(want, sizeof want,
             "%s/checkpoints/.step-000004.tmp/diffusion_pytorch_model.safetensors: cannot write: "
             "File too large",
             opts.folder);
    assert_int_equal(status, TESS_EIO);
    assert_string_equal(tess_last_error(), want);
    CHECK_OK(tess_checkpoint_find(r.ctx, in_root("full"), path, sizeof path));
    assert_string_equal(path, in_root("full/checkpoints/step-000002"));
    end(&r);
    assert_int_equal(count_entries(in_root("full/checkpoints")), 1);
}

/* ---- failures -------------------------------------------------------------------------------- */

static void wrong_options_are_named(void **state)
{
    (void)state;
    static const struct {
        tess_train_opts opts;
        const char *sentence;
    } cases[] = {
        {{TESS_TRAIN_OPTS_DEFAULTS, .batch = 0}, "t: batch is 0, must be 1..65536 clips"},
        {{TESS_TRAIN_OPTS_DEFAULTS, .accumulate = 70000},
         "t: accumulate is 70000, must be 1..65536 micro-batches"},
        {{TESS_TRAIN_OPTS_DEFAULTS, .steps = -5}, "t: steps is -5, must be 1..1000000000 steps"},
        {{TESS_TRAIN_OPTS_DEFAULTS, .warmup = 2000000000},
         "t: warmup is 2000000000, must be 0..1000000000 steps"},
        {{TESS_TRAIN_OPTS_DEFAULTS, .warmup = -1}, "t: warmup is -1, must be 0..1000000000 steps"},
        {{TESS_TRAIN_OPTS_DEFAULTS, .lr = -1}, "t: lr is -1, must be 1e-12..1000"},
        {{TESS_TRAIN_OPTS_DEFAULTS, .lr = (double)NAN}, "t: lr is nan, must be 1e-12..1000"},
        {{TESS_TRAIN_OPTS_DEFAULTS, .beta1 = 1}, "t: beta1 is 1, must be 0..0.999999"},
        {{TESS_TRAIN_OPTS_DEFAULTS, .ema = 1}, "t: ema is 1, must be 0..0.9999999"},
        {{TESS_TRAIN_OPTS_DEFAULTS, .shift = -2}, "t: shift is -2, must be 0.001..1000"},
        {{TESS_TRAIN_OPTS_DEFAULTS, .prompt_dropout = 1.5},
         "t: prompt_dropout is 1.5, must be 0..1"},
        {{TESS_TRAIN_OPTS_DEFAULTS, .optim = 7}, "t: optim is 7, must be one of muon, adamw"},
        {{TESS_TRAIN_OPTS_DEFAULTS, .store = TESS_DTYPE_F64},
         "t: store is 3, must be one of fp32, bf16"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tess_train_opts full;
        CHECK_FAILS(tess__train_options("t", &cases[i].opts, &full), TESS_EINVAL,
                    cases[i].sentence);
    }
}

static void models_and_data_must_fit(void **state)
{
    (void)state;
    tess_ctx *ctx = NULL;
    tess_model *model = NULL, *mute = NULL;
    tess_data *data = NULL;
    tess_train *train = NULL;
    tess_model_config config;
    CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.threads = 1}, &ctx));
    CHECK_OK(tess_model_preset("tiny", &config));
    CHECK_OK(tess_model_create(ctx, &config, &(tess_model_opts){1, 9}, &model));
    CHECK_OK(tess_model_create(ctx, &config, NULL, &mute));
    CHECK_OK(tess_data_open(
        ctx, &(tess_data_opts){TESS_DATA_OPTS_DEFAULTS, .text_len = 8, .text_dim = 16}, &data));
    CHECK_FAILS(tess_train_create(model, data, NULL, &train), TESS_EINVAL,
                "tess_train_create: the data's channels is 3, must be the model's in_channels and "
                "out_channels, 12");
    CHECK_FAILS(tess_train_create(mute, data, NULL, &train), TESS_EINVAL,
                "tess_train_create: the model has no gradients, must be made with them");
    CHECK_FAILS(tess_train_create(NULL, data, NULL, &train), TESS_EINVAL,
                "tess_train_create: model is NULL");
    assert_null(train);
    tess_data_close(data);
    tess_model_destroy(mute);
    tess_model_destroy(model);
    tess_ctx_destroy(ctx);
}

static void checkpoints_of_another_kind_are_refused(void **state)
{
    (void)state;
    char want[PATH_MAX];
    tess_train_opts adam = small;
    run r = start(1, &small);
    CHECK_OK(tess_train_save(r.train, in_root("kind")));
    snprintf(want, sizeof want, "tess_train_save: %s exists, must be a new folder",
             in_root("kind"));
    CHECK_FAILS(tess_train_save(r.train, in_root("kind")), TESS_EINVAL, want);
    end(&r);
    adam.optim = TESS_OPTIM_ADAMW;
    r = start(1, &adam);
    snprintf(want, sizeof want, "%s: was trained with muon, must be resumed with it, not adamw",
             in_root("kind"));
    CHECK_FAILS(tess_train_resume(r.train, in_root("kind")), TESS_EINVAL, want);
    snprintf(want, sizeof want, "%s: holds no complete checkpoint", in_root("nothing"));
    char path[PATH_MAX];
    CHECK_FAILS(tess_checkpoint_find(r.ctx, in_root("nothing"), path, sizeof path), TESS_EIO, want);
    CHECK_FAILS(tess_checkpoint_find(r.ctx, in_root("kind"), path, 3), TESS_EINVAL,
                "tess_checkpoint_find: bytes is 3, must be more than 27");
    end(&r);
}

static void states_that_break_a_rule_are_reported_with_their_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *sentence;
    } cases[] = {
        {"[]", "line 1: the document is an array, must be an object"},
        {"{\"format\": 2}", "line 1: \"format\" is 2, must be 1"},
        {"{\"format\": 1,\n\"step\": -1}", "line 2: \"step\" is -1, must be 0..1000000000"},
        {"{\"format\": 1, \"step\": 1}", "line 1: the document lacks \"data\""},
    };
    tess_ctx *ctx = NULL;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char want[PATH_MAX];
        tess__state read;
        FILE *f = fopen(in_root("state.json"), "w");
        assert_non_null(f);
        fputs(cases[i].text, f);
        fclose(f);
        snprintf(want, sizeof want, "%s: %s", in_root("state.json"), cases[i].sentence);
        CHECK_FAILS(tess__state_read(ctx, in_root("state.json"), NULL, 0, &read), TESS_EFORMAT,
                    want);
    }
    tess_ctx_destroy(ctx);
}

/* ---- memory and sampling --------------------------------------------------------------------- */

static void the_need_is_within_three_percent(void **state)
{
    (void)state;
    run r = start(1, &small);
    check_need(&r, &small, 2, 0.03);
    end(&r);
}

static void samples_have_the_same_bits_for_any_threads(void **state)
{
    (void)state;
    enum { SIZE = 2 * 12 * 2 * 8 * 8 };
    static float latents[3][SIZE], text[2 * 8 * 16];
    static const int counts[] = {1, 2, 3};
    const tess_sample_opts opts = {TESS_SAMPLE_OPTS_DEFAULTS,
                                   .batch = 2,
                                   .steps = 3,
                                   .frames = 2,
                                   .height = 8,
                                   .width = 8,
                                   .seed = 4};
    CHECK_OK(tess_text_vectors("a red disc", 8, 16, text));
    CHECK_OK(tess_text_vectors("a blue disc", 8, 16, text + 8 * 16));
    for (int t = 0; t < 3; t++) {
        run r = start(counts[t], &small);
        CHECK_OK(tess_train_run(r.train, 2, NULL, NULL));
        CHECK_OK(tess_sample_run(r.model, &opts, text, latents[t]));
        assert_memory_equal(latents[0], latents[t], sizeof latents[0]);
        end(&r);
    }
    assert_true(memcmp(latents[0], latents[0] + SIZE / 2, sizeof latents[0] / 2) != 0);
}

static void sampling_says_what_is_wrong(void **state)
{
    (void)state;
    float x[1];
    run r = start(1, &small);
    CHECK_FAILS(tess_sample_run(NULL, NULL, NULL, NULL), TESS_EINVAL,
                "tess_sample_run: model is NULL");
    CHECK_FAILS(
        tess_sample_run(r.model, &(tess_sample_opts){TESS_SAMPLE_OPTS_DEFAULTS, .steps = -1}, x, x),
        TESS_EINVAL, "tess_sample_run: steps is -1, must be 1..10000 steps");
    CHECK_FAILS(
        tess_sample_run(r.model, &(tess_sample_opts){TESS_SAMPLE_OPTS_DEFAULTS, .shift = -1}, x, x),
        TESS_EINVAL, "tess_sample_run: shift is -1, must be 0.001..1000");
    CHECK_FAILS(
        tess_sample_run(r.model, &(tess_sample_opts){TESS_SAMPLE_OPTS_DEFAULTS, .first = -1}, x, x),
        TESS_EINVAL, "tess_sample_run: first is -1, must be 0..1e+15");
    end(&r);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(rates_rise_stay_and_fall),
    cmocka_unit_test(levels_are_one_in_each_part),
    cmocka_unit_test(noise_lies_between_clip_and_normal_numbers),
    cmocka_unit_test(the_loss_is_a_mean_and_its_gradient_a_slope),
    cmocka_unit_test(a_resumed_run_is_the_run_that_was_not_stopped),
    cmocka_unit_test(training_lowers_the_loss),
    cmocka_unit_test(a_step_allocates_nothing),
    cmocka_unit_test(a_callback_that_stops_leaves_a_checkpoint),
    cmocka_unit_test(a_loss_that_is_not_finite_keeps_the_state_before),
    cmocka_unit_test(a_checkpoint_that_fails_hides_no_reason),
    cmocka_unit_test(the_last_checkpoints_are_kept_and_the_newest_is_found),
    cmocka_unit_test(what_a_killed_process_left_is_passed_over),
    cmocka_unit_test(columns_of_another_version_go_below_their_names),
    cmocka_unit_test(a_folder_with_checkpoints_must_be_resumed),
    cmocka_unit_test(a_full_disk_leaves_the_last_checkpoint),
    cmocka_unit_test(wrong_options_are_named),
    cmocka_unit_test(models_and_data_must_fit),
    cmocka_unit_test(checkpoints_of_another_kind_are_refused),
    cmocka_unit_test(states_that_break_a_rule_are_reported_with_their_line),
    cmocka_unit_test(the_need_is_within_three_percent),
    cmocka_unit_test(samples_have_the_same_bits_for_any_threads),
    cmocka_unit_test(sampling_says_what_is_wrong),
};
RUN_TESTS_WITH(tests, open_root, close_root)
