/* SPDX-License-Identifier: Apache-2.0 */
/* data.c - opens, describes and closes sources of clips, and samples from them. */
#include "data_internal.h"

#include "options/option_check.h"
#include "tessera/advanced/nearest.h"

#include <assert.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const tess__data_source *const drawn[] = {&tess__data_shapes, &tess__data_recall,
                                                 &tess__data_recall_aligned};
enum { N_DRAWN = sizeof drawn / sizeof drawn[0] };

uint64_t tess__data_seed(uint64_t seed, const char *kind)
{
    uint64_t x = seed;
    for (; *kind; kind++)
        x = (x ^ (unsigned char)*kind) * 0x100000001b3;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

uint64_t tess__data_stream(tess_split split, int64_t index)
{
    return (uint64_t)split << 63 | (uint64_t)index;
}

/* ---- options --------------------------------------------------------------------------------- */

/* The shape of a sample, from the options. Latents set theirs when they are read. */
static tess_status set_shape(tess_data *data, const tess_data_opts *o)
{
    tess_data_info *info = &data->info;
    const int height = o->height ? o->height : 32, width = o->width ? o->width : 32;
    if (height % o->pack || width % o->pack)
        return tess__fail(TESS_EINVAL,
                          "tess_data_open: a frame is %d x %d, pack %d must divide both sides",
                          height, width, o->pack);
    info->pack = o->pack;
    info->channels = 3 * info->pack * info->pack;
    info->frames = o->frames ? o->frames : 8;
    info->height = height / info->pack;
    info->width = width / info->pack;
    info->text_len = o->text_len ? o->text_len : 16;
    info->text_dim = o->text_dim ? o->text_dim : 64;
    info->fps = o->fps > 0 ? o->fps : 8;
    return TESS_OK;
}

/* The source of a path: clips if there is one, else latents. */
static tess_status find_files(const char *path, const tess__data_source **source)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return tess__fail(TESS_EIO, "%s: cannot open: %m", path);
    if (!S_ISDIR(st.st_mode))
        *source = tess__is_tensors(NULL, path) ? &tess__data_latents : &tess__data_clips;
    else if (tess__folder_has(path, tess__is_clip))
        *source = &tess__data_clips;
    else if (tess__folder_has(path, tess__is_tensors))
        *source = &tess__data_latents;
    else
        return tess__fail(
            TESS_EFORMAT,
            "%s: has no clips: neither video files, .y4m, pictures, folders of them nor latents",
            path);
    return TESS_OK;
}

/* A synthetic source by its name; any other name must be an existing path. */
static tess_status find_source(const char *name, const tess__data_source **source)
{
    const char *names[N_DRAWN];
    for (int i = 0; i < N_DRAWN; i++) {
        names[i] = drawn[i]->kind;
        if (strcmp(name, names[i]) == 0) {
            *source = drawn[i];
            return TESS_OK;
        }
    }
    if (strchr(name, '/') || access(name, F_OK) == 0)
        return find_files(name, source);
    const char *near = tess_nearest(name, names, N_DRAWN);
    if (near)
        return tess__fail(
            TESS_EINVAL,
            "tess_data_open: source is \"%.200s\", neither a file nor a folder; did you mean %s?",
            name, near);
    return tess__fail(TESS_EINVAL,
                      "tess_data_open: source is \"%.200s\", must be shapes, recall, "
                      "recall-aligned or a path",
                      name);
}

/* ---- public ---------------------------------------------------------------------------------- */

tess_status tess_data_kind(const char *source, const char **kind)
{
    const tess__data_source *found = NULL;
    TESS_REQUIRE(source, kind);
    TESS_TRY(find_source(source, &found));
    assert(found);
    *kind = found->kind;
    return TESS_OK;
}

tess_status tess__data_make(tess_ctx *ctx, const tess_data_opts *opts, const tess__data_part *part,
                            tess_data **data)
{
    const int64_t before = ctx->bytes_now;
    tess_data *made = TESS_ALLOC_ZERO(ctx, sizeof *made);
    made->ctx = ctx;
    made->arena.ctx = ctx;
    made->source = part->source;
    made->base = part->base;
    made->bucket_of = part->bucket_of;
    made->bucket = part->bucket;
    made->info.kind = part->source->kind;
    made->info.sizes = 1;
    made->info.share = 1.0;
    tess_status status = set_shape(made, opts);
    if (status == TESS_OK)
        status = part->source->open(made, opts);
    made->info.bytes = ctx->bytes_now - before;
    if (status == TESS_OK)
        *data = made;
    else
        tess_data_close(made);
    return status;
}

tess_status tess_data_open(tess_ctx *ctx, const tess_data_opts *opts, tess_data **data)
{
    const tess_data_opts o = opts ? *opts : (tess_data_opts)TESS_DATA_OPTS_INIT;
    const tess__data_source *source = NULL;
    if (!ctx || !data || !o.source)
        return tess__invalid(__func__, "%s is NULL", !ctx ? "ctx" : !data ? "data" : "source");
    TESS_TRY(tess__options_check("tess_data_open", TESS_OPTIONS_DATA, &o));
    TESS_TRY(find_source(o.source, &source));
    assert(source);
    if (source == &tess__data_clips && o.stride > 0)
        source = &tess__data_windows;
    if (o.text && source != &tess__data_windows && source != &tess__data_clips &&
        source != &tess__data_latents)
        return tess__invalid(__func__, "text is \"%.200s\", %s has prompts of its own", o.text,
                             source->kind);
    return tess__data_make(
        ctx, &o,
        &(tess__data_part){.source = o.sizes ? &tess__data_buckets : source, .base = source}, data);
}

void tess_data_close(tess_data *data)
{
    if (!data)
        return;
    if (data->source->close)
        data->source->close(data);
    tess__arena_free(&data->arena);
    tess__free(data->ctx, data);
}

tess_status tess_data_query(const tess_data *data, tess_data_info *info)
{
    TESS_REQUIRE(data, info);
    *info = data->info;
    return TESS_OK;
}

/* As declared; meta holds what was decoded before. */
static tess_status sample(const tess_data *data, tess_split split, int64_t index, float *x,
                          float *text, tess__sample_meta *meta)
{
    TESS_TRY(data->source->sample(data, split, index, x, meta));
    if (text && meta->item && meta->item->text_rows > 0)
        return tess__embeddings_read(data, meta->item, text);
    if (text)
        tess__text_vectors(meta->prompt, data->info.text_len, data->info.text_dim, text);
    return TESS_OK;
}

tess_status tess__data_sample(const tess_data *data, tess_split split, int64_t index,
                              const uint8_t *decoded, float *x, float *text)
{
    tess__sample_meta meta = {.prompt = "", .decoded = decoded};
    return sample(data, split, index, x, text, &meta);
}

tess_status tess_data_sample(const tess_data *data, tess_split split, int64_t index, float *x,
                             float *text, char *prompt, size_t prompt_bytes)
{
    TESS_REQUIRE(data);
    TESS_TRY(tess__check_flag(__func__, "split", (int)split));
    TESS_TRY(tess__check_least(__func__, "index", index, 0));
    if (prompt && prompt_bytes == 0)
        return tess__invalid(__func__, "prompt_bytes is 0, must be 1 or more");
    tess__sample_meta meta = {.prompt = ""};
    TESS_TRY(sample(data, split, index, x, text, &meta));
    if (prompt)
        snprintf(prompt, prompt_bytes, "%s", meta.prompt);
    return TESS_OK;
}

tess_status tess_data_prompt(const tess_data *data, const char *prompt, float *text)
{
    TESS_REQUIRE(data, prompt, text);
    if (data->items && data->items->items[0].text_rows > 0)
        return tess__fail(
            TESS_ENOTSUP,
            "tess_data_prompt: the text of this data was made elsewhere, words have no "
            "vectors in it");
    tess__text_vectors(prompt, data->info.text_len, data->info.text_dim, text);
    return TESS_OK;
}
