/* SPDX-License-Identifier: Apache-2.0 */
/* data.h (internal) - what the sources of clips share.
 *
 * data.c checks the options, finds the source, and answers the public calls. A source fills x and
 * says which prompt belongs to it; the vectors of the prompt come from text.c. Everything is read
 * only after the open, so that threads may sample side by side.
 */
#ifndef TESS_DATA_H
#define TESS_DATA_H

#include "base/base.h"
#include "tessera/data.h"

enum { TESS__FRAMES_MAX = 4096, TESS__SIDE_MAX = 16384, TESS__PACK_MAX = 16, TESS__TOKEN_MAX = 16 };

/* What a source tells about a sample beside its numbers. */
typedef struct {
    const char *prompt; /* "" if there is none; in words, or kept by the data */
    char words[160];    /* room for a prompt made on the spot */
} tess__told;

typedef struct {
    const char *kind;
    /* Fills info's shape, clips and fps, which hold the options' values or their defaults. */
    tess_status (*open)(tess_data *data, const tess_data_opts *opts);
    tess_status (*sample)(const tess_data *data, tess_split split, int64_t index, float *x,
                          tess__told *told); /* x may be NULL */
    void (*close)(tess_data *data);          /* NULL: there is nothing but the arena */
} tess__data_source;

struct tess_data {
    tess_ctx *ctx;
    tess__arena arena;
    tess_data_info info;
    const tess__data_source *source;
    uint64_t seed;
    int token; /* of recall */
};

extern const tess__data_source tess__data_shapes, tess__data_recall, tess__data_recall_aligned;

/* The random stream of a sample: numbers of (seed, stream), where both sides of a split and the
 * kinds of data have streams of their own. */
uint64_t tess__data_seed(uint64_t seed, const char *kind);
uint64_t tess__data_stream(tess_split split, int64_t index);

/* ---- text.c ---------------------------------------------------------------------------------- */

/* tess_text_vectors without checks. */
void tess__text_vectors(const char *prompt, int text_len, int text_dim, float *text);

/* ---- pack.c ---------------------------------------------------------------------------------- */

/* Row y of frame t, width * pack pixels of RGB, to its places in x. */
void tess__pack_row(const tess_data_info *info, int t, int y, const uint8_t *rgb, float *x);

#endif
