/* SPDX-License-Identifier: Apache-2.0 */
/* train_memory.c - memory that a training run needs, compared with what is available. */
#include "train_job.h"
#include "train_together.h"

#include "tessera/advanced/collectives.h"
#include "tessera/advanced/machine.h"

#include <stdlib.h>
#include <string.h>

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

static int64_t tokens_of(const tess_model_config *config, const tess_data_info *info)
{
    const int *patch = config->patch;
    return (int64_t)(info->frames / patch[0]) * (info->height / patch[1]) *
           (info->width / patch[2]);
}

/* 75600 as 75,600. */
static const char *grouped(int64_t n, char text[32])
{
    char *at = text + 31;
    *at = '\0';
    for (int digits = 0; n > 0 || digits == 0; n /= 10, digits++) {
        if (digits && digits % 3 == 0)
            *--at = ',';
        *--at = (char)('0' + n % 10);
    }
    return at;
}

/* The same clips as latents of Wan's VAE, which divides time by 4 after the first frame and both
 * sides by 8, where the model is one that takes such latents: what it would be trained on. */
static void show_latents(train_job *j, int threads)
{
    cli *c = j->c;
    const tess_data_info *pixels = &j->info;
    tess_model_config config = j->config;
    tess_data_info info = *pixels;
    tess_train_memory need;
    char count[32], bytes[32];
    info.channels = config.in_channels = config.out_channels = WAN_CHANNELS;
    info.pack = 1;
    info.frames = (pixels->frames - 1) / 4 + 1;
    info.height = pixels->height * pixels->pack / 8;
    info.width = pixels->width * pixels->pack / 8;
    const int64_t tokens = tokens_of(&config, &info);
    if (!j->latents || strcmp(pixels->kind, "latents") == 0 || tokens == 0 ||
        tess_train_need(&config, &info, &j->opts, threads, &need) != TESS_OK)
        return;
    if (c->json) {
        json_t *o = json_object();
        out_set(c, o, "channels", json_integer(info.channels));
        out_set(c, o, "frames", json_integer(info.frames));
        out_set(c, o, "height", json_integer(info.height));
        out_set(c, o, "width", json_integer(info.width));
        out_set(c, o, "tokens", json_integer(tokens));
        out_set(c, o, "total", json_integer(need.total));
        out_set(c, c->json, "latents", o);
        return;
    }
    fprintf(c->out,
            "%s tokens as latents of Wan's VAE, %d x %d x %d x %d: total %s\n"
            "scripts/encode makes latents of clips, --data trains on them\n",
            grouped(tokens, count), info.channels, info.frames, info.height, info.width,
            out_bytes(need.total, bytes));
}

static void show_plan(train_job *j)
{
    cli *c = j->c;
    const int64_t tokens = tokens_of(&j->config, &j->info);
    if (c->json) {
        out_set(c, c->json, "tokens", json_integer(tokens));
        out_set(c, c->json, "dim", json_integer(j->config.heads * j->config.head_dim));
        out_set(c, c->json, "layers", json_integer(j->config.layers));
        return;
    }
    fprintf(c->out, "model        dim %d, %d heads, %d layers\n",
            j->config.heads * j->config.head_dim, j->config.heads, j->config.layers);
    fprintf(c->out, "data         %s, %d x %d x %d x %d, %lld tokens a clip%s\n", j->info.kind,
            j->info.channels, j->info.frames, j->info.height, j->info.width, (long long)tokens,
            j->info.sizes > 1 ? ", the largest size" : "");
}

/* What all ranks of this one's host need together. */
static tess_status add_neighbours(cli *c, int64_t *bytes)
{
    tess_comm_info info;
    if (!c->comm)
        return TESS_OK;
    TRY(tess_comm_query(c->comm, &info));
    int64_t *all = calloc((size_t)info.nodes, sizeof *all);
    tess_status status =
        all ? TESS_OK : out_fail(c, TESS_ENOMEM, "no memory for %d numbers", info.nodes);
    status = world_agree(c, c->comm, status);
    if (status == TESS_OK) {
        all[info.node] = *bytes;
        status = tess_comm_allreduce(c->comm, TESS_TRAFFIC_CONTROL, all, info.nodes, TESS_DTYPE_I64,
                                     TESS_REDUCE_SUM);
        *bytes = all[info.node];
    }
    free(all);
    return status;
}

/* Options that need less: ways to the same step. all: what the hosts' ranks need together now. */
static tess_status fail_memory(const train_job *j, int threads, int64_t all, int64_t total,
                               int64_t available)
{
    char a[32], b[32], each[32], fits[256] = "";
    const double share = (double)all / (double)total;
    const int ways = j->opts.precision == TESS_PRECISION_BF16 ? 2 : 4; /* it stores so already */
    int64_t lowest = all;
    int found = 0;
    const int least = j->info.sizes > 1 ? j->opts.batch : 1; /* one clip a pass already */
    for (int batch = j->opts.batch; batch >= least; batch /= 2)
        for (int way = batch == j->opts.batch; way < ways; way++) {
            tess_train_opts opts = j->opts;
            tess_train_memory need;
            char option[64] = "";
            opts.batch = batch;
            opts.accumulate = j->opts.accumulate * (j->opts.batch / batch);
            opts.keep = way & 1 ? TESS_KEEP_BLOCKS : opts.keep;
            opts.store = way & 2 ? TESS_DTYPE_BF16 : opts.store;
            if (j->opts.batch % batch || found == 3 ||
                tess_train_need(&j->config, &j->info, &opts, threads, &need) != TESS_OK)
                continue;
            const int64_t bytes = (int64_t)(share * (double)need.total);
            lowest = bytes < lowest ? bytes : lowest;
            if (bytes > available)
                continue;
            if (batch < j->opts.batch)
                snprintf(option, sizeof option, " --batch %d --accumulate %d", batch,
                         opts.accumulate);
            const size_t used = strlen(fits);
            snprintf(fits + used, sizeof fits - used, "%s%s%s%s (%s)", found ? " or" : "", option,
                     way & 1 ? " --recompute" : "", way & 2 ? " --store bf16" : "",
                     out_bytes(bytes, each));
            found++;
        }
    if (found)
        return out_fail(j->c, TESS_ENOMEM, "needs %s, %s available; what fits:%s",
                        out_bytes(all, a), out_bytes(available, b), fits);
    return out_fail(
        j->c, TESS_ENOMEM,
        "needs %s, %s available; %s at least with --recompute, --store bf16 and --batch "
        "1: a smaller --preset, --frames, --height or --width needs less",
        out_bytes(all, a), out_bytes(available, b), out_bytes(lowest, each));
}

tess_status train_check_memory(train_job *j)
{
    tess_train_memory need;
    tess_machine machine;
    tess_ctx_info info;
    TRY(tess_ctx_query(j->c->ctx, &info));
    TRY(tess_machine_query(j->c->ctx, &machine));
    TRY(world_agree(j->c, j->c->comm,
                    tess_train_need(&j->config, &j->info, &j->opts, info.threads, &need)));
    int64_t all = need.total;
    TRY(add_neighbours(j->c, &all));
    all *= train_together_ranks();
    if (j->v->dry_run) {
        show_plan(j);
        show_need(j->c, &need, machine.memory_available);
        show_latents(j, info.threads);
        TRY(train_show_time(j, tokens_of(&j->config, &j->info), need.weights / 4, info.threads,
                            all <= machine.memory_available));
    }
    if (all > machine.memory_available)
        return fail_memory(j, info.threads, all, need.total, machine.memory_available);
    return TESS_OK;
}
