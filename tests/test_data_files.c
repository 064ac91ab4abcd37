/* SPDX-License-Identifier: Apache-2.0 */
/* test_data_files.c - data from files: folders of clips with broken ones among them, latents and
 * text embeddings made elsewhere, splits, order, prompts. */
#include "clips.h"
#include "tessera/data.h"

#include "data/data_internal.h"

static char warnings[8192], lines[8192]; /* what was logged, one per line: warnings, and the rest */

static void on_log(void *user, tess_log_level level, const char *message)
{
    (void)user;
    char *text = level == TESS_LOG_WARN ? warnings : lines;
    const size_t used = strlen(text);
    assert_true(level == TESS_LOG_WARN || level == TESS_LOG_INFO);
    snprintf(text + used, sizeof warnings - used, "%s\n", message);
}

static int make_logging_world(void **state)
{
    if (!mkdtemp(folder))
        return -1;
    return tess_ctx_create(
        &(tess_ctx_opts){.threads = 2, .log = on_log, .log_level = TESS_LOG_INFO},
        (tess_ctx **)state);
}

static void put(const char *name, const char *text)
{
    write_file(in_folder(name), text, strlen(text));
}

/* A clip whose every pixel is grey of this value. */
static void put_clip(tess_ctx *ctx, const char *name, int grey, int frames)
{
    tess_clip clip = make_clip(frames, 8, 8, 8);
    memset((uint8_t *)clip.pixels, grey, clip_bytes(&clip));
    CHECK_OK(tess_clip_write(ctx, in_folder(name), &clip, 1));
    free((void *)clip.pixels);
}

static tess_data *open_data(tess_ctx *ctx, const tess_data_opts *opts, tess_data_info *info)
{
    tess_data *data = NULL;
    CHECK_OK(tess_data_open(ctx, opts, &data));
    CHECK_OK(tess_data_query(data, info));
    return data;
}

static void check_refused(tess_ctx *ctx, const tess_data_opts *opts, tess_status status,
                          const char *rest)
{
    tess_data *data = NULL;
    char sentence[512];
    snprintf(sentence, sizeof sentence, "%s%s", rest[0] == ':' ? opts->source : "", rest);
    CHECK_FAILS(tess_data_open(ctx, opts, &data), status, sentence);
    assert_null(data);
}

/* ---- order ----------------------------------------------------------------------------------- */

static void every_epoch_is_a_permutation_of_its_own(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 2, 3, 4, 5, 17, 256, 1000};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        int64_t same = 0;
        for (int64_t epoch = 0; epoch < 4; epoch++) {
            uint8_t found[1000] = {0};
            for (int64_t i = 0; i < sizes[s]; i++) {
                const int64_t at = tess__shuffle(9, epoch, sizes[s], i);
                assert_in_range(at, 0, sizes[s] - 1);
                assert_int_equal(found[at]++, 0);
                same += at == i;
            }
        }
        if (sizes[s] >= 256) /* one fixed point per epoch on average */
            assert_true(same < 24);
    }
    assert_in_range(tess__shuffle(1, 5, INT64_MAX, INT64_MAX - 1), 0, INT64_MAX - 1);
}

/* ---- clips ----------------------------------------------------------------------------------- */

static void make_clips(tess_ctx *ctx)
{
    char name[64];
    mkdir(in_folder("clips"), 0777);
    for (int i = 0; i < 30; i++) {
        snprintf(name, sizeof name, "clips/c%d.y4m", i);
        put_clip(ctx, name, 20 + 7 * i, 6);
        if (i % 2) {
            char prompt[64];
            snprintf(name, sizeof name, "clips/c%d.txt", i);
            snprintf(prompt, sizeof prompt, "\n  grey\tnumber\n%d \n", i);
            put(name, prompt);
        }
    }
    put("clips/c4.y4m", "this is no clip");
    put("clips/c9.y4m", "");
    put_clip(ctx, "clips/c12.y4m", 9, 3);
    put("clips/readme.md", "not a clip at all");
    put("clips/.hidden.y4m", "not to be read");
}

/* The number of the clip that a sample shows, which its prompt names if it is odd. */
static int clip_of(const tess_data *data, tess_split split, int64_t index)
{
    float x[3 * 4 * 8 * 8];
    char prompt[64], want[64] = "";
    CHECK_OK(tess_data_sample(data, split, index, x, NULL, prompt, sizeof prompt));
    const int grey = (int)lround((x[100] + 1) * 127.5);
    for (int k = 0; k < 3 * 4 * 8 * 8; k++)
        assert_true(fabsf(x[k] - x[100]) < 0.02F);
    const int clip = (int)lround((grey - 20) / 7.0);
    if (clip % 2)
        snprintf(want, sizeof want, "grey number %d", clip);
    assert_string_equal(prompt, want);
    return clip;
}

static void broken_clips_are_skipped_named_and_counted(void **state)
{
    make_clips(*state);
    tess_data_info info;
    warnings[0] = lines[0] = '\0';
    tess_data_opts opts = {TESS_DATA_OPTS_DEFAULTS, .source = in_folder("clips"), .frames = 4,
                           .height = 8, .width = 8};
    tess_data *data = open_data(*state, &opts, &info);
    char want[1024];
    snprintf(want, sizeof want,
             "%s/clips/c4.y4m: must begin with YUV4MPEG2; the clip is skipped\n"
             "%s/clips/c9.y4m: must begin with YUV4MPEG2; the clip is skipped\n"
             "%s/clips/c12.y4m: has 3 frames, 4 are wanted; the clip is skipped\n",
             folder, folder, folder);
    assert_string_equal(lines, want);
    snprintf(
        want, sizeof want,
        "3 of 30 clips cannot be used; the first: %s/clips/c4.y4m: must begin with YUV4MPEG2\n",
        folder);
    assert_string_equal(warnings, want);
    assert_string_equal(info.kind, "clips");
    assert_int_equal(info.skipped, 3);
    assert_int_equal(info.clips, 26);
    assert_int_equal(info.clips_validation, 1);
    assert_true(info.fps == 8);
    assert_true(info.bytes > 27 * 4 * 8 * 8 * 3);

    /* An epoch shows each clip once; the one for validation in none; the next in another order. */
    const int held_out = clip_of(data, TESS_SPLIT_VALIDATION, 0);
    int moved = 0, found[30] = {0}, first[26];
    for (int64_t i = 0; i < 52; i++) {
        const int clip = clip_of(data, TESS_SPLIT_TRAIN, i);
        assert_int_not_equal(clip, held_out);
        found[clip]++;
        moved += i >= 26 && first[i - 26] != clip;
        if (i < 26)
            first[i] = clip;
    }
    for (int i = 0; i < 30; i++)
        assert_int_equal(found[i], i == 4 || i == 9 || i == 12 || i == held_out ? 0 : 2);
    assert_true(moved > 13);
    assert_int_equal(clip_of(data, TESS_SPLIT_VALIDATION, INT64_MAX), held_out);

    /* Without a cache, and with one for some: the same samples. Another seed: another order. */
    for (int64_t cache = 0; cache < 4 * 8 * 8 * 3 * 5; cache += 4 * 8 * 8 * 3 * 5) {
        tess_data_info other;
        opts.cache = cache;
        opts.source = in_folder("clips");
        tess_data *slow = open_data(*state, &opts, &other);
        assert_true(other.bytes < info.bytes);
        for (int64_t i = 0; i < 52; i += 3)
            assert_int_equal(clip_of(slow, TESS_SPLIT_TRAIN, i),
                             clip_of(data, TESS_SPLIT_TRAIN, i));
        tess_data_close(slow);
    }
    opts.seed = 1;
    opts.source = in_folder("clips");
    tess_data *other = open_data(*state, &opts, &info);
    assert_int_equal(clip_of(other, TESS_SPLIT_VALIDATION, 0), held_out);
    int differ = 0;
    for (int64_t i = 0; i < 26; i++)
        differ += clip_of(other, TESS_SPLIT_TRAIN, i) != first[i];
    assert_true(differ > 13);
    tess_data_close(other);
    tess_data_close(data);
}

static void a_clip_that_breaks_later_is_an_error(void **state)
{
    mkdir(in_folder("late"), 0777);
    put_clip(*state, "late/a.y4m", 90, 4);
    tess_data_info info;
    tess_data *data =
        open_data(*state,
                  &(tess_data_opts){TESS_DATA_OPTS_DEFAULTS, .source = in_folder("late"),
                                    .frames = 4, .cache = 0},
                  &info);
    assert_int_equal(info.clips, 1);
    assert_int_equal(info.clips_validation, 1); /* the only one is in both */
    put("late/a.y4m", "gone");
    float *x = malloc(3 * 4 * 32 * 32 * sizeof *x);
    char sentence[256];
    snprintf(sentence, sizeof sentence, "%s/late/a.y4m: must begin with YUV4MPEG2", folder);
    CHECK_FAILS(tess_data_sample(data, TESS_SPLIT_TRAIN, 7, x, NULL, NULL, 0), TESS_EFORMAT,
                sentence);
    free(x);
    tess_data_close(data);
}

static void video_files_and_folders_of_pictures_are_clips(void **state)
{
    if (!need("libpng"))
        return;
    const uint8_t pixels[3 * 64] = {200};
    mkdir(in_folder("all"), 0777);
    mkdir(in_folder("all/pics.v1"), 0777);
    mkdir(in_folder("all/empty"), 0777);
    CHECK_OK(
        tess_image_write(*state, in_folder("all/pics.v1/1.png"), &(tess_image){8, 8, 3, pixels}));
    CHECK_OK(
        tess_image_write(*state, in_folder("all/pics.v1/2.png"), &(tess_image){8, 8, 3, pixels}));
    put("all/pics.v1.txt", "two pictures");
    put_clip(*state, "all/b.y4m", 50, 2);
    if (have("FFmpeg"))
        put_clip(*state, "all/c.mp4", 99, 2);
    tess_data_info info;
    tess_data_opts opts = {TESS_DATA_OPTS_DEFAULTS, .source = in_folder("all"), .frames = 2};
    tess_data *data = open_data(*state, &opts, &info);
    assert_int_equal(info.clips + info.clips_validation, 2 + have("FFmpeg"));
    assert_int_equal(info.skipped, 0);
    tess_data_close(data);
    /* One folder of pictures, or one file, is a source of one clip. */
    static const char *const alone[] = {"all/pics.v1", "all/pics.v1/", "all/b.y4m"};
    for (int i = 0; i < 3; i++) {
        char prompt[32];
        opts.source = in_folder(alone[i]);
        data = open_data(*state, &opts, &info);
        assert_int_equal(info.clips, 1);
        CHECK_OK(tess_data_sample(data, TESS_SPLIT_TRAIN, 0, NULL, NULL, prompt, sizeof prompt));
        assert_string_equal(prompt, i < 2 ? "two pictures" : "");
        tess_data_close(data);
    }
}

static void a_source_without_clips_is_an_error(void **state)
{
    mkdir(in_folder("bare"), 0777);
    check_refused(
        *state, &(tess_data_opts){TESS_DATA_OPTS_DEFAULTS, .source = in_folder("bare")},
        TESS_EFORMAT,
        ": has no clips: neither video files, .y4m, pictures, folders of them nor latents");
    put("bare/a.y4m", "x");
    put("bare/b.y4m", "x");
    char sentence[256];
    snprintf(
        sentence, sizeof sentence,
        ": none of its 2 clips can be used; the first: %s/bare/a.y4m: must begin with YUV4MPEG2",
        folder);
    check_refused(*state, &(tess_data_opts){TESS_DATA_OPTS_DEFAULTS, .source = in_folder("bare")},
                  TESS_EFORMAT, sentence);
    check_refused(*state,
                  &(tess_data_opts){TESS_DATA_OPTS_DEFAULTS, .source = in_folder("nowhere")},
                  TESS_EIO, ": cannot open: No such file or directory");
    check_refused(*state,
                  &(tess_data_opts){TESS_DATA_OPTS_DEFAULTS, .source = "shapes", .text = "t.npy"},
                  TESS_EINVAL, "tess_data_open: text is \"t.npy\", shapes has prompts of its own");
}

static int stop_at_two(void *user, const char *what, int64_t done, int64_t total)
{
    (void)user;
    assert_string_equal(what, "reading clips");
    assert_int_equal(total, 30);
    return done == 2;
}

static void reading_clips_can_be_stopped(void **state)
{
    tess_ctx *ctx = NULL;
    tess_data *data = NULL;
    (void)state;
    CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.progress = stop_at_two}, &ctx));
    CHECK_FAILS(tess_data_open(ctx,
                               &(tess_data_opts){TESS_DATA_OPTS_DEFAULTS,
                                                 .source = in_folder("clips"), .frames = 4},
                               &data),
                TESS_ESTOPPED, "stopped by the caller while reading clips");
    tess_ctx_info info;
    CHECK_OK(tess_ctx_query(ctx, &info));
    assert_int_equal(info.bytes_now, 0);
    tess_ctx_destroy(ctx);
}

/* ---- latents --------------------------------------------------------------------------------- */

enum { LATENT = 4 * 2 * 3 * 5 };

static float numbers[6 * LATENT]; /* clip k holds k * LATENT onward, exact in BF16 up to 256 */

static void put_latents(tess_ctx *ctx, const char *name, const char *tensor, int rank, int clips,
                        int first)
{
    const tess_tensor t = {
        tensor,
        TESS_DTYPE_F32,
        rank,
        {rank == 5 ? clips : 4, rank == 5 ? 4 : 2, rank == 5 ? 2 : 3, rank == 5 ? 3 : 5, 5},
        numbers + (size_t)first * LATENT};
    CHECK_OK(tess_file_write(ctx, in_folder(name), &t, 1, NULL));
}

static int latent_of(const tess_data *data, tess_split split, int64_t index)
{
    float x[LATENT];
    CHECK_OK(tess_data_sample(data, split, index, x, NULL, NULL, 0));
    const int clip = (int)(x[0] / LATENT);
    assert_memory_equal(x, numbers + (size_t)clip * LATENT, sizeof x);
    return clip;
}

static void check_latents(tess_ctx *ctx, const char *source, int64_t clips, int64_t skipped)
{
    tess_data_info info;
    int found[6] = {0};
    tess_data *data = open_data(
        ctx, &(tess_data_opts){TESS_DATA_OPTS_DEFAULTS, .source = in_folder(source)}, &info);
    assert_string_equal(info.kind, "latents");
    assert_int_equal(info.channels, 4);
    assert_int_equal(info.frames, 2);
    assert_int_equal(info.height, 3);
    assert_int_equal(info.width, 5);
    assert_int_equal(info.pack, 1);
    assert_int_equal(info.skipped, skipped);
    assert_int_equal(info.clips + (clips > 1 ? info.clips_validation : 0), clips);
    for (int64_t i = 0; i < info.clips; i++)
        found[latent_of(data, TESS_SPLIT_TRAIN, i)]++;
    if (clips > 1)
        found[latent_of(data, TESS_SPLIT_VALIDATION, 0)]++;
    for (int i = 0; i < clips; i++)
        assert_int_equal(found[i], 1);
    tess_data_close(data);
}

static void latents_are_read_from_files_and_folders(void **state)
{
    tess_ctx *ctx = *state;
    for (int i = 0; i < 6 * LATENT; i++)
        numbers[i] = (float)i;
    put_latents(ctx, "stack.npy", "x", 5, 6, 0);
    check_latents(ctx, "stack.npy", 6, 0);
    put_latents(ctx, "one.npy", "x", 4, 1, 0);
    check_latents(ctx, "one.npy", 1, 0);
    const int64_t shape[] = {4, 2, 3, 5};
    tess_tensor named[5] = {{"a", TESS_DTYPE_F32, 4, {0}, numbers},
                            {"b", TESS_DTYPE_F32, 4, {0}, numbers + LATENT},
                            {"c", TESS_DTYPE_F32, 4, {0}, numbers + 2 * LATENT},
                            {"flat", TESS_DTYPE_F32, 1, {LATENT}, numbers},
                            {"odd", TESS_DTYPE_F32, 4, {2, 4, 3, 5}, numbers}};
    for (int i = 0; i < 3; i++)
        memcpy(named[i].shape, shape, sizeof shape);
    CHECK_OK(tess_file_write(ctx, in_folder("named.safetensors"), named, 3, NULL));
    check_latents(ctx, "named.safetensors", 3, 0);
    warnings[0] = lines[0] = '\0';
    CHECK_OK(tess_file_write(ctx, in_folder("mixed.npz"), named, 5, NULL));
    check_latents(ctx, "mixed.npz", 3, 2);
    char want[512];
    snprintf(
        want, sizeof want,
        "%s/mixed.npz: tensor \"flat\": has 1 dimensions, must be 4 or 5; the clip is skipped\n"
        "%s/mixed.npz: tensor \"odd\": is 2 x 4 x 3 x 5, the first latent is 4 x 2 x 3 x 5; the "
        "clip is skipped\n",
        folder, folder);
    assert_string_equal(lines, want);

    mkdir(in_folder("latents"), 0777);
    put_latents(ctx, "latents/a.npy", "x", 4, 1, 0);
    put_latents(ctx, "latents/b.safetensors", "anything", 4, 1, 1);
    tess_tensor two[2] = {named[2], {"meta", TESS_DTYPE_F32, 1, {1}, numbers}};
    two[0].name = "latent";
    CHECK_OK(tess_file_write(ctx, in_folder("latents/c.safetensors"), two, 2, NULL));
    put("latents/d.npy", "no array");
    put_latents(ctx, "latents/e.npy", "x", 5, 2, 0);
    put("latents/a.txt", "the first");
    warnings[0] = lines[0] = '\0';
    check_latents(ctx, "latents", 3, 2);
    assert_non_null(strstr(lines, "/latents/d.npy: "));
    assert_non_null(strstr(lines, "/latents/e.npy: has 5 dimensions, must be (channels, frames, "
                                  "height, width); the clip is skipped\n"));
}

static void latents_have_prompts_by_line(void **state)
{
    put("stack.txt", "zero\none\r\n\nthree");
    tess_data_info info;
    tess_data *data = open_data(
        *state, &(tess_data_opts){TESS_DATA_OPTS_DEFAULTS, .source = in_folder("stack.npy")},
        &info);
    static const char *const want[] = {"zero", "one", "", "three", "", ""};
    for (int64_t i = 0; i < 5; i++) {
        char prompt[32];
        const int clip = latent_of(data, TESS_SPLIT_TRAIN, i);
        CHECK_OK(tess_data_sample(data, TESS_SPLIT_TRAIN, i, NULL, NULL, prompt, sizeof prompt));
        assert_string_equal(prompt, want[clip]);
    }
    tess_data_close(data);
}

static void wrong_latents_get_a_sentence(void **state)
{
    char sentence[256];
    snprintf(sentence, sizeof sentence,
             "tess_data_open: frames is 16, the latents of %s/stack.npy have 2: leave it out",
             folder);
    check_refused(
        *state,
        &(tess_data_opts){TESS_DATA_OPTS_DEFAULTS, .source = in_folder("stack.npy"), .pack = 2},
        TESS_EINVAL, "tess_data_open: pack is 2, latents are not packed");
    check_refused(
        *state,
        &(tess_data_opts){TESS_DATA_OPTS_DEFAULTS, .source = in_folder("stack.npy"), .frames = 16},
        TESS_EINVAL, sentence);
    const tess_tensor flat = {"x", TESS_DTYPE_F32, 1, {4}, numbers};
    CHECK_OK(tess_file_write(*state, in_folder("flat.npy"), &flat, 1, NULL));
    snprintf(sentence, sizeof sentence,
             ": none of its 1 clips can be used; the first: %s/flat.npy: tensor \"flat\": has 1 "
             "dimensions, must be 4 or 5",
             folder);
    check_refused(*state,
                  &(tess_data_opts){TESS_DATA_OPTS_DEFAULTS, .source = in_folder("flat.npy")},
                  TESS_EFORMAT, sentence);
    CHECK_OK(tess_file_write(*state, in_folder("none.safetensors"), NULL, 0, NULL));
    check_refused(
        *state, &(tess_data_opts){TESS_DATA_OPTS_DEFAULTS, .source = in_folder("none.safetensors")},
        TESS_EFORMAT, ": has no clips");
}

/* ---- embeddings ------------------------------------------------------------------------------ */

/* Embedding k is k + 2 rows of three numbers, k * 10 onward. */
static void check_embeddings(tess_ctx *ctx, const char *text, int text_len, int want_len,
                             int stacked)
{
    tess_data_info info;
    tess_data_opts opts = {TESS_DATA_OPTS_DEFAULTS, .source = in_folder("named.safetensors"),
                           .text = in_folder(text), .text_len = text_len};
    tess_data *data = open_data(ctx, &opts, &info);
    assert_int_equal(info.text_dim, 3);
    assert_int_equal(info.text_len, want_len);
    assert_int_equal(info.clips, 2);
    for (int64_t i = 0; i < 2; i++) {
        float vectors[3 * 16];
        const int clip = latent_of(data, TESS_SPLIT_TRAIN, i);
        memset(vectors, 1, sizeof vectors);
        CHECK_OK(tess_data_sample(data, TESS_SPLIT_TRAIN, i, NULL, vectors, NULL, 0));
        const int rows = stacked ? 2 : clip + 2;
        for (int k = 0; k < 3 * want_len; k++)
            assert_true(vectors[k] == (k < 3 * rows ? (float)(clip * 10 + k) : 0.0F));
    }
    float vectors[3 * 16];
    CHECK_FAILS(
        tess_data_prompt(data, "words", vectors), TESS_ENOTSUP,
        "tess_data_prompt: the text of this data was made elsewhere, words have no vectors in "
        "it");
    tess_data_close(data);
}

static void embeddings_are_found_by_the_name_of_the_clip(void **state)
{
    tess_ctx *ctx = *state;
    float rows[3][12], stack[3][6];
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < 12; i++) {
            rows[k][i] = (float)(k * 10 + i);
            if (i < 6)
                stack[k][i] = rows[k][i];
        }
    tess_tensor t[3] = {{"a", TESS_DTYPE_F32, 2, {2, 3}, rows[0]},
                        {"b", TESS_DTYPE_F32, 2, {3, 3}, rows[1]},
                        {"c", TESS_DTYPE_F32, 3, {1, 4, 3}, rows[2]}};
    CHECK_OK(tess_file_write(ctx, in_folder("text.safetensors"), t, 3, NULL));
    check_embeddings(ctx, "text.safetensors", 0, 4, 0);
    check_embeddings(ctx, "text.safetensors", 7, 7, 0);
    const tess_tensor all = {"x", TESS_DTYPE_F32, 3, {3, 2, 3}, stack};
    CHECK_OK(tess_file_write(ctx, in_folder("text.npy"), &all, 1, NULL));
    check_embeddings(ctx, "text.npy", 0, 2, 1);
    mkdir(in_folder("texts"), 0777);
    CHECK_OK(tess_file_write(ctx, in_folder("texts/a.npy"), &t[0], 1, NULL));
    CHECK_OK(tess_file_write(ctx, in_folder("texts/b.safetensors"), &t[1], 1, NULL));
    CHECK_OK(tess_file_write(ctx, in_folder("texts/c.npz"), &t[2], 1, NULL));
    check_embeddings(ctx, "texts", 0, 4, 0);
}

static void clips_without_their_embedding_are_skipped(void **state)
{
    tess_data_info info;
    tess_data_opts opts = {TESS_DATA_OPTS_DEFAULTS, .source = in_folder("named.safetensors"),
                           .text = in_folder("texts"), .text_len = 3};
    unlink(in_folder("texts/a.npy"));
    warnings[0] = lines[0] = '\0';
    tess_data *data = open_data(*state, &opts, &info);
    char want[512];
    snprintf(want, sizeof want,
             "%s/texts: has no embedding for a; the clip is skipped\n"
             "%s/texts/c.npz: an embedding has 4 rows, text_len is 3; the clip is skipped\n",
             folder, folder);
    assert_string_equal(lines, want);
    assert_int_equal(info.clips, 1);
    assert_int_equal(info.skipped, 2);
    tess_data_close(data);
    opts.text_dim = 5;
    opts.source = in_folder("named.safetensors");
    opts.text = in_folder("texts");
    char sentence[256];
    snprintf(
        sentence, sizeof sentence,
        "%s/texts: has an embedding for none of the 3 clips of %s/named.safetensors; the first "
        "is called a",
        folder, folder);
    tess_data *none = NULL;
    CHECK_FAILS(tess_data_open(*state, &opts, &none), TESS_EFORMAT, sentence);
    opts.text = in_folder("nothing");
    snprintf(sentence, sizeof sentence, "%s/nothing: cannot open: No such file or directory",
             folder);
    CHECK_FAILS(tess_data_open(*state, &opts, &none), TESS_EIO, sentence);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_epoch_is_a_permutation_of_its_own),
    cmocka_unit_test(broken_clips_are_skipped_named_and_counted),
    cmocka_unit_test(a_clip_that_breaks_later_is_an_error),
    cmocka_unit_test(video_files_and_folders_of_pictures_are_clips),
    cmocka_unit_test(a_source_without_clips_is_an_error),
    cmocka_unit_test(reading_clips_can_be_stopped),
    cmocka_unit_test(latents_are_read_from_files_and_folders),
    cmocka_unit_test(latents_have_prompts_by_line),
    cmocka_unit_test(wrong_latents_get_a_sentence),
    cmocka_unit_test(embeddings_are_found_by_the_name_of_the_clip),
    cmocka_unit_test(clips_without_their_embedding_are_skipped),
};
RUN_TESTS_WITH(tests, make_logging_world, drop_world)
