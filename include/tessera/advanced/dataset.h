/* SPDX-License-Identifier: Apache-2.0 */
/* dataset.h - what a source of training data has, beyond its samples.
 * Link with libtessera_train.
 *
 * Advanced: functions and structs may change in any version.
 */
#ifndef TESSERA_DATASET_H
#define TESSERA_DATASET_H

#include "../data.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What tess_data_open would take `source` for: "shapes", "recall", "recall-aligned", "clips" or
 * "latents". Decided by names alone: no file is opened. */
TESS_API tess_status tess_data_kind(const char *source, const char **kind);

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

#ifdef __cplusplus
}
#endif

#endif
