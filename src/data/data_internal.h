/* SPDX-License-Identifier: Apache-2.0 */
/* data_internal.h - shared declarations of the data sources.
 *
 * data.c checks the options, finds the source and implements the public calls. A source fills x and
 * returns its prompt; the vectors of the prompt come from prompt_text.c. Everything is read-only
 * after the open, so that threads may sample concurrently.
 */
#ifndef TESS_DATA_INTERNAL_H
#define TESS_DATA_INTERNAL_H

#include "base/base_internal.h"
#include "media/media_internal.h"
#include "tessera/advanced/clip.h"
#include "tessera/advanced/dataset.h"
#include "tessera/file.h"

enum {
    TESS__FRAMES_MAX = 4096,
    TESS__SIDE_MAX = 16384,
    TESS__PACK_MAX = 16,
    TESS__TOKEN_MAX = 16,
    TESS__SIZES_MAX = 64
};

typedef struct tess__item tess__item;
typedef struct tess__items tess__items;
typedef struct tess__ahead tess__ahead;
typedef struct tess__buckets tess__buckets;

/* Metadata of a sample: its prompt, and its file. */
typedef struct {
    const char *prompt;     /* "" if there is none; in words, or owned by the data */
    const tess__item *item; /* the clip, of sources that have some */
    int start;              /* the frame of it that the sample begins with */
    const uint8_t *decoded; /* given: what tess__ahead_take returned; NULL: nothing */
    char words[160];        /* buffer for a generated prompt */
} tess__sample_meta;

typedef struct {
    const char *kind;
    /* Fills info's shape, clips and fps, which hold the options' values or their defaults. */
    tess_status (*open)(tess_data *data, const tess_data_opts *opts);
    tess_status (*sample)(const tess_data *data, tess_split split, int64_t index, float *x,
                          tess__sample_meta *meta); /* x may be NULL */
    void (*close)(tess_data *data);                 /* NULL: there is nothing but the arena */
} tess__data_source;

struct tess_data {
    tess_ctx *ctx;
    tess__arena arena;
    tess_data_info info;
    const tess__data_source *source;
    const tess__data_source *base; /* of data of several sizes: what each of its buckets is */
    tess__buckets *buckets;        /* of data of several sizes; NULL: one size */
    const int *bucket_of;          /* of a bucket of clips: the bucket of each listed clip, */
    int bucket;                    /* and this one; NULL: all clips are its own */
    uint64_t seed;
    int token;                                   /* of recall */
    double fps;                                  /* of clips: as the options say */
    int stride, random_start, random_crop, flip; /* of windows */
    int64_t cache_left;                          /* bytes left, while clips are opened */
    tess__items *items; /* of clips and latents; NULL for synthetic sources */
    tess__ahead *ahead; /* of windows outside the cache; NULL: none */
    const char *text;   /* of embeddings: where they are, and the most rows one may have (0: any) */
    int text_most;
};

extern const tess__data_source tess__data_shapes, tess__data_recall, tess__data_recall_aligned,
    tess__data_clips, tess__data_windows, tess__data_latents, tess__data_buckets;

/* tess_data_open with options that were checked, of a source that was found. */
typedef struct {
    const tess__data_source *source, *base;
    const int *bucket_of;
    int bucket;
} tess__data_part;
tess_status tess__data_make(tess_ctx *ctx, const tess_data_opts *opts, const tess__data_part *part,
                            tess_data **data);

/* The random stream of a sample: numbers of (seed, stream), where both sides of a split and the
 * kinds of data have streams of their own. */
uint64_t tess__data_seed(uint64_t seed, const char *kind);
uint64_t tess__data_stream(tess_split split, int64_t index);

/* tess_data_sample without checks and prompt. decoded: what tess__ahead_take returned. */
tess_status tess__data_sample(const tess_data *data, tess_split split, int64_t index,
                              const uint8_t *decoded, float *x, float *text);

/* ---- data_sizes.c, data_buckets.c: data of several sizes ------------------------------------- */

typedef struct {
    int frames, height, width; /* in pixels */
    int64_t weight;
    int weighted; /* 1: the weight was given */
} tess__data_size;

/* EINVAL: the text breaks the rules. sizes has room for TESS__SIZES_MAX. */
tess_status tess__data_sizes(const char *text, tess__data_size *sizes, int *n);

/* The size that a clip gets; -1: it is shorter than all of them. */
int tess__data_size_of(const tess__data_size *sizes, int n, int frames, int height, int width);

struct tess__buckets {
    const tess__data_source *source; /* of each */
    tess__data_size *sizes;          /* (n_sizes): as the options say */
    int n_sizes;
    tess_data **data; /* (n): those that have clips */
    int n;
    int *of;            /* of clips: the size of each that was listed; -1: none */
    int64_t *before[2]; /* (n + 1), by split: numbers of the buckets before each one */
};

/* The bucket of a sample, and its number there. */
int tess__bucket_pick(const tess_data *data, tess_split split, int64_t index, int64_t *number);

/* ---- prompt_text.c --------------------------------------------------------------------------- */

/* tess_text_vectors without checks. */
void tess__text_vectors(const char *prompt, int text_len, int text_dim, float *text);

/* ---- pack.c ---------------------------------------------------------------------------------- */

/* Row y of frame t, width * pack pixels of RGB, to its places in x. */
void tess__pack_row(const tess_data_info *info, int t, int y, const uint8_t *rgb, float *x);

/* ---- data_items.c: clips and latents in files ------------------------------------------------ */

/* Tensor data in a file: in the mapping of a file that stays open, or else in a file of its own. */
typedef struct {
    const void *data; /* NULL: in path */
    tess_dtype dtype;
    const char *path;
    const char *tensor; /* its name in path; NULL: the only one */
} tess__numbers;

struct tess__item {
    const char *name; /* of its file or tensor, without the ending: what its texts are called too */
    const char *path;
    const char *stem; /* the path without the ending; STEM.txt is its prompt */
    const char *prompt;
    int number;           /* its place among all that were listed, broken ones too */
    tess_clip_file *clip; /* decoded; NULL: it is decoded whenever it is sampled */
    tess__numbers latent;
    tess__numbers text; /* embedding */
    int text_rows;
    /* Of windows. */
    tess__frames frames; /* of the file */
    double fps;          /* of the file; 0: none */
    int length;          /* frames at the wanted rate */
    int height, width;   /* of frames as they are stored in pixels */
    uint8_t *pixels;     /* (length, height, width, 3); NULL: windows are decoded when sampled */
    int held_out;        /* training has the frames before this one */
    int validation_from; /* and validation those from here on */
};

struct tess__items {
    tess__item *items;
    int n;
    int *order; /* items by split: validation first */
    int n_validation;
    int n_listed;               /* before the broken ones were dropped */
    tess_data_clip *records;    /* of all that were listed; NULL: none are kept */
    int64_t *before[2];         /* windows of the clips before each one, by split; n + 1 of them */
    tess_file *latents, *texts; /* stay open; NULL: each item has files of its own */
    const char *first_sentence; /* why the first broken one was dropped; NULL: none was */
};

/* Makes data->items with room for n. */
tess_status tess__items_make(tess_data *data, int n);
void tess__items_close(tess_data *data);

/* The item at the end of the list, named after path without its ending, or after `name` if that is
 * not NULL. Path and name are copied. */
tess_status tess__items_add(tess_data *data, const char *path, const char *name);

/* Calls inspect for every item and drops items for which it returns EIO, EFORMAT or ENOTSUP. Other
 * failures (no memory, stopped) are returned. `what`: for the progress function. */
tess_status tess__items_inspect(tess_data *data, const char *what,
                                tess_status (*inspect)(tess_data *data, tess__item *item));

/* After the inspection: EFORMAT if no item is left; else warns of those that were skipped, and
 * makes the splits and info's counts. */
tess_status tess__items_split(tess_data *data, const char *source);
const tess__item *tess__items_pick(const tess_data *data, tess_split split, int64_t index);

/* Sets the prompt to what is in the .txt beside the item, if there is one: line number `line`, or
 * the whole file if that is below 0. White space at the ends is cut off, line ends become spaces.
 */
tess_status tess__items_prompt(tess_data *data, tess__item *item, int line);

/* Numbers of an item as F32. */
tess_status tess__numbers_read(const tess_data *data, const tess__numbers *numbers, size_t n,
                               float *out);

/* 1: the name ends like a file of tensors. */
int tess__is_tensors(const char *folder, const char *name);

/* ---- data_clips.c ---------------------------------------------------------------------------- */

int tess__is_clip(const char *folder, const char *name);

/* Makes the list of clips in a folder, or of the one at path. windows: 1: JPEGs count as PNGs do,
 * and pictures are clips of their own where a sample has one frame. */
tess_status tess__clips_list(tess_data *data, const char *path, int windows);

/* ---- data_windows.c -------------------------------------------------------------------------- */

/* Where a sample lies in a clip. */
typedef struct {
    const tess__item *item;
    int start, y, x, mirror;
} tess__window;

tess__window tess__window_choose(const tess_data *data, tess_split split, int64_t index);

/* Lists the frames of an item, with its record; EFORMAT: it is shorter than a sample. */
tess_status tess__window_list(tess_data *data, tess__item *item, tess__reader *reader);

/* The frame of the file that is frame k at the wanted rate; bytes of a frame as it is stored. */
int tess__window_frame(const tess_data *data, const tess__item *item, int k);
size_t tess__window_frame_bytes(const tess__item *item);

/* ---- windows_ahead.c: of one loader at a time ------------------------------------------------ */

/* The order of a loader's samples: `batch` of each `of` samples from batch number `first` on. */
typedef struct {
    tess_split split;
    int batch, of;
    int64_t skip, first;
} tess__ahead_opts;

/* Room in the data's arena, where there are clips outside the cache. */
tess_status tess__ahead_make(tess_data *data);

/* NULL: nothing is decoded ahead; the calls below accept it. */
tess__ahead *tess__ahead_begin(const tess_data *data, const tess__ahead_opts *opts);
void tess__ahead_end(tess__ahead *ahead);

/* Decodes a frame; 0: all windows that there is room for are decoded. */
int tess__ahead_work(tess__ahead *ahead);

/* The decoded frames of the sample at a place of the order, 0, 1, ..., one after the other, until
 * the next call; NULL: tess_data_sample decodes it. */
const uint8_t *tess__ahead_take(tess__ahead *ahead, int64_t place);

/* ---- data_skipped.c -------------------------------------------------------------------------- */

/* Makes a record for each item of the list, which is complete. */
tess_status tess__records_make(tess_data *data);

/* Logs the last failure as that of a skipped clip, and counts it. number: of its record; -1: it has
 * none. */
tess_status tess__items_skip(tess_data *data, int number);

/* One warning for all that were skipped; EFORMAT with a sentence, if these were all. */
void tess__items_warn(const tess_data *data);
tess_status tess__items_none_left(const tess_data *data, const char *source);

/* ---- shuffle.c ------------------------------------------------------------------------------- */

/* Place i of 0..n-1 in the order number `epoch`: a permutation for every (seed, epoch). */
int64_t tess__shuffle(uint64_t seed, int64_t epoch, int64_t n, int64_t i);

/* ---- embeddings.c ---------------------------------------------------------------------------- */

/* Finds the embedding of every item in opts->text; sets info's text_len and text_dim. */
tess_status tess__embeddings_open(tess_data *data, const tess_data_opts *opts);
tess_status tess__embeddings_read(const tess_data *data, const tess__item *item, float *text);

#endif
