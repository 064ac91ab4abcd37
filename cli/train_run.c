/* SPDX-License-Identifier: Apache-2.0 */
/* train_run.c - a training run from the command line: model, data, memory, steps, result. */
#include "train.h"
#include "train_attention.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 4096 };

/* Everything the run holds. */
typedef struct {
    cli *c;
    const train_values *v;
    tess_model_config config;
    tess_data *data;
    tess_data_info info;
    tess_train_opts opts;
    tess_model *model;
    tess_train *train;
    char start[PATH_BYTES]; /* folder whose weights begin the run; "" for random ones */
    int resumed, branched;
    char *settings;
    double *times; /* of the steps of this call */
    int64_t n_times, room;
    double buckets[TESS_NOISE_BUCKETS]; /* of the last validation of this call */
    int validated;
    double density, sparse_layers; /* of the last step */
    int64_t begun;                 /* nanoseconds */
    int64_t first;                 /* steps done before */
} job;

/* ---- where it begins ---------------------------------------------------------------------------
 */

/* The newest checkpoint to resume from, if there is one. */
static tess_status find_resume(job *j)
{
    const tess_status status =
        tess_checkpoint_find(j->c->ctx, j->v->out, j->start, sizeof j->start);
    if (status == TESS_EIO) {
        char text[PATH_BYTES + 64];
        snprintf(text, sizeof text, "%s, so the run begins at step 0", tess_last_error());
        if (!j->c->common->quiet)
            out_log(j->c, TESS_LOG_WARN, text);
        j->start[0] = 0;
        return TESS_OK;
    }
    j->resumed = status == TESS_OK;
    return status;
}

/* --init takes a run, a checkpoint, whose averaged weights are the better ones, or any model. */
static tess_status find_init(job *j)
{
    tess_checkpoint checkpoint;
    tess_ctx *ctx = j->c->ctx;
    if (tess_checkpoint_find(ctx, j->v->init, j->start, sizeof j->start) != TESS_OK) {
        snprintf(j->start, sizeof j->start, "%s", j->v->init);
        return TESS_OK;
    }
    TRY(tess_checkpoint_read(ctx, j->start, &checkpoint));
    if (checkpoint.ema && strlen(j->start) + 5 < sizeof j->start)
        strcat(j->start, "/ema");
    return TESS_OK;
}

static tess_status find_config(job *j)
{
    const train_values *v = j->v;
    if (v->resume)
        TRY(find_resume(j));
    if (!j->resumed && v->branch) {
        TRY(tess_checkpoint_find(j->c->ctx, v->branch, j->start, sizeof j->start));
        j->branched = 1;
    }
    if (!j->resumed && v->init)
        TRY(find_init(j));
    if (j->start[0])
        return tess_model_config_read(j->c->ctx, j->start, &j->config);
    if (v->config)
        return tess_model_config_read(j->c->ctx, v->config, &j->config);
    return tess_model_preset(v->preset, &j->config);
}

/* ---- data and options --------------------------------------------------------------------------
 */

/* The pack that gives the model its channels; 1 if there is none. */
static int natural_pack(const tess_model_config *config)
{
    for (int p = 1; p <= 16; p++)
        if (3 * p * p == config->in_channels)
            return p;
    return 1;
}

/* A preset is a size: its channels and text follow the data. */
static tess_status open_data(job *j)
{
    const train_values *v = j->v;
    const int adapts = !j->start[0] && !v->config;
    const tess_data_opts opts = {
        .source = v->data,
        .frames = (int)v->frames,
        .height = (int)v->height,
        .width = (int)v->width,
        .pack = v->pack ? (int)v->pack : natural_pack(&j->config),
        .text_len = v->text ? 0 : j->config.text_len,
        .text_dim = v->text ? 0 : j->config.text_dim,
        .text = v->text,
        .seed = (uint64_t)v->common.seed,
        .fps = v->fps,
    };
    TRY(tess_data_open(j->c->ctx, &opts, &j->data));
    TRY(tess_data_query(j->data, &j->info));
    if (adapts) {
        j->config.in_channels = j->config.out_channels = j->info.channels;
        j->config.text_dim = j->info.text_dim;
        j->config.text_len = j->info.text_len;
    }
    return TESS_OK;
}

/* On the command line 0 is none; in the options of the library it is the default. */
static double or_none(double value)
{
    return value == 0 ? -1 : value;
}

/* Each decision of the run as a line, above the one of progress. */
static void on_event(void *user, const char *sentence)
{
    const job *j = user;
    if (!j->c->common->quiet)
        out_log(j->c, TESS_LOG_INFO, sentence);
}

static void fill_options(job *j)
{
    const train_values *v = j->v;
    j->opts = (tess_train_opts){
        .batch = (int)v->batch,
        .accumulate = (int)v->accumulate,
        .steps = v->steps,
        .warmup = v->warmup ? v->warmup : -1,
        .decay_from = v->decay_from >= 1 ? -1 : v->decay_from,
        .optim = strcmp(v->optimiser, "adamw") == 0 ? TESS_OPTIM_ADAMW : TESS_OPTIM_MUON,
        .lr = v->lr,
        .lr_muon = v->lr_muon,
        .beta1 = v->beta1,
        .beta2 = v->beta2,
        .momentum = v->momentum,
        .weight_decay = v->weight_decay,
        .clip = or_none(v->clip),
        .ema = or_none(v->ema),
        .shift = v->shift,
        .prompt_dropout = or_none(v->prompt_dropout),
        .seed = (uint64_t)v->common.seed,
        .keep = v->recompute ? TESS_KEEP_BLOCKS : TESS_KEEP_ALL,
        .store = strcmp(v->store, "bf16") == 0 ? TESS_DTYPE_BF16 : TESS_DTYPE_F32,
        .validate_every = v->validate_every ? v->validate_every : -1,
        .validate_clips = (int)v->validate_clips,
        .folder = v->out,
        .settings = j->settings,
        .checkpoint_every = v->checkpoint_every ? v->checkpoint_every : -1,
        .checkpoints_kept = v->keep ? (int)v->keep : -1,
        .sample_every = v->sample_every ? v->sample_every : -1,
        .sample_steps = (int)v->sample_steps,
        .guidance = v->guidance,
        .event = on_event,
        .event_user = j,
        .comm = j->c->comm,
        .ranks_context = (int)v->ranks_context,
        .strategy = v->strategy,
        .cluster = v->cluster,
    };
}

/* ---- many ranks --------------------------------------------------------------------------------
 */

/* Collective: nobody goes on if a rank has failed. Which one, and why, is told at the end. */
static tess_status agree(cli *c, tess_status status)
{
    int64_t failed = status == TESS_OK ? 0 : c->ranks - c->rank;
    if (!c->comm)
        return status;
    const tess_status sent = tess_comm_max_i64(c->comm, TESS_TRAFFIC_CONTROL, &failed, 1);
    TRY(status);
    TRY(sent);
    return failed ? out_fail(c, TESS_EINVAL, "rank %d: failed", c->ranks - (int)failed) : TESS_OK;
}

/* What all ranks of this one's host need together. */
static tess_status add_neighbours(const cli *c, int64_t *bytes)
{
    tess_comm_info info;
    if (!c->comm)
        return TESS_OK;
    TRY(tess_comm_query(c->comm, &info));
    int64_t *all = calloc((size_t)info.nodes, sizeof *all);
    TRY(tess_comm_agree(c->comm, all ? TESS_OK : TESS_ENOMEM));
    all[info.node] = *bytes;
    const tess_status status = tess_comm_sum_i64(c->comm, TESS_TRAFFIC_CONTROL, all, info.nodes);
    *bytes = all[info.node];
    free(all);
    return status;
}

/* Collective: all ranks begin with the same checkpoint, or with none. */
static tess_status same_start(const job *j)
{
    const cli *c = j->c;
    return c->comm ? tess_comm_same(c->comm, "checkpoint to start from", j->start, strlen(j->start))
                   : TESS_OK;
}

/* ---- memory ------------------------------------------------------------------------------------
 */

static const struct {
    const char *name, *key;
    size_t offset;
} rows[] = {
    {"weights", "weights", offsetof(tess_train_memory, weights)},
    {"gradients", "gradients", offsetof(tess_train_memory, gradients)},
    {"moments", "moments", offsetof(tess_train_memory, moments)},
    {"average", "average", offsetof(tess_train_memory, average)},
    {"activations", "activations", offsetof(tess_train_memory, activations)},
    {"workspace", "workspace", offsetof(tess_train_memory, workspace)},
    {"optimiser", "optimiser", offsetof(tess_train_memory, optimiser)},
    {"batches", "batches", offsetof(tess_train_memory, batches)},
    {"predictors", "predictors", offsetof(tess_train_memory, predictors)},
    {"total", "total", offsetof(tess_train_memory, total)},
};

static void show_need(cli *c, const tess_train_memory *need, int64_t available)
{
    json_t *o = c->json ? json_object() : NULL;
    char text[32];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const int64_t bytes = *(const int64_t *)((const char *)need + rows[i].offset);
        if (c->json)
            out_set(c, o, rows[i].key, json_integer(bytes));
        else
            fprintf(c->out, "%-12s %12s\n", rows[i].name, out_bytes(bytes, text));
    }
    if (c->json) {
        out_set(c, o, "available", json_integer(available));
        out_set(c, c->json, "memory", o);
    } else {
        fprintf(c->out, "%-12s %12s\n", "available", out_bytes(available, text));
    }
}

static void show_plan(job *j)
{
    cli *c = j->c;
    const int *patch = j->config.patch;
    const int64_t tokens = (int64_t)(j->info.frames / patch[0]) * (j->info.height / patch[1]) *
                           (j->info.width / patch[2]);
    if (c->json) {
        out_set(c, c->json, "tokens", json_integer(tokens));
        out_set(c, c->json, "dim", json_integer(j->config.heads * j->config.head_dim));
        out_set(c, c->json, "layers", json_integer(j->config.layers));
        return;
    }
    fprintf(c->out, "model        dim %d, %d heads, %d layers\n",
            j->config.heads * j->config.head_dim, j->config.heads, j->config.layers);
    fprintf(c->out, "data         %s, %d x %d x %d x %d, %lld tokens a clip\n", j->info.kind,
            j->info.channels, j->info.frames, j->info.height, j->info.width, (long long)tokens);
}

static tess_status check_memory(job *j)
{
    tess_train_memory need;
    tess_machine machine;
    tess_ctx_info info;
    char a[32], b[32];
    TRY(tess_ctx_query(j->c->ctx, &info));
    TRY(tess_machine_query(j->c->ctx, &machine));
    TRY(agree(j->c, tess_train_need(&j->config, &j->info, &j->opts, info.threads, &need)));
    int64_t all = need.total;
    TRY(add_neighbours(j->c, &all));
    if (j->v->dry_run) {
        show_plan(j);
        show_need(j->c, &need, machine.memory_available);
    }
    if (all > machine.memory_available)
        return out_fail(j->c, TESS_ENOMEM,
                        "needs %s, %s available; a smaller --batch, --recompute or --store bf16 "
                        "needs less",
                        out_bytes(all, a), out_bytes(machine.memory_available, b));
    return TESS_OK;
}

/* ---- steps -------------------------------------------------------------------------------------
 */

static void remember(job *j, double step_ms)
{
    if (j->n_times == j->room) {
        const int64_t room = 2 * j->room + 1024;
        double *times = realloc(j->times, (size_t)room * sizeof *times);
        if (!times)
            return; /* the median is then of fewer steps */
        j->times = times;
        j->room = room;
    }
    j->times[j->n_times++] = step_ms;
}

static int on_step(void *user, const tess_step *step)
{
    job *j = user;
    char text[160];
    const double per_step =
        (double)(tess_clock_ns() - j->begun) / 1e9 / (double)(step->step - j->first);
    const int64_t left = (int64_t)(per_step * (double)(step->steps - step->step) + 0.5);
    remember(j, step->step_ms);
    j->density = step->density;
    j->sparse_layers = step->sparse_layers;
    if (!isnan(step->val_loss)) {
        memcpy(j->buckets, step->val_buckets, sizeof j->buckets);
        j->validated = 1;
    }
    snprintf(text, sizeof text,
             "step %lld/%lld   loss %.4f   %.1f ms   %.0f tokens/s   %lld:%02d left",
             (long long)step->step, (long long)step->steps, step->loss_mean, step->step_ms,
             step->tokens_per_s, (long long)(left / 60), (int)(left % 60));
    progress_line(j->c, text);
    return signals_caught();
}

static tess_status make_model(job *j)
{
    const tess_model_opts opts = {.gradients = 1, .seed = (uint64_t)j->v->common.seed};
    if (j->start[0])
        return tess_model_load(j->c->ctx, j->start, &opts, &j->model);
    return tess_model_create(j->c->ctx, &j->config, &opts, &j->model);
}

static tess_status make(job *j)
{
    TRY(agree(j->c, make_model(j)));
    TRY(tess_train_create(j->model, j->data, &j->opts, &j->train));
    if (j->branched)
        return tess_train_branch(j->train, j->start);
    return j->resumed ? tess_train_resume(j->train, j->start) : TESS_OK;
}

static tess_status run_steps(job *j)
{
    tess_train_info info;
    TRY(tess_train_query(j->train, &info));
    j->first = info.step;
    j->begun = tess_clock_ns();
    j->c->progress.hold = 1; /* on_step asks for the checkpoint that a signal ends with */
    const tess_status status = tess_train_run(j->train, 0, on_step, j);
    j->c->progress.hold = 0;
    progress_clear(j->c);
    if (status != TESS_ESTOPPED)
        return status;            /* on_step stops for signals alone, of this rank or another one */
    j->c->code = EXIT_SIGNAL + 2; /* of Ctrl-C, for SIGTERM too */
    TRY(tess_train_query(j->train, &info));
    return out_fail(j->c, status, "interrupted by a signal; --resume goes on from %s",
                    info.checkpoint ? info.checkpoint : "nothing");
}

/* ---- the result --------------------------------------------------------------------------------
 */

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(job *j)
{
    if (j->n_times == 0)
        return (double)NAN;
    qsort(j->times, (size_t)j->n_times, sizeof *j->times, ascending);
    return j->times[j->n_times / 2];
}

static int ranks_context(const job *j)
{
    return j->opts.ranks_context ? j->opts.ranks_context : j->c->ranks;
}

static void print_result(const cli *c, const job *j, const tess_train_info *info, double step_ms,
                         int64_t peak)
{
    char text[32];
    fprintf(c->out, "steps        %lld\n", (long long)info->step);
    if (!isnan(info->loss_mean))
        fprintf(c->out, "train loss   %.4f\n", info->loss_mean);
    if (!isnan(info->val_loss))
        fprintf(c->out, "val loss     %.4f\n", info->val_loss);
    if (j->validated)
        fprintf(c->out, "by noise     %.4f %.4f %.4f %.4f\n", j->buckets[0], j->buckets[1],
                j->buckets[2], j->buckets[3]);
    if (!isnan(step_ms))
        fprintf(c->out, "step         %.1f ms, %.0f tokens/s\n", step_ms,
                1e3 * (double)info->tokens / step_ms);
    if (j->opts.attention.kind != TESS_ATTENTION_DENSE && j->n_times > 0)
        fprintf(c->out, "attention    %.0f of %d layers in stage 2, density %.3f\n",
                j->sparse_layers, j->config.layers, j->density);
    if (c->ranks > 1)
        fprintf(c->out, "ranks        %d, of which %d share the tokens of a clip\n", c->ranks,
                ranks_context(j));
    fprintf(c->out, "memory       %s at most\n", out_bytes(peak, text));
    if (info->checkpoint)
        fprintf(c->out, "checkpoint   %s\n", info->checkpoint);
}

static tess_status report(job *j)
{
    cli *c = j->c;
    tess_train_info info;
    tess_ctx_info memory;
    TRY(tess_train_query(j->train, &info));
    TRY(tess_ctx_query(c->ctx, &memory));
    const double step_ms = median(j);
    if (!c->json) {
        print_result(c, j, &info, step_ms, memory.bytes_peak);
        return TESS_OK;
    }
    out_set(c, c->json, "run", out_text(j->v->out));
    out_set(c, c->json, "steps", json_integer(info.step));
    out_set(c, c->json, "train_loss", out_number(info.loss_mean));
    out_set(c, c->json, "val_loss", out_number(info.val_loss));
    out_set(c, c->json, "step_ms_median", out_number(step_ms));
    out_set(c, c->json, "tokens_per_s", out_number(1e3 * (double)info.tokens / step_ms));
    out_set(c, c->json, "sparse_layers", json_integer((json_int_t)j->sparse_layers));
    out_set(c, c->json, "density", out_number(j->n_times > 0 ? j->density : (double)NAN));
    if (c->ranks > 1) {
        out_set(c, c->json, "ranks", json_integer(c->ranks));
        out_set(c, c->json, "ranks_context", json_integer(ranks_context(j)));
    }
    out_set(c, c->json, "peak_memory_gib", out_number((double)memory.bytes_peak / (1 << 30)));
    out_set(c, c->json, "checkpoint", info.checkpoint ? out_text(info.checkpoint) : json_null());
    return TESS_OK;
}

/* Everything that is read before the run is made. */
static tess_status prepare(job *j)
{
    TRY(find_config(j));
    TRY(open_data(j));
    j->settings = train_settings_text(j->c->cmd, j->v);
    if (!j->settings)
        return out_fail(j->c, TESS_ENOMEM, "no memory for the settings");
    fill_options(j);
    return train_attention(j->c, j->v, &j->opts.attention);
}

static tess_status run_job(job *j)
{
    TRY(agree(j->c, prepare(j)));
    TRY(same_start(j));
    TRY(agree(j->c, check_memory(j)));
    if (j->v->dry_run)
        return TESS_OK;
    TRY(make(j));
    TRY(run_steps(j));
    return report(j);
}

static tess_status check_usage(cli *c, const train_values *v)
{
    if (!v->out && !v->dry_run)
        return out_usage(c, "--out is missing, must be the folder of the run");
    if (v->resume && !v->out)
        return out_usage(c, "--resume needs --out, the folder of the run");
    if (v->init && v->branch)
        return out_usage(c, "--init and --branch are both given, must be one of them");
    return TESS_OK;
}

tess_status train_run(cli *c, const train_values *v)
{
    train_settings settings = {0};
    job j = {.c = c};
    tess_status status = check_usage(c, v);
    if (status == TESS_OK)
        status = train_settings_read(c, v, &settings, &j.v);
    status = agree(c, status);
    if (status == TESS_OK) {
        if (c->json)
            out_set(c, c->json, "seed", json_integer(j.v->common.seed));
        status = run_job(&j);
    }
    tess_train_destroy(j.train);
    tess_model_destroy(j.model);
    tess_data_close(j.data);
    free(j.settings);
    free(j.times);
    train_settings_free(&settings);
    return status;
}
