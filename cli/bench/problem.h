/* SPDX-License-Identifier: Apache-2.0 */
/* problem.h - problem texts: what `tessera check` verifies and `tessera bench` measures.
 *
 *   attn,heads=8,dim=128,tokens=8192,density=0.1,unit=1,group=64,pass=bwd
 *
 * A kind, then keys in any order. Meaning, range and default of a key are in one table for each
 * kind, from which parser, help and canonical text follow.
 */
#ifndef TESS_PROBLEM_H
#define TESS_PROBLEM_H

#include "cli.h"
#include <string.h>

typedef enum {
    PROBLEM_ATTN,
    PROBLEM_SELECT,
    PROBLEM_LINEAR,
    PROBLEM_STEP,
    PROBLEM_CP,
    PROBLEM_KINDS
} problem_kind;

enum { PROBLEM_TEXT_MAX = 768, PROBLEM_PATH_MAX = 256, PROBLEM_STRATEGY_MAX = 32 };

/* Members that the kind's table does not name are zero. */
typedef struct {
    problem_kind kind;
    int64_t batch, heads, dim, tokens_q, tokens_k;
    double density; /* 1: dense, without a selection */
    int64_t unit, group;
    int64_t compensate;    /* virtual keys for what was not selected */
    int forward, backward; /* of pass: what runs */
    const char *pass;      /* "fwd", "bwd", "both" */
    const char *storage;   /* of k and v, or of what a step keeps: "f32", "bf16" */
    const char *layout;    /* "bhsd", "bshd" */
    const char *precision; /* of the products: "fp32", "bf16" */
    const char *selector;  /* "predictor", "oracle", "pooled" */
    const char *proxy;     /* of the predictor: "mean", "centre", "softmax" */
    int64_t rank;
    int64_t m, n, k;
    int64_t layers, ffn;
    int64_t text;     /* vectors of a step's prompt; of attn: tokens at the beginning */
    const char *keep; /* "all", "blocks" */
    int64_t seed;
    int64_t tokens; /* as given; tokens_q and tokens_k are what counts */
    /* Of a sparse step. */
    char profile[PROBLEM_PATH_MAX];         /* a density profile, or "" */
    int first_layer, end_layer;             /* of the profile: those that the step's stand for */
    double break_even;                      /* heads of this density or more are dense */
    const char *profile_text, *layers_text; /* while a text is read; NULL afterwards */
    /* Of many ranks. */
    int64_t ranks;
    char strategy[PROBLEM_STRATEGY_MAX]; /* as of tess_cp_opts; of a context problem or "all" */
    const char *strategy_text;           /* while a text is read */
    const char *lists;                   /* "random", "local" */
    const char *links;                   /* "injected", "mpi" */
    const char *cores;                   /* "turns", "shared" */
    int64_t node_ranks;                  /* 0: one node */
    double latency, bandwidth;           /* us, GB/s: between ranks of a node */
    double network_latency, network_bandwidth;
} problem;

/* Whether products are asked for in bf16. */
static inline int problem_in_bf16(const problem *p)
{
    return p->precision && strcmp(p->precision, "bf16") == 0;
}

/* Whether a step attends sparsely. */
static inline int problem_is_sparse_step(const problem *p)
{
    return p->kind == PROBLEM_STEP && (p->density < 1 || p->profile[0]);
}

/* Reads a text. seed is that of a text without one. Returns 0, or -1 with a sentence that names the
 * key, its value and the rule. */
int problem_parse(const char *text, int64_t seed, problem *p, char error[OPT_ERROR_MAX]);

/* Whether its ranks are those that a launcher started. */
int problem_on_mpi(const problem *p);

/* Whether all ranks compute at once, in slices of the cores there are. */
int problem_shares_cores(const problem *p);

/* The canonical text: every key that has an effect, in the order of the table. */
void problem_text(const problem *p, char text[PROBLEM_TEXT_MAX]);

/* The tables, for the help of the commands that take problems. */
extern const key_table problem_keys[PROBLEM_KINDS];

/* ---- lists of problems -------------------------------------------------------------------- */

typedef struct {
    problem *items;
    int n;
} problems;

/* Reads the texts of the arguments and then those of a file (NULL: none): one to a line, empty
 * lines and what follows a # left out. A sentence about the file names the line. Call
 * problems_free in any case. */
tess_status problems_read(cli *c, const strings *texts, const char *path, problems *list);
void problems_free(problems *list);

#endif
