/* SPDX-License-Identifier: Apache-2.0 */
/* train.h - training the model on clips, checkpoints, and sampling new clips from it.
 * Link with libtessera_train.
 *
 *   tess_train_opts opts = TESS_TRAIN_OPTS_INIT;       // the defaults
 *   opts.folder = "run";
 *   tess_train *train;                                 // the model with gradients, and the data
 *   tess_train_create(model, data, &opts, &train);
 *   tess_train_run(train, 0, show_step, NULL);         // to the end; writes run/checkpoints/...
 *   tess_train_destroy(train);
 *
 * Flow matching: between a clip x0 and noise eps lies x_s = (1 - s) x0 + s eps, and the model
 * learns the velocity eps - x0 from (x_s, 1000 s, text). docs/training.md describes the rest, and
 * the files of a run.
 *
 * A run is a function of (model, data, options): random numbers are keyed by (seed, step, tensor,
 * index), so that a run that was stopped and resumed, also with another number of threads, ends
 * with the same bits as one that was not.
 */
#ifndef TESSERA_TRAIN_H
#define TESSERA_TRAIN_H

#include "comm.h"
#include "cp.h"
#include "data.h"
#include "model.h"
#include "select.h"

TESS_BEGIN_DECLS

/* ---- training -------------------------------------------------------------------------------- */

typedef enum {
    TESS_OPTIM_MUON,  /* for the matrices of the blocks; AdamW for all else */
    TESS_OPTIM_ADAMW, /* for everything */
} tess_optim;

/* How self attention is trained. All but DENSE begin dense and become sparse layer by layer; all
 * but DSV are for comparison: they have no predictor, and switch at a fixed step. */
typedef enum {
    TESS_ATTENTION_DENSE,
    TESS_ATTENTION_DSV, /* predictors learn which keys matter; docs/dsv.md */
    TESS_ATTENTION_ORACLE,
    TESS_ATTENTION_POOLED,
    TESS_ATTENTION_SEARCH, /* in sampling; training sees other clips in each step, and its search
                              is the ORACLE's */
    TESS_ATTENTION_WINDOW,
    TESS_ATTENTION_RANDOM,
    TESS_ATTENTION_OWN, /* by the function or the masks of `selector`; docs/selection.md */
} tess_attention;

/* What brings a layer from stage 1, dense, to stage 2, sparse. */
typedef enum {
    TESS_SWITCH_RECALL, /* its recall on two checks in a row, and a density that has settled */
    TESS_SWITCH_LOSS,   /* the predictors' mean loss, for all layers at once */
    TESS_SWITCH_STEP,   /* a number of steps, for all layers at once */
} tess_switch;

/* Input of the predictors. */
typedef enum {
    TESS_PREDICTOR_QK,           /* q and k */
    TESS_PREDICTOR_HIDDEN,       /* the block's input, projections rotated by token position */
    TESS_PREDICTOR_HIDDEN_PLAIN, /* the block's input alone */
} tess_predictor_kind;

/* What a selector ranks keys by. */
typedef enum {
    TESS_CHOOSE_MASS,  /* softmax mass of the group's queries */
    TESS_CHOOSE_ERROR, /* mass times the distance of the key from its cluster's centroid, the error
                          of what stands for it; of DSV, ORACLE and SEARCH, compensate above 1 */
} tess_choose;

/* Initialise with TESS_ATTENTION_OPTS_INIT. tessera/advanced/options.h has the ranges. Densities
 * are fractions of the keys, 0..1. */
typedef struct {
    tess_attention kind;
    double density;     /* of every sparse head; 0: each head's own, from the profile */
    double mass;        /* fraction of the softmax that the profile's density holds */
    double error;       /* above 0: the profile's densities are the smallest that change the model's
                           output together by at most this, mean squared and in % of the loss; of
                           DSV, ORACLE and SEARCH. 0: by mass */
    double min_density; /* of budgets from the profile */
    double max_density;
    int compensate; /* virtual keys that stand for the keys that were dropped: 0, 1: one for all,
                       2..64: one for each of so many clusters of keys */
    tess_choose choose;    /* which keys are selected first */
    tess_group group;      /* which queries share keys; CUBE for WINDOW and OWN */
    int64_t cluster_every; /* steps between renewals of the clusters, which all clips share; 0: each
                              clip has its own, found in every step */
    tess_predictor_kind predictor;
    int proj_dim; /* length of the predictors' projections, a multiple of 8 */
    tess_predict_loss loss;
    double lr;        /* of the predictors in stage 1 */
    double lr_sparse; /* factor on lr in stage 2 */
    tess_proxy proxy;
    int cube[3]; /* queries that share keys, in tokens; all 0: chosen at the end of stage 1,
                    the largest one whose queries overlap enough */
    tess_switch switch_by;
    int64_t switch_step;
    double switch_recall;
    double switch_loss;
    double back_recall;    /* a head below it is dense again; at most switch_recall */
    int64_t profile_every; /* steps; 0: 10 in stage 1, 25 in stage 2 */
    int64_t check_every;   /* steps between checks of recall */
    int64_t index_memory;  /* bytes for stored lists of keys; 0: 1/32 of the activations */
    double break_even;     /* density below which sparse attention is faster; 0: measured */
    const char *dispatch;  /* "auto" or NULL: a head is sparse where its density is below
                              break_even; "sparse": always; else the path of decisions.json of a
                              checkpoint, whose choices are imposed */
    const char *cache;     /* folder of measured break-even densities; NULL: none */
    const char *selector;  /* OWN: a shared object (tessera/selector.h) or recorded masks
                              (tessera/advanced/plugin.h); NULL for the other kinds */
} tess_attention_opts;

#define TESS_ATTENTION_OPTS_DEFAULTS                                                               \
    .mass = 0.9, .min_density = 0.03, .max_density = 1, .compensate = 1, .proj_dim = 16,           \
    .lr = 0.01, .lr_sparse = 0.1, .switch_step = 300, .switch_recall = 0.95, .switch_loss = 0.01,  \
    .back_recall = 0.9, .check_every = 25, .dispatch = "auto"
#define TESS_ATTENTION_OPTS_INIT                                                                   \
    {                                                                                              \
        TESS_ATTENTION_OPTS_DEFAULTS                                                               \
    }

/* What a clip counts in the loss of a step where clips have several sizes. */
typedef enum {
    TESS_WEIGH_TOKENS, /* its tokens: every token alike */
    TESS_WEIGH_CLIPS,  /* every clip alike */
} tess_weigh;

/* Called with each decision as one sentence, from the thread of tess_train_run. */
typedef void (*tess_event_fn)(void *user, const char *sentence);

/* Initialise with TESS_TRAIN_OPTS_INIT. tessera/advanced/options.h has the ranges. */
typedef struct {
    int batch;      /* clips of a micro-batch; of several sizes each has a pass of its own */
    int accumulate; /* micro-batches of a step */
    tess_weigh weigh;
    int64_t steps;     /* of the whole run */
    int64_t warmup;    /* steps over which the learning rates rise linearly from 0; 0: none */
    double decay_from; /* fraction of the steps after which the learning rates fall linearly towards
                          0; 1: they do not */
    tess_optim optim;
    double lr;             /* of AdamW */
    double lr_muon;        /* of Muon */
    double beta1, beta2;   /* of AdamW */
    double momentum;       /* of Muon */
    double weight_decay;   /* of matrices, decoupled */
    double clip;           /* largest norm of the gradient; 0: any */
    double ema;            /* decay of the moving average of the weights; 0: no average */
    double shift;          /* of noise levels: s = shift u / (1 + (shift - 1) u) */
    double prompt_dropout; /* fraction of clips that are trained without prompt */
    double diverge_above; /* a loss or validation above so many times the lowest running mean of the
                             loss ends the run; 0: it goes on */
    uint64_t seed;
    tess_keep keep;   /* TESS_KEEP_BLOCKS recomputes inside each block: less memory, more time */
    tess_dtype store; /* of saved activations: F32 or BF16 */
    tess_precision precision; /* BF16: products of attention and linear layers, and saved
                                 activations; weights, gradients, optimiser and sums stay F32 */
    int cube[3];              /* token order of DENSE; all 0: by frames, rows, columns */
    tess_attention_opts attention;
    tess_event_fn event; /* NULL: decisions go to the context's log */
    void *event_user;

    int64_t validate_every; /* steps; 0: never. Also at the end of the run */
    int validate_clips;     /* each at four noise levels */

    const char *folder;   /* of the run; NULL: nothing is written */
    const char *settings; /* a text stored as settings.json, here and in checkpoints; NULL: none */
    int64_t checkpoint_every; /* steps; 0: never. Also at the end, and when stopped */
    int checkpoint_limit;     /* the last ones; 0: all */
    int64_t sample_every;     /* steps between sheets of preview samples; 0: none */
    int sample_steps;         /* Euler steps of a preview sample */
    double guidance;          /* classifier-free guidance scale of preview samples */
    int tensorboard;          /* 1: metrics also as TensorBoard's event file in the folder */

    /* Many ranks: every call on the run is then collective. The model, the data and the options are
     * the same on all of them. Groups of ranks_context ranks share the clips of a micro-batch,
     * which must be a multiple of their number. */
    tess_comm *comm;      /* NULL: this rank is alone. Used until the destroy */
    int ranks_context;    /* context-parallel ranks, which share the tokens of each clip; 0: all.
                             Of clips of several sizes 0: those that are too long for a rank are
                             cut over some; 1: none is */
    const char *strategy; /* of context parallelism, as of tess_cp_opts */
    const char *cluster;  /* what plans are made for, likewise; NULL: measured */
    int exact_ranks;      /* 1: the same bits on any number of ranks, of which up to 8 share the
                             tokens of a clip, with any strategy but ring and selective; not with
                             precision BF16 */
    const char *speeds;   /* of clips of several sizes: relative speeds of the ranks, "2,2,1"; NULL:
                             measured, or with a cluster equal */
} tess_train_opts;

#define TESS_TRAIN_OPTS_DEFAULTS                                                                   \
    .batch = 4, .accumulate = 1, .steps = 1500, .warmup = 50, .decay_from = 0.5, .lr = 3e-3,       \
    .lr_muon = 0.02, .beta1 = 0.9, .beta2 = 0.99, .momentum = 0.95, .clip = 1, .ema = 0.995,       \
    .shift = 2, .prompt_dropout = 0.12, .diverge_above = 10,                                       \
    .attention = TESS_ATTENTION_OPTS_INIT, .validate_every = 250, .validate_clips = 16,            \
    .checkpoint_every = 500, .checkpoint_limit = 3, .sample_steps = 25, .guidance = 2,             \
    .strategy = "auto"
#define TESS_TRAIN_OPTS_INIT                                                                       \
    {                                                                                              \
        TESS_TRAIN_OPTS_DEFAULTS                                                                   \
    }

/* Predicted memory of a run in bytes; of many ranks, that of this rank. */
typedef struct {
    int64_t weights, gradients, activations, workspace; /* of the model and its passes */
    int64_t moments, average, optimiser;                /* of the optimiser; its scratch */
    int64_t batches;                                    /* clips, noise, prompts, prefetched ones */
    int64_t predictors; /* of sparse attention: their values, gradients and moments; the profile */
    int64_t total;
} tess_train_memory;

TESS_API tess_status tess_train_need(const tess_model_config *config, const tess_data_info *data,
                                     const tess_train_opts *opts, int threads,
                                     tess_train_memory *memory);

typedef struct tess_train tess_train;

/* The model must have gradients, and channels and text that fit the data; model and data are used
 * until the destroy, and the model must not be used otherwise between. Writes nothing yet. */
TESS_API tess_status tess_train_create(tess_model *model, tess_data *data,
                                       const tess_train_opts *opts, tess_train **train);
TESS_API void tess_train_destroy(tess_train *train); /* before the model and the data */

/* A step that is done. Times are of this step. */
typedef struct {
    int64_t step, steps; /* done, from 1; of the whole run */
    double loss;         /* mean squared error of the velocity */
    double loss_mean;    /* its running mean over about 50 steps */
    double lr, lr_muon;  /* learning rates of this step */
    double grad_norm;    /* before clipping */
    double step_ms;      /* all of it, without validation, samples and checkpoint */
    double attention_ms; /* self-attention, forward and backward */
    double linear_ms;    /* linear layers */
    double other_ms;     /* the rest of the passes, noise and loss */
    double optimiser_ms;
    double data_ms; /* waited for clips */
    double tokens_per_s;
    /* Of sparse attention; a dense run has density 1 and NaN or 0 for the rest. */
    double density;         /* computed (query, key) pairs / all pairs */
    double sparse_layers;   /* in stage 2 */
    double recall;          /* mean over layers of the last check; NaN: none yet */
    double predictor_loss;  /* mean over layers; NaN: none */
    double select_ms;       /* predictors, selection */
    double learn_ms;        /* the predictors' loss and update */
    double profile_ms;      /* profile and checks */
    double attention_gflop; /* products of self attention, forward and backward */
    /* Of many ranks; alone 0, and an imbalance of 1. Other times are without exchange_ms. */
    double exchange_ms; /* waited for other ranks */
    double plan_ms;     /* making plans */
    double imbalance;   /* of attention as planned, mean over layers; of clips of several sizes that
                           of the passes */
    /* Of clips of several sizes, over ranks, else NaN: times of passes without waiting. */
    double imbalance_measured;  /* of the slowest rank / mean */
    double passes_ms;           /* of the slowest rank */
    double passes_predicted_ms; /* the same by the plan; NaN before rates were measured */
    double payload_bytes, index_bytes, control_bytes; /* sent by this rank, by tess_traffic_kind */
    double messages;                                  /* of all kinds together */
    double val_loss;                                  /* NaN where it was not validated */
    double val_buckets[TESS_NOISE_BUCKETS];           /* by noise-level quartile, low noise first */
    double output_change; /* mean squared change of the model's output by sparse attention, in % of
                             the loss, in a validation with attention.error; NaN: not measured */
} tess_step;

/* Called after each step, from the thread of tess_train_run. Not 0: stop here; all ranks stop
 * where one returns it. */
typedef int (*tess_step_fn)(void *user, const tess_step *step);

/* Runs `steps` steps, or 0: all that are left of opts.steps. fn may be NULL. Stopped by fn, it
 * writes a checkpoint (with a folder) and returns ESTOPPED, or the failure of the checkpoint. A
 * loss or gradient that is not finite ends the run with EINVAL before it touches the weights, also
 * with a checkpoint. Where that cannot be written, the sentence says both. A loss or validation
 * that diverges (diverge_above) ends it with EINVAL too; with a folder, the state is then the last
 * good one, for which steps may be run again (and reported to fn again), and is written as a
 * checkpoint. With a folder, the first call without a resume before fails if there is a checkpoint
 * in it. */
TESS_API tess_status tess_train_run(tess_train *train, int64_t steps, tess_step_fn fn, void *user);

typedef struct {
    int64_t step, steps; /* done, of the whole run */
    int64_t tokens;      /* of a step */
    double loss_mean;    /* NaN before the first step */
    double val_loss;     /* of the last validation; NaN before one */
    const char
        *checkpoint;       /* the folder of the last one written or read; NULL: none. The train's */
    tess_comm_counts sent; /* by this rank to others, since the train was made */
} tess_train_info;

TESS_API tess_status tess_train_query(const tess_train *train, tess_train_info *info);

/* ---- checkpoints ----------------------------------------------------------------------------- */

/* Writes everything a run needs to go on into a new folder, which appears when it is complete. The
 * folder opens in diffusers; its subfolder ema too, with the averaged weights. EINVAL if dir
 * exists; after any failure nothing of it does. */
TESS_API tess_status tess_train_save(tess_train *train, const char *dir);

/* Goes on from a checkpoint of the same model and optimiser. After a failure the train can only be
 * destroyed. */
TESS_API tess_status tess_train_resume(tess_train *train, const char *dir);

/* The same into a run of its own, with a new folder, and other settings of attention if wanted:
 * weights, moments, step and place in the data are the checkpoint's, and so are its predictors and
 * what was measured where they serve; stages, cubes and choices are decided anew. */
TESS_API tess_status tess_train_branch(tess_train *train, const char *dir);

typedef struct {
    int64_t step;
    char kind[32];       /* of the data */
    tess_data_info data; /* the shape of a sample, pack, text and fps; its kind is NULL */
    double shift, guidance;
    int ema;                       /* 1: averaged weights are in the subfolder ema */
    int external;                  /* 1: prompts were embedded elsewhere, words are not known */
    tess_attention_opts attention; /* how it attends: what sampling needs of it, no texts */
} tess_checkpoint;

/* The newest complete checkpoint of a run's folder, or dir itself if it is one: its path, which
 * must fit in bytes. EIO if there is none. */
TESS_API tess_status tess_checkpoint_find(tess_ctx *ctx, const char *dir, char *path, size_t bytes);

/* What sampling needs to know of a checkpoint. */
TESS_API tess_status tess_checkpoint_read(tess_ctx *ctx, const char *dir,
                                          tess_checkpoint *checkpoint);

/* ---- sampling -------------------------------------------------------------------------------- */

/* Who evaluates the velocity with the prompts and who without, of many ranks with guidance. */
typedef enum {
    TESS_HALVES_AUTO, /* ON where the number of ranks is even */
    TESS_HALVES_ON,   /* one half of the ranks each; EINVAL where that cannot be */
    TESS_HALVES_OFF,  /* all ranks evaluate both */
} tess_halves;

/* Initialise with TESS_SAMPLE_OPTS_INIT. tessera/advanced/options.h has the ranges. */
typedef struct {
    int batch;                 /* clips at once */
    int steps;                 /* of Euler's method */
    int frames, height, width; /* of the latent: multiples of the model's patch */
    int text_len;              /* 0: the configuration's */
    double shift;              /* of the noise levels */
    double guidance;           /* classifier-free guidance scale; 1: none */
    uint64_t seed;             /* clip i has noise of (seed, first + i) alone */
    int64_t first;             /* number of the batch's first clip */
    int cube[3];               /* token order of dense attention; all 0: frames, rows, columns */
    const char *checkpoint;    /* whose decisions and predictors are used; NULL: none */
    /* How to attend; NULL: as the checkpoint was trained, without one dense. To change a part of
     * that, begin with the attention of tess_checkpoint. The fields of training are not read. With
     * the kind, density and mass of the checkpoint, its budgets hold for those heads that it made
     * sparse, in its cubes. A density holds for every head. Density 0 with another mass or kind:
     * budgets are measured, by dense attention in the first step of each noise-level quartile, over
     * all clips of the batch. cube all 0: the checkpoint's, else 2 x 4 x 4. */
    const tess_attention_opts *attention;
    int64_t search_every; /* SEARCH: steps from one search to the next; those between use its keys,
                             as long as the budget stays. 1 is ORACLE */
    double
        *density; /* (steps, layers, heads): computed fraction of the pairs, mean over clips; NULL:
                        not wanted, on all ranks or on none */

    /* Many ranks: the call is then collective, with the same model, options and text on all of
     * them, and every rank gets the clips. They share the tokens, by plans that are made from the
     * densities of the step before, and reused while they pay. */
    tess_comm
        *comm; /* NULL: this rank is alone. Wrong arguments leave it as it was; after any other
                        failure it can only be destroyed */
    tess_halves halves;
    const char *strategy;        /* of context parallelism, as of tess_cp_opts */
    const char *cluster;         /* what plans are made for, likewise; NULL: measured */
    int exact_ranks;             /* as in tess_train_opts */
    tess_precision precision;    /* as in tess_train_opts */
    tess_cp_event_fn plan_event; /* called with each plan, on every rank; NULL: not called */
    void *plan_user;
    tess_comm_counts *sent; /* grows by what this rank sent and waited; NULL: not wanted */
} tess_sample_opts;

#define TESS_SAMPLE_OPTS_DEFAULTS                                                                  \
    .batch = 1, .steps = 25, .shift = 2, .guidance = 2, .search_every = 4, .strategy = "auto"
#define TESS_SAMPLE_OPTS_INIT                                                                      \
    {                                                                                              \
        TESS_SAMPLE_OPTS_DEFAULTS                                                                  \
    }

/* Integrates dx/ds = v from noise at s = 1 to a clip at s = 0 by Euler's method, with guidance
 * v = v_none + guidance (v_text - v_none).
 *
 *   text: (batch, text_len, text_dim)   latents: (batch, channels, frames, height, width)
 *
 * No prompt is zeros. The same bits for every number of threads and on every rank; on repeat too if
 * the plans are the same, as with a cluster. Another number of ranks adds in another order. After a
 * failure density may hold anything. */
TESS_API tess_status tess_sample_run(tess_model *model, const tess_sample_opts *opts,
                                     const float *text, float *latents);

TESS_END_DECLS

#endif
