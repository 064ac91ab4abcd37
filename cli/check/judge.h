/* SPDX-License-Identifier: Apache-2.0 */
/* judge.h - attention tensors of other programs against double precision.
 *
 * judge_read.c reads the files, judge_keys.c says which keys a query attends to, judge_rows.c
 * computes attention and its gradients with the rounding errors that are allowed, judge_compare.c
 * finds the worst element of each tensor, judge_mistakes.c recomputes with one usual mistake after
 * the other until one explains what is off, judge_output.c prints and writes the reference.
 *
 * Letters: B batch, H heads of q, HK heads of k and v (a divisor of H), S tokens, D head_dim. All
 * tensors are held as doubles in the order (batch, heads, tokens, head_dim).
 */
#ifndef TESS_JUDGE_H
#define TESS_JUDGE_H

#include "cli.h"
#include "tessera/file.h"

enum { JUDGE_Q, JUDGE_K, JUDGE_V, JUDGE_DOUT, JUDGE_OLD_K, JUDGE_OLD_V, JUDGE_INPUTS };

/* What is judged. */
enum { JUDGE_O, JUDGE_LSE, JUDGE_DQ, JUDGE_DK, JUDGE_DV, JUDGE_OUTPUTS };

/* The options of the command; a file that is NULL is not given. */
typedef struct {
    const char *in[JUDGE_INPUTS], *out[JUDGE_OUTPUTS];
    const char *mask, *lists, *layout, *precision, *dump;
    int64_t group, unit; /* rows of an element of the mask; 0: 1 */
    double scale;        /* NaN: 1 / sqrt(head_dim) */
    int all;
} judge_files;

typedef struct {
    tess_dtype dtype; /* of the file */
    double unit;      /* unit roundoff of the narrowest type that holds every value */
    double *data;     /* NULL: not given */
} judge_tensor;

/* ---- judge_keys.c ---------------------------------------------------------------------------- */

/* Which keys a query attends to: all, by a mask with strides, or by lists. */
typedef struct {
    int64_t tokens_q, tokens_k;
    int heads;
    const void *mask;
    tess_dtype dtype;
    int64_t strides[4]; /* of the mask's batch, heads, rows, columns; 0: one for all */
    int64_t group, unit;
    const int64_t *offsets; /* lists of (batch, heads, n_q), as of tess_selection_lists */
    const int32_t *indices;
    const int64_t *bounds_q, *bounds_k;
    int32_t n_q, n_k;
    int64_t longest; /* units of the longest list */
    /* Mistakes. */
    int inverted, causal;
    enum { PAD_NONE, PAD_FIRST, PAD_LAST } pad; /* short lists repeat unit 0, or their last one */
    int64_t limit;                              /* keys from here on are left out; 0: none */
} judge_keys;

tess_status judge_keys_mask(cli *c, const judge_files *f, tess_file *file, int batch,
                            judge_keys *keys);
/* The lists of a file; memory: what it allocates, to be freed. */
tess_status judge_keys_lists(cli *c, const judge_files *f, tess_file *file, int batch,
                             judge_keys *keys, void *memory[4]);

/* Writes the keys of a query, at most 2 tokens_k of them; returns how many. */
int64_t judge_keys_of(const judge_keys *keys, int64_t b, int64_t h, int64_t row, int64_t *out);

/* 1: every query of a head attends to the same keys, as with padding. */
int judge_keys_padding(const judge_keys *keys, int batch);

/* Row i attends to j where i was attended to by j. Returns -1 where rows and columns differ; *made
 * is freed by the caller. */
int judge_keys_transpose(const judge_keys *keys, int batch, judge_keys *to, void *made[2]);

/* ---- judge_read.c ---------------------------------------------------------------------------- */

typedef struct {
    cli *c;
    const judge_files *files;
    int batch, heads, heads_k, dim;
    int64_t tokens_q, tokens_k;
    int shd;  /* 1: tokens before heads in the files */
    int rank; /* of q's file */
    double scale;
    double unit, sum_unit; /* unit roundoff of stored numbers, and of sums */
    double least;          /* rounding error of stored numbers near 0: that of fp16's denormals */
    const char *precision;
    judge_tensor in[JUDGE_INPUTS], out[JUDGE_OUTPUTS];
    judge_keys keys;
    tess_file *keys_file;
    void *memory[4];
    double *reference[JUDGE_OUTPUTS]; /* to be filled; NULL: not wanted */
} judge;

tess_status judge_open(cli *c, const judge_files *files, judge *j);
void judge_close(judge *j);

int judge_is_keys(int output); /* 1: rows of keys: dk, dv */
int judge_width(const judge *j, int output);
int64_t judge_rows_of(const judge *j, int output); /* tokens of a head */
int judge_heads_of(const judge *j, int output);

extern const char *const judge_in_names[JUDGE_INPUTS], *const judge_out_names[JUDGE_OUTPUTS];

/* ---- judge_rows.c ---------------------------------------------------------------------------- */

/* Mistakes of the formulas. */
enum {
    WRONG_O_SUM = 1,        /* o is not divided by the sum of the softmax */
    WRONG_LSE_BASE2 = 2,    /* lse in base 2 */
    WRONG_LSE_MAX = 4,      /* lse is the maximum alone */
    WRONG_LSE_SUM = 8,      /* lse without the maximum */
    WRONG_DS_UNSCALED = 16, /* ds is not multiplied by the scale */
    WRONG_DS_TWICE = 32,    /* ds is multiplied by the scale twice */
    WRONG_DELTA = 64,       /* delta is 0 */
    WRONG_P_SUM = 128,      /* backward: p = exp(s - max) */
    WRONG_P_BASE2 = 256,    /* backward: p = exp(s - lse / ln 2) */
    WRONG_P_UNSCALED = 512, /* backward: p = exp(q.k - lse) */
    WRONG_P_ALL = 1024,     /* backward: p of every key, with the lse of those selected */
    WRONG_HEAD_LAST = 2048, /* dk, dv of the last query head of a key head alone */
    WRONG_HEAD_MEAN = 4096, /* their mean, not their sum */
};

/* How attention is computed: right, or with one mistake. */
typedef struct {
    double scale;
    const double *q, *k, *v; /* (B, H, S, D), (B, HK, S, D) */
    const judge_keys *keys;
    int interleaved;   /* head h of q reads head h % HK of k and v, not h / (H / HK) */
    int64_t zeros;     /* rows of zeros that stand behind the last key and are attended to */
    int64_t last_rows; /* dk, dv: of so many last queries alone; 0: all */
    unsigned wrong;
} judge_variant;

/* What is computed of it: heads of k and v, whole or at some rows of q. */
typedef struct {
    unsigned outputs; /* bits: of JUDGE_O, ... */
    const int *heads; /* numbers b * HK + hk; NULL: all */
    int n_heads;
    int n_whole;         /* the first so many of them with all rows; dk and dv are compared there */
    const int64_t *rows; /* ascending; the others at these */
    int64_t n_rows;
} judge_plan;

/* The worst element of a tensor, and counts. */
typedef struct {
    double ratio; /* |got - want| / allowed, infinite where got is not finite */
    double got, want, allowed;
    int64_t batch, head, row, column;
    int64_t compared, beyond;
    double got_want, want_want; /* sums of products, for a factor */
} judge_worst;

/* How a tensor of the user is read: as it is, or with a mistake undone. */
typedef struct {
    double factor;      /* it is divided by it; 0: 1 */
    int other_layout;   /* heads and tokens exchanged without moving the data */
    const double *data; /* another tensor instead; NULL: its own */
} judge_reading;

/* Compares the outputs of the plan. reading may be NULL. */
tess_status judge_run(const judge *j, const judge_variant *variant, const judge_plan *plan,
                      const judge_reading *reading, judge_worst worst[JUDGE_OUTPUTS]);

/* ---- judge_compare.c ------------------------------------------------------------------------- */

void judge_compare(const judge *j, const judge_reading *reading, int output, int64_t b, int64_t h,
                   int64_t row, const double *want, const double *allowed, judge_worst *worst);
void judge_merge(judge_worst *to, const judge_worst *from);

/* ---- judge_mistakes.c ------------------------------------------------------------------------ */

enum { JUDGE_TEXT_MAX = 400 };

/* Explains the outputs that are off, bits of `off`. Each gets a sentence; "" where none fits. */
tess_status judge_explain(const judge *j, const judge_plan *plan,
                          const judge_worst worst[JUDGE_OUTPUTS], unsigned off,
                          char text[JUDGE_OUTPUTS][JUDGE_TEXT_MAX]);

/* ---- judge_attn.c ---------------------------------------------------------------------------- */

tess_status judge_attn(cli *c, const judge_files *files);

/* judge_output.c */
tess_status judge_show(judge *j, const judge_plan *plan, const judge_worst worst[JUDGE_OUTPUTS],
                       char text[JUDGE_OUTPUTS][JUDGE_TEXT_MAX]);
tess_status judge_dump(const judge *j);

#endif
