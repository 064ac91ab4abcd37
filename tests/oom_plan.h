/* SPDX-License-Identifier: Apache-2.0 */
/* oom_plan.h - the scenarios of test_oom.c that plan: work, profiles, plans, exchange lists, and
 * the executor of plans.
 *
 * Included by test_oom.c behind its world.
 */
#ifndef TESS_OOM_PLAN_H
#define TESS_OOM_PLAN_H

#include "tessera/advanced/collectives.h"
#include "tessera/advanced/exchange.h"
#include "tessera/advanced/explain.h"
#include "tessera/advanced/mix_report.h"
#include "tessera/advanced/plan_file.h"
#include "tessera/cluster.h"
#include "tessera/cp.h"
#include "tessera/dist_attn.h"
#include "tessera/plan.h"
#include "tessera/strategy.h"

static const uint8_t some_masks[3 * 4 * 5] = {1, 0, 1};

static tess_status s_work_masks(world *w)
{
    const tess_mask_set set = {
        .layers = 1, .heads = 3, .q_blocks = 4, .k_blocks = 5, .data = some_masks};
    tess_work *work = NULL;
    tess_status status = tess_work_from_masks(w->ctx, &set, &work);
    if (status == TESS_OK)
        status = tess_work_set_masks(work, &set);
    double rho;
    if (status == TESS_OK)
        status = tess_work_imbalance(work, 0, 3, 2, TESS_RHO_GLOBAL, &rho);
    tess_work_destroy(work);
    return status;
}

static tess_status s_work_load(world *w)
{
    tess_work *work = NULL;
    const tess_status status = tess_work_load(w->ctx, in_folder("mask.npy"), NULL, &work);
    tess_work_destroy(work);
    return status;
}

static tess_status s_work_selection(world *w)
{
    const tess_selection *sel = w->sel;
    tess_work *work = NULL;
    const tess_status status = tess_work_from_selection(w->ctx, &sel, 1, &work);
    tess_work_destroy(work);
    return status;
}

/* A file of two steps, written and read. */
static tess_status s_plan_file(world *w)
{
    const double density[2] = {0.5, 0.25};
    const tess_plan_origin origin = {.command = "tessera plan", .source = in_folder("p.csv")};
    tess_plan_opts opts = TESS_PLAN_OPTS_INIT;
    tess_plan_file *file = NULL, *read = NULL;
    tess_work *work = NULL, *loads = NULL;
    tess_plan *plan = NULL;
    opts.ranks = 2;
    tess_status status = tess_work_from_density(w->ctx, density, 1, 2, 500, 64, &work);
    if (status == TESS_OK)
        status = tess_plan_create(w->ctx, work, NULL, &opts, &plan);
    if (status == TESS_OK)
        status = tess_plan_file_create(w->ctx, &origin, &file);
    if (status == TESS_OK)
        status = tess_plan_file_add(file, 1, plan, work);
    if (status == TESS_OK)
        status = tess_plan_file_add(file, 2, NULL, NULL);
    if (status == TESS_OK)
        status = tess_plan_file_save(file, in_folder("steps.plan.json"));
    if (status == TESS_OK)
        status = tess_plan_file_open(w->ctx, in_folder("steps.plan.json"), &read);
    if (status == TESS_OK)
        status = tess_plan_file_work(read, 1, &loads);
    tess_work_destroy(loads);
    tess_plan_file_destroy(read);
    tess_plan_file_destroy(file);
    tess_plan_destroy(plan);
    tess_work_destroy(work);
    remove(in_folder("steps.plan.json"));
    return status;
}

/* Clips from a file and from a code, a plan of two steps, and that of a cut clip. */
static tess_status s_mix(world *w)
{
    tess_mix *file = NULL, *code = NULL;
    tess_mix_plan *plan = NULL;
    tess_plan *clip = NULL;
    int64_t n;
    tess_mix_opts opts = TESS_MIX_OPTS_INIT;
    opts.ranks = 3;
    opts.width = 256;
    opts.steps = 2;
    opts.memory = (int64_t)1 << 26;
    tess_status status = tess_mix_open(w->ctx, in_folder("mix.csv"), &file);
    if (status == TESS_OK)
        status = tess_mix_parse(w->ctx, "g1b3i256f1s0,g1b1i1024f1s0", 3, 2, &code);
    const tess_mix_clip *clips = tess_mix_clips(code, &n);
    if (status == TESS_OK)
        status = tess_mix_plan_create(w->ctx, clips, n, NULL, &opts, &plan);
    if (status == TESS_OK)
        status = tess_mix_clip_plan(plan, 0, &clip);
    if (status == TESS_OK)
        status = tess_mix_report_write(w->ctx, plan, clips, n, NULL, in_folder("mix.html"));
    tess_plan_destroy(clip);
    tess_mix_plan_destroy(plan);
    tess_mix_destroy(code);
    tess_mix_destroy(file);
    return status;
}

static tess_status s_work_heads(world *w)
{
    const int64_t weights[2] = {3, 4};
    const double density[2] = {0.5, 0.25};
    const int64_t bounds[3] = {0, 30, 100};
    tess_work *a = NULL, *b = NULL, *blocks = NULL;
    tess_status status = tess_work_from_weights(w->ctx, weights, 1, 2, 8, &a);
    if (status == TESS_OK)
        status = tess_work_from_density_blocks(w->ctx, density, 1, 2, bounds, 2, &blocks);
    if (status == TESS_OK)
        status = tess_work_from_density(w->ctx, density, 1, 2, 100, 8, &b);
    double rho;
    if (status == TESS_OK)
        status = tess_work_imbalance(b, 0, 1, 2, TESS_RHO_RING, &rho);
    tess_work_destroy(a);
    tess_work_destroy(b);
    tess_work_destroy(blocks);
    return status;
}

static tess_status s_profile_write(world *w)
{
    static const int64_t one[] = {0};
    static const double half[] = {0.5};
    const tess_profile_view view = {1, 1, 1, one, one, half};
    const char *path = in_folder("written.csv");
    const tess_status status = tess_profile_write(w->ctx, path, &view);
    if (status == TESS_OK)
        remove(path);
    return status;
}

static tess_status s_profile(world *w)
{
    tess_profile *profile = NULL;
    const tess_status status = tess_profile_open(w->ctx, in_folder("p.csv"), NULL, &profile);
    tess_profile_close(profile);
    return status;
}

/* A plan of 4 ranks with this many sequence parts, written, read again, checked, and its lists made
 * for a rank. */
static tess_status plan_round(world *w, int ring, int selective)
{
    /* Even work, so that measures are short: jansson 2.14 aborts when memory ends within a number
     * of 16 digits. */
    uint8_t mask[4 * 4 * 4];
    memset(mask, 1, sizeof mask);
    const tess_mask_set set = {.layers = 1, .heads = 4, .q_blocks = 4, .k_blocks = 4, .data = mask};
    const tess_plan_opts opts = {
        TESS_PLAN_OPTS_DEFAULTS, .ranks = 4,
        .strategy = {.method = TESS_PLAN_REFINED, .ring = ring, .selective = selective}};
    const int64_t bounds_q[5] = {0, 1, 2, 3, 4}, bounds_k[5] = {0, 1, 1, 3, 4};
    tess_work *work = NULL;
    tess_plan *plan = NULL, *back = NULL;
    tess_exchange *exchange = NULL;
    double rho;
    tess_status status = tess_work_from_masks(w->ctx, &set, &work);
    if (status == TESS_OK)
        status = tess_plan_create(w->ctx, work, NULL, &opts, &plan);
    if (status == TESS_OK)
        status = tess_plan_save(plan, in_folder("plan.json"));
    if (status == TESS_OK)
        status = tess_plan_load(w->ctx, in_folder("plan.json"), &back);
    if (status == TESS_OK)
        status = tess_plan_check(back, work);
    if (status == TESS_OK)
        status = tess_plan_imbalance(back, 0, work, TESS_RHO_GLOBAL, &rho);
    if (status == TESS_OK)
        status = tess_plan_exchange(back, work, 0, 1, bounds_q, bounds_k, &exchange);
    if (status != TESS_OK)
        assert_null(exchange);
    const tess_sel_shape shape = {
        .batch = 1, .heads = 4, .tokens_q = 4, .tokens_k = 4, .group = 1, .unit = 1};
    tess_selection *sel = NULL, *part = NULL;
    if (status == TESS_OK)
        status = tess_selection_create(w->ctx, &shape, sizeof mask, &sel);
    if (status == TESS_OK)
        status = tess_selection_set_mask(sel, mask, TESS_MASK_BYTES);
    if (status == TESS_OK)
        status = tess_exchange_selection(w->ctx, exchange, sel, 0, 0, &part);
    tess_selection_destroy(part);
    tess_selection_destroy(sel);
    tess_exchange_destroy(exchange);
    tess_plan_destroy(back);
    tess_plan_destroy(plan);
    tess_work_destroy(work);
    return status;
}

static tess_status s_plan_ring(world *w)
{
    return plan_round(w, 2, 1);
}

static tess_status s_plan_selective(world *w)
{
    return plan_round(w, 1, 2);
}

static tess_status choose_every_other(void *user, const tess_share_in *in, tess_selection *lists,
                                      int *dense)
{
    (void)user;
    uint8_t mask[4 * 32];
    *dense = in->head == 0;
    memset(mask, 0x55, sizeof mask);
    return *dense ? TESS_OK : tess_selection_set_mask(lists, mask, TESS_MASK_BITS);
}

/* The executor of a plan on one rank: made, given a plan twice, forward, backward. */
/* The plans of a job on one rank. Round numbers, for jansson's sake. */
static tess_status s_run_plans(world *w)
{
    static const double density[] = {1.0, 0.5};
    static const int64_t groups[] = {0, 8, 16, 24, 32};
    const tess_cp_opts opts = {.layers = 1,
                               .heads = 2,
                               .head_dim = 8,
                               .batch = 1,
                               .tokens = 32,
                               .n_groups = 4,
                               .groups = groups,
                               .flops = 1e9,
                               .replan_always = 1};
    tess_comm *comm = NULL;
    tess_cp *context = NULL;
    tess_status status = tess_comm_self(w->ctx, &comm);
    if (status == TESS_OK)
        status = tess_cp_create(w->ctx, comm, &opts, &context);
    if (status != TESS_OK)
        assert_null(context);
    for (int i = 0; status == TESS_OK && i < 2; i++)
        status = tess_cp_plan(context, i, density, NULL);
    tess_cp_destroy(context);
    tess_comm_destroy(comm);
    return status;
}

static tess_status s_dist_attn(world *w)
{
    static const double density[] = {1.0, 0.5};
    static const int64_t bounds[] = {0, 32}, groups[] = {0, 8, 16, 24, 32};
    static float x[2 * 32 * 8], out[2 * 32 * 8];
    const tess_view in = {x, TESS_DTYPE_F32, 0, 32 * 8, 8};
    const tess_view o = {out, TESS_DTYPE_F32, 0, 32 * 8, 8};
    const tess_dist_attn_opts opts = {.batch = 1,
                                      .heads = 2,
                                      .head_dim = 8,
                                      .compensate = 1,
                                      .tokens = 32,
                                      .bounds = bounds,
                                      .n_groups = 4,
                                      .groups = groups,
                                      .saves = 2};
    const tess_dist_call call = {.save = 1, .choose = choose_every_other};
    tess_comm *comm = NULL;
    tess_work *work = NULL;
    tess_plan *plan = NULL;
    tess_dist_attn *attn = NULL;
    tess_status status = tess_comm_self(w->ctx, &comm);
    if (status == TESS_OK)
        status = tess_work_from_density(w->ctx, density, 1, 2, 32, 8, &work);
    if (status == TESS_OK)
        status = tess_plan_create(w->ctx, work, NULL,
                                  &(tess_plan_opts){TESS_PLAN_OPTS_DEFAULTS, .ranks = 1}, &plan);
    if (status == TESS_OK)
        status = tess_dist_attn_create(w->ctx, comm, &opts, &attn);
    for (int i = 0; status == TESS_OK && i < 2; i++)
        status = tess_dist_attn_plan(attn, plan);
    if (status == TESS_OK)
        status = tess_dist_attn_forward(attn, &call, &in, &in, &in, &o, NULL);
    if (status == TESS_OK)
        status = tess_dist_attn_backward(attn, &call, &in, &o, &o, &o);
    tess_dist_attn_destroy(attn);
    tess_plan_destroy(plan);
    tess_work_destroy(work);
    tess_comm_destroy(comm);
    return status;
}

/* Every candidate of a masked layer on two nodes, and the question whether the plan serves. */
static tess_status s_plan(world *w)
{
    uint8_t mask[4 * 6 * 6];
    for (size_t i = 0; i < sizeof mask; i++)
        mask[i] = i % 5 < 2;
    const tess_mask_set masks = {.layers = 1,
                                 .heads = 4,
                                 .q_blocks = 6,
                                 .k_blocks = 6,
                                 .data = mask,
                                 .kind = TESS_MASK_BYTES,
                                 .tokens_q = 6 * 64,
                                 .tokens_k = 6 * 64,
                                 .group = 64,
                                 .unit = 64};
    const tess_plan_opts opts = {TESS_PLAN_OPTS_DEFAULTS, .ranks = 4, .nodes = 2};
    tess_cluster *cluster = NULL;
    tess_work *work = NULL;
    tess_plan *plan = NULL;
    tess_plan_verdict keep;
    tess_status status = tess_cluster_load(w->ctx, "h100", &cluster);
    if (status == TESS_OK)
        status = tess_work_from_masks(w->ctx, &masks, &work);
    if (status == TESS_OK)
        status = tess_plan_create(w->ctx, work, cluster, &opts, &plan);
    if (status == TESS_OK)
        status = tess_plan_keep(plan, work, cluster, &opts, 0, &keep);
    else
        assert_null(plan);
    tess_plan_destroy(plan);
    tess_work_destroy(work);
    tess_cluster_destroy(cluster);
    return status;
}

#endif
