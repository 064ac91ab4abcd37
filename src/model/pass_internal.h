/* SPDX-License-Identifier: Apache-2.0 */
/* pass_internal.h - a pass: what the network is computed in, for one shape.
 *
 * Rows are tokens of all samples, one sample behind the other; a sample's text is text_len rows of
 * its own. Where ranks share the tokens, rows are this rank's: the same range of each sample. A
 * block goes through the same steps in every pass (see block.c) and leaves what its gradients need
 * in a set of buffers. Which sets are saved is what the options choose:
 *
 *   forward only        one set, overwritten by each block
 *   TESS_KEEP_ALL       a set for each block
 *   the same in BF16    a set of halves for each block, and one set in F32 to work in
 *   TESS_KEEP_BLOCKS    each block's input (F32 or BF16), and one set that is filled again
 *
 * With precision BF16 sets are halves throughout, and the steps read and write them as they are;
 * the stream itself is F32 within a block, and is rounded at each block's input.
 */
#ifndef TESS_PASS_H
#define TESS_PASS_H

#include "linear/linear_bf16.h"
#include "tessera/advanced/sparse.h"
#include "tessera/cp.h"

enum {
    TESS__BLOCK_ROWS = 64,   /* rows whose column sums are one part, whatever the threads */
    TESS__FFN_ROWS = 2048,   /* rows of the wide middle of the feed-forward layer at a time */
    TESS__ROPE_MAX = 2 * 256 /* of a token's rotation: see rotary.c */
};

/* Rows of the modulation, in the order of the tables; the head has the first two. */
enum { MOD_SHIFT1, MOD_SCALE1, MOD_GATE1, MOD_SHIFT2, MOD_SCALE2, MOD_GATE2, MOD_ALL };

/* What a block leaves for its gradients. */
typedef enum {
    SET_X0,   /* (rows, dim): the block's input */
    SET_QKV,  /* (rows, 3 dim): before norm and rotation */
    SET_O1,   /* (rows, dim): of self attention */
    SET_LSE1, /* (batch, heads, local) */
    SET_X1,   /* (rows, dim): after self attention */
    SET_Q2,   /* (rows, dim) */
    SET_KV2,  /* (text rows, 2 dim) */
    SET_O2,   /* (rows, dim): of attention to the text */
    SET_LSE2, /* (batch, heads, local) */
    SET_X2,   /* (rows, dim): after it */
    SET_H,    /* (rows, ffn): before the GELU; NULL: made again from x2 where it is needed */
    SET_SLOTS
} tess__slot;

typedef struct {
    void *at[SET_SLOTS]; /* log-sums are F32; the others too, or halves where the pass is in BF16 */
} tess__set;

/* Activations in either type. */
typedef struct {
    void *at;
    int half;  /* 1: BF16; 0: F32 */
    int round; /* 1: F32, rounded to BF16 when they are read */
} tess__matrix;

static inline tess__matrix tess__matrix_f32(const float *x)
{
    return (tess__matrix){.at = (void *)(uintptr_t)x};
}

/* Those from element n on. */
static inline tess__matrix tess__matrix_from(tess__matrix x, int64_t n)
{
    x.at = x.half ? (void *)((uint16_t *)x.at + n) : (void *)((float *)x.at + n);
    return x;
}

enum { TESS__CUTS_MAX = 29 }; /* 28 places where 2 to 8 ranks cut the tokens */

/* Sizes that follow from configuration and shape. */
typedef struct {
    int batch, heads, head_dim, layers;
    int half;             /* 1: precision is BF16 */
    int grid[3];          /* tokens along frames, rows and columns */
    int64_t tokens;       /* of a sample */
    int64_t first, local; /* this rank's: the first, and how many */
    int64_t rows;         /* this rank's, of all samples */
    int64_t text, text_rows;
    int64_t dim, ffn, text_dim, freq;
    int64_t patch_in, patch_out; /* numbers of a token, in and out */
    int64_t chunk;               /* rows of the feed-forward layer at a time */
    int64_t parts;               /* partial column sums */
    int64_t row_room;            /* floats of a thread: a row, and as many behind it */
    int64_t slot[SET_SLOTS];     /* elements of a set's buffers */
    /* Local rows of a sample whose sums are made in one: all of them, or with exact what lies
     * between the places where any number of ranks would cut the tokens. */
    int exact, cuts;
    int64_t cut_at[TESS__CUTS_MAX + 1];    /* first row of each, and the end */
    int64_t cut_block[TESS__CUTS_MAX + 1]; /* blocks of TESS__BLOCK_ROWS before each */
    /* Of a pass whose layers may attend sparsely; else 0. */
    int sparse;
    int cube[3];
    int32_t n_q, n_k;   /* groups of queries, units of keys */
    int32_t units_most; /* of a list; 0 where there is no room for lists */
    int64_t head_bits;  /* bytes of one head's lists as bits */
} tess__sizes;

typedef struct tess__whole_heads tess__whole_heads;
struct tess__observer;

/* The ranks that share the tokens; all 0 where there is one. See ranks.h. */
typedef struct {
    tess_comm *comm;
    tess_dist_attn *attn;
    const tess_union_counts *unions;
    int rank, ranks;
    const int64_t *bounds;    /* (ranks + 1): rows of each */
    int64_t *message;         /* (2, ranks): bytes to and from each */
    uint8_t *gathered_bits;   /* where ranks share groups: (ranks, head_bits) */
    tess__whole_heads *whole; /* NULL until a layer is to be measured */
} tess__ranks;

/* Conditioning: a row for each sample, or for each row of text; gradients of a training pass. */
typedef struct {
    float *sinusoid;                 /* (batch, freq) */
    float *time1, *time1_silu;       /* (batch, dim) */
    float *temb, *temb_silu;         /* (batch, dim) */
    float *six;                      /* (batch, 6 dim) */
    float *text, *text1, *text_emb;  /* (text rows, text_dim), twice (text rows, dim) */
    float *dsix, *dtemb, *dtext_emb; /* gradients of six, temb, text_emb */
} tess__conditioning;

/* Activations of the blocks. */
typedef struct {
    float *patches;   /* (rows, patch_in); of a training pass */
    tess__set *saved; /* (layers), or NULL; halves where store or precision is BF16 */
    tess__set work;   /* at[i] NULL where it is not needed; F32, or halves with precision BF16 */
    float *stream;    /* (rows, dim): of a pass in BF16; free in the backward pass of a block */
    float *last;      /* (rows, dim): what the last block gave; in BF16 it is the stream */
} tess__block_values;

/* What a block computes in, and the next one overwrites. */
typedef struct {
    float *mod, *dmod; /* (batch, 6, dim) of a block; the head uses the first two of the six */
    float *n;          /* (rows, dim): a norm's output */
    float *g, *t;      /* (rows, dim): the gradient of the stream, and one on its way */
    float *o;          /* (rows, dim): attention's output in F32, where the step at hand has it */
    float *big;        /* heads, gradients of heads, the middle of the feed-forward layer */
    float *m;          /* (dim, ffn or dim): the gradient of a matrix before its gate */
    float *partial;    /* (parts, 3 dim) */
    float *sums;       /* (dim) */
    /* Of a pass in BF16: */
    float *room;               /* (threads, row_room): a row of each thread, widened */
    void *packed[2];           /* weights of the layers used last, packed for products, */
    const float *packed_of[2]; /* and which; NULL: none */
    int packed_last;
} tess__workspace;

/* What SEARCH found for a head of a sample, whose bits lie beside it. */
typedef struct {
    uint64_t step;
    int32_t keys; /* 0: nothing was found */
} tess__found;

/* How layers attend; attend.layers points to layers, whose keys lie in keys. */
typedef struct {
    tess_attend attend;
    tess_attend_layer *layers;
    int32_t *keys;           /* (layers, batch, heads) */
    uint8_t *by_cube;        /* (layers, heads): 1: groups are cubes, whatever room.group says */
    double *density;         /* (layers, batch, heads): of the last forward pass */
    double *losses;          /* the same, of the predictor; NaN: not learned */
    int64_t *bounds;         /* (n_q + 1): the cubes */
    int saved_lists;         /* layers whose lists are saved: the first ones */
    int recompute_fits;      /* 1: those of a block that is recomputed have room too */
    uint8_t *bits;           /* (saved_lists, batch, heads, head_bits) */
    uint8_t *bits_recompute; /* (batch, heads, head_bits): of a block that is recomputed, or NULL */
    /* Of clusters of keys, where compensate is above 1; layers: 1 without training. */
    float *centroids; /* (layers, batch, heads, clusters, head_dim), unless the caller's are used */
    double *centroid_sums; /* what they are found by: attn/centroids.c */
    float *weights;        /* (tokens): of the keys of one head, where keys are chosen by error */
    uint8_t *labels;       /* (layers, batch, heads, tokens), of a rank with all tokens */
    /* Of groups by content, else NULL; layers: 1 without training. */
    int32_t *rows;       /* (layers, batch, heads, tokens): the query at each place */
    float *grouped;      /* (tokens, head_dim or proj_dim): queries of one head in that order */
    void *group_room;    /* of tess__content_groups */
    tess__found *found;  /* (searches, layers, batch, heads) */
    uint8_t *found_bits; /* (searches, layers, batch, heads, head_bits) */
    /* Of a rank with all tokens: */
    tess_attn *one;                              /* attention of one head of one sample */
    tess_selection *lists;                       /* of it */
    tess_selector *selectors[TESS_SELECT_COUNT]; /* of the kinds used so far */
    tess_proxy proxy;                            /* what those of PREDICTOR */
    int32_t window[3];                           /* and WINDOW were made for */
} tess__attending;

/* Projections of q and k, and what the predictor learns from. */
typedef struct {
    tess_predict *predict; /* maps and losses */
    float *proj;           /* (2, rows, heads * proj_dim): of q and k */
    int in_big;            /* 1: proj lies in ws.big, where gradients will be */
    float *rope[3];        /* as of the pass, for projected vectors */
    int64_t *rows;         /* (2, learn_rows): its queries; the local ones, as local rows */
    float *dq;             /* (batch, heads, learn_rows, proj_dim): their gradients */
    float *q;              /* of ranks: the queries of all of them */
    double *stats;         /* of ranks: what the keys of all of them say of these queries */
} tess__learning;

/* Sums in fixed point: exact.c. */
typedef struct {
    tess_attn *cross; /* attention to the text, of one sample and at most all local rows */
    int64_t *mod;     /* (batch, MOD_ALL, dim): the gradients of the modulation */
    int64_t *text;    /* (2, batch, heads, text, head_dim): of keys and values of the text */
    float *text_part; /* (2, heads, text, head_dim): what a cut gives */
    float *lse;       /* (heads, local): of a cut */
    float *columns;   /* of a layer's output: its bias's gradient by a cut */
    int64_t *dq;      /* (batch, heads, learn_rows, proj_dim): sums of learn.dq */
    float *learn;     /* what a cut gives to it, or to a layer's predictor */
    double *losses;   /* (heads): of a cut */
    int beyond;       /* 1: an addend was too large or NaN */
} tess__exact;

struct tess_pass {
    tess_ctx *ctx;
    tess_model *model;         /* the weights; layers.c gives views of them */
    tess_attn *self, *cross;   /* self: NULL where ranks share the tokens */
    tess__linear_bf16 *linear; /* of a pass in BF16, else NULL */
    int threads;               /* of the context */
    /* Shape. */
    tess__sizes z;
    tess_pass_shape shape; /* its cube, sparse and context are not stored */
    tess_sparse_opts room; /* what sparse pointed to */
    int64_t *perm;         /* (tokens): raster index of each token; NULL: raster order */
    float *rope[3];        /* (side, 2, part of head_dim): rotations along each axis */
    /* What it computes with and in. */
    tess__ranks ranks;
    tess__exact exact;
    tess__conditioning cond;
    tess__block_values act;
    tess__workspace ws;
    tess__attending sparse;
    tess__learning learn;
    /* State. */
    int ready;       /* 1: a forward pass has left what backward needs */
    int recomputing; /* 1: a block is being recomputed for its gradients */
    tess_pass_times times;
    struct tess__observer *observer; /* what the layers are measured for; NULL: they are not */
    tess__ready_fn ready_fn;         /* called with complete gradients; NULL: none */
    void *ready_user;
};

/* ---- pass_sizes.c, pass_layout.c, pass_need.c ------------------------------------------------ */

/* Checks everything about a shape and fills in the sizes. */
tess_status tess__pass_sizes(const char *who, const tess_model_config *config,
                             const tess_pass_shape *shape, tess__sizes *sizes);

/* Bytes of a pass without its attention; *saved those of what lives from forward to backward. With
 * memory of that size: sets the pointers of the pass, whose sizes and shape are set. */
size_t tess__pass_layout(tess_pass *pass, void *memory, size_t *saved);

/* 1: what is saved for the gradients is in BF16. */
static inline int tess__saves_halves(const tess_pass *pass)
{
    return pass->shape.store == TESS_DTYPE_BF16 || pass->z.half;
}

/* What the pass creates for attention to its own tokens, or to the text; and for one head of one
 * sample, with its lists. */
tess_attn_shape tess__pass_attention(const tess__sizes *sizes, int64_t keys);
tess_attn_shape tess__pass_one(const tess_pass *pass);
tess_sel_shape tess__pass_lists(const tess_pass *pass);
tess_predict_shape tess__pass_predict(const tess_pass *pass); /* where it has a rank */

/* ---- ranks.c --------------------------------------------------------------------------------- */

/* Time by the ranks' clock, without what was waited for other ranks. */
typedef struct {
    int64_t clock, waited;
} tess__lap;

tess__lap tess__lap_begin(const tess_pass *p);
int64_t tess__lap_end(const tess_pass *p, tess__lap begin);

/* Rows of all tokens, (batch * tokens, width): where this rank's begin. Then, collective: the
 * latent that the rows of all ranks make together. */
float *tess__whole_place(const tess_pass *p, float *rows, int64_t width);
tess_status tess__whole_latent(tess_pass *p, float *rows, int channels, int channel_last, float *x);

/* ---- steps/linear_layers.c, layers.c: timed products, and loops over rows -------------------- */

/* What the rows of a linear layer are: with exact, each product and each sum over rows is of one
 * cut, one prompt, one sample or of the piece that the caller cuts. Text and samples are the same
 * on all ranks, of which the first one counts. */
typedef enum { ROWS_TOKENS, ROWS_TEXT, ROWS_SAMPLES, ROWS_PIECE } tess__rows_kind;

/* A linear layer of the model, or several side by side. */
typedef struct {
    tess__rows_kind kind;
    int half; /* 1: products are in bf16 */
    int64_t in, out;
    const float *w, *b;
    float *dw, *db; /* NULL without gradients */
} tess__layer;

tess__layer tess__outer_layer(const tess_pass *p, tess__outer_param weight);
tess__layer tess__block_layer(const tess_pass *p, int layer, tess__block_param weight,
                              tess__block_param bias, int side_by_side);

/* Weights may have changed since they were packed for products in bf16. */
void tess__packed_forget(tess_pass *p);

tess_status tess__layer_forward(tess_pass *p, const tess__layer *l, int64_t rows, tess__matrix x,
                                tess__matrix y, const tess__epilogue *epilogue);
tess_status tess__layer_dx(tess_pass *p, const tess__layer *l, int64_t rows, const float *dy,
                           float *dx, int add, const tess__epilogue *epilogue);
tess_status tess__layer_dw(tess_pass *p, const tess__layer *l, int64_t rows, const float *dy,
                           tess__matrix x); /* and the bias's; both are added */

/* y = residual + gate (x w^T + b); gate: (batch, 6, dim), or NULL for 1. */
tess_status tess__layer_residual(tess_pass *p, const tess__layer *l, int64_t row, int64_t rows,
                                 tess__matrix x, const float *residual, const float *gate,
                                 float *y);

/* h = x w^T + b and act = gelu(h); h.at may be NULL: it is not wanted. And for the layer behind
 * it: dh = the gradient of h, from dy, the gradient of that layer's output; act as before. */
tess_status tess__layer_gelu(tess_pass *p, const tess__layer *l, int64_t rows, const float *x,
                             tess__matrix h, float *act);
tess_status tess__layer_gelu_dx(tess_pass *p, const tess__layer *l, int64_t rows, const float *dy,
                                tess__matrix h, float *act, float *dh);

/* p->ws.m = g^T x of rows from row on, or added to it. */
tess_status tess__layer_m(tess_pass *p, const tess__layer *l, int64_t row, int64_t rows,
                          tess__matrix x, int add);

/* The gradients of such a layer's weights and gate, from p->ws.m and p->ws.g of the rows of a cut.
 * With exact dgate is p->exact.mod's. */
void tess__gate_backward(tess_pass *p, const tess__layer *l, int64_t row, int64_t rows,
                         const float *gate, float *dgate);

/* y = g gate, row by row. */
void tess__gate_rows(tess_pass *p, const float *g, const float *gate, float *y);

/* Layer norm of all rows. A stride of 0 means one scale and shift for all samples. */
void tess__norm_rows(tess_pass *p, tess__matrix x, const float *scale, const float *shift,
                     int64_t stride, float *y);

/* Adds to dx. With a stride dscale and dshift of each sample are written, else they are added to.
 */
void tess__norm_rows_backward(tess_pass *p, const float *dy, tess__matrix x, const float *scale,
                              int64_t stride, float *dx, float *dscale, float *dshift);

/* One of the matrices side by side in rows of n_parts * dim: norm weights or NULL, and where its
 * heads lie as (batch, heads, per_sample, head_dim). */
typedef struct {
    float *heads;
    const float *weight;
    float *dweight;
    int rotate; /* 1: rotated by the token's place */
} tess__qkv_part;

void tess__to_heads(tess_pass *p, tess__rows_kind kind, tess__matrix x, int n_parts,
                    const tess__qkv_part *parts);

/* dx: (rows, n_parts * dim) of the gradients in heads; x as before. dweight is added to. */
void tess__from_heads(tess_pass *p, tess__rows_kind kind, tess__matrix x, int n_parts,
                      const tess__qkv_part *parts, float *dx);

tess_view tess__heads_view(const tess_pass *p, const float *heads, int64_t per_sample);
tess_view tess__rows_view(const tess_pass *p, const float *rows);

/* ---- steps/stream.c: activations in F32 and as halves ---------------------------------------- */

/* A slot of a set, in the type that the pass computes with. */
tess__matrix tess__slot_of(const tess_pass *p, const tess__set *s, tess__slot slot);

/* The stream as the gradients will see it: rounded as it is in its slot. */
tess__matrix tess__stream_rounded(const tess_pass *p, const float *stream);

/* n numbers of x from `first` on as floats: where they lie, or converted in the thread's room,
 * which holds a row of dim. */
const float *tess__matrix_read(const tess_pass *p, tess__matrix x, int64_t first, int64_t n);

/* The stream at a step of a block: what the slot holds, or p->act.stream. And where the step behind
 * it writes: the slot, or p->ws.t, which tess__stream_end makes the stream, and keeps in the slot
 * for the gradients. */
float *tess__stream_at(const tess_pass *p, const tess__set *s, tess__slot slot);
float *tess__stream_begin(const tess_pass *p, const tess__set *s, tess__slot slot);
void tess__stream_end(tess_pass *p, const tess__set *s, tess__slot slot);
void tess__stream_swap(tess_pass *p);

/* Rounds the stream to bf16 at a block's input, and stores it unless `to` is NULL. And back. */
void tess__stream_round(tess_pass *p, uint16_t *to);
void tess__stream_read(tess_pass *p, const uint16_t *from);

/* Sets p->ws.o to where attention writes its output, which then goes to the slot; and for the
 * gradients to what the slot holds. */
void tess__output_begin(tess_pass *p, const tess__set *s, tess__slot slot);
void tess__output_end(tess_pass *p, const tess__set *s, tess__slot slot);
void tess__output_read(tess_pass *p, const tess__set *s, tess__slot slot);

/* ---- exact.c: sums in fixed point, of passes made with exact --------------------------------- */

/* Sets cuts and cut_at. */
void tess__exact_cuts(tess__sizes *z);

/* The cut that a local row of any sample lies in: its first row and the row behind it. */
typedef struct {
    int64_t begin, end;
} tess__row_cut;
tess__row_cut tess__cut_of(const tess_pass *p, int64_t row);

/* Adds n numbers, times a factor, to the sums of a parameter's gradient or of p->ws.dmod, where
 * `gradient` lies. Threads may call it at once for different places. */
void tess__exact_add(tess_pass *p, const float *gradient, const float *x, float factor, int64_t n);

/* Whether this rank counts what all ranks of the context have alike. */
int tess__exact_first(const tess_pass *p);

/* Collective: p->ws.dmod of all ranks, and nothing in its sums. */
tess_status tess__exact_mod(tess_pass *p);

/* Attention to the text: gradients of this rank's queries; then, collective, those of keys and
 * values. Views are of the batch. */
tess_status tess__exact_cross(tess_pass *p, const tess_view in[3], const tess__set *s,
                              const tess_view d[3]);

/* ---- rope.c ---------------------------------------------------------------------------------- */

void tess__rope_dims(int head_dim, int dims[3]); /* elements of a head along each axis */

/* Fills tables (side, 2, part) along each axis, for vectors of dim elements. */
void tess__rope_make(const tess_pass *p, int dim, float *const rope[3]);

/* The rotation of the token at a place, as rotary.c takes it, by such tables. */
void tess__rope_at(const tess_pass *p, int64_t token, int dim, float *const rope[3],
                   float out[TESS__ROPE_MAX]);

/* ---- the network, from its input to its output ----------------------------------------------- */

/* modulation.c: p->ws.mod = table + vectors for each sample, with 1 added to the scales, and back:
 * p->ws.dmod to the table's gradient and to that of the vectors. The table has n rows; the vectors'
 * rows are `step` apart (0: one for all) and their samples n * step, or dim with step 0. */
void tess__modulate(tess_pass *p, const float *table, int n, const float *vectors, int64_t step);
void tess__modulate_backward(tess_pass *p, float *dtable, int n, float *dvectors, int64_t step);

/* embed.c: x to tokens, timestep to modulation, text to its embedding. */
tess_status tess__embed_forward(tess_pass *p, const tess_model_in *in, float *x0);
tess_status tess__embed_backward(tess_pass *p, float *dx);

/* pass.c: calls ready_fn: some gradients are complete, or there is a pause. */
tess_status tess__report_ready(const tess_pass *p, int layer);

/* block.c; x_in is in the set. A block that is recomputed leaves out what its set does not hold. */
tess_status tess__block_forward(tess_pass *p, int layer, const tess__set *s, float *x_out);
tess_status tess__block_recompute(tess_pass *p, int layer, const tess__set *s);
tess_status tess__block_backward(tess_pass *p, int layer, const tess__set *s);

/* self_attention.c: o of n, and back: p->ws.g becomes the gradient of x0. */
tess_status tess__self_forward(tess_pass *p, int layer, const tess__set *s);
tess_status tess__self_backward(tess_pass *p, int layer, const tess__set *s);

/* sparse_attention.c: attention over the tokens, dense or as tess_pass_attend says, with
 * parts and gradients by heads. Forward goes from p->ws.n and parts to o1 and lse1; backward needs
 * p->ws.n too. */
tess_status tess__attend_forward(tess_pass *p, int layer, const tess__qkv_part parts[3],
                                 const tess__set *s);
tess_status tess__attend_backward(tess_pass *p, int layer, const tess__qkv_part parts[3],
                                  const tess__qkv_part gradients[3], const tess__set *s,
                                  const float *dout);

/* cross_attention.c */
tess_status tess__cross_forward(tess_pass *p, int layer, const tess__set *s);
tess_status tess__cross_backward(tess_pass *p, int layer, const tess__set *s);

/* feed_forward.c */
tess_status tess__ffn_forward(tess_pass *p, int layer, const tess__set *s, float *x_out);
tess_status tess__ffn_backward(tess_pass *p, int layer, const tess__set *s);

/* output_head.c: the velocity of the last block's output, and its gradient as p->ws.g. */
tess_status tess__head_forward(tess_pass *p, const float *last, float *out);
tess_status tess__head_backward(tess_pass *p, const float *dout);

/* Tokens first .. first + n - 1 of each sample. */
typedef struct {
    int64_t first, n;
} tess__token_range;

/* patches.c: between (batch, channels, frames, height, width) and rows of tokens: this rank's,
 * and those of a span. */
void tess__patches_gather(const tess_pass *p, const float *x, int channels, int channel_last,
                          float *rows);
void tess__patches_scatter(const tess_pass *p, tess__token_range span, const float *rows,
                           int channels, int channel_last, float *x);

#endif
