/* SPDX-License-Identifier: Apache-2.0 */
/* data_clips.c - a folder of clips: video files, .y4m, folders of PNGs; or one of them alone. The
 * first frames of each are its only sample; data_windows.c takes them whole.
 *
 * Every clip is decoded once when the data are opened, at the size, length and rate that samples
 * have, so that the broken ones are known. As many as fit into the cache stay decoded, the first
 * ones in the order of names; the others are decoded again whenever they are sampled.
 */
#include "data_internal.h"

#include <sys/stat.h>

static tess_clip_opts clip_opts(const tess_data *data)
{
    const tess_data_info *info = &data->info;
    return (tess_clip_opts){.frames = info->frames,
                            .height = info->height * info->pack,
                            .width = info->width * info->pack,
                            .fps = data->fps,
                            .as_stored = 1};
}

static int64_t clip_bytes(const tess_data *data)
{
    const tess_clip_opts o = clip_opts(data);
    return (int64_t)o.frames * o.height * o.width * 3;
}

static tess_status inspect(tess_data *data, tess__item *item)
{
    const tess_clip_opts opts = clip_opts(data);
    tess_clip clip;
    TESS_TRY(tess__items_prompt(data, item, -1));
    data->items->records[item->number].prompt = item->prompt;
    TESS_TRY(tess_clip_open(data->ctx, item->path, &opts, &item->clip));
    TESS_TRY(tess_clip_view(item->clip, &clip));
    if (data->info.fps == 0)
        data->info.fps = clip.fps;
    if (data->cache_left >= clip_bytes(data)) {
        data->cache_left -= clip_bytes(data);
        return TESS_OK;
    }
    tess_clip_close(item->clip);
    item->clip = NULL;
    return TESS_OK;
}

/* ---- the list -------------------------------------------------------------------------------- */

static const char *const video_endings[] = {".mp4", ".m4v", ".mov",  ".mkv", ".webm",
                                            ".avi", ".mpg", ".mpeg", ".ts",  ".ogv",
                                            ".wmv", ".flv", ".3gp",  ".gif", ".y4m"};

static int is_video(const char *name)
{
    for (size_t i = 0; i < sizeof video_endings / sizeof *video_endings; i++)
        if (tess__ends_in(name, video_endings[i]))
            return 1;
    return 0;
}

static int is_png(const char *folder, const char *name)
{
    (void)folder;
    return tess__ends_in(name, ".png");
}

static int holds(const char *folder, const char *name, int (*wanted)(const char *, const char *))
{
    char path[4096];
    const int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    return length < (int)sizeof path && tess__folder_has(path, wanted);
}

int tess__is_clip(const char *folder, const char *name)
{
    return is_video(name) || tess__is_picture(folder, name) ||
           holds(folder, name, tess__is_picture);
}

/* Pictures directly in a folder are the frames of one clip, not clips of their own. */
static int is_file_or_folder(const char *folder, const char *name)
{
    return !tess__is_picture(folder, name) && tess__is_clip(folder, name);
}

static int is_file_or_png_folder(const char *folder, const char *name)
{
    return is_video(name) || (!is_png(folder, name) && holds(folder, name, is_png));
}

tess_status tess__clips_list(tess_data *data, const char *path, int windows)
{
    struct stat st;
    char **paths = NULL;
    int n = 0;
    int (*const wanted)(const char *, const char *) = !windows ? is_file_or_png_folder
                                                      : data->info.frames == 1 ? tess__is_clip
                                                                               : is_file_or_folder;
    if (stat(path, &st) != 0)
        return tess__fail(TESS_EIO, "%s: cannot open: %m", path);
    if (S_ISDIR(st.st_mode))
        TESS_TRY(tess__folder_list(&data->arena, path, wanted, &paths, &n));
    TESS_TRY(tess__items_make(data, n));
    if (n == 0)
        return tess__items_add(data, path, NULL);
    for (int i = 0; i < n; i++)
        TESS_TRY(tess__items_add(data, paths[i], NULL));
    return TESS_OK;
}

/* ---- the source ------------------------------------------------------------------------------ */

static tess_status clips_open(tess_data *data, const tess_data_opts *opts)
{
    data->seed = tess__data_seed(opts->seed, "clips");
    data->fps = opts->fps;
    data->info.fps = opts->fps; /* 0: that of the first clip */
    data->cache_left = opts->cache;
    TESS_TRY(tess__clips_list(data, opts->source, 0));
    TESS_TRY(tess__records_make(data));
    if (opts->text)
        TESS_TRY(tess__embeddings_open(data, opts));
    TESS_TRY(tess__items_inspect(data, "reading clips", inspect));
    return tess__items_split(data, opts->source);
}

static void pack(const tess_data *data, const tess_clip *clip, float *x)
{
    const size_t stride = (size_t)clip->width * 3;
    for (int t = 0; t < clip->frames; t++)
        for (int y = 0; y < clip->height; y++)
            tess__pack_row(&data->info, t, y,
                           clip->pixels + ((size_t)t * (size_t)clip->height + (size_t)y) * stride,
                           x);
}

static tess_status clips_sample(const tess_data *data, tess_split split, int64_t index, float *x,
                                tess__sample_meta *meta)
{
    const tess__item *item = tess__items_pick(data, split, index);
    const tess_clip_opts opts = clip_opts(data);
    tess_clip_file *file = item->clip;
    tess_clip clip;
    meta->item = item;
    meta->prompt = item->prompt;
    if (!x)
        return TESS_OK;
    if (!file)
        TESS_TRY(tess_clip_open(data->ctx, item->path, &opts, &file));
    TESS_TRY(tess_clip_view(file, &clip));
    pack(data, &clip, x);
    if (!item->clip)
        tess_clip_close(file);
    return TESS_OK;
}

const tess__data_source tess__data_clips = {"clips", clips_open, clips_sample, tess__items_close};
