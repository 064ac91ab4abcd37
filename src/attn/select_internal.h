/* SPDX-License-Identifier: Apache-2.0 */
/* select_internal.h - what the selectors share: a job, a thread's scratch, the rules.
 *
 * select.c runs a job: it cuts the (head, group) pairs into tasks, and each task lets the rule of
 * the selector's kind score key units and hands them to tess__select_emit. What a rule needs of
 * the keys lies in panels (kernels/score.c), packed before the tasks start.
 */
#ifndef TESS_SELECT_INTERNAL_H
#define TESS_SELECT_INTERNAL_H

#include "attention.h"
#include "tessera/select.h"

#include <math.h>

enum {
    TESS__ROWS = 12,     /* proxies scored at once: they share the loads of the panels */
    TESS__TILE_Q = 64,   /* queries and keys of a tile of softmax mass: 68 KiB of scores */
    TESS__TILE_K = 256,  /* a multiple of TESS_PANEL */
    TESS__TILE_LD = 272, /* floats between rows of a tile: no power of two */
};

/* ---- workspace.c ---------------------------------------------------------------------------- */

/* Memory that grows and never shrinks; {0} is an empty one. Its content is lost when it grows. */
typedef struct {
    void *data;
    size_t bytes;
} tess__buffer;

/* Room for n elements of `size` bytes; nothing changes on failure. */
tess_status tess__buffer_grow(tess_ctx *ctx, tess__buffer *buffer, int64_t n, size_t size);
void tess__buffer_free(tess_ctx *ctx, tess__buffer *buffer);

/* What one thread works in. Members that a job has no use for have no memory. */
typedef struct {
    float *rows;      /* (TESS__ROWS, ld): scores of proxies or queries against every key row */
    float *proxies;   /* (TESS_PANEL, dim): proxy queries, or pooled keys on their way to a panel */
    float *scores;    /* (n_k): of the units, for one group */
    float *tile;      /* (TESS__TILE_Q, TESS__TILE_LD) */
    float *mass;      /* (TESS__TILE_K): of the keys of a tile */
    uint32_t *sort;   /* (2, n_k) */
    int32_t *index;   /* (2, n_k + TESS_TOPK_PAD): lists on their way out */
    int32_t *topk;    /* (2, n_k + TESS_TOPK_PAD) */
    int64_t ld, next; /* next: floats from index to the second list */
} tess__scratch;

typedef struct {
    int64_t row_keys; /* columns of rows; 0: none */
    int32_t n_k;
    int dim;
    int tile, sort; /* 1: wanted */
} tess__scratch_shape;

/* Grows the buffer to hold the scratch of `threads` threads, and finds that of one of them. */
tess_status tess__scratch_grow(tess_ctx *ctx, tess__buffer *buffer,
                               const tess__scratch_shape *shape, int threads);
tess__scratch tess__scratch_of(const tess__buffer *buffer, const tess__scratch_shape *shape,
                               int thread);

/* ---- mass.c --------------------------------------------------------------------------------- */

/* The keys of one head, and the units they are counted in. */
typedef struct {
    const tess__kernels *kernels;
    const float *panels;
    int64_t tokens;
    int dim;
    float scale2; /* scale * log2(e) */
    const int64_t *bounds;
    int32_t n_k;
} tess__mass_keys;

/* Packs the keys of one head; shared out to the threads of the region that calls it, all of which
 * wait until it is done. */
void tess__mass_pack(const tess__kernels *kernels, float *panels, const tess_view *k, int64_t b,
                     int64_t h, int64_t tokens, int dim);

/* mass[u] = the softmax mass of unit u summed over n queries, `stride` floats apart. lse (n), or
 * NULL to compute it. Returns how many queries count: those whose lse is finite. */
int64_t tess__mass_group(const tess__mass_keys *keys, const float *q, int64_t stride, int64_t n,
                         const float *lse, const tess__scratch *w, float *mass);

/* mass[u] = the mass of unit u for one query, up to a factor, from its scores against all keys. */
void tess__mass_row(const tess__mass_keys *keys, const float *scores, const tess__scratch *w,
                    float *mass);

/* How many of n masses, largest first, reach `share` of their sum; at least 1. Masses are 0 or
 * more; w->sort is used. */
int32_t tess__mass_count(const float *mass, int32_t n, double share, const tess__scratch *w);

/* The share that the k largest of n masses have of their sum; 0 of a sum of 0. As above. */
double tess__mass_top(const float *mass, int32_t n, int32_t k, const tess__scratch *w);

/* ---- select.c -------------------------------------------------------------------------------- */

/* What lists belong to: a search is repeated only for the same. */
typedef struct {
    int batch, heads;
    int64_t tokens_q, tokens_k;
    int32_t n_q, n_k, group, unit;
    double mass;
} tess__list_key;

struct tess_selector {
    tess_ctx *ctx;
    tess_selector_opts opts;
    tess__buffer panels, staged, starts, counts, scratch, cubes;
    tess__buffer keys;  /* (2, batch, heads): of this call, and of the lists in staging */
    tess__list_key key; /* of the lists in staging */
    int64_t used;       /* indices of them */
    int left;           /* calls that may still repeat them */
    int reused;
};

/* ---- select_run.c and the rules -------------------------------------------------------------- */

typedef struct {
    const tess_selector_opts *opts;
    const tess_select_in *in;
    const tess_selection *sel; /* its shape; not its lists */
    const tess__kernels *kernels;
    float scale;
    const int32_t *keys;  /* (batch, heads): units per group; NULL without such a budget */
    const int64_t *cubes; /* WINDOW: first row of each cube, and the end */
    int32_t n_cubes[3];

    float *panels;       /* of heads first_head, first_head + 1, ... */
    int64_t head_panels; /* panels of one head */
    int64_t first_head;  /* counted over batch and heads */

    int placed;           /* 1: starts are given, and staged is the selection's own */
    int64_t *starts;      /* (lists): where a list begins in staged */
    int32_t *counts;      /* (lists) */
    int32_t *staged;      /* NULL: count only */
    int64_t room;         /* of staged */
    _Atomic int64_t used; /* indices emitted, also beyond the room */
} tess__select_job;

/* Scores units for groups g .. g + n - 1 of a head, n <= TESS__ROWS, and emits their lists. */
typedef void (*tess__rule_fn)(tess__select_job *job, const tess__scratch *w, int64_t head,
                              int32_t g, int32_t n);

typedef struct {
    const char *name;
    tess__rule_fn run;
    int reads;   /* 1: q and k */
    int dim_max; /* of head_dim, if it reads */
    int budget;  /* 1: takes one of units */
    int mass;    /* 1: takes one of mass */
    int pooled;  /* 1: panels hold units, not keys */
    int chunk;   /* groups of a task */
} tess__select_rule;

/* The rule of the options; all but its proxy is decided by the kind. */
const tess__select_rule *tess__rule_of(const tess_selector_opts *opts);

void tess__rule_proxy(tess__select_job *job, const tess__scratch *w, int64_t head, int32_t g,
                      int32_t n);
void tess__rule_pooled(tess__select_job *job, const tess__scratch *w, int64_t head, int32_t g,
                       int32_t n);
void tess__rule_mass(tess__select_job *job, const tess__scratch *w, int64_t head, int32_t g,
                     int32_t n);
void tess__rule_window(tess__select_job *job, const tess__scratch *w, int64_t head, int32_t g,
                       int32_t n);
void tess__rule_edges(tess__select_job *job, const tess__scratch *w, int64_t head, int32_t g,
                      int32_t n);
void tess__rule_random(tess__select_job *job, const tess__scratch *w, int64_t head, int32_t g,
                       int32_t n);

/* Packs panels first .. first + n - 1 of a head: keys, or pooled units. */
void tess__select_pack(tess__select_job *job, const tess__scratch *w, int64_t head, int64_t first,
                       int64_t n);

/* The scale asked for, or its default. */
static inline float tess__select_scale(float scale, int head_dim)
{
    return scale != 0.0f ? scale : 1.0f / sqrtf((float)head_dim);
}

static inline const float *tess__select_panels(const tess__select_job *job, int64_t head)
{
    return job->panels + (size_t)(head - job->first_head) * (size_t)job->head_panels * TESS_PANEL *
                             (size_t)job->in->head_dim;
}

/* Grows panels, scratch, places and lengths for a job, and points it to them; *batch_heads = heads
 * worked on together. */
tess_status tess__select_prepare(tess_selector *s, tess__select_job *job,
                                 tess__scratch_shape *shape, int64_t *batch_heads);

/* Runs every task. ESTOPPED leaves the job half done. */
tess_status tess__select_run(const tess_selector *s, tess__select_job *job, int64_t batch_heads,
                             const tess__scratch_shape *shape);

/* The list of a group: the k units of the highest score. */
void tess__select_emit(tess__select_job *job, const tess__scratch *w, int64_t head, int32_t g,
                       const float *scores, int32_t k);

/* ---- select_check.c -------------------------------------------------------------------------- */

/* EINVAL unless shape and budget are as documented; fills keys (batch, heads) unless the budget is
 * a mass or there is none. */
tess_status tess__select_check_size(const char *who, const tess_selector_opts *opts,
                                    const tess_select_in *in, const tess_sel_shape *shape,
                                    int32_t n_q, int32_t n_k, int32_t *keys);
tess_status tess__select_check_opts(const char *who, const tess_selector_opts *opts);

/* EINVAL unless lists of that many keys can be chosen from. */
tess_status tess__select_check_tokens(const char *who, int64_t tokens_k);

/* EINVAL unless head_dim, scale and the two views are as documented. */
tess_status tess__select_check_qk(const char *who, const tess_view *q, const tess_view *k,
                                  int head_dim, int dim_max, float scale, int64_t tokens_q,
                                  int64_t tokens_k);

#endif
