/* SPDX-License-Identifier: Apache-2.0 */
/* torchtitan.c - what the keys of torchtitan's TOML mean for a scenario.
 *
 * Two tables of keys with a meaning of their own, of all versions from 2024 on (keys moved from
 * [training] and [experimental] to [parallelism]); code for those that depend on others: model,
 * GPUs, sharding, batch, recomputation, pipeline. Defaults are torchtitan's own.
 */
#include "job_internal.h"

#include "tessera/advanced/listing.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

static const tess__job_rule rules[] = {
    {.key = "training.seq_len", .setting = "model.seq"},
    {.key = "parallelism.expert_parallel_degree", .setting = "layout.ep"},
    {.key = "parallelism.expert_tensor_parallel_degree", .setting = "layout.etp"},
    {.key = "parallelism.enable_async_tensor_parallel",
     .setting = "training.overlap_tp",
     .words = "true=on,false=auto"},
    {.key = "experimental.enable_async_tensor_parallel",
     .setting = "training.overlap_tp",
     .words = "true=on,false=auto"},
    {.key = "training.mixed_precision_reduce",
     .setting = "training.grad_bytes",
     .words = "float32=4,bfloat16=2"},
    {.key = "training.enable_cpu_offload", .kind = TESS_JOB_UNMODELLED},
    {.key = "training.compile", .kind = TESS_JOB_UNMODELLED},
    {.key = "compile.*", .kind = TESS_JOB_UNMODELLED},
    {.key = "optimizer.name", .kind = TESS_JOB_UNMODELLED},
    {.key = "optimizer.implementation", .kind = TESS_JOB_UNMODELLED},
    {.key = "optimizer.early_step_in_backward", .kind = TESS_JOB_UNMODELLED},
    {.key = "optimizer.fused", .kind = TESS_JOB_UNMODELLED},
    {.key = "parallelism.enable_compiled_autograd", .kind = TESS_JOB_UNMODELLED},
    {.key = "parallelism.disable_loss_parallel", .kind = TESS_JOB_UNMODELLED},
    {.key = "parallelism.context_parallel_rotate_method", .kind = TESS_JOB_UNMODELLED},
    {.key = "parallelism.expert_parallel_comm_backend", .kind = TESS_JOB_UNMODELLED},
    {.key = "float8.*", .kind = TESS_JOB_UNMODELLED},
    {.key = "mx.*", .kind = TESS_JOB_UNMODELLED},
    {.key = "quantize.*", .kind = TESS_JOB_UNMODELLED},
    {.key = "training.dtype", .kind = TESS_JOB_UNMODELLED},
    {.key = "training.deterministic", .kind = TESS_JOB_UNMODELLED},
    {.key = "activation_checkpoint.*", .kind = TESS_JOB_UNMODELLED},
    {.key = "job.*", .kind = TESS_JOB_IGNORED},
    {.key = "profiling.*", .kind = TESS_JOB_IGNORED},
    {.key = "metrics.*", .kind = TESS_JOB_IGNORED},
    {.key = "optimizer.*", .kind = TESS_JOB_IGNORED},
    {.key = "lr_scheduler.*", .kind = TESS_JOB_IGNORED},
    {.key = "checkpoint.*", .kind = TESS_JOB_IGNORED},
    {.key = "validation.*", .kind = TESS_JOB_IGNORED},
    {.key = "comm.*", .kind = TESS_JOB_IGNORED},
    {.key = "debug.*", .kind = TESS_JOB_IGNORED},
    {.key = "fault_tolerance.*", .kind = TESS_JOB_IGNORED},
    {.key = "memory_estimation.*", .kind = TESS_JOB_IGNORED},
    {.key = "model.tokenizer_path", .kind = TESS_JOB_IGNORED},
    {.key = "model.hf_assets_path", .kind = TESS_JOB_IGNORED},
    {.key = "model.norm_type", .kind = TESS_JOB_IGNORED},
    {.key = "model.print_after_conversion", .kind = TESS_JOB_IGNORED},
    {.key = "training.dataset*", .kind = TESS_JOB_IGNORED},
    {.key = "training.dataloader*", .kind = TESS_JOB_IGNORED},
    {.key = "training.max_norm", .kind = TESS_JOB_IGNORED},
    {.key = "training.warmup_steps", .kind = TESS_JOB_IGNORED},
    {.key = "training.gc_*", .kind = TESS_JOB_IGNORED},
    {.key = "training.seed", .kind = TESS_JOB_IGNORED},
};

/* ---- degrees --------------------------------------------------------------------------------- */

/* A degree under the keys that versions gave it. */
static const tess__job_pair *find_degree(tess_job *j, const char *name)
{
    static const char *const tables[] = {"experimental", "training", "parallelism"};
    const tess__job_pair *found = NULL;
    for (int i = 0; i < 3; i++) {
        char key[96];
        snprintf(key, sizeof key, "%s.%s", tables[i], name);
        const tess__job_pair *pair = tess__job_find(j, key);
        found = pair ? pair : found;
    }
    return found;
}

typedef struct {
    int64_t tp, pp, cp, replicate, shard;
} degrees;

static tess_status read_degree(tess_job *j, const char *name, const char *setting, int64_t *value)
{
    const tess__job_pair *pair = find_degree(j, name);
    *value = tess__job_int(pair, 1);
    return pair ? tess__job_read(j, pair, setting, pair->value) : TESS_OK;
}

/* GPUs are what the launcher starts; with a degree of -1 the file does not say how many. */
static tess_status map_gpus(tess_job *j, const degrees *d)
{
    const double product = (double)d->tp * (double)d->pp * (double)d->cp * (double)d->replicate;
    const double sharded = d->shard > 0 ? product * (double)d->shard : product;
    if (!(product >= 1 && sharded <= 10000000))
        return TESS_OK; /* the settings themselves are refused later */
    const int64_t others = (int64_t)product;
    if (d->shard > 0)
        return tess__job_assume_int(j, "layout.gpus", (int64_t)sharded,
                                    "the product of the file's degrees");
    const int64_t gpus = others >= 8 ? others : others * ((8 + others - 1) / others);
    return tess__job_assume_int(j, "layout.gpus", gpus,
                                "the file shards over all GPUs that are started and does not say "
                                "how many: one node, or as few as the degrees need");
}

static tess_status map_sharding(tess_job *j, const degrees *d, const tess__job_pair *shard)
{
    const tess__job_pair *reshard = tess__job_find(j, "parallelism.fsdp_reshard_after_forward");
    const char *policy = reshard ? reshard->value : "default";
    const int never = strcmp(policy, "never") == 0 || (strcmp(policy, "default") == 0 && d->pp > 1);
    const char *zero = d->shard == 1 ? "0" : never ? "2" : "3";
    if (shard)
        TESS_TRY(tess__job_read(j, shard, "layout.zero", zero));
    else
        TESS_TRY(tess__job_assume(j, "layout.zero", zero, "torchtitan's default is FSDP"));
    return reshard ? tess__job_read(j, reshard, "layout.zero", zero) : TESS_OK;
}

static tess_status map_layout(tess_job *j, degrees *d)
{
    TESS_TRY(read_degree(j, "tensor_parallel_degree", "layout.tp", &d->tp));
    TESS_TRY(read_degree(j, "pipeline_parallel_degree", "layout.pp", &d->pp));
    TESS_TRY(read_degree(j, "context_parallel_degree", "layout.cp", &d->cp));
    const tess__job_pair *replicate = find_degree(j, "data_parallel_replicate_degree");
    const tess__job_pair *old = find_degree(j, "data_parallel_degree");
    const tess__job_pair *shard = find_degree(j, "data_parallel_shard_degree");
    shard = shard ? shard : old;
    d->replicate = tess__job_int(replicate, 1);
    d->shard = tess__job_int(shard, -1);
    if (replicate)
        TESS_TRY(tess__job_read(j, replicate, "layout.replicas",
                                d->shard == 1 ? "1" : replicate->value));
    TESS_TRY(map_gpus(j, d));
    TESS_TRY(map_sharding(j, d, shard));
    return d->tp > 1 ? tess__job_assume(j, "layout.sequence", "true",
                                        "torchtitan's tensor parallelism splits the sequence too")
                     : TESS_OK;
}

/* ---- pipeline and batch ---------------------------------------------------------------------- */

/* Stages of the model over all ranks, from split points or layers of a stage; 0: not said. */
static int64_t count_stages(tess_job *j, int layers)
{
    const tess__job_pair *points = find_degree(j, "pipeline_parallel_split_points");
    const tess__job_pair *parts = find_degree(j, "pipeline_parallel_layers_per_stage");
    const int64_t each = tess__job_int(parts, 0);
    int64_t stages = points && *points->value ? 2 : 0;
    for (const char *at = points ? points->value : ""; *at; at++)
        stages += *at == ',';
    return stages ? stages : each > 0 ? (layers + each - 1) / each : 0;
}

static tess_status map_schedule(tess_job *j, const degrees *d, int layers)
{
    static const tess__job_rule rule = {
        .setting = "layout.schedule",
        .words = "1F1B=1f1b,1f1b=1f1b,Interleaved1F1B=interleaved,GPipe=gpipe,"
                 "LoopedBFS=gpipe-looped,InterleavedZeroBubble=interleaved-zb,ZBVZeroBubble=zb-v"};
    const tess__job_pair *pair = find_degree(j, "pipeline_parallel_schedule");
    const int64_t stages = count_stages(j, layers);
    const int looped =
        pair && (strstr(pair->value, "Interleaved") || strstr(pair->value, "Looped"));
    if (d->pp <= 1)
        return TESS_OK;
    if (pair)
        TESS_TRY(tess__job_use(j, pair, &rule));
    if (!looped)
        return TESS_OK;
    if (stages > 0 && stages % d->pp == 0)
        return tess__job_assume_int(j, "layout.vpp", stages / d->pp,
                                    "the file's stages over pipeline ranks");
    return tess__job_assume(j, "layout.vpp", "2",
                            "torchtitan's looped schedules have two stages of a rank");
}

static tess_status map_batch(tess_job *j, const degrees *d)
{
    const tess__job_pair *local =
        tess__job_either(j, "training.local_batch_size", "training.batch_size");
    const tess__job_pair *global = tess__job_find(j, "training.global_batch_size");
    const tess__job_pair *micro = find_degree(j, "pipeline_parallel_microbatch_size");
    TESS_TRY(tess__job_steps(j, tess__job_find(j, "training.steps")));
    j->local_batch = tess__job_int(local, 8);
    if (d->pp > 1 && micro)
        TESS_TRY(tess__job_read(j, micro, "training.micro_batch", micro->value));
    else if (d->pp > 1)
        TESS_TRY(tess__job_assume(j, "training.micro_batch", "1", "torchtitan's default"));
    else if (local)
        TESS_TRY(tess__job_read(j, local, "training.micro_batch", local->value));
    else
        TESS_TRY(tess__job_assume(j, "training.micro_batch", "8", "torchtitan's default"));
    if (global && tess__job_int(global, -1) > 0) {
        j->local_batch = 0;
        return tess__job_read(j, global, "training.global_batch", global->value);
    }
    return TESS_OK;
}

/* ---- recomputation and precision ------------------------------------------------------------- */

static tess_status map_recompute(tess_job *j, const degrees *d, int layers)
{
    static const tess__job_rule rule = {.setting = "training.recompute",
                                        .words = "none=none,selective=selective,full=full,"
                                                 "memory_budget=selective"};
    const tess__job_pair *mode = tess__job_find(j, "activation_checkpoint.mode");
    const tess__job_pair *option = tess__job_find(j, "activation_checkpoint.selective_ac_option");
    const int selective = !mode || strcmp(mode->value, "selective") == 0;
    const int64_t every = selective ? tess__job_int(option, 0) : 0;
    if (every > 0 && layers > 0 && d->pp > 0) { /* whole layers, every so many */
        const int64_t stage = (layers + d->pp - 1) / d->pp;
        char text[32];
        snprintf(text, sizeof text, "%" PRId64, (stage + every - 1) / every);
        TESS_TRY(tess__job_read(j, option, "training.recompute", "full"));
        return tess__job_read(j, option, "training.recompute_layers", text);
    }
    if (option && selective && strcmp(option->value, "op") == 0)
        return tess__job_read(j, option, "training.recompute", "op");
    return mode ? tess__job_use(j, mode, &rule)
                : tess__job_assume(j, "training.recompute", "selective", "torchtitan's default");
}

static tess_status map_precision(tess_job *j)
{
    static const tess__job_rule rule = {.setting = "training.precision",
                                        .words = "bfloat16=bf16,float32=fp32"};
    const tess__job_pair *param = tess__job_find(j, "training.mixed_precision_param");
    const tess__job_pair *converters = tess__job_find(j, "model.converters");
    const tess__job_pair *old = tess__job_find(j, "training.enable_float8_linear");
    if (converters && strstr(converters->value, "mx"))
        return tess__job_read(j, converters, "training.precision", "mxfp8");
    if (converters && strstr(converters->value, "float8"))
        return tess__job_read(j, converters, "training.precision", "fp8");
    if (converters && *converters->value)
        TESS_TRY(tess__job_note(j, TESS_JOB_UNKNOWN, converters, ""));
    if (old && strcmp(old->value, "true") == 0)
        return tess__job_read(j, old, "training.precision", "fp8");
    return param ? tess__job_use(j, param, &rule)
                 : tess__job_assume(j, "training.precision", "bf16", "torchtitan's default");
}

/* ---- model ----------------------------------------------------------------------------------- */

/* Catalogue's name of ("llama3", "8B"), or "". */
static tess_status find_model(tess_job *j, const char *name, const char *flavor, char out[64])
{
    char wanted[160];
    tess_listing *listing = NULL;
    tess_listing_entry e;
    snprintf(wanted, sizeof wanted, "%.64s-%.64s", name, flavor);
    for (char *c = wanted; *c; c++)
        *c = (char)(*c == '_' ? '-' : tolower((unsigned char)*c));
    out[0] = '\0';
    TESS_TRY(tess_listing_create(j->ctx, TESS_LISTING_MODELS, NULL, &listing));
    for (int i = 0; tess_listing_query(listing, i, &e) == TESS_OK; i++) {
        /* "deepseek-v3" has its size in no name; "8B_flex" is 8B with other kernels */
        const size_t n = strlen(e.name);
        const int whole = strcmp(wanted, e.name) == 0;
        const int with_more = strncmp(wanted, e.name, n) == 0 && wanted[n] == '-' &&
                              (strchr("0123456789", wanted[n + 1]) == NULL ||
                               strcmp(wanted, "deepseek-v3-671b") == 0);
        if (n < 64 && (whole || (with_more && !out[0])))
            memcpy(out, e.name, n + 1);
    }
    tess_listing_destroy(listing);
    return TESS_OK;
}

static tess_status map_model(tess_job *j, int *layers)
{
    const tess__job_pair *name = tess__job_find(j, "model.name");
    const tess__job_pair *flavor = tess__job_find(j, "model.flavor");
    const tess__job_pair *from = flavor ? flavor : name;
    char found[64] = "";
    *layers = 0;
    if (flavor)
        TESS_TRY(find_model(j, name ? name->value : "llama3", flavor->value, found));
    if (!found[0])
        return from ? tess__job_note(j, TESS_JOB_UNKNOWN, from,
                                     "a model that the catalogue does not have; use --set "
                                     "model.name=NAME or --set model.config=FILE")
                    : TESS_OK;
    tess_scenario probe = {0};
    TESS_TRY(tess_scenario_set(j->ctx, &probe, "model.name", found));
    *layers = probe.model.layers;
    return tess__job_read(j, flavor, "model.name", found);
}

tess_status tess__torchtitan_map(tess_job *j)
{
    degrees d;
    int layers;
    j->framework = "torchtitan";
    TESS_TRY(map_model(j, &layers));
    TESS_TRY(map_layout(j, &d));
    TESS_TRY(map_schedule(j, &d, layers));
    TESS_TRY(map_batch(j, &d));
    TESS_TRY(map_recompute(j, &d, layers));
    TESS_TRY(map_precision(j));
    const tess__job_pair *seq = NULL;
    for (int i = 0; i < j->n_pairs && !seq; i++)
        seq = strcmp(j->pairs[i].key, "training.seq_len") == 0 ? &j->pairs[i] : NULL;
    if (!seq)
        TESS_TRY(tess__job_assume(j, "model.seq", "2048", "torchtitan's default"));
    TESS_TRY(tess__job_rules(j, rules, (int)(sizeof rules / sizeof *rules)));
    TESS_TRY(tess__job_software(j, "torchtitan"));
    return tess__job_assume(j, "system.cluster", "h100",
                            "a job file names no machine; use --set system.cluster=NAME");
}
