/* SPDX-License-Identifier: Apache-2.0 */
/* option_tables.c - the options of training, sparse attention, sampling, data and planning. */
#include "tessera/advanced/options.h"
#include "tessera/strategy.h"
#include "tessera/train.h"

#include <stddef.h>

/* NOLINTBEGIN(bugprone-macro-parentheses): offsetof takes a member without them */
#define OPTION(member, type, low, high, words, values, help, unit)                                 \
    {                                                                                              \
#member, TESS_OPTION_##type, offsetof(OPTS, member), low, high, words, values, help, unit  \
    }
/* NOLINTEND(bugprone-macro-parentheses) */
#define INT(member, low, high, help) OPTION(member, INT, low, high, NULL, NULL, help, NULL)
#define INT64(member, low, high, help) OPTION(member, INT64, low, high, NULL, NULL, help, NULL)
#define REAL(member, low, high, help) OPTION(member, REAL, low, high, NULL, NULL, help, NULL)
/* Numbers with a unit. */
#define INT_IN(unit, member, low, high, help) OPTION(member, INT, low, high, NULL, NULL, help, unit)
#define INT64_IN(unit, member, low, high, help)                                                    \
    OPTION(member, INT64, low, high, NULL, NULL, help, unit)
#define REAL_IN(unit, member, low, high, help)                                                     \
    OPTION(member, REAL, low, high, NULL, NULL, help, unit)
#define FLAG(member, help) OPTION(member, FLAG, 0, 1, NULL, NULL, help, NULL)
#define WORD(member, words, help) OPTION(member, WORD, 0, 0, words, NULL, help, NULL)
#define VALUE(member, words, values, help) OPTION(member, WORD, 0, 0, words, values, help, NULL)
/* A member of a member, by a name of its own. */
#define MEMBER(name, member, type, low, high, words, help)                                         \
    {                                                                                              \
        name, TESS_OPTION_##type, offsetof(OPTS, member), low, high, words, NULL, help, NULL       \
    }
/* A number for which words may stand. */
#define COUNT(member, low, high, words, values, help)                                              \
    OPTION(member, INT, low, high, words, values, help, NULL)
#define CUBE(member, help) OPTION(member, CUBE, 0, 0, NULL, NULL, help, NULL)
#define TEXT(member, help) OPTION(member, TEXT, 0, 0, NULL, NULL, help, NULL)

static const char exact_help[] =
    "results of the same bits on any number of ranks (up to 8 for the tokens of a clip) and with "
    "every strategy; ring and selective are refused";
static const char strategy_help[] =
    "how ranks share attention: contiguous, refined, fractional, ring, selective, degrees such as "
    "4x2r; auto: per layer, by predicted time";
static const char cluster_help[] =
    "plan for this cluster instead of measured rates: the same plans in every run";

static const char *const precisions[] = {"fp32", "bf16", NULL};
static const char precision_help[] =
    "precision of the products in attention and linear layers, and of saved activations; with bf16 "
    "weights, gradients, optimiser and sums stay fp32";

/* ---- training -------------------------------------------------------------------------------- */

static const char *const optimisers[] = {"muon", "adamw", NULL};
static const char *const stores[] = {"fp32", "bf16", NULL};
static const char *const weights[] = {"tokens", "clips", NULL};
static const int store_values[] = {TESS_DTYPE_F32, TESS_DTYPE_BF16};

#define OPTS tess_train_opts
static const tess_option train_options[] = {
    INT64_IN("steps", steps, 1, 1e9, "optimiser steps of the run"),
    INT_IN("clips", batch, 1, 65536, "clips of a micro-batch"),
    INT_IN("micro-batches", accumulate, 1, 65536, "micro-batches of a step"),
    WORD(weigh, weights,
         "weight of a clip in the loss of a step, where clips have several sizes: its tokens, or "
         "one"),
    WORD(optim, optimisers,
         "optimiser of the weights; muon: Muon for the matrices of the blocks, AdamW for all else"),
    REAL(lr, 1e-12, 1000, "learning rate of AdamW"),
    REAL(lr_muon, 1e-12, 1000, "learning rate of Muon"),
    INT64_IN("steps", warmup, 0, 1e9, "steps of linear learning-rate warmup; 0: none"),
    REAL(decay_from, 0, 1,
         "fraction of the steps after which the learning rate decays linearly to 0; 1: never"),
    REAL(beta1, 0, 0.999999, "decay of the first moment of AdamW"),
    REAL(beta2, 0, 0.9999999, "decay of the second moment of AdamW"),
    REAL(momentum, 0, 0.999999, "momentum of Muon"),
    REAL(weight_decay, 0, 1000, "decoupled weight decay of matrices, times the learning rate"),
    REAL(clip, 0, 1e30, "largest norm of the gradient, which is scaled down to it; 0: any"),
    REAL(ema, 0, 0.9999999, "decay of the moving average of the weights; 0: no average"),
    REAL(shift, 0.001, 1000, "shift of the noise levels: above 1, more training at high noise"),
    REAL(prompt_dropout, 0, 1,
         "fraction of clips trained without prompt, for classifier-free guidance"),
    REAL(
        diverge_above, 0, 1e12,
        "multiple of the lowest running mean of the loss above which a loss or validation ends the "
        "run as diverged; 0: none"),
    FLAG(keep, "recomputation of each block in the backward pass: less memory, more time"),
    VALUE(store, stores, store_values, "precision of saved activations"),
    WORD(precision, precisions, precision_help),
    CUBE(cube, "token order of dense attention"),
    INT64_IN("steps", validate_every, 0, 1e9, "steps between validations; 0: none"),
    INT_IN("clips", validate_clips, 1, 1e6,
           "clips of the fixed validation set, each at four noise levels"),
    INT64_IN("steps", checkpoint_every, 0, 1e9,
             "steps between checkpoints; 0: none, also not at the end"),
    INT_IN("checkpoints", checkpoint_limit, 0, 1e6,
           "newest checkpoints that are not deleted; 0: all"),
    INT64_IN("steps", sample_every, 0, 1e9, "steps between sheets of preview samples; 0: none"),
    INT_IN("steps", sample_steps, 1, 10000, "Euler steps of a preview sample"),
    REAL(guidance, -1000, 1000,
         "classifier-free guidance scale of preview samples; stored in checkpoints for `tessera "
         "sample`"),
    FLAG(tensorboard, "event file of TensorBoard in the folder of the run, beside metrics.jsonl"),
    INT_IN(
        "ranks", ranks_context, 0, 65536,
        "ranks that share the tokens of each clip (context parallelism), while groups of so many "
        "share the clips; 0: all; of clips of several sizes 0: too long ones are cut, 1: none is"),
    TEXT(strategy, strategy_help),
    TEXT(cluster, cluster_help),
    FLAG(exact_ranks, exact_help),
    TEXT(speeds, "relative speeds of the ranks, integers with commas between them, for clips of "
                 "several sizes; unless given they are measured in the first steps"),
};
static const tess_train_opts train_defaults = TESS_TRAIN_OPTS_INIT;
#undef OPTS

/* ---- sparse attention ------------------------------------------------------------------------ */

static const char *const kinds[] = {"dense",  "dsv",    "oracle", "pooled", "search",
                                    "window", "random", "own",    NULL};
static const char *const on_off[] = {"on", "off", NULL};
static const int on_off_values[] = {1, 0};
static const char *const predictors[] = {"qk", "hidden", "hidden-plain", NULL};
static const char *const losses[] = {"kl", "cosine", NULL};
static const char *const proxies[] = {"mean", "centre", "softmax", NULL};
static const char *const choices[] = {"mass", "error", NULL};
static const char *const groups[] = {"cube", "content", "random", "auto", NULL};
static const char *const switches[] = {"recall", "loss", "step", NULL};

#define OPTS tess_attention_opts
static const tess_option attention_options[] = {
    WORD(kind, kinds,
         "kind of self attention; dsv learns which keys matter, the others are for comparison; "
         "search is "
         "oracle here, and reuses its keys for some steps in tessera sample alone"),
    REAL(density, 0, 1,
         "fraction of the keys of every sparse head; 0: each head's own, from the profile"),
    REAL(mass, 1e-6, 1, "fraction of the softmax that a head's own density holds"),
    REAL(error, 0, 1000,
         "largest mean squared change of the model's output, in % of its loss, that the heads' own "
         "densities may cause together, in place of mass: estimated from gradients, with the "
         "predictors' keys and virtual keys, and calibrated at validations; 0: by mass"),
    REAL(min_density, 1e-6, 1, "smallest density of a head that has its own"),
    REAL(max_density, 1e-6, 1,
         "largest density of a head that has its own; less is faster, and holds less mass"),
    COUNT(
        compensate, 0, 64, on_off, on_off_values,
        "virtual keys that stand for the keys that were dropped: 0 or off: none, 1 or on: one for "
        "all, more: one for each of so many clusters of keys"),
    INT64_IN("steps", cluster_every, 0, 1e9,
             "steps between renewals of the clusters, which all clips share and checkpoints keep; "
             "0: each clip has its own, found in every step"),
    WORD(choose, choices,
         "rule that selects keys: by softmax mass, or by mass times distance from the centroid of "
         "their cluster, the error of a virtual key"),
    WORD(group, groups,
         "queries that share keys: those of a cube, as many with similar content, or as many at "
         "random, as a control; auto: cube or content for each layer and head, by what is measured "
         "until the layer becomes sparse"),
    WORD(predictor, predictors,
         "input of the predictors: q and k, or the block's input with or without rotary positions"),
    INT(proj_dim, 8, 64, "length of the predictors' projections, a multiple of 8"),
    WORD(loss, losses, "loss of the predictors"),
    REAL(lr, 1e-12, 1000, "learning rate of the predictors; a tenth of it in stage 2"),
    REAL(lr_sparse, 0, 1000, "factor on lr in stage 2"),
    WORD(proxy, proxies, "vector that stands for the queries of a cube"),
    CUBE(cube, "cube of queries that share keys, in tokens; auto: the largest one whose queries "
               "overlap enough, "
               "after stage 1"),
    WORD(switch_by, switches,
         "rule by which layers of dsv become sparse; the other kinds switch by step"),
    INT64_IN("steps", switch_step, 1, 1e9, "dense steps before a switch by step"),
    REAL(switch_recall, 1e-6, 1,
         "recall of a layer on two checks in a row before a switch by recall"),
    REAL(switch_loss, 1e-9, 1e6, "mean loss of the predictors before a switch by loss"),
    REAL(back_recall, 1e-6, 1, "recall below which a head or layer is dense again"),
    INT64_IN("steps", profile_every, 0, 1e9,
             "steps between profiles; 0: 10 in stage 1, 25 in stage 2"),
    INT64_IN("steps", check_every, 1, 1e9, "steps between checks of recall"),
    INT64_IN("bytes", index_memory, 0, 4e15,
             "memory for lists of keys; those that do not fit are selected again; 0: 1/32 of the "
             "activations"),
    REAL(break_even, 0, 1e6, "density below which sparse attention is faster; 0: measured"),
    TEXT(dispatch, "choice of the heads that are sparse: those that gain (auto), all (sparse), or "
                   "those that decisions.json of a "
                   "checkpoint lists"),
    TEXT(selector, "selector of one's own for kind own: a shared object with a function of "
                   "tessera/selector.h, or a tensor file of masks"),
};
static const tess_attention_opts attention_defaults = TESS_ATTENTION_OPTS_INIT;
#undef OPTS

/* ---- sampling -------------------------------------------------------------------------------- */

static const char *const halves[] = {"auto", "on", "off", NULL};

#define OPTS tess_sample_opts
static const tess_option sample_options[] = {
    INT_IN("clips", batch, 1, 65536, "clips at once"),
    INT_IN("steps", steps, 1, 10000, "Euler steps"),
    REAL(shift, 0.001, 1000, "shift of the noise levels"),
    REAL(guidance, -1000, 1000, "classifier-free guidance scale; 1: none"),
    INT64(first, 0, 1e15, "number of the first clip"),
    CUBE(cube, "token order of dense attention"),
    INT64_IN("steps", search_every, 1, 10000,
             "steps from one search of search to the next; those between use its keys"),
    WORD(halves, halves,
         "one half of the ranks evaluates with the prompt and the other one without; auto: with "
         "guidance and an even number of ranks"),
    TEXT(strategy, strategy_help),
    TEXT(cluster, cluster_help),
    FLAG(exact_ranks, exact_help),
    WORD(precision, precisions, precision_help),
};
static const tess_sample_opts sample_defaults = TESS_SAMPLE_OPTS_INIT;
#undef OPTS

/* ---- data ------------------------------------------------------------------------------------ */

#define OPTS tess_data_opts
static const tess_option data_options[] = {
    TEXT(source,
         "clips to train on: shapes, recall, recall-aligned, a folder of clips, or latents"),
    INT_IN("frames", frames, 0, 4096, "frames of a clip; 0: 8, or those of the latents"),
    INT_IN(
        "pixels", height, 0, 16384,
        "height of a clip in pixels; clips are scaled to cover the size and cut at the centre; 0: "
        "32, or that of the latents"),
    INT_IN("pixels", width, 0, 16384, "width of a clip in pixels; 0: 32, or that of the latents"),
    TEXT(
        sizes,
        "several sizes of clips, frames x height x width in pixels, in place of --frames, --height "
        "and --width: 8x32x32:4,16x64x64 draws four of the first for one of the second; a clip in "
        "a file gets the size that shows most of it, without weights"),
    INT_IN("pixels", pack, 1, 16, "P x P pixels become the channels of one"),
    INT_IN("vectors", text_len, 0, 1048576, "vectors of a prompt; 0: 16, or those of text"),
    INT(text_dim, 0, 1048576, "length of a prompt's vectors; 0: 64, or that of text"),
    TEXT(text, "folder or file of text embeddings made elsewhere"),
    REAL_IN("frames per second", fps, 0, 1000,
            "frames read per second of a clip in a file; 0: every frame"),
    INT_IN("frames", stride, 0, 1 << 24,
           "frames from one window of a clip in a file to the next; 0: its first frames alone"),
    FLAG(random_start, "windows begin anywhere in their stride, anew in every epoch"),
    FLAG(random_crop, "windows are cut anywhere from the scaled frames, not at the centre"),
    FLAG(flip, "every second window or so is mirrored, left to right"),
    INT_IN("pixels", token, 1, 16,
           "pixels on a side of the tokens that the cards of recall are made of"),
    INT64_IN("bytes", cache, 0, 1e15, "bytes of decoded clips that are held in memory"),
};
static const tess_data_opts data_defaults = TESS_DATA_OPTS_INIT;
#undef OPTS

/* ---- planning -------------------------------------------------------------------------------- */

static const char *const methods[TESS_PLAN_METHOD_COUNT + 1] = {
    "auto", "contiguous", "snake", "lpt", "db-sp", "refined", "fractional", "refined-equal", NULL};
static const char *const passes[] = {"fwd", "train", NULL};
static const char *const sizes[] = {"2", "4", NULL};
static const int size_values[] = {2, 4};

#define OPTS tess_plan_opts
static const tess_option plan_options[] = {
    INT_IN("ranks", ranks, 1, 65536, "ranks to distribute the attention over"),
    INT_IN("nodes", nodes, 0, 65536, "nodes of the ranks; 0: as many as the ranks need"),
    MEMBER("method", strategy.method, WORD, 0, 0, methods,
           "how heads are distributed: over all ranks, unless --ulysses, --ring or --selective is "
           "given too; auto tries every method at all degrees"),
    MEMBER("ulysses", strategy.ulysses, INT, 0, 65536, NULL, "head groups; 0: free"),
    MEMBER("ring", strategy.ring, INT, 0, 65536, NULL,
           "sequence parts whose keys and values are sent round a ring; 0: free"),
    MEMBER("selective", strategy.selective, INT, 0, 65536, NULL,
           "sequence parts that fetch the keys they select; 0: free"),
    WORD(pass, passes, "what the time covers: forward, or forward and backward"),
    INT(head_dim, 1, 4096, "size of a head"),
    VALUE(element_bytes, sizes, size_values,
          "bytes of an element of q, k, v, o and their gradients"),
    INT(proj_dim, 0, 65536, "elements of the projections by which ranks choose keys; 0: none"),
    FLAG(lse, "forward, the log-sum-exp is returned with o"),
    INT64_IN("bytes", memory, 0, 9.2e18,
             "bytes for the attention of one layer on a rank; 0: the cluster's"),
    REAL(union_share, 0, 1,
         "fraction of the keys that a rank's queries select together, where only densities are "
         "known; 0: not known"),
    FLAG(equal_heads, "every rank has the same number of heads"),
    INT(whole_keys, 0, 2, "never split the keys of a query: for kernels without log-sum-exp"),
    FLAG(whole_heads, "never split a head"),
    INT(reward, 0, 1000000, "reward of blocks that stay on their rank, R_b of db-SP; 0: none"),
    REAL(replan_above, 0, 1e9,
         "reuse a plan over steps until its mean imbalance is above this; 1.1 is db-SP's"),
};
static const tess_plan_opts plan_defaults = TESS_PLAN_OPTS_INIT;
#undef OPTS

/* ---- by struct ------------------------------------------------------------------------------- */

#define TABLE(prefix, name)                                                                        \
    {                                                                                              \
        prefix, name##_options, (int)(sizeof name##_options / sizeof *name##_options),             \
            &name##_defaults                                                                       \
    }

const tess_option_table *tess_option_table_of(tess_options which)
{
    static const tess_option_table tables[] = {
        [TESS_OPTIONS_TRAIN] = TABLE("", train),
        [TESS_OPTIONS_ATTENTION] = TABLE("attention.", attention),
        [TESS_OPTIONS_SAMPLE] = TABLE("", sample),
        [TESS_OPTIONS_DATA] = TABLE("", data),
        [TESS_OPTIONS_PLAN] = TABLE("", plan),
    };
    return &tables[which];
}
