/* SPDX-License-Identifier: Apache-2.0 */
/* fields.c - the settings of a scenario: names, types, rules, and their values from and to text. */
#include "fields.h"

#include "file/csv.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const char *const kinds[] = {"decoder", "dit", NULL};
static const char *const cp_kinds[] = {"ring", "ulysses", "plan", "hybrid", NULL};
static const char *const guidances[] = {"default", "none", "twice", "batched", "parallel", NULL};
static const char *const schedules[] = {
    "default",        "1f1b", "interleaved", "zero-bubble", "gpipe", "gpipe-looped",
    "interleaved-zb", "zb-v", "dualpipe",    "file",        NULL};
static const char *const precisions[] = {"bf16", "fp16", "fp32", "fp8", "mxfp8", "nvfp4", NULL};
static const char *const recomputes[] = {"none", "selective", "full", "op", NULL};
static const char *const modules[] = {"core", "norm",    "activation", "mla-up",
                                      "mlp",  "experts", NULL};
static const char *const lora_parts[] = {"all", "attention", "qkv", NULL};
static const char *const attentions[] = {"default", "flash", "fused-softmax", "unfused", NULL};

/* NOLINTBEGIN(bugprone-macro-parentheses): offsetof takes a member without them */
#define FIELD(group, member, type, low, high, words, help)                                         \
    {                                                                                              \
#group, #member, TESS__FIELD_##type, offsetof(tess_scenario, group.member),                \
            sizeof((tess_scenario *)0)->group.member, low, high, words, help                       \
    }
/* NOLINTEND(bugprone-macro-parentheses) */
#define INT(group, member, low, high, help) FIELD(group, member, INT, low, high, NULL, help)
#define INT64(group, member, low, high, help) FIELD(group, member, INT64, low, high, NULL, help)
#define REAL(group, member, low, high, help) FIELD(group, member, REAL, low, high, NULL, help)
#define FLAG(group, member, help) FIELD(group, member, FLAG, 0, 1, NULL, help)
#define SWITCH(group, member, help) FIELD(group, member, SWITCH, -1, 1, NULL, help)
#define WORD(group, member, words, help) FIELD(group, member, WORD, 0, 0, words, help)
#define SET(group, member, words, help) FIELD(group, member, SET, 0, 0, words, help)
#define TEXT(group, member, help) FIELD(group, member, TEXT, 0, 0, NULL, help)

const tess__field tess__fields[] = {
    WORD(model, kind, kinds, "a decoder of text, or a video DiT"),
    INT(model, layers, 1, 100000, "transformer layers"),
    INT(model, hidden, 1, 1000000, "width"),
    INT(model, heads, 1, 65536, "query heads"),
    INT(model, kv_heads, 0, 65536, "key and value heads; 0: heads"),
    INT(model, head_dim, 0, 4096, "size of a head; 0: hidden / heads"),
    INT64(model, ffn, 0, 4294967296, "width of the MLP; 0: 4 hidden"),
    FLAG(model, gated, "two matrices into the MLP, as SwiGLU"),
    INT64(model, vocab, 0, 4294967296, "words; 0: no embedding and no LM head"),
    INT64(model, seq, 0, 4294967296, "tokens of a sample"),
    FLAG(model, tied, "the LM head is the embedding"),
    FLAG(model, full, "attention is not causal"),
    INT64(model, window, 0, 4294967296, "keys a query sees at most; 0: all"),
    FLAG(model, parallel, "attention and MLP read the same input"),
    FLAG(model, learned_positions, "a table of positions"),
    REAL(model, density, 0, 1, "computed fraction of (query, key) pairs; 0: all"),
    REAL(model, imbalance, 0, 1000, "slowest rank's attention over the mean; 0: 1"),
    INT(model, sparse_layers, 0, 100000, "layers with that density, the others dense; 0: all"),
    REAL(model, sparse_forward, 0, 10, "rate of sparse kernels over dense; 0: the cluster's"),
    REAL(model, sparse_backward, 0, 10, "the same, backward"),
    INT(model, select_group, 0, 65536, "queries a learnt predictor selects for; 0: free"),
    INT(model, experts, 0, 65536, "experts of a layer; 0: dense"),
    INT(model, top_k, 0, 65536, "experts of a token"),
    INT64(model, expert_ffn, 0, 4294967296, "width of one expert"),
    INT64(model, shared_ffn, 0, 4294967296, "width of the expert that every token passes"),
    INT(model, dense_layers, 0, 100000, "layers before the first one with experts"),
    REAL(model, capacity, 0, 1000, "busiest expert rank's tokens over the mean; 0: 1"),
    INT(model, q_rank, 0, 1000000, "latent attention: rank of the queries"),
    INT(model, kv_rank, 0, 1000000, "latent attention: rank of keys and values; 0: none"),
    INT(model, rope_dim, 0, 4096, "latent attention: rotated part of a head"),
    INT(model, nope_dim, 0, 4096, "latent attention: the rest of a head"),
    INT(model, value_dim, 0, 4096, "latent attention: size of a value head"),
    INT(model, predict_layers, 0, 64, "layers of multi-token prediction"),
    INT(model, frames, 0, 1000000, "of a clip, in pixels"),
    INT(model, height, 0, 1000000, "of a clip, in pixels"),
    INT(model, width, 0, 1000000, "of a clip, in pixels"),
    TEXT(model, clips, "of several sizes, with shares: 81x480x832:3+1x480x832:1"),
    INT(model, stride_t, 0, 64, "frames of a latent frame; 0: 4"),
    INT(model, stride_s, 0, 64, "pixels of a latent pixel each way; 0: 8"),
    INT(model, patch_t, 0, 64, "latent frames of a token; 0: 1"),
    INT(model, patch_s, 0, 64, "latent pixels of a token each way; 0: 2"),
    INT(model, text, 0, 1000000, "tokens of the prompt"),
    FLAG(model, cross, "each layer attends to the prompt apart"),
    INT(model, double_layers, 0, 100000, "first layers with two streams, clip and prompt (MMDiT)"),
    INT(model, modulation, 0, 1000000, "width of what a layer makes its shifts of; 0: none"),
    INT(model, latent, 0, 65536, "channels of the latent; 0: 16"),
    FLAG(model, guided, "guidance is an input: one pass a denoising step"),
    FLAG(model, time_tokens, "the timestep is embedded for each token"),
    REAL(model, vae_mflop, 0, 100000, "MFLOP to decode a pixel of a frame; 0: not known"),
    REAL(model, text_billion, 0, 10000, "10^9 parameters of the text encoder; 0: not known"),

    INT(layout, gpus, 0, 10000000, "in all; 0: tp cp pp dp"),
    INT(layout, tp, 0, 65536, "tensor parallelism"),
    FLAG(layout, sequence, "sequence parallelism among the tp ranks"),
    INT(layout, pp, 0, 4096, "pipeline stages"),
    INT(layout, vpp, 0, 4096, "parts of a stage that are interleaved"),
    WORD(layout, schedule, schedules, "order of the micro-batches, or a CSV file of it"),
    TEXT(layout, schedule_file, "of schedule file: a CSV as PyTorch's pipelining dumps it"),
    INT(layout, cp, 0, 65536, "context parallelism"),
    WORD(layout, cp_kind, cp_kinds, "how context parallelism exchanges"),
    INT(layout, cp_heads, 0, 65536, "of hybrid: ranks that exchange heads, the others a ring"),
    INT(layout, ep, 0, 65536, "expert parallelism"),
    INT(layout, etp, 0, 65536, "tensor parallelism of experts; 0: tp"),
    INT(layout, ep_nodes, 0, 65536, "nodes of a token's experts, each sent one copy; 0: any"),
    INT(layout, dp, 0, 10000000, "data parallelism; 0: gpus / (tp cp pp)"),
    INT(layout, zero, 0, 3, "what data parallelism splits: 1 optimiser, 2 gradients, 3 weights"),
    INT(layout, replicas, 0, 10000000, "groups of dp ranks that each split it (HSDP); 0: 1"),
    INT(layout, first_layers, 0, 100000, "layers of the first stage; 0: an even split"),
    INT(layout, last_layers, 0, 100000, "layers of the last stage; 0: an even split"),
    FLAG(layout, outer_layers, "embedding and LM head count as layers when these are split"),

    INT(training, micro_batch, 0, 1000000, "samples; 0: 1"),
    INT64(training, global_batch, 0, 4294967296, "samples; 0: dp micro_batch"),
    WORD(training, precision, precisions, "of the products"),
    WORD(training, recompute, recomputes, "activations that the backward pass makes again"),
    INT(training, recompute_layers, 0, 100000, "of a stage; 0: all"),
    SET(training, recompute_modules, modules, "that selective makes again; none: the era's"),
    INT(training, lora, 0, 65536, "rank of adapters beside frozen weights; 0: all is trained"),
    WORD(training, lora_on, lora_parts, "linear layers that have adapters"),
    INT(training, grad_bytes, 0, 4, "of a gradient as it is reduced; 0: the era's"),
    WORD(training, attention, attentions, "kernels of attention"),
    SWITCH(training, dropout, "dropout"),
    SWITCH(training, overlap_tp, "tensor-parallel communication beside products"),
    SWITCH(training, overlap_dp, "gradients beside the backward pass"),
    SWITCH(training, overlap_pp, "pipeline messages beside the layers"),
    SWITCH(training, distributed_optimizer, "Megatron's ZeRO-1"),
    SWITCH(training, graphs, "CUDA graphs"),

    TEXT(system, cluster, "a shipped cluster, or a file"),
    TEXT(system, era, "software profile: tessera simulate --list software"),
    TEXT(system, date, "month of the job, 2024-06, where no software is named"),
    TEXT(system, system, "whose scalar is used"),
    SWITCH(system, scalar, "the scalar"),

    INT(sampling, steps, 0, 100000, "denoising steps of a clip; 0: training"),
    WORD(sampling, guidance, guidances, "passes of a denoising step"),
    SWITCH(sampling, decode, "the autoencoder's decoder"),
    SWITCH(sampling, encode, "the text encoder"),
    INT(sampling, decode_ranks, 0, 65536, "that share the decoding of a clip; 0: 1"),
};
const int tess__n_fields = (int)(sizeof tess__fields / sizeof tess__fields[0]);

const tess__field *tess__field_find(const char *group, const char *name)
{
    for (int i = 0; i < tess__n_fields; i++)
        if (strcmp(tess__fields[i].name, name) == 0 && strcmp(tess__fields[i].group, group) == 0)
            return &tess__fields[i];
    return NULL;
}

/* ---- text to value --------------------------------------------------------------------------- */

static tess_status fail(const tess__field *f, const char *value, const char *rule)
{
    return tess__fail(TESS_EINVAL, "%s.%s is \"%.60s\", must be %s", f->group, f->name, value,
                      rule);
}

static tess_status fail_word(const tess__field *f, const char *value, const char *const *words)
{
    char rule[256];
    size_t n = 0;
    for (int i = 0; words[i]; i++)
        n += (size_t)snprintf(rule + n, sizeof rule - n, "%s%s",
                              i == 0         ? ""
                              : words[i + 1] ? ", "
                                             : " or ",
                              words[i]);
    return fail(f, value, rule);
}

/* The number of the word, or -1. */
static int find_word(const char *value, const char *const *words)
{
    const tess__csv_field text = {value, strlen(value)};
    for (int i = 0; words[i]; i++)
        if (tess__csv_is(&text, words[i]))
            return i;
    return -1;
}

static tess_status read_number(const tess__field *f, const char *value, double *number)
{
    char rule[96];
    const int whole = f->type != TESS__FIELD_REAL;
    if (tess__csv_number(&(tess__csv_field){value, strlen(value)}, number) && *number >= f->low &&
        *number <= f->high && (!whole || *number == floor(*number)))
        return TESS_OK;
    snprintf(rule, sizeof rule, "%s %.10g..%.10g", whole ? "an integer" : "a number", f->low,
             f->high);
    return fail(f, value, rule);
}

/* A choice among words: its number. */
static tess_status read_word(const tess__field *f, const char *value, int *number)
{
    static const char *const flags[] = {"false", "true", "0", "1", "no", "yes", NULL};
    static const char *const switches[] = {"auto", "on", "off", NULL};
    const char *const *words = f->type == TESS__FIELD_WORD   ? f->words
                               : f->type == TESS__FIELD_FLAG ? flags
                                                             : switches;
    *number = find_word(value, words);
    if (*number < 0)
        return f->type == TESS__FIELD_FLAG ? fail(f, value, "true or false")
                                           : fail_word(f, value, words);
    if (f->type == TESS__FIELD_FLAG)
        *number %= 2;
    else if (f->type == TESS__FIELD_SWITCH)
        *number = (int[]){TESS_SIM_AUTO, TESS_SIM_ON, TESS_SIM_OFF}[*number];
    return TESS_OK;
}

/* Words with a + between them: a bit for each; "none": no bit. */
static tess_status read_set(const tess__field *f, const char *value, int *bits)
{
    const char *at = value;
    *bits = 0;
    while (strcmp(value, "none") != 0) {
        char word[32];
        const size_t n = strcspn(at, "+");
        snprintf(word, sizeof word, "%.*s", (int)(n < sizeof word ? n : sizeof word - 1), at);
        const int found = find_word(word, f->words);
        if (found < 0)
            return fail_word(f, word, f->words);
        *bits |= 1 << found;
        if (!at[n])
            break;
        at += n + 1;
    }
    return TESS_OK;
}

static const char *set_text(const tess__field *f, int bits, char *text, size_t bytes)
{
    size_t n = (size_t)snprintf(text, bytes, "%s", bits ? "" : "none");
    for (int i = 0; f->words[i]; i++)
        if (bits >> i & 1 && n < bytes)
            n += (size_t)snprintf(text + n, bytes - n, "%s%s", n ? "+" : "", f->words[i]);
    return text;
}

/* Whether the value of layout.schedule is the path of a file, not a name. */
static int is_schedule_file(const tess__field *f, const char *value)
{
    const size_t n = strlen(value);
    return f->words == schedules &&
           (strchr(value, '/') || (n > 4 && strcmp(value + n - 4, ".csv") == 0));
}

tess_status tess__field_set(tess_scenario *scenario, const tess__field *f, const char *value)
{
    char *at = (char *)scenario + f->offset;
    double number;
    int word;
    if (is_schedule_file(f, value)) {
        const tess__field *file = tess__field_find("layout", "schedule_file");
        assert(file);
        TESS_TRY(tess__field_set(scenario, file, value));
        value = "file";
    }
    switch (f->type) {
    case TESS__FIELD_INT:
        TESS_TRY(read_number(f, value, &number));
        *(int *)(void *)at = (int)number;
        return TESS_OK;
    case TESS__FIELD_INT64:
        TESS_TRY(read_number(f, value, &number));
        *(int64_t *)(void *)at = (int64_t)number;
        return TESS_OK;
    case TESS__FIELD_REAL:
        TESS_TRY(read_number(f, value, &number));
        *(double *)(void *)at = number;
        return TESS_OK;
    case TESS__FIELD_FLAG:
    case TESS__FIELD_SWITCH:
    case TESS__FIELD_WORD:
        TESS_TRY(read_word(f, value, &word));
        *(int *)(void *)at = word;
        return TESS_OK;
    case TESS__FIELD_SET:
        TESS_TRY(read_set(f, value, &word));
        *(int *)(void *)at = word;
        return TESS_OK;
    case TESS__FIELD_TEXT: break;
    }
    char rule[64];
    snprintf(rule, sizeof rule, "shorter than %zu bytes", f->size);
    if (strlen(value) >= f->size)
        return fail(f, value, rule);
    memset(at, 0, f->size);
    memcpy(at, value, strlen(value));
    return TESS_OK;
}

/* ---- value to text --------------------------------------------------------------------------- */

const char *tess__field_text(const tess_scenario *scenario, const tess__field *f, char *text,
                             size_t bytes)
{
    const char *at = (const char *)scenario + f->offset;
    const int value = f->type == TESS__FIELD_TEXT ? 0 : *(const int *)(const void *)at;
    switch (f->type) {
    case TESS__FIELD_INT: snprintf(text, bytes, "%d", value); break;
    case TESS__FIELD_INT64:
        snprintf(text, bytes, "%lld", (long long)*(const int64_t *)(const void *)at);
        break;
    case TESS__FIELD_REAL: snprintf(text, bytes, "%.10g", *(const double *)(const void *)at); break;
    case TESS__FIELD_FLAG: snprintf(text, bytes, "%s", value ? "true" : "false"); break;
    case TESS__FIELD_SWITCH:
        snprintf(text, bytes, "%s",
                 value == TESS_SIM_ON    ? "on"
                 : value == TESS_SIM_OFF ? "off"
                                         : "auto");
        break;
    case TESS__FIELD_WORD: snprintf(text, bytes, "%s", f->words[value]); break;
    case TESS__FIELD_SET: set_text(f, value, text, bytes); break;
    case TESS__FIELD_TEXT: snprintf(text, bytes, "%s", at); break;
    }
    return text;
}

int tess__field_unset(const tess_scenario *scenario, const tess__field *f)
{
    const char *at = (const char *)scenario + f->offset;
    switch (f->type) {
    case TESS__FIELD_INT64: return *(const int64_t *)(const void *)at == 0;
    case TESS__FIELD_REAL: return *(const double *)(const void *)at == 0;
    case TESS__FIELD_TEXT: return *at == '\0';
    default: return *(const int *)(const void *)at == 0;
    }
}

int tess__field_equal(const tess_scenario *a, const tess_scenario *b, const tess__field *f)
{
    const char *x = (const char *)a + f->offset, *y = (const char *)b + f->offset;
    return f->type == TESS__FIELD_TEXT ? strcmp(x, y) == 0 : memcmp(x, y, f->size) == 0;
}
