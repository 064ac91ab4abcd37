/* SPDX-License-Identifier: Apache-2.0 */
/* problem.c - problem texts: the tables of keys, the parser, the canonical text.
 *
 * A text is cut at its commas in a copy; each key is found in the kind's table and stored as an
 * option is. Rules over several keys (a multiple of 8, sizes whose product overflows) are
 * checked at the end, with the same kind of sentence.
 */
#include "problem.h"

#include "file/json_write.h"
#include "tessera/advanced/nearest.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))
#define AT(member) offsetof(problem, member)

enum { TOKENS_MAX = INT32_MAX, SIDE_MAX = 1 << 24 };
static const double elements_max = 1099511627776.0; /* 2^40: of one tensor */

static const char *const passes[] = {"fwd", "bwd", "both", NULL};
static const char *const storages[] = {"f32", "bf16", NULL};
static const char *const layouts[] = {"bhsd", "bshd", NULL};
static const char *const precisions[] = {"fp32", NULL};
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
    {"pass", 0, OPT_CHOICE, AT(pass), "PASS", "fwd", .choices = passes,
     .help = "forward, backward, or one after the other"},
    {"storage", 0, OPT_CHOICE, AT(storage), "TYPE", "f32", .choices = storages,
     .help = "elements of k and v"},
    {"layout", 0, OPT_CHOICE, AT(layout), "ORDER", "bhsd", .choices = layouts,
     .help = "order of batch, head, token and dimension in memory"},
    {"precision", 0, OPT_CHOICE, AT(precision), "TYPE", "fp32", .choices = precisions,
     .help = "of the products"},
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

/* ---- the parser --------------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static int wrong(char *error, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(error, OPT_ERROR_MAX, format, args);
    va_end(args);
    return -1;
}

/* The kind's number, or -1. */
static int find_kind(const char *word, char *error)
{
    const char *names[PROBLEM_KINDS];
    for (int i = 0; i < PROBLEM_KINDS; i++) {
        names[i] = problem_keys[i].name;
        if (strcmp(word, names[i]) == 0)
            return i;
    }
    const char *near = tess_nearest(word, names, PROBLEM_KINDS);
    return near ? wrong(error, "problem is \"%.40s\", did you mean %s?", word, near)
                : wrong(error,
                        "problem is \"%.40s\", must begin with attn, select, linear, "
                        "step or context",
                        word);
}

static int unknown_key(const key_table *table, const char *word, char *error)
{
    const char *names[32];
    for (int i = 0; i < table->n; i++)
        names[i] = table->keys[i].name;
    const char *near = tess_nearest(word, names, table->n);
    return near ? wrong(error, "%s: \"%.40s\" is no key, did you mean %s?", table->name, word, near)
                : wrong(error, "%s: \"%.40s\" is no key", table->name, word);
}

/* word is key=value and is cut at the =. given has a bit for each key of the table. */
static int parse_key(const key_table *table, char *word, problem *p, unsigned *given, char *error)
{
    char *value = strchr(word, '=');
    if (value)
        *value++ = 0;
    for (int i = 0; i < table->n; i++) {
        const opt *key = &table->keys[i];
        if (strcmp(word, key->name) != 0)
            continue;
        if (*given & 1u << i)
            return wrong(error, "%s: %s is given twice", table->name, word);
        *given |= 1u << i;
        if (value && opt_store(key, value, p) == 0)
            return 0;
        char rule[256];
        opt_rule(key, rule, sizeof rule);
        return value
                   ? wrong(error, "%s: %s is \"%.40s\", must be %s", table->name, word, value, rule)
                   : wrong(error, "%s: %s lacks its value, must be %s", table->name, word, rule);
    }
    return unknown_key(table, word, error);
}

/* Puts what stands in the text itself to where it stays. */
static int keep_texts(problem *p, char *error)
{
    const char *name = problem_keys[p->kind].name;
    if (p->profile_text && strlen(p->profile_text) >= sizeof p->profile)
        return wrong(error, "%s: profile has %zu characters, must have fewer than %zu", name,
                     strlen(p->profile_text), sizeof p->profile);
    if (p->strategy_text && strlen(p->strategy_text) >= sizeof p->strategy)
        return wrong(error, "%s: strategy has %zu characters, must have fewer than %zu", name,
                     strlen(p->strategy_text), sizeof p->strategy);
    if (p->strategy_text)
        strcpy(p->strategy, p->strategy_text);
    if (p->profile_text)
        strcpy(p->profile, p->profile_text);
    if (p->layers_text) {
        int used = 0;
        if (!p->profile_text)
            return wrong(error, "%s: profile_layers is given, but there is no profile", name);
        if (sscanf(p->layers_text, "%d:%d%n", &p->first_layer, &p->end_layer, &used) != 2 ||
            p->layers_text[used] || p->first_layer < 0 || p->end_layer <= p->first_layer)
            return wrong(error, "%s: profile_layers is \"%.40s\", must be A:B with 0 <= A < B",
                         name, p->layers_text);
    }
    if (p->profile_text && p->density < 1)
        return wrong(error, "%s: density and profile are given, must be one of them", name);
    p->profile_text = p->layers_text = p->strategy_text = NULL;
    return 0;
}

/* What the keys say together. */
static int check(problem *p, char *error)
{
    const char *name = problem_keys[p->kind].name;
    p->tokens_q = p->tokens_q ? p->tokens_q : p->tokens;
    p->tokens_k = p->tokens_k ? p->tokens_k : p->tokens;
    p->batch = p->kind == PROBLEM_CP ? 1 : p->batch;
    p->forward = p->pass && strcmp(p->pass, "bwd") != 0;
    p->backward = p->pass && strcmp(p->pass, "fwd") != 0;
    if (p->kind == PROBLEM_LINEAR) {
        const double largest =
            fmax((double)p->m * fmax((double)p->n, (double)p->k), (double)p->n * (double)p->k);
        if (largest > elements_max)
            return wrong(error, "%s: a matrix has %.3g elements, must be at most %.3g", name,
                         largest, elements_max);
        return 0;
    }
    if (p->kind == PROBLEM_STEP && p->ranks < 2 && strcmp(p->strategy, "auto") != 0)
        return wrong(error, "%s: strategy is \"%s\", but ranks is 1, must be 2 or more", name,
                     p->strategy);
    const int64_t dim = p->kind == PROBLEM_SELECT ? p->rank : p->dim;
    const char *dim_name = p->kind == PROBLEM_SELECT ? "rank" : "dim";
    const int most = p->selector && strcmp(p->selector, "predictor") == 0 ? 64 : 256;
    if (dim % 8 != 0 || dim > most)
        return wrong(error, "%s: %s is %lld, must be a multiple of 8 up to %d", name, dim_name,
                     (long long)dim, most);
    const double elements = (double)p->batch * (double)p->heads * (double)dim *
                            (double)(p->tokens_q > p->tokens_k ? p->tokens_q : p->tokens_k);
    if (elements > elements_max)
        return wrong(error, "%s: a tensor has %.3g elements, must be at most %.3g", name, elements,
                     elements_max);
    return 0;
}

int problem_parse(const char *text, int64_t seed, problem *p, char error[OPT_ERROR_MAX])
{
    char copy[PROBLEM_TEXT_MAX];
    unsigned given = 0;
    error[0] = 0;
    if (strlen(text) >= sizeof copy)
        return wrong(error, "problem has %zu characters, must have fewer than %d", strlen(text),
                     PROBLEM_TEXT_MAX);
    strcpy(copy, text);
    char *rest = copy;
    const int kind = find_kind(strsep(&rest, ","), error);
    if (kind < 0)
        return -1;
    const key_table *table = &problem_keys[kind];
    *p = (problem){.kind = (problem_kind)kind, .seed = seed};
    for (int i = 0; i < table->n; i++)
        if (table->keys[i].initial)
            opt_store(&table->keys[i], table->keys[i].initial, p);
    while (rest)
        if (parse_key(table, strsep(&rest, ","), p, &given, error) != 0)
            return -1;
    return keep_texts(p, error) == 0 ? check(p, error) : -1;
}

int problem_on_mpi(const problem *p)
{
    return p->links && strcmp(p->links, "mpi") == 0;
}

int problem_shares_cores(const problem *p)
{
    return p->cores && strcmp(p->cores, "shared") == 0 && !problem_on_mpi(p);
}

/* ---- the canonical text ------------------------------------------------------------------- */

static int has_effect(const problem *p, const opt *key)
{
    const int sparse = p->density < 1 || p->profile[0];
    switch (key->offset) {
    case AT(density):
        return p->kind == PROBLEM_STEP ? p->density < 1 : p->kind != PROBLEM_CP || !p->profile[0];
    case AT(profile_text): return p->profile[0] != 0;
    case AT(layers_text): return p->end_layer > 0;
    case AT(break_even): return sparse && p->break_even > 0;
    case AT(tokens): return p->tokens_q == p->tokens_k;
    case AT(tokens_q):
    case AT(tokens_k): return p->tokens_q != p->tokens_k;
    case AT(unit):
    case AT(group): return p->kind == PROBLEM_SELECT || sparse;
    case AT(compensate): return sparse && p->compensate;
    case AT(lists): return sparse;
    case AT(strategy_text):
        return p->kind == PROBLEM_CP || (p->ranks > 1 && strcmp(p->strategy, "auto") != 0);
    case AT(ranks): return p->kind == PROBLEM_CP || p->ranks > 1;
    case AT(links): return problem_on_mpi(p);
    case AT(cores): return problem_shares_cores(p);
    case AT(latency):
    case AT(bandwidth): return !problem_on_mpi(p);
    case AT(node_ranks):
    case AT(network_latency):
    case AT(network_bandwidth): return p->node_ranks > 0 && !problem_on_mpi(p);
    case AT(proxy): return strcmp(p->selector, "predictor") == 0;
    default: return 1;
    }
}

/* The value of a key as a user writes it. */
static void value_text(const problem *p, const opt *key, char text[PROBLEM_PATH_MAX])
{
    const char *at = (const char *)p + (key->offset == AT(tokens) ? AT(tokens_q) : key->offset);
    if (key->offset == AT(profile_text)) {
        snprintf(text, PROBLEM_PATH_MAX, "%s", p->profile);
    } else if (key->offset == AT(strategy_text)) {
        snprintf(text, PROBLEM_PATH_MAX, "%s", p->strategy);
    } else if (key->offset == AT(layers_text)) {
        snprintf(text, PROBLEM_PATH_MAX, "%d:%d", p->first_layer, p->end_layer);
    } else if (key->type == OPT_INT) {
        snprintf(text, PROBLEM_PATH_MAX, "%lld", (long long)*(const int64_t *)at);
    } else if (key->type == OPT_DOUBLE) {
        tess__real_text(*(const double *)at, 0, text);
    } else {
        snprintf(text, PROBLEM_PATH_MAX, "%s", *(const char *const *)at);
    }
}

void problem_text(const problem *p, char text[PROBLEM_TEXT_MAX])
{
    const key_table *table = &problem_keys[p->kind];
    size_t used = (size_t)snprintf(text, PROBLEM_TEXT_MAX, "%s", table->name);
    for (int i = 0; i < table->n; i++) {
        const opt *key = &table->keys[i];
        char value[PROBLEM_PATH_MAX];
        if (!has_effect(p, key))
            continue;
        value_text(p, key, value);
        used += (size_t)snprintf(text + used, PROBLEM_TEXT_MAX - used, ",%s=%s", key->name, value);
    }
}
