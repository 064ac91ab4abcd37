/* SPDX-License-Identifier: Apache-2.0 */
/* train_memory.c - memory that a training run needs, compared with what is available. */
#include "train_job.h"

#include "tessera/advanced/collectives.h"
#include "tessera/advanced/machine.h"

#include <stdlib.h>

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

static void show_plan(train_job *j)
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

tess_status train_check_memory(train_job *j)
{
    tess_train_memory need;
    tess_machine machine;
    tess_ctx_info info;
    char a[32], b[32];
    TRY(tess_ctx_query(j->c->ctx, &info));
    TRY(tess_machine_query(j->c->ctx, &machine));
    TRY(world_agree(j->c, j->c->comm,
                    tess_train_need(&j->config, &j->info, &j->opts, info.threads, &need)));
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
