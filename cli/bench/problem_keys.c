/* SPDX-License-Identifier: Apache-2.0 */
/* problem_keys.c - the keys of problem texts: a table for each kind, as of options. */
#include "problem.h"

#include <math.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))
#define AT(member) offsetof(problem, member)

enum { TOKENS_MAX = INT32_MAX, SIDE_MAX = 1 << 24 };

static const char *const passes[] = {"fwd", "bwd", "both", NULL};
static const char *const storages[] = {"f32", "bf16", NULL};
static const char *const layouts[] = {"bhsd", "bshd", NULL};
static const char *const precisions[] = {"fp32", "bf16", NULL};
static const char *const selectors[] = {"predictor", "oracle", "pooled", NULL};
static const char *const step_passes[] = {"fwd", "both", NULL};
static const char *const keeps[] = {"all", "blocks", NULL};
static const char *const list_kinds[] = {"random", "local", NULL};
static const char *const link_kinds[] = {"injected", "mpi", NULL};
static const char *const core_kinds[] = {"turns", "shared", NULL};

/* ---- the tables --------------------------------------------------------------------------- */

static const opt attn_keys[] = {
    {"batch", 0, OPT_INT, AT(batch), "N", "1", 1, 65536, .help = "sequences"},
    {"heads", 0, OPT_INT, AT(heads), "N", "1", 1, 65536, .help = "heads of each"},
    {"dim", 0, OPT_INT, AT(dim), "N", "128", 8, 256, .help = "head dimension, a multiple of 8"},
    {"tokens", 0, OPT_INT, AT(tokens), "N", "4096", 1, TOKENS_MAX, .unit = "tokens",
     .help = "queries, and keys"},
    {"tokens_q", 0, OPT_INT, AT(tokens_q), "N", NULL, 1, TOKENS_MAX, .unit = "tokens",
     .help = "queries, if not as many as keys"},
    {"tokens_k", 0, OPT_INT, AT(tokens_k), "N", NULL, 1, TOKENS_MAX, .unit = "tokens",
     .help = "keys, if not as many as queries"},
    {"density", 0, OPT_DOUBLE, AT(density), "X", "1", 0, 1,
     .help = "share of the key units that each group of queries selects at random, at least one; "
             "1 is dense attention, without a selection"},
    {"unit", 0, OPT_INT, AT(unit), "N", "64", 1, TOKENS_MAX, .help = "keys selected together"},
    {"group", 0, OPT_INT, AT(group), "N", "64", 1, TOKENS_MAX,
     .help = "queries that share their selection"},
    {"compensate", 0, OPT_INT, AT(compensate), "N", "0", 0, 64,
     .help = "1: a virtual key stands for the keys that were not selected; more: one for each of N "
             "clusters of keys"},
    {"text", 0, OPT_INT, AT(text), "N", "0", 0, TOKENS_MAX, .unit = "tokens",
     .help = "the first N tokens are a text's: all queries attend to them, and they attend to all "
             "keys"},
    {"pass", 0, OPT_CHOICE, AT(pass), "PASS", "fwd", .choices = passes,
     .help = "forward, backward, or one after the other"},
    {"storage", 0, OPT_CHOICE, AT(storage), "TYPE", "f32", .choices = storages,
     .help = "elements of k and v"},
    {"layout", 0, OPT_CHOICE, AT(layout), "ORDER", "bhsd", .choices = layouts,
     .help = "order of batch, head, token and dimension in memory"},
    {"precision", 0, OPT_CHOICE, AT(precision), "TYPE", "fp32", .choices = precisions,
     .help = "of the products; with bf16 tensors have numbers of bf16, and the peak is that of the "
             "instruction set that multiplies"},
    {"seed", 0, OPT_INT, AT(seed), "N", NULL, 0, INFINITY,
     .help = "of the random numbers; default: that of --seed"},
};

static const opt select_keys[] = {
    {"kind", 0, OPT_CHOICE, AT(selector), "KIND", "predictor", .choices = selectors,
     .help = "rule that ranks the keys"},
    {"proxy", 0, OPT_CHOICE, AT(proxy), "PROXY", "mean", .choices_of = "proxy",
     .table = TESS_OPTIONS_ATTENTION, .help = "what stands for a group before the predictor"},
    {"rank", 0, OPT_INT, AT(rank), "N", "16", 8, 256,
     .help = "dimension of the vectors whose products are ranked, a multiple of 8; at most 64 for "
             "the predictor"},
    {"batch", 0, OPT_INT, AT(batch), "N", "1", 1, 65536, .help = "sequences"},
    {"heads", 0, OPT_INT, AT(heads), "N", "1", 1, 65536, .help = "heads of each"},
    {"tokens", 0, OPT_INT, AT(tokens), "N", "4096", 1, TOKENS_MAX, .unit = "tokens",
     .help = "queries, and keys"},
    {"tokens_q", 0, OPT_INT, AT(tokens_q), "N", NULL, 1, TOKENS_MAX, .unit = "tokens",
     .help = "queries, if not as many as keys"},
    {"tokens_k", 0, OPT_INT, AT(tokens_k), "N", NULL, 1, TOKENS_MAX, .unit = "tokens",
     .help = "keys, if not as many as queries"},
    {"density", 0, OPT_DOUBLE, AT(density), "X", "0.1", 0, 1,
     .help = "share of the key units to select, at least one"},
    {"unit", 0, OPT_INT, AT(unit), "N", "1", 1, TOKENS_MAX, .help = "keys selected together"},
    {"group", 0, OPT_INT, AT(group), "N", "64", 1, TOKENS_MAX,
     .help = "queries that share their selection"},
    {"seed", 0, OPT_INT, AT(seed), "N", NULL, 0, INFINITY,
     .help = "of the random numbers; default: that of --seed"},
};

static const opt linear_keys[] = {
    {"m", 0, OPT_INT, AT(m), "N", "4096", 1, SIDE_MAX, .help = "rows: tokens"},
    {"n", 0, OPT_INT, AT(n), "N", "1536", 1, SIDE_MAX, .help = "features out"},
    {"k", 0, OPT_INT, AT(k), "N", "1536", 1, SIDE_MAX, .help = "features in"},
    {"pass", 0, OPT_CHOICE, AT(pass), "PASS", "fwd", .choices = passes,
     .help = "forward, backward, or one after the other"},
    {"seed", 0, OPT_INT, AT(seed), "N", NULL, 0, INFINITY,
     .help = "of the random numbers; default: that of --seed"},
};

static const opt step_keys[] = {
    {"ranks", 0, OPT_INT, AT(ranks), "N", "1", 1, 64,
     .help = "2 or more: on one rank, and on so many that share the tokens; each has one core"},
    {"strategy", 0, OPT_STRING, AT(strategy_text), "S", "auto",
     .help = "of ranks: one of --strategy for all layers, such as fractional, ring or 1x2s; auto: "
             "planned"},
    {"batch", 0, OPT_INT, AT(batch), "N", "1", 1, 65536, .help = "samples"},
    {"heads", 0, OPT_INT, AT(heads), "N", "4", 1, 8192, .help = "heads"},
    {"dim", 0, OPT_INT, AT(dim), "N", "128", 8, 256, .help = "head dimension, a multiple of 8"},
    {"layers", 0, OPT_INT, AT(layers), "N", "4", 1, 1024, .help = "blocks"},
    {"ffn", 0, OPT_INT, AT(ffn), "N", "2048", 1, 1048576,
     .help = "width of the feed-forward layer"},
    {"tokens", 0, OPT_INT, AT(tokens), "N", "4096", 1, SIDE_MAX, .unit = "tokens",
     .help = "of each sample"},
    {"text", 0, OPT_INT, AT(text), "N", "512", 1, 65536, .help = "vectors of each prompt"},
    {"pass", 0, OPT_CHOICE, AT(pass), "PASS", "both", .choices = step_passes,
     .help = "forward alone, or forward and backward"},
    {"keep", 0, OPT_CHOICE, AT(keep), "WHAT", "all", .choices = keeps,
     .help = "saved activations: all, or the inputs of blocks, which are recomputed"},
    {"store", 0, OPT_CHOICE, AT(storage), "TYPE", "f32", .choices = storages,
     .help = "precision of saved activations"},
    {"precision", 0, OPT_CHOICE, AT(precision), "TYPE", "fp32", .choices = precisions,
     .help = "bf16: products of attention and of the blocks' linear layers, and saved activations"},
    {"density", 0, OPT_DOUBLE, AT(density), "X", "1", 0, 1,
     .help = "share of the keys that a predictor selects for each group of queries; 1 is dense"},
    {"profile", 0, OPT_PATH, AT(profile_text), "FILE", NULL,
     .help = "a density profile instead: the densities of its heads, mean over its steps; more or "
             "fewer heads are evenly spaced among them"},
    {"profile_layers", 0, OPT_STRING, AT(layers_text), "A:B", NULL,
     .help =
         "layers A..B-1 of the profile, among which the step's are evenly spaced; default: all"},
    {"group", 0, OPT_INT, AT(group), "N", "64", 1, 4096,
     .help = "queries that share their selection, about: the tokens' grid is cut into cubes"},
    {"compensate", 0, OPT_INT, AT(compensate), "N", "0", 0, 64,
     .help =
         "virtual keys for the keys that were not selected: 1 for all, or one for each cluster"},
    {"break_even", 0, OPT_DOUBLE, AT(break_even), "X", "0", 0, 1,
     .help = "heads of this density or more attend densely; 0: measured before a step is timed"},
    {"seed", 0, OPT_INT, AT(seed), "N", NULL, 0, INFINITY,
     .help = "of the random numbers; default: that of --seed"},
};

static const opt context_keys[] = {
    {"ranks", 0, OPT_INT, AT(ranks), "N", "4", 1, 64, .help = "ranks, each a thread"},
    {"heads", 0, OPT_INT, AT(heads), "N", "12", 1, 4096, .help = "heads"},
    {"dim", 0, OPT_INT, AT(dim), "N", "128", 8, 256, .help = "head dimension, a multiple of 8"},
    {"tokens", 0, OPT_INT, AT(tokens), "N", "4096", 64, SIDE_MAX, .unit = "tokens",
     .help = "of the sample"},
    {"layers", 0, OPT_INT, AT(layers), "N", "1", 1, 1024, .help = "layers, each with its plan"},
    {"density", 0, OPT_DOUBLE, AT(density), "X", "1", 0, 1,
     .help = "share of the key units that each group of queries attends to; 1 is dense"},
    {"profile", 0, OPT_PATH, AT(profile_text), "FILE", NULL,
     .help = "a density profile instead: the densities of its heads, mean over its steps; more or "
             "fewer heads are evenly spaced among them"},
    {"profile_layers", 0, OPT_STRING, AT(layers_text), "A:B", NULL,
     .help = "layers A..B-1 of the profile, among which the problem's are evenly spaced"},
    {"lists", 0, OPT_CHOICE, AT(lists), "KIND", "random", .choices = list_kinds,
     .help = "which keys: anywhere, or those around the group"},
    {"unit", 0, OPT_INT, AT(unit), "N", "1", 1, 4096, .help = "keys selected together"},
    {"group", 0, OPT_INT, AT(group), "N", "64", 1, 4096,
     .help = "queries that share their selection"},
    {"pass", 0, OPT_CHOICE, AT(pass), "PASS", "fwd", .choices = step_passes,
     .help = "forward alone, or forward and backward"},
    {"strategy", 0, OPT_STRING, AT(strategy_text), "S", "all",
     .help = "a strategy of --strategy, such as fractional, ring, 4x2r or 2x4s; all: each of them"},
    {"links", 0, OPT_CHOICE, AT(links), "KIND", "injected", .choices = link_kinds,
     .help = "between threads as the keys below say, or between the ranks that mpirun started, as "
             "many as these are"},
    {"latency", 0, OPT_DOUBLE, AT(latency), "US", "5", 0, 1e6,
     .help = "injected between ranks, microseconds"},
    {"bandwidth", 0, OPT_DOUBLE, AT(bandwidth), "GB/S", "10", 1e-3, 1e6,
     .help = "injected, each way of each rank"},
    {"node_ranks", 0, OPT_INT, AT(node_ranks), "N", "0", 0, 64,
     .help = "ranks of a node; 0: all are on one"},
    {"network_latency", 0, OPT_DOUBLE, AT(network_latency), "US", "50", 0, 1e6,
     .help = "between nodes"},
    {"network_bandwidth", 0, OPT_DOUBLE, AT(network_bandwidth), "GB/S", "1", 1e-3, 1e6,
     .help = "between nodes, each way of each rank"},
    {"cores", 0, OPT_CHOICE, AT(cores), "KIND", "turns", .choices = core_kinds,
     .help = "ranks over injected links take turns on this machine's cores, which times them best, "
             "or share them in slices, which compares their CPU times best"},
    {"seed", 0, OPT_INT, AT(seed), "N", NULL, 0, INFINITY,
     .help = "of the random numbers; default: that of --seed"},
};

const key_table problem_keys[PROBLEM_KINDS] = {
    {"attn", "attention, dense or on a random selection", attn_keys, COUNT(attn_keys)},
    {"select", "choosing the keys that matter", select_keys, COUNT(select_keys)},
    {"linear", "a linear layer, y = x w^T + bias, by oneDNN with the instructions it chooses",
     linear_keys, COUNT(linear_keys)},
    {"step", "a training step of the model, without its optimiser", step_keys, COUNT(step_keys)},
    {"context", "attention over many ranks, by each strategy, over injected or real links",
     context_keys, COUNT(context_keys)},
};
