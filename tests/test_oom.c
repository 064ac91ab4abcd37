/* SPDX-License-Identifier: Apache-2.0 */
/* test_oom.c - out of memory in the calls of libtessera. To cover a new one, add a line to the
 * table.
 */
#include "oom.h"

#include "tessera/advanced/activity_report.h"
#include "tessera/advanced/collectives.h"
#include "tessera/advanced/cost.h"
#include "tessera/advanced/listing.h"
#include "tessera/advanced/predict.h"
#include "tessera/advanced/run_log.h"
#include "tessera/advanced/search.h"
#include "tessera/advanced/selection.h"
#include "tessera/advanced/sim_detail.h"
#include "tessera/advanced/sim_timeline.h"
#include "tessera/advanced/timeline_report.h"
#include "tessera/advanced/trace.h"
#include "tessera/advanced/validate.h"
#include "tessera/cluster.h"
#include "tessera/comm.h"

static const float values[24] = {1, 2, 3, -4, 5.5f};
static const tess_tensor tensors[] = {
    {"a.weight", TESS_DTYPE_F32, 2, {2, 3}, values},
    {"b", TESS_DTYPE_F32, 1, {24}, values},
    {"c.scalar", TESS_DTYPE_F32, 0, {0}, values},
};
static const tess_meta metas[] = {{"format", "pt"}, {"made by", "tests"}};
static const tess_sel_shape sel_shape = {
    .batch = 1, .heads = 2, .tokens_q = 40, .tokens_k = 50, .group = 8, .unit = 5};

static tess_status open_and_close(world *w, const char *name)
{
    tess_file *file = NULL;
    const tess_status status = tess_file_open(w->ctx, in_folder(name), &file);
    if (status == TESS_OK)
        tess_file_close(file);
    else
        assert_null(file);
    return status;
}

static tess_status write_file(world *w, const char *name, int n, int compress)
{
    const int safe = strstr(name, "safetensors") != NULL;
    const tess_file_opts opts = {.metas = safe ? metas : NULL,
                                 .n_metas = safe ? 2 : 0,
                                 .shard_bytes = 64,
                                 .compress = compress};
    return tess_file_write(w->ctx, in_folder(name), tensors, n, &opts);
}

static tess_status read_all(world *w)
{
    tess_file_info info;
    tess_status status = tess_file_query(w->file, &info);
    for (int i = 0; i < info.tensors && status == TESS_OK; i++) {
        tess_tensor t;
        uint16_t half[24];
        status = tess_file_describe(w->file, i, &t);
        int64_t n = 1;
        for (int d = 0; d < t.rank; d++)
            n *= t.shape[d];
        if (status == TESS_OK)
            status = tess_file_tensor(w->file, t.name, &t);
        if (status == TESS_OK)
            status =
                tess_file_read(w->file, t.name, TESS_DTYPE_BF16, half, (size_t)n * sizeof *half);
    }
    return status;
}

/* ---- scenarios ------------------------------------------------------------------------------- */

static tess_status s_context(world *w)
{
    (void)w;
    tess_ctx *ctx = NULL;
    const tess_status status =
        tess_ctx_create(&(tess_ctx_opts){.allocator = {ctx_alloc, ctx_free, NULL}}, &ctx);
    tess_ctx_destroy(ctx);
    return status;
}

static tess_status s_comm(world *w)
{
    tess_comm *comm = NULL;
    const tess_status status = tess_comm_self(w->ctx, &comm);
    tess_comm_destroy(comm);
    return status;
}

static tess_status split_and_sum(void *user, tess_ctx *ctx, tess_comm *comm)
{
    (void)user;
    (void)ctx;
    tess_comm *part = NULL;
    float x = 1.0f;
    tess_status status = tess_comm_split(comm, 0, 0, &part);
    if (status == TESS_OK)
        status =
            tess_comm_allreduce(part, TESS_TRAFFIC_PAYLOAD, &x, 1, TESS_DTYPE_F32, TESS_REDUCE_SUM);
    tess_comm_destroy(part);
    return status;
}

/* One rank: the count of allocations is not made for several threads. */
static tess_status s_comm_threads(world *w)
{
    (void)w;
    return tess_comm_threads(&(tess_ctx_opts){.allocator = {ctx_alloc, ctx_free, NULL}}, 1, NULL,
                             split_and_sum, NULL);
}

static tess_status s_trace(world *w)
{
    tess_comm *comm = NULL, *row = NULL, *column = NULL;
    tess_status status = tess_comm_trace(w->ctx, 1, 4, &comm);
    if (status == TESS_OK)
        status = tess_comm_grid(comm, 2, &row, &column);
    if (status == TESS_OK)
        status = tess_comm_agree(row, TESS_OK);
    if (status == TESS_OK)
        status = tess_comm_trace_write(comm, in_folder("trace.json"));
    tess_cluster *cluster = NULL;
    tess_trace *trace = NULL;
    tess_trace_result result;
    if (status == TESS_OK)
        status = tess_trace_load(w->ctx, in_folder("trace.json"), &trace);
    if (status == TESS_OK)
        status = tess_cluster_load(w->ctx, "h100", &cluster);
    if (status == TESS_OK)
        status = tess_trace_replay(trace, cluster, NULL, &result);
    tess_cluster_destroy(cluster);
    tess_trace_destroy(trace);
    unlink(in_folder("trace.json"));
    tess_comm_destroy(column);
    tess_comm_destroy(row);
    tess_comm_destroy(comm);
    return status;
}

static tess_status s_open_npy(world *w)
{
    return open_and_close(w, "x.npy");
}

static tess_status s_open_npz(world *w)
{
    return open_and_close(w, "x.npz");
}

static tess_status s_open_safetensors(world *w)
{
    return open_and_close(w, "x.safetensors");
}

static tess_status s_open_shards(world *w)
{
    return open_and_close(w, "x.safetensors.index.json");
}

static tess_status s_write_npy(world *w)
{
    return write_file(w, "y.npy", 1, 0);
}

static tess_status s_write_npz(world *w)
{
    return write_file(w, "y.npz", 3, 0);
}

static tess_status s_write_npz_deflated(world *w)
{
    return write_file(w, "y.npz", 3, 1);
}

static tess_status s_write_safetensors(world *w)
{
    return write_file(w, "y.safetensors", 3, 0);
}

static tess_status s_write_shards(world *w)
{
    return write_file(w, "y.safetensors.index.json", 3, 0);
}

static tess_status s_stats(world *w)
{
    tess_stats stats;
    return tess_tensor_stats(w->ctx, &tensors[1], &stats);
}

static tess_status nothing(void *user)
{
    (void)user;
    return TESS_OK;
}

static tess_status s_timing(world *w)
{
    tess_timing timing;
    return tess_timing_run(w->ctx, &(tess_timing_opts){.samples = 1}, nothing, NULL, &timing);
}

static tess_status s_measure(world *w)
{
    tess_speed speed;
    return tess_machine_measure(w->ctx, &speed);
}

#include "oom_plan.h"
#include "oom_replay.h"
#include "oom_report.h"

static tess_status s_calibration(world *w)
{
    const char *const tables[] = {in_folder("run.csv")};
    static const char *const names[] = {"a100.gemm_share"};
    tess_calibration *k = NULL;
    const tess_status status = tess_calibration_run(
        w->ctx,
        &(tess_calibration_opts){.tables = tables, .n_tables = 1, .names = names, .n_names = 1},
        &k);
    tess_calibration_destroy(k);
    return status;
}

static tess_status s_validation(world *w)
{
    tess_validation *v = NULL;
    const tess_status status = tess_validation_run(w->ctx, in_folder("runs.csv"), NULL, &v);
    tess_validation_destroy(v);
    return status;
}

static tess_status s_scenario(world *w)
{
    tess_scenario s;
    return tess_scenario_load(w->ctx, "llama3-405b", &s);
}

static tess_status s_sim_params(world *w)
{
    tess_sim_params *params = NULL;
    tess_sim *sim = NULL;
    tess_status status = tess_sim_params_load(w->ctx, NULL, &params);
    if (status == TESS_OK)
        status = tess_sim_create(w->ctx, params, &sim);
    tess_sim_destroy(sim);
    tess_sim_params_destroy(params);
    return status;
}

static tess_status s_listing(world *w)
{
    tess_listing *listing = NULL;
    for (int kind = 0; kind < TESS_LISTINGS; kind++) {
        const tess_status status =
            tess_listing_create(w->ctx, (tess_listing_kind)kind, NULL, &listing);
        if (status != TESS_OK)
            return status;
        tess_listing_destroy(listing);
    }
    return TESS_OK;
}

static tess_status s_job(world *w)
{
    static const char *const texts[] = {
        "[model]\nflavor = \"8B\"\n[training]\nseq_len = 64\nother = [1, 2]\n",
        "N=4\nA=(--num-layers $N)\nA+=(--bf16)\npython x.py ${A[@]} --hidden-size 64\n"};
    for (int i = 0; i < 2; i++) {
        tess_job *job = NULL;
        tess_scenario s = {0};
        char path[512];
        snprintf(path, sizeof path, "%s", in_folder(i == 0 ? "job.toml" : "train.sh"));
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fputs(texts[i], f);
        fclose(f);
        tess_status status = tess_job_load(w->ctx, path, &job);
        if (status == TESS_OK)
            status = tess_job_apply(w->ctx, job, 0, &s);
        tess_job_destroy(job);
        remove(path);
        if (status != TESS_OK)
            return status;
    }
    return TESS_OK;
}

static tess_status s_run_log(world *w)
{
    char path[512];
    tess_run_log *log = NULL;
    snprintf(path, sizeof path, "%s", in_folder("run.log"));
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("- arguments -\n  num_layers ... 4\n- end of arguments -\n", f);
    fputs(" iteration 1/ 9 | elapsed time per iteration (ms): 90.5 |\n", f);
    fclose(f);
    tess_status status = tess_run_log_load(w->ctx, path, 0, &log);
    if (status == TESS_OK)
        status = tess_sim_scalar_write(w->ctx, NULL, "ours", "theirs", 1, "a test", path);
    tess_run_log_destroy(log);
    remove(path);
    return status;
}

static tess_status s_search(world *w)
{
    tess_sim_params *params = NULL;
    tess_search *search = NULL;
    tess_scenario s;
    const tess_search_axis over[] = {{"layout.tp", "4,8"}, {"system.cluster", "a100-80,h100"}};
    const tess_search_opts opts = {
        .over = over, .n_over = 2, .checkpoint = in_folder("search.json")};
    tess_status status = tess_scenario_load(w->ctx, "gpt-175b-96", &s);
    if (status == TESS_OK)
        status = tess_sim_params_load(w->ctx, NULL, &params);
    if (status == TESS_OK)
        status = tess_search_run(w->ctx, params, NULL, &s, &opts, &search);
    tess_search_destroy(search);
    search = NULL;
    if (status == TESS_OK) /* from the checkpoint */
        status = tess_search_run(w->ctx, params, NULL, &s, &opts, &search);
    tess_search_destroy(search);
    tess_sim_params_destroy(params);
    remove(opts.checkpoint);
    return status;
}

#define STEP(call)                                                                                 \
    do {                                                                                           \
        const tess_status status_ = (call);                                                        \
        if (status_ != TESS_OK)                                                                    \
            return status_;                                                                        \
    } while (0)

/* A timeline with a slow rank, its schedule from a file, its file and its page. */
static tess_status run_timeline(world *w, tess_sim *sim, const tess_cluster *cluster,
                                tess_timeline **timeline, tess_schedule **schedule)
{
    const tess_slow_rank slow = {1, 1.5};
    const tess_sim_timeline_opts opts = {.slow = &slow, .n_slow = 1};
    tess_scenario s = {.model = {.layers = 4, .hidden = 256, .heads = 4, .seq = 256, .vocab = 512},
                       .layout = {.tp = 2, .pp = 2, .dp = 2},
                       .training = {.global_batch = 4}};
    tess_sim_result r;
    STEP(tess_sim_run(sim, cluster, &s, &r));
    STEP(tess_sim_schedule_of(sim, schedule));
    STEP(tess_sim_use_schedule(sim, *schedule));
    s.layout.schedule = TESS_SIM_SCHEDULE_FILE;
    snprintf(s.layout.schedule_file, sizeof s.layout.schedule_file, "x.csv");
    STEP(tess_sim_run(sim, cluster, &s, &r));
    STEP(tess_sim_timeline(sim, &opts, timeline));
    STEP(tess_timeline_write(*timeline, in_folder("timeline.json")));
    return tess_timeline_report_write(w->ctx, *timeline, NULL, in_folder("timeline.html"));
}

static tess_status s_timeline(world *w)
{
    tess_sim_params *params = NULL;
    tess_cluster *cluster = NULL;
    tess_sim *sim = NULL;
    tess_timeline *timeline = NULL;
    tess_schedule *schedule = NULL;
    tess_status status = tess_sim_params_load(w->ctx, NULL, &params);
    if (status == TESS_OK)
        status = tess_cluster_load(w->ctx, "h100", &cluster);
    if (status == TESS_OK)
        status = tess_sim_create(w->ctx, params, &sim);
    if (status == TESS_OK)
        status = run_timeline(w, sim, cluster, &timeline, &schedule);
    tess_timeline_destroy(timeline);
    tess_sim_destroy(sim);
    tess_schedule_destroy(schedule);
    tess_cluster_destroy(cluster);
    tess_sim_params_destroy(params);
    remove(in_folder("timeline.json"));
    remove(in_folder("timeline.html"));
    return status;
}

static tess_status s_calibrate(world *w)
{
    tess_cluster *cluster = NULL, *fitted = NULL;
    const tess_collective_row row = {{TESS_ALL_REDUCE, 1 << 20, 8, 8, 0}, 100.0, 1};
    tess_status status = tess_cluster_load(w->ctx, "h100", &cluster);
    if (status == TESS_OK)
        status = tess_cluster_calibrate(w->ctx, cluster, &row, 1, "a row", &fitted, NULL);
    tess_cluster_destroy(fitted);
    tess_cluster_destroy(cluster);
    return status;
}

static tess_status s_scenario_plan(world *w)
{
    tess_profile *profile = NULL;
    tess_cluster *cluster = NULL;
    tess_scenario s = {
        .model = {.kind = TESS_SIM_DIT, .layers = 30, .hidden = 320, .heads = 20, .seq = 4096},
        .layout = {.cp = 4}};
    tess_status status = tess_profile_open(w->ctx, in_folder("p.csv"), NULL, &profile);
    if (status == TESS_OK)
        status = tess_cluster_load(w->ctx, "h100", &cluster);
    if (status == TESS_OK)
        status = tess_scenario_plan(w->ctx, cluster, profile, -1, TESS_PLAN_LPT, &s);
    tess_cluster_destroy(cluster);
    tess_profile_close(profile);
    return status;
}

static tess_status s_nccl_log(world *w)
{
    tess_nccl_log *log = NULL;
    const tess_status status =
        tess_nccl_log_open(w->ctx, in_folder("n.log"), TESS_ALL_REDUCE, &log);
    tess_nccl_log_close(log);
    return status;
}

static tess_status s_traced_calls(world *w)
{
    tess_nccl_log *log = NULL;
    const tess_status status =
        tess_collective_rows_open(w->ctx, in_folder("calls.csv"), TESS_ALL_REDUCE, 8, &log);
    tess_nccl_log_close(log);
    return status;
}

static tess_status s_activity(world *w)
{
    tess_activity *files[2] = {0};
    tess_activity_ranks *ranks = NULL;
    tess_status status = TESS_OK;
    const tess_activity *const *list = (const tess_activity *const *)files;
    for (int i = 0; i < 2 && status == TESS_OK; i++)
        status = tess_activity_load(w->ctx, in_folder("rank0.json"),
                                    &(tess_activity_opts){.rank_given = 1, .rank = i}, &files[i]);
    if (status == TESS_OK)
        status = tess_activity_compare(w->ctx, list, 2, &ranks);
    if (status == TESS_OK)
        status = tess_activity_write(list, 2, in_folder("y.csv"));
    if (status == TESS_OK)
        status = tess_activity_report(w->ctx, list, 2, ranks, "tessera trace", in_folder("y.html"));
    tess_activity_ranks_destroy(ranks);
    for (int i = 0; i < 2; i++)
        tess_activity_destroy(files[i]);
    return status;
}

static tess_status s_sim_measured(world *w)
{
    tess_sim_measured *measured = NULL;
    const tess_status status =
        tess_sim_measured_load(w->ctx, in_folder("ops.csv"), NULL, &measured);
    tess_sim_measured_destroy(measured);
    return status;
}

static tess_status s_cluster(world *w)
{
    tess_cluster *cluster = NULL;
    const tess_status status = tess_cluster_load(w->ctx, "h100", &cluster);
    tess_cluster_destroy(cluster);
    return status;
}

static tess_status s_selection(world *w)
{
    tess_selection *sel = NULL;
    const tess_status status = tess_selection_create(w->ctx, &sel_shape, 100, &sel);
    tess_selection_destroy(sel);
    return status;
}

static tess_status s_selection_set(world *w)
{
    uint8_t mask[2 * 5 * 10];
    memset(mask, 1, sizeof mask);
    return tess_selection_set_mask(w->sel, mask, TESS_MASK_BYTES);
}

static tess_status s_selection_coarsen(world *w)
{
    tess_sel_shape coarse = sel_shape;
    coarse.group = 16;
    coarse.unit = 7;
    tess_selection *out = NULL;
    const tess_status status = tess_selection_coarsen(w->ctx, w->sel, &coarse, &out);
    tess_selection_destroy(out);
    return status;
}

static tess_status s_attn(world *w)
{
    const tess_attn_shape shape = {
        .batch = 1, .heads = 2, .head_dim = 16, .tokens_q = 40, .tokens_k = 50};
    tess_attn *attn = NULL;
    const tess_status status = tess_attn_create(w->ctx, &shape, &attn);
    tess_attn_destroy(attn);
    return status;
}

static tess_status s_predict(world *w)
{
    const tess_predict_shape shape = {
        .batch = 1, .heads = 2, .head_dim = 16, .rank = 8, .tokens = 40, .rows = 4};
    tess_predict *predict = NULL;
    const tess_status status = tess_predict_create(w->ctx, &shape, &predict);
    tess_predict_destroy(predict);
    return status;
}

/* Density and overlap of three groups over units of keys. */
static tess_status s_density(world *w)
{
    static float rows[30 * 8];
    const tess_view view = {rows, TESS_DTYPE_F32, 0, 0, 8};
    const tess_sel_shape groups = {
        .batch = 1, .heads = 1, .tokens_q = 30, .tokens_k = 30, .group = 10, .unit = 4};
    const tess_density_in in = {
        .q = &view, .k = &view, .head_dim = 8, .groups = &groups, .mass = 0.9};
    double density, overlap;
    const tess_status status = tess_density_measure(w->ctx, &in, &density);
    return status == TESS_OK ? tess_overlap_measure(w->ctx, &in, 0, &overlap) : status;
}

/* The first backward pass takes memory for virtual keys, and for keys packed in bf16. */
static tess_status attn_passes(world *w, int compensate, tess_precision precision)
{
    static float x[2 * 50 * 16], dk[2 * 50 * 16], dv[2 * 50 * 16], o[2 * 40 * 16], dq[2 * 40 * 16];
    static float lse[2 * 40];
    const tess_attn_shape shape = {.batch = 1,
                                   .heads = 2,
                                   .head_dim = 16,
                                   .tokens_q = 40,
                                   .tokens_k = 50,
                                   .compensate = compensate,
                                   .precision = precision};
    const tess_view q = {x, TESS_DTYPE_F32, 0, 40 * 16, 16}, k = {x, TESS_DTYPE_F32, 0, 800, 16};
    const tess_view vo = {o, TESS_DTYPE_F32, 0, 640, 16}, vdq = {dq, TESS_DTYPE_F32, 0, 640, 16};
    const tess_view vdk = {dk, TESS_DTYPE_F32, 0, 800, 16}, vdv = {dv, TESS_DTYPE_F32, 0, 800, 16};
    tess_attn *attn = NULL;
    tess_status status = tess_attn_create(w->ctx, &shape, &attn);
    if (status == TESS_OK)
        status = tess_attn_forward(attn, w->sel, &q, &k, &k, &vo, lse);
    if (status == TESS_OK)
        status = tess_attn_backward(attn, w->sel, &(tess_attn_saved){&q, &k, &k, &vo, lse}, &q,
                                    NULL, &vdq, &vdk, &vdv);
    tess_attn_destroy(attn);
    return status;
}

static tess_status s_attn_virtual(world *w)
{
    return attn_passes(w, 1, TESS_PRECISION_FP32);
}

static tess_status s_attn_clusters(world *w)
{
    return attn_passes(w, 8, TESS_PRECISION_FP32);
}

static tess_status s_attn_bf16(world *w)
{
    return attn_passes(w, 1, TESS_PRECISION_BF16);
}

static tess_status s_break_even(world *w)
{
    const tess_attn_rates_shape shape = {.head_dim = 8,
                                         .queries = 16,
                                         .keys = 16,
                                         .group = 8,
                                         .unit = 1,
                                         .compensate = 1,
                                         .proj_dim = 8,
                                         .backward = 1};
    tess_break_even_result result;
    return tess_break_even(w->ctx, &shape, NULL, &result);
}

static const scenario scenarios[] = {
    {"create a context", s_context, NULL, NULL, 0},
    {"create a communicator", s_comm, NULL, NULL, 0},
    {"run ranks as threads", s_comm_threads, NULL, NULL, 0},
    {"play a rank, write its trace and replay it", s_trace, NULL, NULL, 0},
    {"open npy", s_open_npy, NULL, NULL, 0},
    {"open npz", s_open_npz, NULL, NULL, 0},
    {"open safetensors", s_open_safetensors, NULL, NULL, 0},
    {"open shards", s_open_shards, NULL, NULL, 0},
    {"read npy", read_all, "x.npy", NULL, 0},
    {"read npz", read_all, "x.npz", NULL, 0},
    {"read deflated npz", read_all, "z.npz", NULL, 0},
    {"read safetensors", read_all, "x.safetensors", NULL, 0},
    {"read unaligned safetensors", read_all, "odd.safetensors", NULL, 0},
    {"read shards", read_all, "x.safetensors.index.json", NULL, 0},
    {"write npy", s_write_npy, NULL, NULL, 0},
    {"write npz", s_write_npz, NULL, NULL, 0},
    {"write deflated npz", s_write_npz_deflated, NULL, NULL, 0},
    {"write safetensors", s_write_safetensors, NULL, NULL, 0},
    {"write shards", s_write_shards, NULL, NULL, 0},
    {"statistics", s_stats, NULL, NULL, 0},
    {"timing", s_timing, NULL, NULL, 0},
    {"measure", s_measure, NULL, NULL, 1},
    {"create a selection", s_selection, NULL, NULL, 0},
    {"set a selection", s_selection_set, NULL, &sel_shape, 0},
    {"coarsen a selection", s_selection_coarsen, NULL, &sel_shape, 0},
    {"create attention", s_attn, NULL, NULL, 0},
    {"create a predictor's workspace", s_predict, NULL, NULL, 0},
    {"measure density and overlap", s_density, NULL, NULL, 0},
    {"gradients of virtual keys", s_attn_virtual, NULL, &sel_shape, 0},
    {"attend with clusters of keys", s_attn_clusters, NULL, &sel_shape, 0},
    {"attend with products in bf16", s_attn_bf16, NULL, &sel_shape, 0},
    {"measure the break-even density", s_break_even, NULL, NULL, 0},
    {"work from masks", s_work_masks, NULL, NULL, 0},
    {"work from a file", s_work_load, NULL, NULL, 0},
    {"work from a selection", s_work_selection, NULL, &sel_shape, 0},
    {"work from weights and densities", s_work_heads, NULL, NULL, 0},
    {"mixtures of clips", s_mix, NULL, NULL, 0},
    {"files of plans", s_plan_file, NULL, NULL, 0},
    {"open a profile", s_profile, NULL, NULL, 0},
    {"write a profile", s_profile_write, NULL, NULL, 0},
    {"load a cluster", s_cluster, NULL, NULL, 0},
    {"fit a cluster", s_calibrate, NULL, NULL, 0},
    {"read a log of nccl-tests", s_nccl_log, NULL, NULL, 0},
    {"read collectives of traces", s_traced_calls, NULL, NULL, 0},
    {"compare traces of two ranks", s_activity, NULL, NULL, 0},
    {"plan a scenario", s_scenario_plan, NULL, NULL, 0},
    {"load the simulator's parameters", s_sim_params, NULL, NULL, 0},
    {"list the names of a scenario", s_listing, NULL, NULL, 0},
    {"read jobs of other frameworks", s_job, NULL, NULL, 0},
    {"read a log, write a scalar", s_run_log, NULL, NULL, 0},
    {"load measured products", s_sim_measured, NULL, NULL, 0},
    {"search", s_search, NULL, NULL, 0},
    {"timeline of a step", s_timeline, NULL, NULL, 0},
    {"load a scenario", s_scenario, NULL, NULL, 0},
    {"validate a table", s_validation, NULL, NULL, 0},
    {"calibrate", s_calibration, NULL, NULL, 0},
    {"calibrate slowdowns", s_calibrate_overlap, NULL, NULL, 0},
    {"replay ranks", s_replay_ranks, NULL, NULL, 0},
    {"make a plan", s_plan, NULL, NULL, 0},
    {"carry a ring plan out", s_plan_ring, NULL, NULL, 0},
    {"carry a selective plan out", s_plan_selective, NULL, NULL, 0},
    {"attend by a plan", s_dist_attn, NULL, NULL, 0},
    {"plan at run time", s_run_plans, NULL, NULL, 0},
    {"compare runs", s_compare, NULL, NULL, 0},
    {"report a run", s_report_run, NULL, NULL, 0},
    {"report a profile", s_profile_page, NULL, NULL, 0},
};

/* A header of odd length puts the data at an odd place. */
static void write_odd(void)
{
    const char header[] = "{\"t\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}} ";
    const uint64_t length = sizeof header - 1 - (sizeof header - 1) % 2 + 1;
    FILE *f = fopen(in_folder("odd.safetensors"), "wb");
    assert_non_null(f);
    fwrite(&length, 8, 1, f);
    fwrite(header, 1, sizeof header - 1, f);
    for (size_t i = sizeof header - 1; i < length; i++)
        fputc(' ', f);
    fwrite(values, 4, 2, f);
    fclose(f);
}

/* A trace with every source of a collective and something to note, and collectives as CSV. */
static void write_traces(void)
{
    FILE *f = fopen(in_folder("rank0.json"), "w");
    assert_non_null(f);
    fputs("{\"distributedInfo\":{\"rank\":0,\"pg_config\":[{\"pg_name\":\"7\",\"ranks\":[0,1]}]},"
          "\"traceEvents\":[",
          f);
    for (int i = 0; i < 70; i++) /* enough for every list to grow */
        fprintf(f,
                "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"gemm %d\",\"ts\":%d,\"dur\":-%d},"
                "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"nccl %d\",\"ts\":%d,\"dur\":3,"
                "\"args\":{\"Collective name\":\"allreduce\",\"In msg nelems\":8,\"dtype\":"
                "\"Float\",\"Process Group Name\":\"%d\",\"Process Group Ranks\":\"[0, %d]\","
                "\"correlation\":%d}},"
                "{\"ph\":\"X\",\"cat\":\"cuda_runtime\",\"name\":\"cudaLaunchKernel\",\"ts\":%d,"
                "\"dur\":1,\"args\":{\"correlation\":%d}},"
                "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"record_param_comms\",\"ts\":%d,"
                "\"dur\":1,\"args\":{}},"
                "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"ProfilerStep#%d\",\"ts\":%d,"
                "\"dur\":1},",
                i, 10 * i, i & 1, i, 10 * i, i, i + 1, i, 10 * i, i, 9 * i, i, 9 * i);
    fputs("{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"nccl\",\"ts\":5,\"dur\":3}", f);
    assert_true(fclose(f) == 0);
    f = fopen(in_folder("calls.csv"), "w");
    assert_non_null(f);
    fputs("file,rank,call,op,group,in_bytes,out_bytes,dtype,stream,begin_ns,ns,source\n", f);
    for (int i = 0; i < 70; i++)
        fprintf(f, "a,0,%d,all_reduce,0 1,8,8,float,7,1,1,kernel\n", i);
    assert_true(fclose(f) == 0);
}

static int make_files(void **state)
{
    (void)state;
    world w = begin_folder();
    /* Both names: what a scenario writes exists already, and must survive its failures. */
    static const char *const names[] = {
        "x.npy", "x.npz", "x.safetensors", "x.safetensors.index.json",
        "y.npy", "y.npz", "y.safetensors", "y.safetensors.index.json"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        CHECK_OK(write_file(&w, names[i], strstr(names[i], ".npy") ? 1 : 3, 0));
    CHECK_OK(write_file(&w, "z.npz", 3, 1));
    write_odd();
    write_run();
    const tess_tensor mask = {"mask", TESS_DTYPE_U8, 3, {3, 4, 5}, some_masks};
    CHECK_OK(tess_file_write(w.ctx, in_folder("mask.npy"), &mask, 1, NULL));
    CHECK_OK(s_plan_ring(&w));
    FILE *log = fopen(in_folder("n.log"), "w");
    assert_non_null(log);
    assert_true(fputs("# Rank 0 Pid 1 on a device 0\n# Rank 1 Pid 1 on a device 1\n"
                      "8 2 float sum -1 1 1 1 0 1 1 1 0\n",
                      log) >= 0 &&
                fclose(log) == 0);
    write_traces();
    FILE *csv = fopen(in_folder("p.csv"), "w");
    assert_non_null(csv);
    fputs("step,layer,head,density\n", csv);
    for (int i = 1199; i >= 0; i--) /* enough lines for their memory to grow */
        fprintf(csv, "%d,%d,%d,0.5\n", i / 600, i / 20 % 30, i % 20);
    fclose(csv);
    csv = fopen(in_folder("mix.csv"), "w");
    assert_non_null(csv);
    fputs("tokens,count,profile\n5000,1,\n300,4,p.csv\n", csv);
    fclose(csv);
    csv = fopen(in_folder("run.csv"), "w");
    assert_non_null(csv);
    fputs("model.layers,model.hidden,model.heads,model.seq,system.cluster,measured.step_ms\n"
          "4,1024,8,512,a100-80,9\n",
          csv);
    fclose(csv);
    csv = fopen(in_folder("runs.csv"), "w");
    assert_non_null(csv);
    fputs("model.layers,model.hidden,model.heads,model.seq,system.cluster,measured.step_ms\n", csv);
    for (int i = 0; i < 70; i++) /* enough rows for the lists to grow; every second is skipped */
        fprintf(csv, "%d,1024,8,512,%s,%d\n", 1 + i / 2, i % 2 ? "a100-80" : "mars", 1000 + i);
    fclose(csv);
    csv = fopen(in_folder("ops.csv"), "w");
    assert_non_null(csv);
    fputs("system,op,shape,peak_tflops,measured_efficiency\n"
          "b200,matmul,\"b=1, m=8, k=8, n=8, accumulate=False\",2250,0.5\n",
          csv);
    fclose(csv);
    make_replay_files();
    tess_ctx_destroy(w.ctx);
    return 0;
}

RUN_SCENARIOS(scenarios, make_files)
