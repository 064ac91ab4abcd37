/* SPDX-License-Identifier: Apache-2.0 */
/* test_control.c - runs that become sparse: stages, going back, resuming bit for bit, branching. */
#include "model/pass_internal.h"
#include "train_data.h"

#include <sys/stat.h>

/* A check every 2 steps: five of them, which a density needs to settle, fit into 11 steps. Any
 * recall and any change of the density will do where a test is not about them. */
static const tess_train_opts dsv = {
    TESS_TRAIN_OPTS_DEFAULTS,
    .batch = 2,
    .accumulate = 2,
    .steps = 16,
    .warmup = 2,
    .validate_every = 8,
    .validate_clips = 1,
    .seed = 3,
    .attention = {TESS_ATTENTION_OPTS_DEFAULTS, .kind = TESS_ATTENTION_DSV, .density = 0.25,
                  .switch_recall = 1e-6, .back_recall = 1e-6, .profile_every = 2, .check_every = 2,
                  .cube = {2, 2, 2}, .dispatch = "sparse"}};

static run start(int threads, const tess_train_opts *opts)
{
    return start_run(&(tess_ctx_opts){.threads = threads}, 4, opts);
}

static int sparse_layers(const run *r)
{
    int n = 0;
    for (int i = 0; i < r->info.config.layers; i++)
        n += r->train->control->state.sparse[i];
    return n;
}

static void check_same_decisions(const tess__dsv_state *a, const tess__dsv_state *b)
{
    const size_t l = (size_t)a->layers, h = (size_t)a->heads, all = l * TESS_NOISE_BUCKETS * h;
    assert_int_equal(a->n_cubes, b->n_cubes);
    assert_memory_equal(a->cubes[0].cube, b->cubes[0].cube, sizeof a->cubes[0].cube);
    for (int c = 0; c < a->n_cubes; c++) {
        assert_memory_equal(a->cubes[c].density, b->cubes[c].density, all * sizeof(double));
        assert_memory_equal(a->cubes[c].recall, b->cubes[c].recall, l * h * sizeof(double));
        assert_memory_equal(&a->cubes[c].overlap, &b->cubes[c].overlap, sizeof(double));
    }
    assert_memory_equal(a->choice, b->choice, all);
    assert_memory_equal(a->sparse, b->sparse, l * sizeof(int));
    assert_memory_equal(a->since, b->since, l * sizeof(int64_t));
    assert_memory_equal(a->back, b->back, l * h);
    assert_memory_equal(&a->loss, &b->loss, sizeof(double));
    assert_int_equal(a->updates, b->updates);
}

static void check_same(const run *a, const run *b)
{
    check_same_training(a, b);
    const tess__control *c = a->train->control, *d = b->train->control;
    if (!c && !d)
        return;
    check_same_decisions(&c->state, &d->state);
    if (!c->predictor)
        return;
    const tess__learner *p = &c->learner, *q = &d->learner;
    assert_memory_equal(p->info.values, q->info.values, (size_t)p->info.count * sizeof(float));
    for (int i = 0; i < p->layers; i++)
        assert_memory_equal(p->optims[i].first, q->optims[i].first,
                            (size_t)p->count * sizeof(float));
}

/* ---- stages ---------------------------------------------------------------------------------- */

typedef struct {
    const run *r;
    double density[64], loss[64];
    int64_t allocations;
} recorded;

static int note(void *user, const tess_step *step)
{
    recorded *s = user;
    s->density[step->step] = step->density;
    s->loss[step->step] = step->predictor_loss;
    assert_true(step->attention_gflop > 0);
    return 0;
}

static void a_run_goes_through_both_stages(void **state)
{
    (void)state;
    recorded s = {0};
    tess_train_opts opts = dsv;
    opts.folder = in_root("both");
    run r = start(2, &opts);
    CHECK_OK(tess_train_run(r.train, 0, note, &s));
    assert_int_equal(sparse_layers(&r), r.info.config.layers);
    assert_true(s.density[1] == 1.0 && s.density[2] == 1.0);
    /* 128 tokens at a quarter: 32 keys, a multiple of 8. */
    assert_true(fabs(s.density[16] - 0.25) < 1e-12);
    assert_true(s.loss[16] > 0 && s.loss[16] < s.loss[1]);
    assert_false(isnan(r.train->val_loss));
    char line[512];
    FILE *f = fopen(in_root("both/events.jsonl"), "r");
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof line, f));
    assert_non_null(strstr(line, "\"event\": \"switch\", \"why\": {\"rule\": \"recall\""));
    fclose(f);
    f = fopen(in_root("both/density.csv"), "r");
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof line, f));
    assert_string_equal(line, "step,layer,head,density\n");
    fclose(f);
    assert_true(access(in_root("both/checkpoints/step-000016/predictor.safetensors"), F_OK) == 0);
    end(&r);
}

/* Sparse from step 5 on; the first check, in step 9, finds what no predictor reaches. */
static tess_train_opts going_back(void)
{
    tess_train_opts opts = dsv;
    opts.attention.back_recall = opts.attention.switch_recall = 1;
    opts.attention.switch_by = TESS_SWITCH_STEP;
    opts.attention.switch_step = 4;
    opts.attention.check_every = 8;
    opts.attention.density = 0.05;
    opts.steps = 12;
    return opts;
}

static void a_layer_below_the_limit_goes_back_to_dense(void **state)
{
    (void)state;
    recorded s = {0};
    tess_train_opts opts = going_back();
    opts.folder = in_root("back");
    run r = start(1, &opts);
    CHECK_OK(tess_train_run(r.train, 0, note, &s));
    const tess__control *c = r.train->control;
    assert_int_equal(sparse_layers(&r), 0);
    assert_true(s.density[4] == 1.0 && s.density[5] < 0.2);
    assert_true(s.density[9] < 0.2 && s.density[10] == 1.0);
    for (int layer = 0; layer < c->state.layers; layer++) {
        assert_int_equal(c->state.since[layer], 10);
        assert_true(c->rates[layer] == c->attention.lr); /* at full rate again */
    }
    assert_null(r.train->pass->sparse.lists);
    char line[512];
    int events = 0;
    FILE *f = fopen(in_root("back/events.jsonl"), "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        events += strstr(line, "\"event\": \"back\"") != NULL && !strstr(line, "\"head\"");
    fclose(f);
    assert_int_equal(events, c->state.layers);
    end(&r);
}

static void every_kind_switches_at_its_step(void **state)
{
    (void)state;
    static const tess_attention kinds[] = {TESS_ATTENTION_ORACLE, TESS_ATTENTION_POOLED,
                                           TESS_ATTENTION_SEARCH, TESS_ATTENTION_WINDOW,
                                           TESS_ATTENTION_RANDOM};
    for (int i = 0; i < 5; i++) {
        recorded s = {0};
        tess_train_opts opts = dsv;
        opts.steps = 4;
        opts.attention.kind = kinds[i];
        opts.attention.switch_step = 2;
        run r = start(1, &opts);
        CHECK_OK(tess_train_run(r.train, 0, note, &s));
        assert_int_equal(sparse_layers(&r), r.info.config.layers);
        assert_true(s.density[2] == 1.0);
        /* 16 cubes: a window of a quarter is 4 of them. */
        assert_true(fabs(s.density[4] - 0.25) < 1e-12);
        end(&r);
    }
}

static void budgets_come_from_the_profile(void **state)
{
    (void)state;
    recorded s = {0};
    tess_train_opts opts = dsv;
    opts.attention.density = 0;
    opts.attention.mass = 0.5;
    opts.attention.switch_by = TESS_SWITCH_STEP;
    opts.attention.switch_step = 4;
    opts.attention.min_density = 0.01;
    run r = start(1, &opts);
    CHECK_OK(tess_train_run(r.train, 0, note, &s));
    const tess__dsv_state *d = &r.train->control->state;
    assert_int_equal(sparse_layers(&r), d->layers);
    for (int layer = 0; layer < d->layers; layer++) {
        const double density = tess__layer_density(d, 0, layer);
        assert_true(density > 0.01 && density < 0.75);
    }
    assert_true(s.density[16] < 0.9);
    end(&r);
}

static void hear_sentence(void *user, const char *sentence)
{
    if (strstr(sentence, "lists of keys"))
        snprintf(user, 256, "%s", sentence);
}

static void the_number_of_saved_lists_is_reported(void **state)
{
    (void)state;
    char text[256] = "";
    tess_train_opts opts = dsv;
    opts.steps = 3;
    opts.attention.switch_by = TESS_SWITCH_STEP;
    opts.attention.switch_step = 2;
    opts.event = hear_sentence;
    opts.event_user = text;
    run r = start(1, &opts);
    /* Room for the bits of one layer: 2 samples of 2 heads, 8 cubes and 64 keys. */
    const int64_t layer = 2 * r.info.config.heads * 8 * (64 / 8);
    end(&r);
    opts.attention.index_memory = layer + layer / 2;
    r = start(1, &opts);
    CHECK_OK(tess_train_run(r.train, 0, NULL, NULL));
    assert_string_equal(text,
                        "step 3: lists of keys: saved for the backward pass in 1 layers, selected "
                        "again in 1");
    end(&r);
}

static int lists_come_with_the_first_sparse_layer(void *user, const tess_step *step)
{
    const run *r = user;
    assert_int_equal(r->train->pass->sparse.lists != NULL, step->sparse_layers > 0);
    return 0;
}

static void cubes_are_chosen_and_the_pass_is_made_anew(void **state)
{
    (void)state;
    tess_train_opts opts = dsv;
    memset(opts.attention.cube, 0, sizeof opts.attention.cube);
    opts.attention.density = 0.5; /* at which the queries of a random model overlap */
    run r = start(1, &opts);
    assert_true(r.train->control->state.n_cubes > 1);
    CHECK_OK(tess_train_run(r.train, 0, lists_come_with_the_first_sparse_layer, &r));
    const tess__dsv_state *d = &r.train->control->state;
    assert_true(d->cube_chosen && d->n_cubes == 1);
    assert_true(d->cubes[0].overlap > 0.5);
    assert_int_equal(sparse_layers(&r), d->layers);
    end(&r);
}

/* The controller is entered before a step, to apply, and after it, to observe and decide: between
 * two steps there is a decision for the next one, and none after the last. */
static void a_step_ends_with_a_decision_that_the_next_one_applies(void **state)
{
    (void)state;
    tess_train_opts opts = dsv;
    opts.steps = 4;
    run r = start(1, &opts);
    const tess__control *c = r.train->control;
    for (int step = 1; step <= 4; step++) {
        CHECK_OK(tess_train_run(r.train, 1, NULL, NULL));
        assert_int_equal(c->step, step);
        assert_int_equal(c->decision.step, step < 4 ? step + 1 : 0);
    }
    end(&r);
}

static void a_decision_leaves_the_state_in_force_alone(void **state)
{
    (void)state;
    tess_train_opts opts = dsv;
    opts.attention.switch_by = TESS_SWITCH_STEP;
    opts.attention.switch_step = 3;
    run r = start(1, &opts);
    CHECK_OK(tess_train_run(r.train, 3, NULL, NULL));
    tess__control *c = r.train->control;
    const uint64_t before = tess__control_hash(c);
    CHECK_OK(tess__control_decide(c, 4));
    assert_true(tess__control_hash(c) == before);
    assert_true(c->decision.events.n > 0 && c->decision.next.sparse[0] && !c->state.sparse[0]);
    CHECK_OK(tess_train_run(r.train, 1, NULL, NULL));
    assert_int_equal(sparse_layers(&r), r.info.config.layers);
    end(&r);
}

/* ---- resuming -------------------------------------------------------------------------------- */

/* Stops after each of several steps: in stage 1, at the switch, in stage 2. */
static void check_resume(const tess_train_opts *opts, const int *moments, int n)
{
    run whole = start(2, opts);
    CHECK_OK(tess_train_run(whole.train, 0, NULL, NULL));
    for (int i = 0; i < n; i++) {
        run first = start(1, opts);
        run second = start(1 + i % 2, opts);
        hand_over(&first, moments[i], &second);
        check_same(&whole, &second);
        end(&second);
    }
    end(&whole);
}

static void a_resumed_run_takes_the_same_decisions(void **state)
{
    (void)state;
    tess_train_opts opts = dsv;
    opts.steps = 14;
    check_resume(&opts, (int[]){3, 11, 12, 13}, 4); /* five checks are done after step 11 */
    opts.attention.kind = TESS_ATTENTION_RANDOM;
    opts.attention.switch_step = 4;
    opts.steps = 7;
    check_resume(&opts, (int[]){3, 4, 5}, 3);
}

static void a_resumed_run_goes_back_in_the_same_way(void **state)
{
    (void)state;
    const tess_train_opts opts = going_back();
    check_resume(&opts, (int[]){8, 9, 10}, 3);
}

/* By error: the density that settles is the rule, a poor recall sends nothing back, and the log
 * says so. */
static void a_profile_by_error_decides(void **state)
{
    (void)state;
    char line[512];
    tess_train_opts opts = dsv;
    opts.steps = 14;
    opts.attention.density = 0;
    opts.attention.error = 100;
    opts.attention.compensate = 8;
    opts.attention.switch_recall = opts.attention.back_recall = 1;
    opts.folder = in_root("error");
    run r = start(2, &opts);
    CHECK_OK(tess_train_run(r.train, 0, NULL, NULL));
    assert_int_equal(sparse_layers(&r), r.info.config.layers);
    end(&r);
    FILE *f = fopen(in_root("error/events.jsonl"), "r");
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof line, f));
    assert_non_null(strstr(line, "\"event\": \"switch\", \"why\": {\"rule\": \"error\""));
    assert_non_null(strstr(line, "\"error_limit\": 100"));
    int measured = 0; /* at the validation of the last step, against dense attention */
    while (fgets(line, sizeof line, f))
        measured |= strstr(line, "\"event\": \"error\", \"why\": {\"output_change\": ") != NULL;
    assert_true(measured);
    fclose(f);
    f = fopen(in_root("error/metrics.jsonl"), "r");
    assert_non_null(f);
    char metrics[2048] = "";
    while (fgets(metrics, sizeof metrics, f))
        ;
    assert_non_null(strstr(metrics, "\"output_change\": "));
    assert_null(strstr(metrics, "\"output_change\": null"));
    fclose(f);
    opts.folder = NULL;
    check_resume(&opts, (int[]){5, 12}, 2);
}

/* A larger change allows fewer keys. */
static void a_smaller_error_needs_more_keys(void **state)
{
    (void)state;
    double density[2];
    for (int i = 0; i < 2; i++) {
        tess_train_opts opts = dsv;
        opts.steps = 6; /* the output of the first step does not depend on attention */
        opts.attention.density = 0;
        opts.attention.error = i ? 10 : 1e-4;
        run r = start(1, &opts);
        CHECK_OK(tess_train_run(r.train, 0, NULL, NULL));
        density[i] = tess__layer_density(&r.train->control->state, 0, 0);
        end(&r);
    }
    assert_true(density[0] > 1.5 * density[1] && density[0] <= 1.0 && density[1] >= 1.0 / 32);
}

static void a_resumed_run_chooses_the_same_cubes(void **state)
{
    (void)state;
    tess_train_opts opts = dsv;
    opts.steps = 14;
    memset(opts.attention.cube, 0, sizeof opts.attention.cube);
    opts.attention.density = 0;
    opts.attention.dispatch = NULL;
    opts.attention.break_even = 0.9;
    check_resume(&opts, (int[]){5, 12}, 2);
}

/* Every choice that changes what a run computes or keeps, through both stages, stopped in each. */
static void a_run_of_any_choice_is_resumed_bit_for_bit(void **state)
{
    (void)state;
    static const struct {
        tess_attention_opts attention;
        tess_keep keep;
        tess_dtype store;
    } cases[] = {
        {{TESS_ATTENTION_OPTS_DEFAULTS, .predictor = TESS_PREDICTOR_HIDDEN},
         TESS_KEEP_ALL,
         TESS_DTYPE_F32},
        {{TESS_ATTENTION_OPTS_DEFAULTS, .predictor = TESS_PREDICTOR_HIDDEN_PLAIN},
         TESS_KEEP_ALL,
         TESS_DTYPE_F32},
        {{TESS_ATTENTION_OPTS_DEFAULTS, .loss = TESS_PREDICT_COSINE, .proj_dim = 8},
         TESS_KEEP_ALL,
         TESS_DTYPE_F32},
        {{TESS_ATTENTION_OPTS_DEFAULTS, .proxy = TESS_PROXY_CENTRE}, TESS_KEEP_ALL, TESS_DTYPE_F32},
        {{TESS_ATTENTION_OPTS_DEFAULTS, .proxy = TESS_PROXY_SOFTMAX},
         TESS_KEEP_ALL,
         TESS_DTYPE_F32},
        {{TESS_ATTENTION_OPTS_DEFAULTS, .switch_by = TESS_SWITCH_LOSS, .switch_loss = 1e3},
         TESS_KEEP_ALL,
         TESS_DTYPE_F32},
        {{TESS_ATTENTION_OPTS_DEFAULTS, .index_memory = 1}, TESS_KEEP_ALL, TESS_DTYPE_F32},
        {{TESS_ATTENTION_OPTS_DEFAULTS, .compensate = 0}, TESS_KEEP_ALL, TESS_DTYPE_F32},
        {{TESS_ATTENTION_OPTS_DEFAULTS, .index_memory = 1}, TESS_KEEP_ALL, TESS_DTYPE_BF16},
        {{TESS_ATTENTION_OPTS_DEFAULTS, .kind = TESS_ATTENTION_DSV},
         TESS_KEEP_ALL,
         TESS_DTYPE_BF16},
        {{TESS_ATTENTION_OPTS_DEFAULTS, .kind = TESS_ATTENTION_DSV},
         TESS_KEEP_BLOCKS,
         TESS_DTYPE_F32},
        {{TESS_ATTENTION_OPTS_DEFAULTS, .index_memory = 1}, TESS_KEEP_BLOCKS, TESS_DTYPE_BF16},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tess_train_opts opts = dsv;
        opts.attention = cases[i].attention;
        tess_attention_opts *a = &opts.attention;
        a->kind = TESS_ATTENTION_DSV;
        a->switch_by = a->switch_by ? a->switch_by : TESS_SWITCH_STEP;
        a->switch_step = 3;
        a->density = 0.25;
        a->back_recall = a->switch_recall = 1e-6;
        a->profile_every = a->check_every = 2;
        a->dispatch = "sparse";
        memcpy(a->cube, dsv.attention.cube, sizeof a->cube);
        opts.keep = cases[i].keep;
        opts.store = cases[i].store;
        opts.accumulate = 1;
        opts.steps = 6;
        opts.validate_every = 250;
        run whole = start(2, &opts);
        CHECK_OK(tess_train_run(whole.train, 0, NULL, NULL));
        assert_int_equal(sparse_layers(&whole), whole.info.config.layers);
        assert_int_equal(tess__pass_saved_lists(whole.train->pass),
                         a->index_memory == 1 ? 0 : whole.info.config.layers);
        run first = start(1, &opts), second = start(1 + (int)i % 2, &opts);
        hand_over(&first, 2 + 2 * ((int)i % 2), &second);
        check_same(&whole, &second);
        end(&second);
        end(&whole);
    }
}

static void a_resumed_run_must_attend_in_the_same_way(void **state)
{
    (void)state;
    char want[PATH_MAX];
    run r = start(1, &dsv);
    CHECK_OK(tess_train_save(r.train, in_root("same")));
    end(&r);
    tess_train_opts opts = dsv;
    opts.attention.proj_dim = 8;
    r = start(1, &opts);
    snprintf(want, sizeof want,
             "%s/predictor.safetensors: predictors are of qk at rank 16, must be of qk at rank 8",
             in_root("same"));
    CHECK_FAILS(tess_train_resume(r.train, in_root("same")), TESS_EINVAL, want);
    end(&r);
    opts = dsv;
    opts.attention.predictor = TESS_PREDICTOR_HIDDEN_PLAIN;
    r = start(1, &opts);
    CHECK_OK(tess_train_save(r.train, in_root("plain")));
    end(&r);
    opts.attention.predictor = TESS_PREDICTOR_HIDDEN;
    r = start(1, &opts);
    snprintf(want, sizeof want,
             "%s/predictor.safetensors: predictors are of hidden-plain at rank 16, must be of "
             "hidden at rank 16",
             in_root("plain"));
    CHECK_FAILS(tess_train_resume(r.train, in_root("plain")), TESS_EINVAL, want);
    end(&r);
    opts = dsv;
    opts.attention.cube[2] = 4;
    r = start(1, &opts);
    snprintf(want, sizeof want, "%s: cubes were 2x2x2, must be resumed with them, not 2x2x4",
             in_root("same"));
    CHECK_FAILS(tess_train_resume(r.train, in_root("same")), TESS_EINVAL, want);
    end(&r);
}

static void a_checkpoint_without_its_predictors_is_refused(void **state)
{
    (void)state;
    char want[PATH_MAX];
    run r = start(1, &dsv);
    CHECK_OK(tess_train_run(r.train, 2, NULL, NULL));
    CHECK_OK(tess_train_save(r.train, in_root("bare")));
    end(&r);
    assert_int_equal(unlink(in_root("bare/predictor.safetensors")), 0);
    r = start(1, &dsv);
    snprintf(want, sizeof want,
             "%s: predictor.safetensors is not there, must be: its predictors were updated 2 times",
             in_root("bare"));
    CHECK_FAILS(tess_train_resume(r.train, in_root("bare")), TESS_EINVAL, want);
    end(&r);
}

/* ---- branching and imposing ------------------------------------------------------------------ */

static void arms_branch_off_one_checkpoint(void **state)
{
    (void)state;
    tess_train_opts opts = dsv;
    opts.attention.switch_by = TESS_SWITCH_STEP;
    opts.attention.switch_step = 4;
    opts.steps = 6;
    run whole = start(1, &opts), first = start(2, &opts);
    CHECK_OK(tess_train_run(whole.train, 0, NULL, NULL));
    CHECK_OK(tess_train_run(first.train, 4, NULL, NULL));
    CHECK_OK(tess_train_save(first.train, in_root("trunk")));
    end(&first);

    /* The same settings go the same way; others go on from the same weights and step. */
    run same = start(1, &opts);
    CHECK_OK(tess_train_branch(same.train, in_root("trunk")));
    CHECK_OK(tess_train_run(same.train, 0, NULL, NULL));
    check_same(&whole, &same);
    end(&same);
    opts.attention.kind = TESS_ATTENTION_ORACLE;
    opts.folder = in_root("arm");
    run arm = start(1, &opts);
    CHECK_OK(tess_train_branch(arm.train, in_root("trunk")));
    assert_int_equal(arm.train->step, 4);
    CHECK_OK(tess_train_run(arm.train, 0, NULL, NULL));
    assert_int_equal(arm.train->step, 6);
    assert_int_equal(sparse_layers(&arm), arm.info.config.layers);
    assert_true(memcmp(arm.info.values, whole.info.values, sizeof(float) * 1000) != 0);
    assert_true(access(in_root("arm/checkpoints/step-000006/state.json"), F_OK) == 0);
    end(&arm);
    opts.attention.kind = TESS_ATTENTION_DENSE;
    opts.folder = NULL;
    arm = start(1, &opts);
    CHECK_OK(tess_train_branch(arm.train, in_root("trunk")));
    CHECK_OK(tess_train_run(arm.train, 0, NULL, NULL));
    end(&arm);
    end(&whole);
}

static void choices_of_another_run_are_imposed(void **state)
{
    (void)state;
    recorded s = {0};
    tess_train_opts opts = dsv;
    opts.attention.dispatch = NULL;
    opts.attention.break_even = 0.01; /* nothing pays */
    run r = start(1, &opts);
    CHECK_OK(tess_train_run(r.train, 0, note, &s));
    assert_int_equal(sparse_layers(&r), r.info.config.layers);
    assert_true(s.density[16] == 1.0);
    CHECK_OK(tess_train_save(r.train, in_root("dense_choices")));
    end(&r);
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/decisions.json", in_root("dense_choices"));
    opts.attention.dispatch = path;
    opts.attention.break_even = 1;
    r = start(1, &opts);
    CHECK_OK(tess_train_run(r.train, 0, note, &s));
    assert_true(s.density[16] == 1.0);
    end(&r);

    /* Stopped before the layers switch, the run knows them without the file. */
    run first = start(1, &opts);
    CHECK_OK(tess_train_run(first.train, 4, NULL, NULL));
    CHECK_OK(tess_train_save(first.train, in_root("half")));
    end(&first);
    assert_int_equal(unlink(path), 0);
    run second = start(1, &opts);
    CHECK_OK(tess_train_resume(second.train, in_root("half")));
    CHECK_OK(tess_train_run(second.train, 0, note, &s));
    assert_int_equal(sparse_layers(&second), second.info.config.layers);
    assert_true(s.density[16] == 1.0);
    end(&second);
    second = start(1, &opts); /* a branch has them too, unless it names another file */
    CHECK_OK(tess_train_branch(second.train, in_root("half")));
    CHECK_OK(tess_train_run(second.train, 0, note, &s));
    assert_true(s.density[16] == 1.0);
    end(&second);
    tess__remove_folder(in_root("half"));
    second = start(1, &opts);
    assert_int_equal(tess_train_run(second.train, 0, NULL, NULL), TESS_EIO);
    end(&second);
}

/* ---- memory, options ------------------------------------------------------------------------- */

static int count_allocations(void *user, const tess_step *step)
{
    recorded *s = user;
    tess_ctx_info info;
    CHECK_OK(tess_ctx_query(s->r->ctx, &info));
    /* Profiles and checks come in odd steps here, and the switch in the first one after five. */
    if (step->step > 12 && step->step % 2 == 0)
        assert_int_equal(info.allocations, s->allocations);
    s->allocations = info.allocations;
    return 0;
}

static void a_step_that_does_not_measure_allocates_nothing(void **state)
{
    (void)state;
    run r = start(1, &dsv);
    recorded s = {.r = &r};
    CHECK_OK(tess_train_run(r.train, 0, count_allocations, &s));
    assert_int_equal(sparse_layers(&r), r.info.config.layers);
    end(&r);
}

static void the_need_is_within_five_percent(void **state)
{
    (void)state;
    run r = start(1, &dsv);
    check_need(&r, &dsv, 0, 0.05);
    end(&r);
}

/* With the same settings a sparse run takes at most a twentieth more than a dense
 * one, in either stage, whatever cubes are chosen. */
static void sparse_attention_takes_little_memory_more(void **state)
{
    (void)state;
    static const struct {
        const char *preset;
        int heads, head_dim, layers, batch, tokens[3];
        tess_keep keep;
        tess_dtype store;
    } cases[] = {
        {"small", 0, 0, 0, 4, {8, 8, 8}, TESS_KEEP_ALL, TESS_DTYPE_F32},
        {"small", 4, 128, 4, 1, {16, 16, 16}, TESS_KEEP_ALL, TESS_DTYPE_F32},
        {"small", 4, 128, 4, 2, {16, 16, 16}, TESS_KEEP_ALL, TESS_DTYPE_BF16},
        {"small", 4, 128, 4, 1, {16, 16, 16}, TESS_KEEP_BLOCKS, TESS_DTYPE_F32},
        {"small", 4, 128, 4, 1, {32, 32, 32}, TESS_KEEP_ALL, TESS_DTYPE_F32},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tess_model_config config;
        CHECK_OK(tess_model_preset(cases[i].preset, &config));
        if (cases[i].heads) {
            config.heads = cases[i].heads;
            config.head_dim = cases[i].head_dim;
            config.layers = cases[i].layers;
            config.ffn_dim = 4 * config.heads * config.head_dim;
        }
        const tess_data_info data = {.channels = config.in_channels,
                                     .frames = cases[i].tokens[0] * config.patch[0],
                                     .height = cases[i].tokens[1] * config.patch[1],
                                     .width = cases[i].tokens[2] * config.patch[2],
                                     .text_len = config.text_len,
                                     .text_dim = config.text_dim};
        tess_train_opts opts = {TESS_TRAIN_OPTS_DEFAULTS, .batch = cases[i].batch,
                                .keep = cases[i].keep, .store = cases[i].store};
        tess_train_memory dense, sparse;
        CHECK_OK(tess_train_need(&config, &data, &opts, 2, &dense));
        opts.attention.kind = TESS_ATTENTION_DSV;
        CHECK_OK(tess_train_need(&config, &data, &opts, 2, &sparse));
        print_message("case %d: dense %lld, dsv %lld bytes: %.3f\n", (int)i, (long long)dense.total,
                      (long long)sparse.total, (double)sparse.total / (double)dense.total);
        assert_true((double)sparse.total <= 1.05 * (double)dense.total);
    }
}

/* Bytes that a run of preset small takes at most, of its default data. */
static int64_t peak_of(const tess_train_opts *opts, int64_t *said)
{
    run r = {0};
    tess_model_config config;
    tess_data_info data;
    tess_train_memory need;
    tess_ctx_info info;
    CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.threads = 2}, &r.ctx));
    CHECK_OK(tess_model_preset("small", &config));
    CHECK_OK(tess_model_create(r.ctx, &config, &(tess_model_opts){1, 9}, &r.model));
    CHECK_OK(tess_data_open(r.ctx,
                            &(tess_data_opts){TESS_DATA_OPTS_DEFAULTS, .frames = 8, .height = 32,
                                              .width = 32, .pack = 2, .text_len = config.text_len,
                                              .text_dim = config.text_dim},
                            &r.data));
    CHECK_OK(tess_data_query(r.data, &data));
    CHECK_OK(tess_train_create(r.model, r.data, opts, &r.train));
    CHECK_OK(tess_train_need(&config, &data, opts, 2, &need));
    CHECK_OK(tess_train_run(r.train, 0, NULL, NULL));
    if (r.train->control)
        assert_true(r.train->control->state.sparse[0] && r.train->control->state.cube_chosen);
    CHECK_OK(tess_ctx_query(r.ctx, &info));
    end(&r);
    *said = need.total;
    return info.bytes_peak;
}

/* Through both stages, with cubes that are chosen on the way. */
static void what_a_run_takes_is_what_was_said(void **state)
{
    (void)state;
    tess_train_opts opts = {TESS_TRAIN_OPTS_DEFAULTS, .batch = 4, .steps = 4, .validate_every = 4,
                            .validate_clips = 1};
    int64_t said_dense, said;
    const int64_t dense = peak_of(&opts, &said_dense);
    opts.attention = (tess_attention_opts){TESS_ATTENTION_OPTS_DEFAULTS,
                                           .kind = TESS_ATTENTION_DSV,
                                           .switch_by = TESS_SWITCH_STEP,
                                           .switch_step = 2,
                                           .max_density = 0.3,
                                           .back_recall = 1e-6,
                                           .profile_every = 1,
                                           .check_every = 1,
                                           .break_even = 1};
    int64_t said_error;
    opts.attention.error = 0.1;
    opts.attention.compensate = 8;
    const int64_t by_error = peak_of(&opts, &said_error);
    assert_true(by_error <= said_error && (double)by_error > 0.9 * (double)said_error);
    opts.attention.error = 0;
    opts.attention.compensate = 1;
    const int64_t sparse = peak_of(&opts, &said);
    print_message("dense %lld of %lld, dsv %lld of %lld bytes: %.3f\n", (long long)dense,
                  (long long)said_dense, (long long)sparse, (long long)said,
                  (double)sparse / (double)dense);
    assert_true(dense <= said_dense && (double)dense > 0.95 * (double)said_dense);
    assert_true(sparse <= said && (double)sparse > 0.95 * (double)said);
    assert_true((double)sparse <= 1.05 * (double)dense);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_run_goes_through_both_stages),
    cmocka_unit_test(a_layer_below_the_limit_goes_back_to_dense),
    cmocka_unit_test(every_kind_switches_at_its_step),
    cmocka_unit_test(budgets_come_from_the_profile),
    cmocka_unit_test(the_number_of_saved_lists_is_reported),
    cmocka_unit_test(cubes_are_chosen_and_the_pass_is_made_anew),
    cmocka_unit_test(a_step_ends_with_a_decision_that_the_next_one_applies),
    cmocka_unit_test(a_decision_leaves_the_state_in_force_alone),
    cmocka_unit_test(a_resumed_run_takes_the_same_decisions),
    cmocka_unit_test(a_resumed_run_goes_back_in_the_same_way),
    cmocka_unit_test(a_profile_by_error_decides),
    cmocka_unit_test(a_smaller_error_needs_more_keys),
    cmocka_unit_test(a_resumed_run_chooses_the_same_cubes),
    cmocka_unit_test(a_run_of_any_choice_is_resumed_bit_for_bit),
    cmocka_unit_test(a_resumed_run_must_attend_in_the_same_way),
    cmocka_unit_test(a_checkpoint_without_its_predictors_is_refused),
    cmocka_unit_test(arms_branch_off_one_checkpoint),
    cmocka_unit_test(choices_of_another_run_are_imposed),
    cmocka_unit_test(a_step_that_does_not_measure_allocates_nothing),
    cmocka_unit_test(the_need_is_within_five_percent),
    cmocka_unit_test(sparse_attention_takes_little_memory_more),
    cmocka_unit_test(what_a_run_takes_is_what_was_said),
};
RUN_TESTS_WITH(tests, open_root, close_root)
