/* SPDX-License-Identifier: Apache-2.0 */
/* megatron.c - what Megatron-LM's arguments mean for a scenario.
 *
 * megatron_flags.c has the flags with a meaning of their own; here are those that depend on others:
 * GPUs, vocabulary, MLP, layers of a stage, precision, recomputation, experts. Defaults are
 * Megatron-LM's own.
 */
#include "job_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { GPUS_MAX = 10000000 };

/* Whether a flag without a value is there; the entry is the caller's. */
static const tess__job_pair *on(tess_job *j, const char *flag)
{
    return tess__job_find(j, flag);
}

/* The value without an entry: the table of rules makes that. */
static int64_t peek(const tess_job *j, const char *flag, int64_t otherwise)
{
    int64_t value = otherwise;
    for (int i = 0; i < j->n_pairs; i++)
        if (strcmp(j->pairs[i].key, flag) == 0)
            value = tess__job_int(&j->pairs[i], otherwise);
    return value;
}

static int has(const tess_job *j, const char *flag)
{
    for (int i = 0; i < j->n_pairs; i++)
        if (strcmp(j->pairs[i].key, flag) == 0)
            return 1;
    return 0;
}

/* ---- GPUs ------------------------------------------------------------------------------------ */

/* Of torchrun, else of the batch system, else as few as the degrees need. */
static tess_status map_gpus(tess_job *j)
{
    const double degrees = (double)peek(j, "--tensor-model-parallel-size", 1) *
                           (double)peek(j, "--pipeline-model-parallel-size", 1) *
                           (double)peek(j, "--context-parallel-size", 1);
    const int64_t need = degrees >= 1 && degrees <= GPUS_MAX ? (int64_t)degrees : 0;
    const tess__job_pair *per = tess__job_find(j, "--nproc-per-node");
    const tess__job_pair *nodes = tess__job_find(j, "--nnodes");
    const tess__job_pair *batch = tess__job_find(j, "#SBATCH --nodes");
    const tess__job_pair *gpus =
        tess__job_either(j, "#SBATCH --gpus-per-node", "#SBATCH --ntasks-per-node");
    const tess__job_pair *world = tess__job_find(j, "--world-size"); /* of a log's arguments */
    const int64_t each = tess__job_int(per, tess__job_int(gpus, batch ? 8 : 0));
    const double started =
        world ? (double)tess__job_int(world, 0)
              : (double)each *
                    (double)tess__job_int(nodes, tess__job_int(batch, per || gpus ? 1 : 0));
    const int64_t all = started >= 1 && started <= GPUS_MAX ? (int64_t)started : 0;
    if (need < 1)
        return TESS_OK; /* the degrees themselves are refused later */
    if (all > 0 && all % need == 0)
        return tess__job_assume_int(j, "layout.gpus", all,
                                    "GPUs of a node times nodes, as started");
    return tess__job_assume_int(
        j, "layout.gpus", need,
        all > 0 ? "the GPUs that the script starts are no multiple of its degrees: as few as these "
                  "need; use --set layout.gpus=N"
                : "the script does not say how many are started: as few as its degrees need; use "
                  "--set layout.gpus=N");
}

/* ---- model ----------------------------------------------------------------------------------- */

/* The vocabulary is padded to a multiple for each tensor-parallel rank. */
static tess_status map_vocabulary(tess_job *j)
{
    const tess__job_pair *padded = tess__job_find(j, "--padded-vocab-size");
    const tess__job_pair *given = tess__job_find(j, "--vocab-size");
    const tess__job_pair *type = tess__job_find(j, "--tokenizer-type");
    const int llama = type && strcmp(type->value, "Llama2Tokenizer") == 0;
    const int64_t divisor = peek(j, "--make-vocab-size-divisible-by", 128);
    const int64_t tp = peek(j, "--tensor-model-parallel-size", 1);
    const int64_t words = tess__job_int(given, llama ? 32000 : 50257);
    char text[32];
    if (padded)
        return tess__job_read(j, padded, "model.vocab", padded->value);
    if (divisor < 1 || divisor > 1 << 20 || tp < 1 || tp > 65536 || words < 1 || words > 1 << 30)
        return TESS_OK; /* and of these, what is no number is refused later */
    const int64_t multiple = divisor * tp;
    snprintf(text, sizeof text, "%" PRId64, (words + multiple - 1) / multiple * multiple);
    if (given)
        return tess__job_read(j, given, "model.vocab", text);
    return tess__job_assume(j, "model.vocab", text,
                            llama ? "Llama 2's vocabulary, padded as Megatron-LM pads it"
                                  : "no --vocab-size: GPT-2's, padded as Megatron-LM pads it");
}

static tess_status map_mlp(tess_job *j)
{
    const tess__job_pair *ffn = tess__job_find(j, "--ffn-hidden-size");
    const int64_t hidden = peek(j, "--hidden-size", 0);
    if (ffn)
        return tess__job_read(j, ffn, "model.ffn", ffn->value);
    if (!has(j, "--swiglu") || hidden < 1 || hidden > 1000000)
        return TESS_OK;
    return tess__job_assume_int(j, "model.ffn", 4 * hidden * 2 / 3 / 64 * 64,
                                "Megatron-LM's default with --swiglu");
}

static tess_status map_model(tess_job *j)
{
    const tess__job_pair *groups = tess__job_find(j, "--num-query-groups");
    const tess__job_pair *untied = on(j, "--untie-embeddings-and-output-weights");
    const tess__job_pair *position = tess__job_find(j, "--position-embedding-type");
    if (groups)
        TESS_TRY(has(j, "--group-query-attention")
                     ? tess__job_read(j, groups, "model.kv_heads", groups->value)
                     : tess__job_note(j, TESS_JOB_IGNORED, groups, ""));
    if (untied)
        TESS_TRY(tess__job_read(j, untied, "model.tied", "false"));
    else
        TESS_TRY(tess__job_assume(j, "model.tied", "true", "Megatron-LM's default"));
    if (position)
        TESS_TRY(
            tess__job_read(j, position, "model.learned_positions",
                           strcmp(position->value, "learned_absolute") == 0 ? "true" : "false"));
    else if (!has(j, "--use-rotary-position-embeddings"))
        TESS_TRY(tess__job_assume(j, "model.learned_positions", "true", "Megatron-LM's default"));
    TESS_TRY(map_vocabulary(j));
    return map_mlp(j);
}

/* "([0]*3+[1]*58)": dense layers first; "2": every second layer, which no setting says. */
static tess_status map_experts(tess_job *j)
{
    const tess__job_pair *top = tess__job_find(j, "--moe-router-topk");
    const tess__job_pair *frequency = tess__job_find(j, "--moe-layer-freq");
    char text[32], *end;
    if (!has(j, "--num-experts"))
        return TESS_OK;
    if (top)
        TESS_TRY(tess__job_read(j, top, "model.top_k", top->value));
    else
        TESS_TRY(tess__job_assume(j, "model.top_k", "2", "Megatron-LM's default"));
    if (!frequency || strcmp(frequency->value, "1") == 0)
        return TESS_OK;
    const char *dense = strstr(frequency->value, "[0]*");
    const long n = dense ? strtol(dense + 4, &end, 10) : 0;
    if (n < 1 || n > 100000 || strstr(dense + 4, "[0]"))
        return tess__job_note(j, TESS_JOB_UNMODELLED, frequency,
                              "layers with experts that do not follow dense ones");
    snprintf(text, sizeof text, "%ld", n);
    return tess__job_read(j, frequency, "model.dense_layers", text);
}

/* ---- training -------------------------------------------------------------------------------- */

static tess_status map_precision(tess_job *j)
{
    const tess__job_pair *bf16 = on(j, "--bf16"), *fp16 = on(j, "--fp16");
    const tess__job_pair *fp8 = tess__job_find(j, "--fp8-format");
    const tess__job_pair *hybrid = on(j, "--fp8-hybrid");
    const tess__job_pair *recipe = tess__job_find(j, "--fp8-recipe");
    fp8 = fp8 ? fp8 : hybrid;
    if (fp8 && recipe && strcmp(recipe->value, "mxfp8") == 0)
        return tess__job_read(j, recipe, "training.precision", "mxfp8");
    if (fp8)
        return tess__job_read(j, fp8, "training.precision", "fp8");
    if (bf16)
        return tess__job_read(j, bf16, "training.precision", "bf16");
    if (fp16)
        return tess__job_read(j, fp16, "training.precision", "fp16");
    return tess__job_assume(j, "training.precision", "fp32", "Megatron-LM's default");
}

/* "core_attn,mlp" as the words of training.recompute_modules. */
static tess_status map_modules(tess_job *j, const tess__job_pair *pair)
{
    static const struct {
        const char *name, *module;
    } words[] = {{"core_attn", "core"},     {"layernorm", "norm"}, {"moe_act", "activation"},
                 {"mla_up_proj", "mla-up"}, {"mlp", "mlp"},        {"shared_experts", "mlp"},
                 {"moe", "experts"}};
    char text[96] = "";
    for (const char *at = pair->value; *at; at += strcspn(at, ","), at += *at == ',') {
        size_t i = 0;
        const size_t n = strcspn(at, ",");
        while (i < 7 && (strlen(words[i].name) != n || strncmp(at, words[i].name, n) != 0))
            i++;
        if (i == 7)
            return tess__job_note(j, TESS_JOB_UNKNOWN, pair, "a module that is not known");
        const size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%s", used ? "+" : "", words[i].module);
    }
    return tess__job_read(j, pair, "training.recompute_modules", text);
}

static tess_status map_recompute(tess_job *j)
{
    static const tess__job_rule rule = {.setting = "training.recompute",
                                        .words = "full=full,selective=selective"};
    const tess__job_pair *granularity = tess__job_find(j, "--recompute-granularity");
    const tess__job_pair *selective = on(j, "--recompute-activations");
    const tess__job_pair *old = on(j, "--checkpoint-activations");
    const tess__job_pair *method = tess__job_find(j, "--recompute-method");
    const tess__job_pair *layers = tess__job_find(j, "--recompute-num-layers");
    const tess__job_pair *modules = tess__job_find(j, "--recompute-modules");
    const int by_module =
        selective || (granularity && strcmp(granularity->value, "selective") == 0);
    if (modules)
        TESS_TRY(by_module ? map_modules(j, modules)
                           : tess__job_note(j, TESS_JOB_IGNORED, modules, ""));
    if (granularity)
        TESS_TRY(tess__job_use(j, granularity, &rule));
    else if (selective)
        TESS_TRY(tess__job_read(j, selective, "training.recompute", "selective"));
    else if (old)
        TESS_TRY(tess__job_read(j, old, "training.recompute", "full"));
    else
        TESS_TRY(tess__job_assume(j, "training.recompute", "none", "Megatron-LM's default"));
    if (layers && method && strcmp(method->value, "block") == 0)
        return tess__job_read(j, layers, "training.recompute_layers", layers->value);
    return layers ? tess__job_note(j, TESS_JOB_IGNORED, layers, "") : TESS_OK;
}

static tess_status map_switch(tess_job *j, const char *flag, const char *setting)
{
    const tess__job_pair *pair = on(j, flag);
    return pair ? tess__job_read(j, pair, setting, "on")
                : tess__job_assume(j, setting, "off", "Megatron-LM's default");
}

static tess_status map_dropout(tess_job *j)
{
    const tess__job_pair *attention = tess__job_find(j, "--attention-dropout");
    const tess__job_pair *hidden = tess__job_find(j, "--hidden-dropout");
    const int off = attention && hidden && strtod(attention->value, NULL) == 0 &&
                    strtod(hidden->value, NULL) == 0;
    if (attention)
        TESS_TRY(tess__job_read(j, attention, "training.dropout", off ? "off" : "on"));
    if (hidden)
        TESS_TRY(tess__job_read(j, hidden, "training.dropout", off ? "off" : "on"));
    return attention && hidden
               ? TESS_OK
               : tess__job_assume(j, "training.dropout", "on", "Megatron-LM's default");
}

static tess_status map_sharding(tess_job *j)
{
    const tess__job_pair *strategy = tess__job_find(j, "--data-parallel-sharding-strategy");
    const tess__job_pair *fsdp = tess__job_either(j, "--use-megatron-fsdp", "--use-custom-fsdp");
    const tess__job_pair *torch = on(j, "--use-torch-fsdp2");
    const tess__job_pair *zero = tess__job_find(j, "--zero-stage");
    const char *how = strategy ? strategy->value : "no_shard";
    if (torch)
        return tess__job_read(j, torch, "layout.zero", "3");
    if (zero)
        return tess__job_read(j, zero, "layout.zero", zero->value);
    if (!fsdp)
        return TESS_OK;
    return tess__job_read(j, strategy ? strategy : fsdp, "layout.zero",
                          strcmp(how, "optim_grads_params") == 0 ? "3"
                          : strcmp(how, "optim_grads") == 0      ? "2"
                          : strcmp(how, "optim") == 0            ? "1"
                                                                 : "0");
}

static tess_status map_chunks(tess_job *j)
{
    const tess__job_pair *each = tess__job_find(j, "--num-layers-per-virtual-pipeline-stage");
    const int64_t layers = peek(j, "--num-layers", 0);
    const int64_t pp = peek(j, "--pipeline-model-parallel-size", 1), part = tess__job_int(each, 0);
    const int64_t stages = pp > 0 && pp < 65536 && part > 0 && part < 65536 ? pp * part : 0;
    char text[32];
    if (!each)
        return TESS_OK;
    if (stages < 1 || layers < stages || layers % stages)
        return tess__job_note(j, TESS_JOB_UNKNOWN, each, "layers that it does not divide");
    snprintf(text, sizeof text, "%" PRId64, layers / stages);
    return tess__job_read(j, each, "layout.vpp", text);
}

static tess_status count_steps(tess_job *j)
{
    const int64_t samples = tess__job_int(tess__job_find(j, "--train-samples"), 0);
    const int64_t batch = peek(j, "--global-batch-size", 0);
    TESS_TRY(tess__job_steps(j, tess__job_find(j, "--train-iters")));
    if (j->steps <= 0 && samples > 0 && batch > 0) {
        const int64_t batches = (samples + batch - 1) / batch;
        j->steps = (double)batches;
    }
    return TESS_OK;
}

tess_status tess__megatron_map(tess_job *j)
{
    const tess__job_pair *branches = tess__job_find(j, "if");
    j->framework = "Megatron-LM";
    if (!has(j, "--num-layers") && !has(j, "--hidden-size") &&
        !has(j, "--tensor-model-parallel-size"))
        return tess__fail(TESS_EFORMAT,
                          "%s: no argument of Megatron-LM is here, such as --num-layers", j->name);
    if (branches)
        TESS_TRY(tess__job_note(j, TESS_JOB_UNKNOWN, branches,
                                "all branches are read, and the last assignment holds"));
    TESS_TRY(map_gpus(j));
    TESS_TRY(map_model(j));
    TESS_TRY(map_experts(j));
    TESS_TRY(map_precision(j));
    TESS_TRY(map_recompute(j));
    TESS_TRY(map_dropout(j));
    TESS_TRY(map_sharding(j));
    TESS_TRY(map_switch(j, "--overlap-grad-reduce", "training.overlap_dp"));
    TESS_TRY(map_switch(j, "--use-distributed-optimizer", "training.distributed_optimizer"));
    TESS_TRY(map_chunks(j));
    TESS_TRY(count_steps(j));
    TESS_TRY(tess__job_rules(j, tess__megatron_flags, tess__n_megatron_flags));
    TESS_TRY(tess__job_software(j, "megatron"));
    return tess__job_assume(j, "system.cluster", "h100",
                            "a script names no machine; use --set system.cluster=NAME");
}
