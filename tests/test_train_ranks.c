/* SPDX-License-Identifier: Apache-2.0 */
/* test_train_ranks.c - training on many ranks, as threads: the run of one rank, whoever does it.
 *
 * Gradients of clips are added in another order when clips lie on other ranks, so runs of different
 * numbers of ranks differ by rounding: 2^-24 of a gradient in a step, which training carries on
 * from step to step. 1e-4 of the loss after 50 steps is the bar; runs of the same number of ranks
 * have the same bits. What fails on a rank is checked in the test's own thread.
 */
#include "same_files.h"
#include "train_ranks.h"

#include <string.h>

enum { RUN_STEPS = SANITIZED ? 26 : 50 };

static const tess_train_opts dense = {TESS_TRAIN_OPTS_DEFAULTS,
                                      .batch = 4,
                                      .steps = RUN_STEPS,
                                      .warmup = 5,
                                      .validate_every = RUN_STEPS / 2,
                                      .validate_clips = 3,
                                      .weight_decay = 0.01,
                                      .ranks_context = 1,
                                      .seed = 3};

static const tess_train_opts sparse = {
    TESS_TRAIN_OPTS_DEFAULTS,
    .batch = 4,
    .steps = RUN_STEPS,
    .warmup = 5,
    .validate_every = RUN_STEPS / 2,
    .validate_clips = 3,
    .ranks_context = 1,
    .seed = 3,
    .attention = {TESS_ATTENTION_OPTS_DEFAULTS, .kind = TESS_ATTENTION_DSV, .density = 0.25,
                  .dispatch = "sparse", .switch_by = TESS_SWITCH_STEP, .switch_step = 10,
                  .back_recall = 1e-6, .profile_every = 5, .check_every = 5, .cube = {2, 2, 2}}};

/* ---- the same run ---------------------------------------------------------------------------- */

static void compare_losses(const story *want, const story *got)
{
    assert_int_equal(got->steps, want->steps);
    for (int64_t i = got->first; i < want->steps; i++)
        if (!(fabs(got->loss[i] / want->loss[i] - 1.0) < 1e-4))
            fail_msg("%d ranks: loss of step %d is %.9g, must be %.9g", got->ranks, (int)i + 1,
                     got->loss[i], want->loss[i]);
    assert_true(fabs(got->val_loss / want->val_loss - 1.0) < 1e-4);
}

static void check_runs(const tess_train_opts *opts)
{
    story one = {.opts = opts, .ranks = 1};
    run_ranks(&one);
    assert_int_equal(one.steps, opts->steps);
    assert_true(SANITIZED || one.loss[RUN_STEPS - 1] < 0.9 * one.loss[0]);
    for (int ranks = 2; ranks <= 4; ranks += 2) {
        story many = {.opts = opts, .ranks = ranks}, again = {.opts = opts, .ranks = ranks};
        run_ranks(&many);
        compare_losses(&one, &many);
        run_ranks(&again);
        check_same(&many, &again);
        for (int r = 1; r < ranks; r++)
            assert_true(many.weights[r] == many.weights[0]);
    }
}

/* Ranks, and how many of them share tokens, with a strategy that does not depend on a clock. */
static void check_shared_tokens(const tess_train_opts *opts)
{
    static const struct {
        int ranks, context;
        const char *strategy;
    } cases[] = {{2, 2, "contiguous"}, {4, 2, "refined"}, {4, 4, "fractional"}};
    story one = {.opts = opts, .ranks = 1};
    run_ranks(&one);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        story many = {.opts = opts,
                      .ranks = cases[i].ranks,
                      .context = cases[i].context,
                      .strategy = cases[i].strategy};
        story again = many;
        run_ranks(&many);
        compare_losses(&one, &many);
        run_ranks(&again);
        check_same(&many, &again);
        for (int r = 1; r < many.ranks; r++)
            assert_true(many.weights[r] == many.weights[0]);
    }
}

static void rings_and_selected_keys_train_the_same(void **state)
{
    (void)state;
    static const struct {
        int ranks;
        const char *strategy;
    } cases[] = {{2, "ring"}, {2, "selective"}, {4, "2x2r"}, {4, "2x2s"}};
    tess_train_opts opts = sparse;
    opts.steps = 30;
    story one = {.opts = &opts, .ranks = 1};
    run_ranks(&one);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        story many = {.opts = &opts,
                      .ranks = cases[i].ranks,
                      .context = cases[i].ranks,
                      .strategy = cases[i].strategy};
        run_ranks(&many);
        compare_losses(&one, &many);
    }
}

static void losses_do_not_depend_on_who_has_which_tokens(void **state)
{
    (void)state;
    check_shared_tokens(&dense);
}

static void losses_of_sparse_attention_do_not_depend_on_who_has_which_tokens(void **state)
{
    (void)state;
    check_shared_tokens(&sparse);
}

/* The densities of a run's profiles, in the order of its file; returns how many. */
static int read_densities(const char *path, double *density, int most)
{
    FILE *file = fopen(path, "r");
    char line[128];
    int n = 0;
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    while (n < most && fscanf(file, "%*d,%*d,%*d,%lf", &density[n]) == 1)
        n++;
    fclose(file);
    return n;
}

/* Whole heads, with v, come to the ranks that measure them. */
static void a_profile_by_error_does_not_depend_on_who_has_which_tokens(void **state)
{
    (void)state;
    enum { MOST = 256 };
    double density[3][MOST];
    int n[3];
    for (int ranks = 1; ranks <= 3; ranks++) {
        tess_train_opts opts = sparse;
        opts.folder = in_root("error");
        opts.steps = 6;
        opts.attention.density = 0;
        opts.attention.error = 1e-3;
        opts.attention.compensate = 4;
        story s = {.opts = &opts, .ranks = ranks, .context = ranks, .strategy = "fractional"};
        run_ranks(&s);
        n[ranks - 1] = read_densities(in_root("error/density.csv"), density[ranks - 1], MOST);
        tess__remove_folder(in_root("error"));
        assert_true(n[ranks - 1] > 0 && n[ranks - 1] == n[0]);
        for (int i = 0; i < n[0]; i++) {
            assert_true(density[0][i] > 0.03 && density[0][i] <= 1.0);
            assert_true(fabs(density[ranks - 1][i] - density[0][i]) < 1e-4);
        }
        /* The first step, whose output does not depend on attention, says nothing. */
        for (int i = n[0] / 2; i < n[0]; i++)
            assert_true(density[0][i] < 1.0);
    }
}

static void hear(void *user, const char *sentence)
{
    if (strstr(sentence, "index_memory"))
        strcat(strcat(user, sentence), ";");
}

static void index_memory_without_effect_is_reported_once(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 2; ranks++) {
        char text[512] = "";
        tess_train_opts opts = sparse;
        opts.steps = 2;
        opts.attention.switch_step = 1;
        opts.attention.index_memory = 4096;
        opts.event = hear;
        opts.event_user = text;
        story s = {.opts = &opts, .ranks = ranks, .context = ranks, .strategy = "contiguous"};
        run_ranks(&s);
        assert_int_equal(s.steps, 2);
        assert_string_equal(text, ranks == 1 ? ""
                                             : "index_memory has no effect where ranks share "
                                               "tokens: each keeps the lists of what it computes;");
    }
}

static void losses_do_not_depend_on_ranks(void **state)
{
    (void)state;
    check_runs(&dense);
}

static void losses_of_sparse_attention_do_not_depend_on_ranks(void **state)
{
    (void)state;
    check_runs(&sparse);
}

static void accumulated_passes_are_sent_once(void **state)
{
    (void)state;
    tess_train_opts opts = dense;
    opts.accumulate = 2;
    opts.optim = TESS_OPTIM_ADAMW;
    opts.keep = TESS_KEEP_BLOCKS;
    opts.ema = 0;
    story one = {.opts = &opts, .ranks = 1}, two = {.opts = &opts, .ranks = 2};
    run_ranks(&one);
    run_ranks(&two);
    compare_losses(&one, &two);
}

/* Gradients to their owners, values back: each rank sends what it does not own, and what it owns to
 * everyone else, once in each step; validation brings the average and takes it back. */
static void a_step_sends_what_it_must_and_no_more(void **state)
{
    (void)state;
    enum { STEPS = 3 };
    tess_train_opts opts = dense;
    opts.validate_every = 0;
    opts.steps = STEPS;
    story s = {.opts = &opts, .ranks = 3};
    opts.batch = 3;
    run_ranks(&s);
    int64_t owned = 0;
    for (int r = 0; r < s.ranks; r++)
        owned += s.owned[r];
    assert_int_equal(owned, s.params);
    for (int r = 0; r < s.ranks; r++) {
        const int64_t each = s.params - s.owned[r] + 2 * s.owned[r];
        assert_int_equal(s.payload[r], STEPS * each * (int64_t)sizeof(float));
    }
}

/* ---- overlap: gradients travel while backward runs ------------------------------------------- */

enum { BLOCKS_MANY = 12, GROUPS_OF_CLIPS = 2 };

/* Of a backward pass: by the rank's virtual clock. */
typedef struct {
    int64_t backward_ns, waited_ns, bytes, last; /* last: bytes of the part that is ready last */
} trip;

static tess_status travel(tess_train *t, tess_comm *comm, trip *to)
{
    const tess_model_in in = {t->x, t->timestep, t->text};
    tess_comm_counts before, after;
    memset(t->x, 0, (size_t)(t->batch * t->size) * sizeof *t->x);
    memset(t->text, 0, (size_t)(t->batch * t->text_size) * sizeof *t->text);
    memset(t->timestep, 0, (size_t)t->batch * sizeof *t->timestep);
    for (int i = 0; i < 3; i++) { /* the last one counts: all is warm */
        TESS_TRY(tess_pass_forward(t->pass, &in, t->out));
        TESS_TRY(tess_comm_agree(comm, TESS_OK)); /* begin together */
        TESS_TRY(tess_comm_counts_read(comm, &before));
        const int64_t begin = tess_comm_clock(comm);
        tess__pass_ready(t->pass, tess__reduce_ready, &t->reduce);
        TESS_TRY(tess_pass_backward(t->pass, t->out, NULL));
        to->backward_ns = tess_comm_clock(comm) - begin;
        TESS_TRY(tess_comm_counts_read(comm, &after));
    }
    to->waited_ns = after.wait_ns - before.wait_ns;
    to->bytes = after.bytes[TESS_TRAFFIC_PAYLOAD] - before.bytes[TESS_TRAFFIC_PAYLOAD];
    to->last = 0;
    for (int r = 0; r < t->owners.ranks; r++)
        to->last += r == t->pg.rank ? 0 : t->owners.bytes[r];
    return TESS_OK;
}

static tess_status travel_rank(void *user, tess_ctx *ctx, tess_comm *comm)
{
    tess_comm_info info;
    tess_model_config config;
    tess_train_opts opts = dense;
    run r = {0};
    opts.comm = comm;
    TESS_TRY(tess_comm_query(comm, &info));
    TESS_TRY(tess_model_preset("tiny", &config));
    config.layers = BLOCKS_MANY;
    const tess_data_opts clips = {TESS_DATA_OPTS_DEFAULTS,
                                  .frames = 4,
                                  .height = 32,
                                  .width = 32,
                                  .pack = 2,
                                  .text_len = config.text_len,
                                  .text_dim = config.text_dim};
    tess_status status = tess_model_create(ctx, &config, &(tess_model_opts){1, 9}, &r.model);
    if (status == TESS_OK)
        status = tess_data_open(ctx, &clips, &r.data);
    if (status == TESS_OK)
        status = tess_train_create(r.model, r.data, &opts, &r.train);
    if (status == TESS_OK)
        status = travel(r.train, comm, (trip *)user + info.rank);
    tess_train_destroy(r.train);
    tess_data_close(r.data);
    tess_model_destroy(r.model);
    return status == TESS_OK ? status : tess_comm_fail(comm, status);
}

/* Over links on which gradients take half the time of the backward pass, a rank waits for the part
 * that is ready last, which nothing can hide, and for little more. Without overlap it would wait
 * for all of them. Ranks that others disturb wait for each other too, and are measured again. */
static void gradients_travel_while_backward_runs(void **state)
{
    (void)state;
    const tess_ctx_opts one = {.threads = 1};
    double best = 1.0, last = 0.0;
    for (int again = 0; again < 10 && best > 0.25; again++) {
        trip free[GROUPS_OF_CLIPS], t[GROUPS_OF_CLIPS];
        tess_link link = {.latency = 1};
        CHECK_OK(tess_comm_threads(&one, GROUPS_OF_CLIPS, &link, travel_rank, free));
        const double backward = (double)(free[0].backward_ns - free[0].waited_ns);
        link.bandwidth = 2e9 * (double)free[0].bytes / backward;
        CHECK_OK(tess_comm_threads(&one, GROUPS_OF_CLIPS, &link, travel_rank, t));
        double most = 0.0;
        for (int r = 0; r < GROUPS_OF_CLIPS; r++) {
            const double wire = 1e9 * (double)t[r].bytes / link.bandwidth;
            last = (double)t[r].last / (double)t[r].bytes;
            most = fmax(most, (double)t[r].waited_ns / wire - last);
        }
        best = fmin(best, most);
    }
    if (!(best <= 0.25))
        fail_msg("a rank waits for %.2f of its gradients, and %.2f that nothing can hide", best,
                 last);
}

/* What a step and a run report, beside what the communicators of all ranks counted: by kind. */
static void what_is_sent_is_reported_by_kind(void **state)
{
    (void)state;
    tess_train_opts opts = sparse;
    opts.validate_every = 0;
    opts.checkpoint_every = 0;
    opts.steps = 12; /* sparse from step 10 on */
    opts.folder = in_root("kinds");
    story s = {.opts = &opts, .ranks = 4, .context = 2, .strategy = "selective"};
    run_ranks(&s);
    for (int r = 0; r < s.ranks; r++) {
        const tess_step *step = &s.first_step[r];
        const tess_comm_counts *sent = &s.sent[r];
        assert_true(step->payload_bytes > 0 && step->control_bytes > 0 && step->messages > 0);
        assert_true(step->messages == floor(step->messages));
        /* Payload is all that the world counts, and the rows that the context's ranks swap. */
        assert_true(sent->bytes[TESS_TRAFFIC_PAYLOAD] > s.payload[r]);
        assert_true(sent->bytes[TESS_TRAFFIC_INDEX] > 0);
        assert_true((double)sent->bytes[TESS_TRAFFIC_CONTROL] > step->control_bytes);
    }
    /* The sum of the file's lines is what rank 0 sent within steps: all of the payload. */
    FILE *file = fopen(in_root("kinds/metrics.csv"), "r");
    char line[2048];
    double sums[4] = {0};
    static const char *const names[] = {"payload_bytes", "index_bytes", "control_bytes",
                                        "messages"};
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    int at[4] = {0};
    for (int i = 0; i < 4; i++) {
        const char *name = strstr(line, names[i]);
        assert_non_null(name);
        for (const char *c = line; c < name; c++)
            at[i] += *c == ',';
    }
    while (fgets(line, sizeof line, file))
        for (int i = 0; i < 4; i++) {
            const char *field = line;
            for (int n = 0; n < at[i]; n++)
                field = strchr(field, ',') + 1;
            sums[i] += atof(field);
        }
    fclose(file);
    assert_true(sums[0] == (double)s.sent[0].bytes[TESS_TRAFFIC_PAYLOAD]);
    assert_true(sums[1] == (double)s.sent[0].bytes[TESS_TRAFFIC_INDEX]);
    assert_true(sums[2] > 0.0 && sums[2] < (double)s.sent[0].bytes[TESS_TRAFFIC_CONTROL]);
    assert_true(sums[3] > 0.0);
    tess__remove_folder(in_root("kinds"));
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

static void a_run_goes_on_with_other_ranks(void **state)
{
    (void)state;
    static const int from[] = {4, 1, 2}, to[] = {2, 4, 1}, shared[][2] = {{2, 1}, {1, 4}, {2, 1}};
    for (int kind = 0; kind < 2; kind++) {
        const tess_train_opts *opts = kind ? &sparse : &dense;
        story whole = {.opts = opts, .ranks = 1};
        run_ranks(&whole);
        for (int i = 0; i < 3; i++) {
            story first = {.opts = opts,
                           .ranks = from[i],
                           .context = shared[i][0],
                           .stop = 20,
                           .save = in_root("half")};
            story second = {
                .opts = opts, .ranks = to[i], .context = shared[i][1], .resume = in_root("half")};
            run_ranks(&first);
            run_ranks(&second);
            compare_losses(&whole, &second);
            tess__remove_folder(in_root("half"));
        }
    }
}

static void a_run_branches_off_to_other_ranks(void **state)
{
    (void)state;
    tess_train_opts other = sparse;
    other.attention.kind = TESS_ATTENTION_WINDOW;
    other.attention.switch_step = 22;
    story first = {.opts = &dense, .ranks = 4, .stop = 20, .save = in_root("trunk")};
    story alone = {.opts = &other, .ranks = 1, .resume = in_root("trunk"), .branch = 1};
    story many = {
        .opts = &other, .ranks = 4, .context = 2, .resume = in_root("trunk"), .branch = 1};
    run_ranks(&first);
    run_ranks(&alone);
    run_ranks(&many);
    compare_losses(&alone, &many);
    tess__remove_folder(in_root("trunk"));
}

static void a_resumed_run_of_as_many_ranks_has_the_same_bits(void **state)
{
    (void)state;
    story whole = {.opts = &sparse, .ranks = 2};
    story first = {.opts = &sparse, .ranks = 2, .stop = 23, .save = in_root("half")};
    story second = {.opts = &sparse, .ranks = 2, .resume = in_root("half")};
    run_ranks(&whole);
    run_ranks(&first);
    run_ranks(&second);
    assert_memory_equal(whole.loss + 23, second.loss + 23, 27 * sizeof *whole.loss);
    assert_true(whole.weights[1] == second.weights[1]);
    tess__remove_folder(in_root("half"));
}

static void files_do_not_depend_on_the_number_of_ranks(void **state)
{
    (void)state;
    story alone = {.opts = &sparse, .ranks = 1, .stop = 12, .save = in_root("alone")};
    story many = {.opts = &sparse, .ranks = 4, .stop = 12, .save = in_root("many")};
    run_ranks(&alone);
    run_ranks(&many);
    tess_ctx *ctx = NULL;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    for (size_t i = 0; i < sizeof checkpoint_files / sizeof *checkpoint_files; i++) {
        char name[2][64];
        snprintf(name[0], sizeof name[0], "alone/%s", checkpoint_files[i]);
        snprintf(name[1], sizeof name[1], "many/%s", checkpoint_files[i]);
        const char *path[2] = {in_root(name[0]), in_root(name[1])};
        if (strstr(name[0], ".safetensors"))
            check_same_tensors(ctx, path);
        else
            check_same_json(path);
    }
    tess_ctx_destroy(ctx);
    tess__remove_folder(in_root("alone"));
    tess__remove_folder(in_root("many"));
}

static void the_folder_of_a_run_is_written_once(void **state)
{
    (void)state;
    tess_train_opts opts = sparse;
    opts.folder = in_root("run");
    opts.steps = 12;
    opts.checkpoint_every = 6;
    opts.sample_every = 12;
    opts.sample_steps = 2;
    story s = {.opts = &opts, .ranks = 4, .context = 2};
    run_ranks(&s);
    assert_int_equal(count_lines(in_root("run/metrics.jsonl")), 12);
    assert_int_equal(count_lines(in_root("run/plans.csv")), 1 + 2); /* a line for each layer */
    assert_int_equal(count_lines(in_root("run/samples/prompts.txt")), 4);
    assert_true(exists(in_root("run/samples/step-000012.png")));
    assert_true(exists(in_root("run/checkpoints/step-000006/state.json")));
    assert_true(exists(in_root("run/checkpoints/step-000012/state.json")));
    tess__remove_folder(in_root("run"));
}

/* Every line of plans.csv says that the bytes sent are those predicted; returns how many there are.
 */
static int check_plans(const char *path, const char *words)
{
    FILE *file = fopen(path, "r");
    char line[256], said[64];
    int lines = 0, step, layer;
    long long predicted, sent;
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    for (; fgets(line, sizeof line, file); lines++) {
        assert_int_equal(sscanf(line, "%d,%d,\"%63[^\"]\",%*f,%*f,%*f,%lld,%lld", &step, &layer,
                                said, &predicted, &sent),
                         5);
        assert_string_equal(said, words);
        assert_int_equal(sent, predicted);
    }
    fclose(file);
    return lines;
}

/* Also in steps behind a validation, which has no backward pass; of sparse attention also behind
 * step 10, from which on projected vectors are sent, and in steps that observe heads. */
static void plans_are_reported_with_what_they_take(void **state)
{
    (void)state;
    static const struct {
        const tess_train_opts *opts;
        int ranks, steps;
        const char *strategy, *words;
        double density; /* 1: layers of which no head is worth lists */
    } cases[] = {
        {&dense, 2, 9, "ring", "refined U1 x R2", 0.0},
        {&sparse, 2, 19, "contiguous", "contiguous U2 x R1", 0.25},
        {&sparse, 2, 19, "contiguous", "contiguous U2 x R1", 1.0},
        {&sparse, 2, 19, "ring", "refined U1 x R2", 0.25},
        {&sparse, 4, 19, "fractional", "fractional", 0.25},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tess_train_opts opts = *cases[i].opts;
        opts.folder = in_root("plans");
        opts.steps = cases[i].steps;
        opts.attention.density = cases[i].density;
        opts.validate_every = cases[i].steps == 9 ? 4 : 8;
        story s = {.opts = &opts,
                   .ranks = cases[i].ranks,
                   .context = cases[i].ranks,
                   .strategy = cases[i].strategy};
        run_ranks(&s);
        /* Two layers, twice within the run and at its end. */
        assert_int_equal(check_plans(in_root("plans/plans.csv"), cases[i].words), 3 * 2);
        tess__remove_folder(in_root("plans"));
    }
}

/* ---- times ----------------------------------------------------------------------------------- */

/* Over links on which a message takes seconds, by clocks that are virtual, a step is mostly
 * waiting; what else it took is its times without, none of which is by another clock. */
static void times_of_a_step_are_by_one_clock(void **state)
{
    (void)state;
    const tess_link link = {.latency = 2000000000};
    const tess_train_opts *const kinds[] = {&dense, &sparse};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        story s = {
            .opts = kinds[i], .ranks = 2, .context = 2, .strategy = "fractional", .link = &link};
        run_ranks(&s);
        for (int r = 0; r < 2; r++) {
            const tess_step *steps[] = {&s.first_step[r], &s.last_step[r]};
            for (int k = 0; k < 2; k++) {
                const tess_step *at = steps[k];
                const double parts[] = {at->attention_ms, at->linear_ms, at->select_ms,
                                        at->learn_ms,     at->plan_ms,   at->optimiser_ms,
                                        at->profile_ms,   at->data_ms,   at->other_ms};
                double sum = at->exchange_ms;
                assert_true(at->exchange_ms >= 2000.0);
                for (size_t n = 0; n < sizeof parts / sizeof *parts; n++) {
                    assert_true(parts[n] > -0.01 && parts[n] < 2000.0);
                    sum += parts[n];
                }
                assert_true(fabs(sum / at->step_ms - 1.0) < 1e-9);
            }
        }
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Of ranks that share tokens it is an estimate, for layers of whole keys. */
static void a_rank_needs_its_part_of_the_tokens(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 4; ranks *= 2) {
        story s = {.opts = &sparse,
                   .ranks = ranks,
                   .context = ranks,
                   .strategy = "fractional",
                   .stop = 12,
                   .frames = 16};
        run_ranks(&s);
        for (int r = 0; r < ranks; r++) {
            print_message("rank %d of %d needs %lld bytes, took %lld\n", r, ranks,
                          (long long)s.need[r], (long long)s.peak[r]);
            assert_true(fabs((double)s.peak[r] / (double)s.need[r] - 1.0) < 0.3);
        }
    }
}

static void a_rank_needs_its_part(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 4; ranks *= 2) {
        story s = {.opts = &dense, .ranks = ranks, .stop = 2};
        run_ranks(&s);
        for (int r = 0; r < ranks; r++) {
            print_message("rank %d of %d needs %lld bytes, took %lld\n", r, ranks,
                          (long long)s.need[r], (long long)s.peak[r]);
            assert_true(fabs((double)s.peak[r] / (double)s.need[r] - 1.0) < 0.06);
        }
    }
}

/* ---- failures -------------------------------------------------------------------------------- */

static void one_rank_stops_all(void **state)
{
    (void)state;
    story s = {.opts = &dense, .ranks = 3, .odd = ODD_STOPS};
    tess_train_opts opts = dense;
    opts.batch = 3;
    s.opts = &opts;
    CHECK_FAILS(run_story(&s), TESS_ESTOPPED, "tess_train_run: stopped by the caller after step 4");
    for (int r = 0; r < 3; r++)
        assert_int_equal(s.done[r], 4);
}

static void ranks_that_differ_are_refused(void **state)
{
    (void)state;
    static const struct {
        oddity odd;
        const char *sentence;
    } cases[] = {
        {ODD_OPTIONS, "rank 1 has another set of options than rank 0"},
        {ODD_DATA, "rank 1 has another set of data than rank 0"},
        {ODD_WEIGHTS, "rank 1 has another set of weights than rank 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        story s = {.opts = &dense, .ranks = 2, .odd = cases[i].odd};
        CHECK_FAILS(run_story(&s), TESS_EINVAL, cases[i].sentence);
    }
}

static void groups_divide_ranks_and_clips(void **state)
{
    (void)state;
    tess_train_opts opts = dense;
    story s = {.opts = &opts, .ranks = 3};
    CHECK_FAILS(run_story(&s), TESS_EINVAL,
                "tess_train_create: batch is 4, must be a multiple of the 3 groups of ranks that "
                "share it");
    opts.ranks_context = 2;
    CHECK_FAILS(run_story(&s), TESS_EINVAL,
                "tess_train_create: ranks_context is 2, must divide the 3 ranks");
    opts.ranks_context = -1;
    CHECK_FAILS(run_story(&s), TESS_EINVAL,
                "tess_train_create: ranks_context is -1, must be 0..65536 ranks");
}

static void strategies_must_be_known(void **state)
{
    (void)state;
    story s = {.opts = &dense, .ranks = 2, .context = 2, .strategy = "rign"};
    CHECK_FAILS(run_story(&s), TESS_EINVAL,
                "tess_cp_create: strategy is \"rign\", did you mean ring?");
}

static void a_folder_that_goes_ends_all_ranks(void **state)
{
    (void)state;
    tess_train_opts opts = dense;
    opts.folder = in_root("gone");
    story s = {.opts = &opts, .ranks = 2, .odd = ODD_FOLDER};
    char sentence[PATH_MAX + 64], want[PATH_MAX + 128];
    assert_int_equal(run_story(&s), TESS_EIO);
    snprintf(sentence, sizeof sentence, "%s/metrics.jsonl: cannot open: No such file or directory",
             in_root("gone"));
    assert_string_equal(s.sentence[0], sentence);
    snprintf(want, sizeof want, "rank 0: %s", sentence);
    assert_string_equal(s.sentence[1], want);
}

static void a_loss_that_is_not_finite_ends_all_ranks(void **state)
{
    (void)state;
    tess_train_opts opts = dense;
    opts.folder = in_root("nan");
    story s = {.opts = &opts, .ranks = 2, .odd = ODD_NAN};
    char want[PATH_MAX + 160];
    assert_int_equal(run_story(&s), TESS_EINVAL);
    snprintf(
        want, sizeof want,
        "tess_train_run: the loss of step 5 is NaN, must be finite; %s/checkpoints/step-000004 "
        "holds the state before it",
        in_root("nan"));
    assert_string_equal(s.sentence[0], want);
    assert_string_equal(s.sentence[1], want);
    assert_true(exists(in_root("nan/checkpoints/step-000004/state.json")));
}

static void a_checkpoint_that_fails_hides_no_reason(void **state)
{
    (void)state;
    tess_train_opts opts = dense;
    opts.folder = in_root("lost");
    story s = {.opts = &opts, .ranks = 2, .odd = ODD_LOST};
    char want[PATH_MAX + 160];
    assert_int_equal(run_story(&s), TESS_EINVAL);
    snprintf(want, sizeof want,
             "tess_train_run: the loss of step 5 is NaN, must be finite; and its checkpoint "
             "failed: %s/checkpoints/.step-000004.tmp: cannot create: No such file or directory",
             in_root("lost"));
    assert_string_equal(s.sentence[0], want);
    assert_string_equal(s.sentence[1], want);
}

static void a_checkpoint_that_cannot_be_written_fails_on_all(void **state)
{
    (void)state;
    story s = {.opts = &dense, .ranks = 2, .stop = 2, .save = in_root("none/below")};
    char want[PATH_MAX + 64];
    assert_int_equal(run_story(&s), TESS_EIO);
    snprintf(want, sizeof want, "%s: cannot create: No such file or directory",
             in_root("none/.below.tmp"));
    assert_string_equal(s.sentence[0], want);
    assert_string_equal(s.sentence[1], want);
}

/* ---- owners ---------------------------------------------------------------------------------- */

static void owners_have_as_much_to_do(void **state)
{
    (void)state;
    tess_ctx *ctx = NULL;
    tess_model_config config;
    tess__params params;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    CHECK_OK(tess_model_preset("1.3b", &config));
    tess__params_make(&config, &params);
    for (int ranks = 1; ranks <= 16; ranks *= 2) {
        tess__owners o;
        int64_t least = INT64_MAX, most = 0, slots = 0;
        CHECK_OK(tess__owners_create(ctx, &params, TESS_OPTIM_ADAMW, ranks, &o));
        for (int r = 0; r < ranks; r++) {
            int64_t bytes = 0;
            for (int part = 0; part < o.parts; part++)
                bytes += o.bytes[part * ranks + r];
            slots += tess__owners_own(&o, r, NULL);
            least = bytes < least ? bytes : least;
            most = bytes > most ? bytes : most;
        }
        assert_int_equal(slots, params.params);
        assert_int_equal(o.total, params.count);
        /* No parameter is larger than 1/120 of a block's share: 30 blocks of about 4 such. */
        assert_true((double)most <= 1.15 * (double)least);
        tess__owners_destroy(&o);
    }
    tess_ctx_destroy(ctx);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(index_memory_without_effect_is_reported_once),
    cmocka_unit_test(losses_do_not_depend_on_ranks),
    cmocka_unit_test(losses_of_sparse_attention_do_not_depend_on_ranks),
    cmocka_unit_test(losses_do_not_depend_on_who_has_which_tokens),
    cmocka_unit_test(rings_and_selected_keys_train_the_same),
    cmocka_unit_test(losses_of_sparse_attention_do_not_depend_on_who_has_which_tokens),
    cmocka_unit_test(a_profile_by_error_does_not_depend_on_who_has_which_tokens),
    cmocka_unit_test(accumulated_passes_are_sent_once),
    cmocka_unit_test(a_step_sends_what_it_must_and_no_more),
    cmocka_unit_test(gradients_travel_while_backward_runs),
    cmocka_unit_test(what_is_sent_is_reported_by_kind),
    cmocka_unit_test(a_run_goes_on_with_other_ranks),
    cmocka_unit_test(a_run_branches_off_to_other_ranks),
    cmocka_unit_test(a_resumed_run_of_as_many_ranks_has_the_same_bits),
    cmocka_unit_test(files_do_not_depend_on_the_number_of_ranks),
    cmocka_unit_test(the_folder_of_a_run_is_written_once),
    cmocka_unit_test(plans_are_reported_with_what_they_take),
    cmocka_unit_test(times_of_a_step_are_by_one_clock),
    cmocka_unit_test(a_rank_needs_its_part),
    cmocka_unit_test(a_rank_needs_its_part_of_the_tokens),
    cmocka_unit_test(one_rank_stops_all),
    cmocka_unit_test(ranks_that_differ_are_refused),
    cmocka_unit_test(groups_divide_ranks_and_clips),
    cmocka_unit_test(strategies_must_be_known),
    cmocka_unit_test(a_folder_that_goes_ends_all_ranks),
    cmocka_unit_test(a_loss_that_is_not_finite_ends_all_ranks),
    cmocka_unit_test(a_checkpoint_that_fails_hides_no_reason),
    cmocka_unit_test(a_checkpoint_that_cannot_be_written_fails_on_all),
    cmocka_unit_test(owners_have_as_much_to_do),
};
RUN_TESTS_WITH(tests, open_root, close_root)
