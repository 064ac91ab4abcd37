/* SPDX-License-Identifier: Apache-2.0 */
/* problem.c - problem texts: the parser, the canonical text.
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

#define AT(member) offsetof(problem, member)

static const double elements_max = 1099511627776.0; /* 2^40: of one tensor */

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
    const int64_t tokens = p->tokens_q < p->tokens_k ? p->tokens_q : p->tokens_k;
    if (p->kind == PROBLEM_ATTN && p->text > tokens)
        return wrong(error, "%s: text is %lld, must be at most %lld, the tokens", name,
                     (long long)p->text, (long long)tokens);
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
    case AT(text): return p->kind != PROBLEM_ATTN || (sparse && p->text > 0);
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
