/* SPDX-License-Identifier: Apache-2.0 */
/* work.h - the work of a step inside: how much each head, query block and tile has.
 *
 * Two kinds. With masks, the bits of every (layer, head, query block) are kept in words of 64 key
 * blocks, beside prefix sums of the loads of query blocks. Without, a head's load is spread over
 * its rows: query blocks [0, g) have floor(load * rows / all rows), so that any cut is exact, adds
 * up, and costs O(1) time and no memory.
 *
 * A selected pair of blocks counts one unit, or, where the work came from a selection, the rows of
 * the one times the rows of the other. Rows of key blocks are stored in binary: slice b is the set
 * of key blocks whose rows have digit 2^b, so that the rows that a set of key blocks x has are
 *
 *   sum over b of 2^b * popcount(x & slice b)
 *
 * with one slice of everything where each block counts one.
 *
 * Functions here check nothing: layers, heads and cuts are valid.
 */
#ifndef TESS_WORK_H
#define TESS_WORK_H

#include "base/base_internal.h"
#include "tessera/file.h"
#include "tessera/plan.h"

enum { TESS_SLICES_MAX = 31 };

struct tess_work {
    tess_ctx *ctx;
    tess__arena arena; /* the work lies in it */
    tess_work_info info;
    int64_t rows_q, rows_k;               /* tokens, or blocks where these are unknown */
    const int64_t *bounds_q, *bounds_k;   /* (blocks + 1); NULL: uniform */
    int by_rows;                          /* 1: a selected pair of blocks counts its rows */
    int words;                            /* of a row of bits; 0 without masks */
    int64_t *loads;                       /* (layers, heads) */
    uint64_t *bits;                       /* (layers, heads, q_blocks, words); NULL: no masks */
    int64_t *prefix;                      /* (layers, heads, q_blocks + 1) */
    uint64_t *slices[TESS_SLICES_MAX];    /* (words) each */
    int n_slices, digit[TESS_SLICES_MAX]; /* slice i holds digit 2^digit[i] */
};

/* ---- shapes and loads --------------------------------------------------------------------- */

/* The first row of query block g, 0 <= g <= q_blocks, and of key block g. */
static inline int64_t tess__work_q_row(const tess_work *work, int32_t g)
{
    if (work->bounds_q)
        return work->bounds_q[g];
    const int64_t row = (int64_t)g * work->info.group;
    return row < work->rows_q ? row : work->rows_q;
}

static inline int64_t tess__work_k_row(const tess_work *work, int32_t g)
{
    if (work->bounds_k)
        return work->bounds_k[g];
    const int64_t row = (int64_t)g * work->info.unit;
    return row < work->rows_k ? row : work->rows_k;
}

static inline size_t tess__work_place(const tess_work *work, int layer, int head)
{
    return (size_t)layer * (size_t)work->info.heads + (size_t)head;
}

/* The load of a head. */
static inline int64_t tess__work_head(const tess_work *work, int layer, int head)
{
    return work->loads[tess__work_place(work, layer, head)];
}

/* floor(load * part / whole), 0 <= part <= whole. */
static inline int64_t tess__work_share(int64_t load, int64_t part, int64_t whole)
{
    return (int64_t)((__int128)load * part / whole);
}

/* The load of a head's query blocks [0, g), 0 <= g <= q_blocks. */
static inline int64_t tess__work_prefix(const tess_work *work, int layer, int head, int32_t g)
{
    const size_t at = tess__work_place(work, layer, head);
    if (work->prefix)
        return work->prefix[at * ((size_t)work->info.q_blocks + 1) + (size_t)g];
    return tess__work_share(work->loads[at], tess__work_q_row(work, g), work->rows_q);
}

/* ---- bits --------------------------------------------------------------------------------- */

/* Words of a row of bits; 0 without masks. */
static inline int tess__work_words(const tess_work *work)
{
    return work->words;
}

/* The key blocks that a query block selects: bit k % 64 of word k / 64; bits past the last key
 * block are 0. NULL without masks. */
static inline const uint64_t *tess__work_bits(const tess_work *work, int layer, int head, int32_t q)
{
    if (!work->bits)
        return NULL;
    const size_t row =
        tess__work_place(work, layer, head) * (size_t)work->info.q_blocks + (size_t)q;
    return work->bits + row * (size_t)work->words;
}

/* ---- work_tiles.c: sums over heads, query places and key parts ------------------------------ */

/* Key blocks in parts: place p of the order holds block k_order[p] (NULL: p), and part j is places
 * [k_cuts[j], k_cuts[j + 1]). Memory: parts x slices x words. */
typedef struct {
    const tess_work *work;
    int n;
    uint64_t *bits; /* (n, slices, words); NULL without masks, and for all keys in one part */
    int64_t *rows;  /* (n + 1), then: rows of the parts before */
} tess__key_parts;

tess_status tess__key_parts_make(const tess_work *work, const int32_t *k_order,
                                 const int32_t *k_cuts, int n, tess__key_parts *parts);
void tess__key_parts_free(tess__key_parts *parts); /* {0} accepted */

/* row (parts->n) = the work of the query blocks at places [q_begin, q_end) of q_order (NULL: the
 * blocks themselves) with each key part, summed over n heads (NULL: heads 0..n-1). */
void tess__key_parts_sum(const tess__key_parts *parts, int layer, const int32_t *heads, int n,
                         const int32_t *q_order, int32_t q_begin, int32_t q_end, int64_t *row);

/* tiles (ring, ring) = the work of (query part, key part), summed over these heads. */
tess_status tess__work_tiles(const tess_work *work, int layer, const int32_t *heads, int n,
                             const int32_t *q_order, const int32_t *q_cuts, const int32_t *k_order,
                             const int32_t *k_cuts, int ring, int64_t *tiles);

/* loads (k_blocks) = the work of each key block with the query blocks at places [q_begin, q_end),
 * summed over these heads: columns of the mask, or one row of the sum of masks. */
void tess__work_columns(const tess_work *work, int layer, const int32_t *heads, int n,
                        const int32_t *q_order, int32_t q_begin, int32_t q_end, int64_t *loads);

/* ---- for the sources of work ---------------------------------------------------------------- */

/* A work of this shape, in one arena: info with layers, heads, blocks, tokens, group, unit, masks
 * and unit_pairs set and checked; loads, bits and prefix are there, but not filled; one slice of
 * all key blocks where by_rows is 0, else as their rows ask for. Bounds (NULL: uniform) are copied.
 */
tess_status tess__work_make(tess_ctx *ctx, const tess_work_info *info, const int64_t *bounds_q,
                            const int64_t *bounds_k, int by_rows, tess_work **work);

/* Adds up loads into info.total; EINVAL where they reach 2^63. */
tess_status tess__work_finish(const char *who, tess_work *work);

/* Work known by head, in blocks of these bounds, ascending from 0 to the tokens. */
typedef struct {
    int layers, heads;
    const double *shares;               /* (layers, heads), 0..64: of all pairs of tokens */
    const int64_t *bounds_q, *bounds_k; /* (n_q + 1), (n_k + 1) */
    int32_t n_q, n_k;
    double unit_pairs; /* pairs that a unit stands for */
} tess__head_work;
tess_status tess__work_from_shares(const char *who, tess_ctx *ctx, const tess__head_work *in,
                                   tess_work **work);

/* tess_work_load of an open file, which `name` stands for in sentences. */
tess_status tess__work_read(tess_ctx *ctx, const char *name, tess_file *file,
                            const tess_mask_opts *opts, tess_work **work);

/* work_lists.c: the same from a file of two tensors, counts and indices of key blocks. */
tess_status tess__work_read_lists(tess_ctx *ctx, const char *name, tess_file *file,
                                  const tess_mask_opts *opts, tess_work **work);

/* profile.c: tess_profile_open of a text in memory, which `name` stands for in sentences. */
tess_status tess__profile_read(tess_ctx *ctx, const char *name, const void *text, size_t bytes,
                               const tess_profile_opts *opts, tess_profile **profile);

/* profile_windows.c: a profile from a .json of windows of sliding tile attention. */
tess_status tess__profile_windows(tess_ctx *ctx, const char *path, const int tiles[3],
                                  tess_profile **profile);

/* profile_write.c: the first line of a profile's file, and any other one; returns its bytes. */
#define TESS_PROFILE_HEAD "step,layer,head,density\n"
enum { TESS_PROFILE_LINE = 96 };
size_t tess__profile_line(char line[TESS_PROFILE_LINE], int64_t step, int64_t layer, int head,
                          double density);

#endif
