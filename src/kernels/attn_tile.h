/* SPDX-License-Identifier: Apache-2.0 */
/* attn_tile.h - what the attention kernels take: a tile of queries, a list of keys, scratch.
 *
 * Dense attention, block masks and token lists differ only in how the list of key rows is written
 * down; the kernels walk it in chunks of TESS_CHUNK rows and see pointers to rows, so that none of
 * the three pays for the others.
 */
#ifndef TESS_ATTN_TILE_H
#define TESS_ATTN_TILE_H

#include <stddef.h>
#include <stdint.h>

enum {
    TESS_TILE = 128,            /* queries of a tile of a group at most: a multiple of every NR */
    TESS_TILE_DENSE_MOST = 192, /* and of dense attention, on any instruction set */
    TESS_PANEL_MOST = 32,       /* columns of a panel, on any instruction set */
    TESS_CHUNK =
        96, /* key rows taken at a time: a multiple of every MR; 192 leaves L2 at D = 128 */
    TESS_SPARE = 16, /* rows and columns past the end that a register block may touch */
    /* Floats between two rows of scores; no power of two, so that rows fall into different sets of
     * the cache. */
    TESS_SCORE_LD = TESS_TILE_DENSE_MOST + TESS_SPARE,
    TESS_DIM_MAX = 256,
    TESS_CLUSTERS_MAX = 64,      /* virtual keys of a group: fewer than a chunk */
    TESS_SORT = 20 * TESS_CHUNK, /* listed rows that are brought into the order of clusters */
};

/* Floats between two rows of a tile's output or dq: head_dim rounded up to the widest panel. */
static inline int tess__wide(int dim)
{
    return (dim + TESS_PANEL_MOST - 1) / TESS_PANEL_MOST * TESS_PANEL_MOST;
}

/* Rows of one head: row i begins stride elements after row i - 1. */
typedef struct {
    const void *data;
    int64_t stride;
} tess__rows;

/* Which rows: units[0..n) ascending, unit u being rows bounds[u]..bounds[u + 1] (bounds NULL: row
 * u); without units, rows begin..end. */
typedef struct {
    const int32_t *units;
    int64_t n;
    const int64_t *bounds;
    int64_t begin, end;
} tess__key_list;

/* Where the next chunk of a list begins: a place in it, and a row inside that unit. */
typedef struct {
    int64_t unit, row;
} tess__key_cursor;

/* One thread's memory. Sizes in floats behind each name; D is tess__wide(head_dim), TILE is
 * TESS_TILE_DENSE_MOST. */
typedef struct {
    float *qt, *gt; /* TILE * D: panels of the queries' (and dout's) transpose */
    float *qn, *gn; /* TILE * D: panels of their rows (backward) */
    float *st, *dt; /* (TESS_CHUNK + SPARE) * SCORE_LD: scores by key and query; their gradient */
    float *panel;   /* TESS_CHUNK * TESS_PANEL_MOST: a panel of v's rows (backward: k's) */
    float *acc;     /* (TILE + SPARE) * D: output (backward: dq) of the tile */
    float *kf, *vf; /* TESS_CHUNK * D: rows widened from bf16 */
    float *m, *l, *top; /* TILE: running maximum, sum, the chunk's maximum (backward: lse, delta) */
    float *spare;       /* D: where rows past the end are written */
    const float **kp, **vp; /* TESS_CHUNK + SPARE: rows of the chunk */
    float **dkp, **dvp;     /* TESS_CHUNK + SPARE: their gradients */
    int32_t *rows;          /* TESS_CHUNK: their numbers */
    /* C is 1, or the clusters. */
    double *sum;  /* C * 2 * D: sums of k's and of v's rows, for the virtual keys */
    float *mean;  /* C * 2 * D: the virtual keys and their values */
    float *start; /* 2 * D: what sums for rows of dk and dv begin with (backward) */
    /* Where keys have clusters, else NULL. */
    int32_t *listed, *sorted; /* TESS_SORT: rows in the order of the list, of the clusters */
    int64_t *count;           /* C: listed rows of each cluster */
    float *bt;                /* as dt: dt before virtual keys are taken off it */
} tess__attn_scratch;

typedef struct {
    int dim;             /* head_dim */
    int n;               /* queries, 1..TESS_TILE_DENSE_MOST */
    float scale;         /* of the scores */
    int bf16;            /* 1: k and v are bf16 */
    tess__rows q, k, v;  /* q starts at the tile's first row, k and v at the head's row 0 */
    const int32_t *rows; /* (n): which rows of q, o, dout, lse, dlse and dq the queries are, counted
                            from where each of these starts; NULL: 0, 1, 2, ... */
    tess__key_list keys;
    /* The virtual key, which stands for the rows that the tile's whole list leaves out. */
    int64_t dropped;     /* how many; 0: there is no virtual key */
    int64_t tokens;      /* rows of the head */
    const double *total; /* (2, dim): sums of all rows of k and of v */
    /* Several virtual keys, one for each cluster of keys. */
    int clusters;           /* 0: one for all */
    const uint8_t *labels;  /* (tokens): the cluster of each row */
    const int64_t *members; /* (clusters): rows of each; total is (clusters, 2, dim) */
} tess__attn_tile;

/* The row of query q of a tile. */
static inline int64_t tess__query_row(const tess__attn_tile *t, int q)
{
    return t->rows ? t->rows[q] : q;
}

/* Forward: o and lse are written (lse may be NULL). */
typedef struct {
    tess__attn_tile tile;
    float *o;
    int64_t stride_o;
    float *lse;
} tess__attn_fwd;

/* Backward: dk and dv rows of the listed keys are added to; the tile's dq (scale included) is left
 * in scratch->acc, n rows of D floats. dlse may be NULL. start (2, dim), if not NULL, is added to
 * each of the listed rows of dk and dv besides; see attn_virtual.c. weights (2, clusters, n), if
 * not NULL, is what the listed rows of a cluster have less of each query; see attn_backward.c. */
typedef struct {
    tess__attn_tile tile;
    const float *o, *dout;
    int64_t stride_o, stride_dout;
    const float *lse, *dlse;
    float *dk, *dv;
    int64_t stride_dk, stride_dv;
    const float *start;
    const float *weights;
} tess__attn_bwd;

/* The nearest of some rows, for each of rows begin..end: see attn_clusters.c. */
typedef struct {
    tess__rows k;
    int bf16, dim;
    int clusters;
    const float *centroids; /* (clusters, dim) */
    const float *half;      /* (clusters): half of each centroid's squared length */
} tess__nearest;

#endif
