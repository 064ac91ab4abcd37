/* SPDX-License-Identifier: Apache-2.0 */
/* dataset.h - what a source of training data has, beyond its samples.
 * Link with libtessera_train.
 *
 * Advanced: functions and structs may change in any version.
 */
#ifndef TESSERA_DATASET_H
#define TESSERA_DATASET_H

#include "../data.h"
#include "../media.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What tess_data_open would take `source` for: "shapes", "recall", "recall-aligned", "clips" or
 * "latents". Decided by names alone: no file is opened. */
TESS_API tess_status tess_data_kind(const char *source, const char **kind);

/* Data of several sizes: the shape and the counts of bucket number 0 .. sizes - 1, the clips of one
 * size; of data of one size bucket 0 is all of it. And the bucket of a sample. */
TESS_API tess_status tess_data_bucket(const tess_data *data, int bucket, tess_data_info *info);
TESS_API tess_status tess_data_bucket_of(const tess_data *data, tess_split split, int64_t index,
                                         int *bucket);

/* A clip of a folder or file, used or skipped. Texts live as long as the data. */
typedef struct {
    const char *name, *path, *prompt;
    int frames;        /* at the wanted rate; 0: not known */
    int height, width; /* of the file's frames as they are shown, or of the latent; 0: not known */
    double fps;        /* of the file; 0: none */
    int64_t windows, windows_validation; /* samples of an epoch that it gives to each split */
    const char *skipped;                 /* why it is not used; NULL: it is */
} tess_data_clip;

/* All clips that were found, in the order of their names; 0 for drawn data. */
TESS_API int tess_data_clip_count(const tess_data *data);
TESS_API tess_status tess_data_clip_query(const tess_data *data, int index, tess_data_clip *clip);

/* Which clip sample number index is of, and the frame at the wanted rate that it begins with; -1
 * and 0 for drawn data. */
TESS_API tess_status tess_data_locate(const tess_data *data, tess_split split, int64_t index,
                                      int *clip, int *start);

/* ---- prompt adherence of clips like those of `shapes` ------------------------------------ */

/* How many of the words of a kind the clip follows. */
typedef struct {
    int asked, right;
} tess_word_count;

typedef struct {
    tess_word_count colour, shape, direction;
    double stray;    /* fraction of the pixels that are neither background nor of a colour of the
                        prompt's objects, nor a mixture of the two */
    char found[160]; /* "a red disc moving left and ...": what was found in place of each object */
} tess_shapes_score;

/* Compares a clip with its prompt, "a red disc moving left" or two such objects joined by "and",
 * whose colours differ. A word that is left out is not asked for. src/data/judge_shapes.c has the
 * rules. EINVAL: the prompt names no colour, shape or direction, more than two objects, or two
 * objects without two colours. */
TESS_API tess_status tess_shapes_judge(tess_ctx *ctx, const tess_clip *clip, const char *prompt,
                                       tess_shapes_score *score);

#ifdef __cplusplus
}
#endif

#endif
