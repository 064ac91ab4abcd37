/* SPDX-License-Identifier: Apache-2.0 */
/* simulate_ranks.c - the step of several traced ranks on a cluster. */
#include "cmd_simulate.h"
#include "tessera/advanced/replay.h"

#include <math.h>
#include <string.h>

static double ms(int64_t ns)
{
    return 1e-6 * (double)ns;
}

static tess_status print(const cli *c, const simulate_values *v, const tess_replay *replay)
{
    tess_replay_info info;
    TRY(tess_replay_query(replay, &info));
    fprintf(c->out, "%d file%s of %d rank%s, %s%s, %lld calls\n", info.files,
            info.files == 1 ? "" : "s", info.ranks, info.ranks == 1 ? "" : "s",
            v->as_recorded ? "collectives as recorded" : "on ", v->as_recorded ? "" : v->cluster,
            (long long)info.calls);
    fprintf(c->out, "step            %12.3f ms\n\n", ms(info.step_ns));
    fprintf(c->out, "%5s %11s %11s %11s %12s %11s %11s\n", "rank", "recorded", "step, ms",
            "compute", "collectives", "waiting", "exposed");
    for (int i = 0; i < info.files; i++) {
        tess_replay_rank k;
        char path[72];
        TRY(tess_replay_rank_query(replay, i, &k));
        fprintf(c->out, "%5d %11.3f %11.3f %11.3f %12.3f %11.3f %11.3f\n      %s\n", k.rank,
                ms(k.recorded_ns), ms(k.span_ns), ms(k.compute_ns), ms(k.comm_ns), ms(k.wait_ns),
                ms(k.exposed_ns), out_clean(k.path, path, sizeof path));
    }
    return TESS_OK;
}

static tess_status set_members(cli *c, const simulate_values *v, const tess_replay *replay)
{
    tess_replay_info info;
    json_t *ranks = json_array(), *notes = json_array();
    TRY(tess_replay_query(replay, &info));
    for (int i = 0; i < info.files; i++) {
        tess_replay_rank k;
        json_t *one = json_object();
        TRY(tess_replay_rank_query(replay, i, &k));
        out_set(c, one, "file", out_text(k.path));
        out_set(c, one, "rank", json_integer(k.rank));
        out_set(c, one, "source",
                out_text(k.kineto    ? "profiler"
                         : k.program ? "program"
                                     : "tessera"));
        out_set(c, one, "calls", json_integer(k.calls));
        out_set(c, one, "recorded_ms", out_number(ms(k.recorded_ns)));
        out_set(c, one, "step_ms", out_number(ms(k.span_ns)));
        out_set(c, one, "compute_ms", out_number(ms(k.compute_ns)));
        out_set(c, one, "comm_ms", out_number(ms(k.comm_ns)));
        out_set(c, one, "wait_ms", out_number(ms(k.wait_ns)));
        out_set(c, one, "exposed_ms", out_number(ms(k.exposed_ns)));
        out_append(c, ranks, one);
    }
    for (int i = 0; i < info.notes; i++)
        out_append(c, notes, out_sentence(tess_replay_note(replay, i)));
    out_set(c, c->json, "cluster", v->cluster ? out_text(v->cluster) : json_null());
    out_set(c, c->json, "as_recorded", json_boolean(v->as_recorded));
    out_set(c, c->json, "ranks", json_integer(info.ranks));
    out_set(c, c->json, "step_ms", out_number(ms(info.step_ns)));
    out_set(c, c->json, "calls", json_integer(info.calls));
    out_set(c, c->json, "unpriced_calls", json_integer(info.unpriced));
    out_set(c, c->json, "unmatched_calls", json_integer(info.unmatched));
    out_set(c, c->json, "files", ranks);
    out_set(c, c->json, "notes", notes);
    return TESS_OK;
}

/* The last system.era that was set; NULL: none. */
static const char *software_of(const simulate_values *v)
{
    return v->set.n ? strchr(v->set.items[v->set.n - 1], '=') + 1 : NULL;
}

static tess_status print_notes(const cli *c, const tess_replay *replay)
{
    tess_replay_info info;
    TRY(tess_replay_query(replay, &info));
    for (int i = 0; i < info.notes; i++) {
        fputs(i ? "note: " : "\nnote: ", c->out);
        out_wrap(c->out, tess_replay_note(replay, i), 6, 6);
        fputc('\n', c->out);
    }
    return TESS_OK;
}

tess_status simulate_ranks(cli *c, const simulate_values *v)
{
    tess_replay_opts opts = {.compute_scale = isnan(v->compute_scale) ? 0.0 : v->compute_scale,
                             .per_node = (int)v->per_node,
                             .as_recorded = v->as_recorded,
                             .software = software_of(v)};
    tess_cluster *on = NULL;
    tess_sim_params *params = NULL;
    tess_replay *replay = NULL;
    tess_status status = TESS_OK;
    if (v->cluster)
        status = out_option(c, "--cluster", tess_cluster_load(c->ctx, v->cluster, &on));
    if (status == TESS_OK && v->params)
        status = tess_sim_params_load(c->ctx, v->params, &params);
    opts.params = params;
    if (status == TESS_OK)
        status = tess_replay_run(c->ctx, v->trace.items, v->trace.n, on, &opts, &replay);
    if (status == TESS_OK && v->timeline)
        status = tess_replay_write(replay, v->timeline);
    if (status == TESS_OK)
        status = c->json ? set_members(c, v, replay) : print(c, v, replay);
    if (status == TESS_OK)
        status = simulate_programs(c, replay, on);
    if (status == TESS_OK && !c->json)
        status = print_notes(c, replay);
    tess_replay_destroy(replay);
    tess_sim_params_destroy(params);
    tess_cluster_destroy(on);
    return status;
}
