/* SPDX-License-Identifier: Apache-2.0 */
/* data.h - clips to train on: synthetic ones, those of a folder, or latents made elsewhere.
 * Link with libtessera_train.
 *
 * A sample is a pure function of (options, split, index): no call changes the data, so any number
 * of threads may sample at once, and a run that resumes at index i reads the same samples.
 * docs/data.md describes the sources.
 */
#ifndef TESSERA_DATA_H
#define TESSERA_DATA_H

#include "base.h"

TESS_BEGIN_DECLS

typedef struct tess_data tess_data;

typedef enum { TESS_SPLIT_TRAIN, TESS_SPLIT_VALIDATION } tess_split;

/* Initialise with TESS_DATA_OPTS_INIT. tessera/advanced/options.h has the ranges. */
typedef struct {
    /* "shapes", "recall", "recall-aligned"; a folder of clips (video files, .y4m, folders of PNGs,
     * each with its prompt in a .txt beside it); a folder or file of latents (.npy, .npz,
     * .safetensors). A name with a slash in it, "./shapes", is always a path. */
    const char *source;
    int frames, height, width; /* of a clip, in pixels; 0: 8, 32 and 32. Latents have their own, and
                                  other values than 0 and these are refused */
    const char *sizes; /* NULL: all samples have the size above. Else several, in place of the three
                          members: "8x32x32:4,16x64x64", frames x height x width in pixels, drawn in
                          proportion to the weights (1 where none is given). A clip in a file has
                          the size that shows most of it; then there are no weights */
    int pack;          /* p: p x p pixels become 3 p^2 channels of one. Divides both sides */
    int text_len, text_dim; /* vectors of a prompt, and their length; 0: 16 and 64, or as in text */
    const char *text;       /* NULL, or a folder or file of embeddings made elsewhere */
    uint64_t seed;          /* of drawn clips, and of the order of files */
    double fps;             /* of clips in files: frames read per second; 0: every frame */
    int stride;             /* of clips in files: frames from one window to the next; 0: the first
                               frames of each are all that is read, not rotated as files ask for */
    int random_start;       /* 1: a window begins anywhere in its stride, anew in every epoch */
    int random_crop;        /* 1: a window is cut anywhere from its frames, not at the centre */
    int flip;               /* 1: every second window or so is mirrored, left to right */
    int token;              /* of the recall boards: pixels on a side */
    int64_t cache;          /* bytes of decoded clips held in memory */
} tess_data_opts;

#define TESS_DATA_OPTS_DEFAULTS .source = "shapes", .pack = 1, .token = 4, .cache = (int64_t)1 << 30
#define TESS_DATA_OPTS_INIT                                                                        \
    {                                                                                              \
        TESS_DATA_OPTS_DEFAULTS                                                                    \
    }

typedef struct {
    const char *kind; /* "shapes", "recall", "recall-aligned", "clips", "latents" */
    int channels, frames, height, width; /* of a sample: packed pixels, or a latent */
    int sizes;    /* of samples: above 1 the shape is that of the largest one, and tess_data_bucket
                     has each (tessera/advanced/dataset.h) */
    double share; /* of a bucket: of all samples; else 1 */
    int pack;     /* 1 for latents */
    int text_len, text_dim;
    int64_t clips, clips_validation;     /* in a split; 0: endless */
    int64_t windows, windows_validation; /* samples of an epoch; 0: endless */
    int64_t skipped;                     /* broken clips, each named in a warning of the log */
    int64_t bytes;                       /* of memory held: decoded clips, lists */
    double fps;                          /* to show a clip at */
} tess_data_info;

/* Reads every clip of a folder once, so that the broken ones are known: they are skipped with a
 * warning, and one that breaks later is an error. Of n clips in files one in twenty (from n = 2 on
 * at least one) is held out for validation, always the same ones; with a stride, of fewer than 20
 * clips the end of each that is long enough instead. EFORMAT: there is no clip at all. */
TESS_API tess_status tess_data_open(tess_ctx *ctx, const tess_data_opts *opts, tess_data **data);
TESS_API tess_status tess_data_query(const tess_data *data, tess_data_info *info);
TESS_API void tess_data_close(tess_data *data);

/* Sample number index, 0 or more. Clips in files have a new order in every epoch, fixed
 * by the seed. x: (channels, frames, height, width) of the sample's size, pixels as -1..1.
 * text: (text_len, text_dim). prompt: its words, cut to prompt_bytes with the final NUL. Any of the
 * three may be NULL. Only clips that are decoded from files outside the cache need memory; after a
 * failure x and text hold any part of a sample. */
TESS_API tess_status tess_data_sample(const tess_data *data, tess_split split, int64_t index,
                                      float *x, float *text, char *prompt, size_t prompt_bytes);

/* The vectors of a prompt, (text_len, text_dim): for each word, in order, the first text_dim normal
 * numbers of a stream that the lower-case word names; rows of zeros follow. Words are runs of ASCII
 * letters, digits, and bytes beyond ASCII; those after the first text_len are left out. "" is all
 * zeros: no prompt. ENOTSUP for data whose text was made elsewhere. */
TESS_API tess_status tess_data_prompt(const tess_data *data, const char *prompt, float *text);
TESS_API tess_status tess_text_vectors(const char *prompt, int text_len, int text_dim, float *text);

/* Back to (frames, height * pack, width * pack, 3): unpacked, clamped, rounded. EINVAL where the
 * channels are not those of packed pixels. Of info it reads the shape and pack alone. */
TESS_API tess_status tess_data_pixels(const tess_data_info *info, const float *x, uint8_t *pixels);

TESS_END_DECLS

#endif
