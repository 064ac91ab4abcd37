/* SPDX-License-Identifier: Apache-2.0 */
/* workload.h - tensors and selections of a problem, and the calls on them.
 *
 * `tessera check` and `tessera bench` both run these calls, so that the timed computation is the
 * verified one. Tensors are normal numbers of the problem's seed; outputs begin as NaN, so that
 * elements that are not written are found.
 */
#ifndef TESS_WORKLOAD_H
#define TESS_WORKLOAD_H

#include "bf16_use.h"
#include "problem.h"
#include "tessera/advanced/machine.h"
#include "tessera/advanced/sparse.h"
#include "tessera/advanced/step.h"
#include "tessera/attn.h"
#include "tessera/model.h"

enum { WORKLOAD_BUFFERS = 32 };

/* Seconds that one profile and one check of all layers took, and the mean recall of the check. */
typedef struct {
    double profile, check, recall;
} probed;

/* The queries that profile and check measure. */
typedef struct {
    int64_t rows;    /* queries of each sample and head */
    int32_t groups;  /* that they are of */
    int64_t *place;  /* (rows): their tokens */
    int64_t *bounds; /* (groups + 1) */
    float *q, *low;  /* (batch, heads, rows, dim), (batch, heads, rows, rank) */
    double *densities;
    tess_sel_stats *stats;
    tess_selector *selector;
    probed result;
} probe;

typedef enum { BREAK_EVEN_GIVEN, BREAK_EVEN_MEASURED, BREAK_EVEN_CACHED } break_even_source;

/* How a step attends sparsely; zero for other problems. */
typedef struct {
    int grid[3], cube[3]; /* of tokens, and what it is cut into */
    int32_t groups;
    int64_t *bounds;   /* (groups + 1) */
    double *densities; /* (layers, heads): asked for */
    int32_t *budgets;  /* (layers, batch, heads): keys of each group; 0: dense */
    int32_t *checked;  /* the same with dense heads' too: what a check of recall selects */
    int dense_heads;   /* of all layers and samples */
    double break_even; /* density from which on heads are dense */
    break_even_source break_even_from;
    double asked, ran; /* mean density: asked for; of what runs, dense heads counted as 1 */
    tess_sparse_opts room;
    tess_attend_layer *layers;
    tess_attend attend;
    tess_stage stage;      /* what training asks for in its second stage */
    tess_learner *learner; /* NULL: the step learns nothing */
    int64_t update_ns;     /* of the predictor, in all steps */
    probe probe;
} sparse_step;

/* What multiplies, as a sentence and by name. */
typedef struct {
    tess_precision precision;
    char isa[32];
    char text[PRECISION_TEXT]; /* "" unless the problem asks for bf16 */
} workload_products;

typedef struct {
    cli *c;
    problem p;
    int timed; /* 1: for its times, 0: for its numbers */
    /* attn */
    tess_attn_shape shape;
    tess_attn *attn;
    tess_selection *sel; /* NULL: dense */
    double density;      /* of sel; 1 without one */
    tess_view q, k, v, o, dout, dq, dk, dv;
    float *lse;
    workload_products products; /* once they were asked for */
    /* select: in a selection of its own */
    tess_selector_opts rule;
    tess_selector *selector;
    tess_select_in in;
    tess_view low_q, low_k;
    tess_selection *chosen;
    /* linear; a step has its latent in x, text in w, timesteps in bias, velocity in y */
    float *x, *w, *bias, *y, *dy, *dx, *dw, *dbias;
    /* step */
    tess_model *model;
    tess_pass *pass;
    tess_pass_shape pass_shape;
    int64_t step_bytes; /* of model and pass */
    tess_comm *comm;    /* set before workload_make: ranks that share the tokens of a step */
    tess_cp *context;
    sparse_step sparse;
    int profile_heads; /* of the problem's profile; 0: it has none */
    void *buffers[WORKLOAD_BUFFERS];
    int n_buffers;
    int64_t bytes, bytes_max; /* taken; there are */
} workload;

/* Makes everything a problem needs; of *w only comm is read. with_select: an attn problem also gets
 * the selector that would make its selection, a predictor of projection dimension 16. Call
 * workload_free in any case. */
tess_status workload_make(cli *c, const problem *p, int with_select, workload *w);
void workload_free(workload *w);

tess_status workload_find_products(const workload *w, workload_products *products);

/* "avx2, 2 threads": what all problems of a command run on. */
void workload_head(const cli *c);

/* Further memory for n elements, all bits set, until workload_free. */
tess_status workload_take(workload *w, int64_t n, tess_dtype dtype, void **data);

/* A matrix of F32: the normal numbers of a stream, or an output for stream 0. */
tess_status workload_matrix(workload *w, int64_t rows, int64_t columns, int stream, float **data);

/* workload_density.c: sparse.densities (layers, heads) of the problem's density or profile. */
tess_status workload_densities(workload *w);

/* workload_step.c: for workload_make and workload_free. */
tess_status workload_make_step(workload *w);
void workload_free_step(workload *w);

/* workload_sparse.c: for workload_make_step: completes the shape of a pass, and makes what its
 * steps need. */
tess_status workload_plan_sparse(workload *w, tess_pass_shape *shape);
tess_status workload_groups(workload *w); /* sparse.groups and bounds, of the cubes */
tess_status workload_make_sparse(workload *w, const tess_model_config *config);
void workload_free_sparse(workload *w);

/* workload_probe.c: for workload_make_sparse; a tess_hook_fn. */
tess_status workload_make_probe(workload *w);
tess_status workload_hook(void *workload, const tess_hook_in *hook);

/* The calls. attn runs the problem's pass on a selection, NULL for dense; a backward pass stands on
 * the last forward one. */
tess_status workload_forward(workload *w, const tess_selection *sel);
tess_status workload_attn(workload *w, const tess_selection *sel);
tess_status workload_select(workload *w);
tess_status workload_linear(workload *w);
tess_status
workload_step(workload *w); /* with the attention that the pass has been set to; at first dense */
tess_status workload_step_sparse(workload *w);
tess_status workload_step_dense(workload *w);

/* A sparse step with the predictor's update; the same with profile and check. */
tess_status workload_step_learned(workload *w);
tess_status workload_step_probed(workload *w, probed *result);

/* The time of all steps, by component. */
tess_status workload_step_times(const workload *w, tess_pass_times *times);

/* Floating-point operations of these calls; density is that of the attention's selection. */
double workload_attn_flop(const problem *p, double density);
double workload_select_flop(const workload *w);
double workload_linear_flop(const problem *p);
double workload_step_flop(const problem *p, double density);

#endif
