/* SPDX-License-Identifier: Apache-2.0 */
/* train_ranks.h - a training run on some ranks, as threads, and what it reported. */
#ifndef TESS_TRAIN_RANKS_H
#define TESS_TRAIN_RANKS_H

#include "train/mixture.h"
#include "train_data.h"

enum { RANKS_MOST = 8, STEPS_MOST = 64 };

/* What rank 1 (or, of ODD_FOLDER, rank 0) does that the others do not. */
typedef enum {
    ODD_NONE,
    ODD_STOPS,   /* asks to stop after step 4 */
    ODD_OPTIONS, /* has another learning rate */
    ODD_DATA,    /* clips of another seed */
    ODD_WEIGHTS, /* a model of another seed */
    ODD_FOLDER,  /* removes the run's folder after step 4 */
    ODD_NAN,     /* and so do all: breaks its weights after step 4 */
    ODD_LOST,    /* the same, and rank 0 removes the folder of checkpoints */
    ODD_RISES,   /* and so do all: weights become twice as large, two steps later 100 times */
    ODD_AVERAGE, /* and so do all: their average becomes 100 times as large */
} oddity;

typedef struct {
    const tess_train_opts *opts;
    int ranks, context; /* context: of which so many share tokens; 0: one */
    const char *strategy;
    const tess_link *link;     /* between ranks; NULL: none, and clocks are the wall's */
    int frames;                /* 0: 2 */
    const char *sizes;         /* of clips, in place of frames; NULL: one */
    int64_t stop;              /* steps of this call; 0: all */
    const char *save, *resume; /* folders, or NULL */
    int branch;                /* 1: the run branches off instead of going on */
    oddity odd;
    int64_t at; /* the step after which the oddity is; 0: 4 */

    /* Reported by rank 0, by step of the whole run. */
    double loss[STEPS_MOST], val_loss;
    int64_t first, steps, params; /* steps done before, and at the end */
    int64_t cut;                  /* clips of several sizes that were cut, over all steps */
    /* Reported by each rank. */
    uint64_t weights[RANKS_MOST];
    tess_comm_counts sent[RANKS_MOST]; /* from the making of the train on */
    tess_step first_step[RANKS_MOST], last_step[RANKS_MOST];
    int64_t owned[RANKS_MOST], payload[RANKS_MOST], need[RANKS_MOST], peak[RANKS_MOST],
        done[RANKS_MOST];
    tess_status status[RANKS_MOST];
    char sentence[RANKS_MOST][1024];
} story;

/* A rank of a story. */
typedef struct {
    story *s;
    int rank;
    tess_ctx *ctx;
    tess_comm *comm;
    int64_t before; /* bytes of the communicator */
    run r;
} runner;

static inline void scale(float *values, int64_t n, float factor)
{
    for (int64_t i = 0; i < n; i++)
        values[i] *= factor;
}

/* Every rank has all weights, and the average of those it owns. */
static inline void ruin(const runner *t, int64_t late)
{
    if (t->s->odd == ODD_RISES && (late == 0 || late == 2))
        scale(t->r.info.values, t->r.info.count, late ? 100.0F : 2.0F);
    if (t->s->odd == ODD_AVERAGE && late == 0)
        scale(t->r.train->optim.ema, t->r.train->optim.total, 100.0F);
}

static inline int on_story_step(void *user, const tess_step *step)
{
    runner *t = user;
    story *s = t->s;
    if (t->rank == 0) {
        s->loss[step->step - 1] = step->loss;
        s->steps = step->step;
        s->cut += t->r.train->mixture ? t->r.train->mixture->view.cut_clips : 0;
    }
    s->done[t->rank] = step->step;
    s->last_step[t->rank] = *step;
    if (step->step == 1)
        s->first_step[t->rank] = *step;
    ruin(t, step->step - (s->at ? s->at : 4));
    if (step->step != 4)
        return 0;
    if (s->odd == ODD_NAN || s->odd == ODD_LOST)
        t->r.info.values[0] = NAN;
    if (s->odd == ODD_FOLDER && t->rank == 0)
        tess__remove_folder(s->opts->folder);
    if (s->odd == ODD_LOST && t->rank == 0)
        tess__remove_folder(in_root("lost/checkpoints"));
    return s->odd == ODD_STOPS && t->rank == 1;
}

/* No assertion here: it would leave the thread of the rank. */
static inline tess_status begin_story(runner *t)
{
    const story *s = t->s;
    const int odd = t->rank == 1 ? (int)s->odd : ODD_NONE;
    tess_model_config config;
    tess_train_opts opts = *s->opts;
    opts.comm = t->comm;
    opts.ranks_context = s->context ? s->context : opts.ranks_context;
    opts.strategy = s->strategy;
    opts.cluster = s->context ? "h100" : NULL; /* plans that depend on no clock */
    if (odd == ODD_OPTIONS)
        opts.lr = 1e-3;
    TESS_TRY(tess_model_preset("tiny", &config));
    TESS_TRY(tess_model_create(t->ctx, &config, &(tess_model_opts){1, odd == ODD_WEIGHTS ? 10 : 9},
                               &t->r.model));
    TESS_TRY(tess_model_query(t->r.model, &t->r.info));
    TESS_TRY(
        tess_data_open(t->ctx,
                       &(tess_data_opts){TESS_DATA_OPTS_DEFAULTS, .sizes = s->sizes,
                                         .frames = s->sizes    ? 0
                                                   : s->frames ? s->frames
                                                               : 2,
                                         .height = s->sizes ? 0 : 16, .width = s->sizes ? 0 : 16,
                                         .pack = 2, .seed = odd == ODD_DATA,
                                         .text_len = config.text_len, .text_dim = config.text_dim},
                       &t->r.data));
    return tess_train_create(t->r.model, t->r.data, &opts, &t->r.train);
}

static inline tess_status report_memory(runner *t)
{
    tess_train_memory need;
    tess_data_info data;
    tess_ctx_info info;
    tess_train_opts opts = *t->s->opts;
    opts.comm = t->comm;
    opts.ranks_context = t->s->context ? t->s->context : opts.ranks_context;
    TESS_TRY(tess_data_query(t->r.data, &data));
    TESS_TRY(tess_ctx_query(t->ctx, &info));
    t->s->peak[t->rank] = info.bytes_peak - t->before;
    TESS_TRY(tess_train_need(&t->r.info.config, &data, &opts, 1, &need));
    t->s->need[t->rank] = need.total;
    return TESS_OK;
}

static inline tess_status go_on(runner *t)
{
    story *s = t->s;
    tess_comm_counts before, after;
    tess_train_info info;
    TESS_TRY(begin_story(t));
    if (s->resume)
        TESS_TRY(s->branch ? tess_train_branch(t->r.train, s->resume)
                           : tess_train_resume(t->r.train, s->resume));
    TESS_TRY(tess_train_query(t->r.train, &info));
    if (t->rank == 0)
        s->first = info.step;
    TESS_TRY(tess_comm_counts_read(t->comm, &before));
    TESS_TRY(tess_train_run(t->r.train, s->stop, on_story_step, t));
    TESS_TRY(tess_comm_counts_read(t->comm, &after));
    TESS_TRY(tess_train_query(t->r.train, &info));
    s->sent[t->rank] = info.sent;
    s->payload[t->rank] = after.bytes[TESS_TRAFFIC_PAYLOAD] - before.bytes[TESS_TRAFFIC_PAYLOAD];
    s->owned[t->rank] = t->r.train->optim.total;
    s->weights[t->rank] =
        tess__hash(0, t->r.info.values, (size_t)t->r.info.count * sizeof *t->r.info.values);
    TESS_TRY(tess_train_query(t->r.train, &info));
    if (t->rank == 0) {
        s->val_loss = info.val_loss;
        s->params = t->r.info.count;
    }
    if (s->save)
        TESS_TRY(tess_train_save(t->r.train, s->save));
    return report_memory(t);
}

/* The test checks a failure: returned, it would be sent to ranks that have it already. */
static inline tess_status run_rank(void *user, tess_ctx *ctx, tess_comm *comm)
{
    runner t = {.s = user, .ctx = ctx, .comm = comm};
    tess_comm_info info;
    tess_ctx_info memory;
    TESS_TRY(tess_comm_query(comm, &info));
    TESS_TRY(tess_ctx_query(ctx, &memory));
    t.rank = info.rank;
    t.before = memory.bytes_now;
    const tess_status status = t.s->status[t.rank] = go_on(&t);
    if (status != TESS_OK)
        snprintf(t.s->sentence[t.rank], sizeof t.s->sentence[0], "%s", tess_last_error());
    tess_train_destroy(t.r.train);
    tess_data_close(t.r.data);
    tess_model_destroy(t.r.model);
    return TESS_OK;
}

/* The failure of the first rank that has one. */
static inline tess_status run_story(story *s)
{
    CHECK_OK(tess_comm_threads(&(tess_ctx_opts){.threads = 1}, s->ranks, s->link, run_rank, s));
    for (int r = 0; r < s->ranks; r++)
        if (s->status[r] != TESS_OK)
            return tess__fail(s->status[r], "%s", s->sentence[r]);
    return TESS_OK;
}

static inline void run_ranks(story *s)
{
    CHECK_OK(run_story(s));
}

/* The same bits. */
static inline void check_same(const story *a, const story *b)
{
    assert_memory_equal(a->loss, b->loss, sizeof a->loss);
    assert_memory_equal(a->weights, b->weights, sizeof a->weights);
    assert_memory_equal(&a->val_loss, &b->val_loss, sizeof a->val_loss);
}

/* Of a checkpoint of sparse attention. */
static const char *const checkpoint_files[] = {
    "config.json",           "diffusion_pytorch_model.safetensors",
    "ema/config.json",       "ema/diffusion_pytorch_model.safetensors",
    "optimiser.safetensors", "decisions.json",
    "predictor.safetensors", "state.json",
};

static inline int count_lines(const char *path)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    int lines = 0;
    for (int c; (c = fgetc(file)) != EOF;)
        lines += c == '\n';
    fclose(file);
    return lines;
}

#endif
