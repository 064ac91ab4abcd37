/* SPDX-License-Identifier: Apache-2.0 */
/* 10_replan.c - a context-parallel group of two ranks that plans from densities, step by step.
 *
 * What it shows: a density profile as a file, a context-parallel group, plans that are made and
 * reused while densities change, and the sentences about them.
 *
 *   cc 10_replan.c $(pkg-config --cflags --libs tessera) && ./a.out
 */
#include <stdio.h>
#include <tessera/tessera.h>

enum { STEPS = 3, LAYERS = 2, HEADS = 4, TOKENS = 512, RANKS = 2 };

#define TRY(call)                                                                                  \
    if ((status = (call)) != TESS_OK)                                                              \
    return status

static void print_event(void *user, const tess_cp_event *event)
{
    if (*(const int *)user == 0) /* all ranks get the same sentences */
        printf("step %lld: %s\n", (long long)event->step, event->sentence);
}

static tess_status run_steps(void *user, tess_ctx *ctx, tess_comm *comm)
{
    const tess_profile_view *profile = user;
    tess_status status;
    tess_comm_info me;
    tess_cp *cp;
    tess_cp_info info;
    TRY(tess_comm_query(comm, &me));
    tess_cp_opts opts = {.layers = LAYERS, .heads = HEADS, .head_dim = 64, .batch = 1};
    opts.tokens = TOKENS;
    opts.cluster = "h100"; /* NULL: ranks and links are measured */
    opts.on_event = print_event;
    opts.user = &me.rank;
    TRY(tess_cp_create(ctx, comm, &opts, &cp));
    for (int i = 0; i < STEPS; i++)
        TRY(tess_cp_plan(cp, profile->step[i], profile->density + i * LAYERS * HEADS, NULL));
    TRY(tess_cp_view(cp, &info)); /* info.attn runs the layers by the plan */
    if (me.rank == 0)
        printf("%lld plans in %d steps; rank 0 has %lld of %d rows\n", (long long)info.plans, STEPS,
               (long long)info.rows, TOKENS);
    tess_cp_destroy(cp);
    return TESS_OK;
}

static tess_status run(void)
{
    static const int64_t steps[STEPS] = {100, 101, 102}, layers[LAYERS] = {0, 1};
    static const double density[STEPS][LAYERS][HEADS] = {
        {{0.9, 0.2, 0.2, 0.1}, {0.5, 0.5, 0.4, 0.4}},
        {{0.9, 0.2, 0.2, 0.1}, {0.5, 0.5, 0.4, 0.4}},
        {{0.1, 0.1, 0.2, 0.9}, {0.1, 0.1, 0.1, 0.1}},
    };
    const tess_profile_view view = {STEPS, LAYERS, HEADS, steps, layers, &density[0][0][0]};
    tess_status status;
    tess_ctx *ctx;
    tess_profile *profile;
    tess_profile_view read;
    TRY(tess_ctx_create(NULL, &ctx));
    TRY(tess_profile_write(ctx, "10_densities.csv", &view));
    TRY(tess_profile_open(ctx, "10_densities.csv", NULL, &profile));
    TRY(tess_profile_query(profile, &read));
    TRY(tess_comm_threads(NULL, RANKS, NULL, run_steps, &read));
    tess_profile_close(profile);
    tess_ctx_destroy(ctx);
    return TESS_OK;
}

int main(void)
{
    if (run() == TESS_OK)
        return 0;
    fprintf(stderr, "%s\n", tess_last_error());
    return 1;
}
