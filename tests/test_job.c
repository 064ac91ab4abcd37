/* SPDX-License-Identifier: Apache-2.0 */
/* test_job.c - job files of torchtitan and Megatron-LM: what becomes a setting, what is assumed,
 * what is refused. */
#include "job/job_internal.h"
#include "test.h"

#include <string.h>

typedef struct {
    tess_ctx *ctx;
    tess_job *job;
} world;

static world parse(const char *name, const char *text)
{
    world w = {0};
    assert_int_equal(tess_ctx_create(NULL, &w.ctx), TESS_OK);
    const tess_status status = tess__job_parse(w.ctx, name, text, strlen(text), &w.job);
    if (status != TESS_OK)
        print_message("%s\n", tess_last_error());
    assert_int_equal(status, TESS_OK);
    return w;
}

static void end(world *w)
{
    tess_job_destroy(w->job);
    tess_ctx_destroy(w->ctx);
}

static void refused(const char *name, const char *text, const char *sentence)
{
    tess_ctx *ctx = NULL;
    tess_job *job = NULL;
    assert_int_equal(tess_ctx_create(NULL, &ctx), TESS_OK);
    assert_int_equal(tess__job_parse(ctx, name, text, strlen(text), &job), TESS_EFORMAT);
    assert_string_equal(tess_last_error(), sentence);
    assert_null(job);
    tess_ctx_destroy(ctx);
}

/* The value that the job gives a setting, the last one; NULL: none. */
static const char *value_of(const world *w, const char *setting)
{
    tess_job_entry e;
    const char *value = NULL;
    for (int i = 0; i < w->job->n; i++) {
        assert_int_equal(tess_job_entry_query(w->job, i, &e), TESS_OK);
        if (strcmp(e.setting, setting) == 0)
            value = e.value;
    }
    return value;
}

static int kind_of(const world *w, const char *key)
{
    tess_job_entry e;
    for (int i = 0; i < w->job->n; i++) {
        assert_int_equal(tess_job_entry_query(w->job, i, &e), TESS_OK);
        if (strcmp(e.key, key) == 0)
            return (int)e.kind;
    }
    return -1;
}

static void check(const world *w, const char *const pairs[][2])
{
    for (int i = 0; pairs[i][0]; i++) {
        const char *value = value_of(w, pairs[i][0]);
        if (!value || strcmp(value, pairs[i][1]) != 0)
            print_message("%s: %s, must be %s\n", pairs[i][0], value ? value : "(none)",
                          pairs[i][1]);
        assert_true(value && strcmp(value, pairs[i][1]) == 0);
    }
}

/* ---- torchtitan ------------------------------------------------------------------------------ */

static void a_torchtitan_file_becomes_settings(void **state)
{
    (void)state;
    world w = parse("job.toml", "[model]\n"
                                "name = \"llama3\"\n"
                                "flavor = '70B'\n"
                                "converters = [\"float8\"]\n"
                                "[training] # batch\n"
                                "local_batch_size = 4\n"
                                "seq_len = 8_192\n"
                                "steps = 500\n"
                                "strange = 1\n"
                                "[parallelism]\n"
                                "data_parallel_shard_degree = 2\n"
                                "tensor_parallel_degree = 4\n"
                                "pipeline_parallel_degree = 4\n"
                                "pipeline_parallel_schedule = \"Interleaved1F1B\"\n"
                                "pipeline_parallel_layers_per_stage = 5\n"
                                "[activation_checkpoint]\n"
                                "mode = \"full\"\n"
                                "[metrics]\n"
                                "log_freq = 10\n"
                                "[compile]\n"
                                "enable = true\n");
    check(&w, (const char *const[][2]){{"model.name", "llama3-70b"},
                                       {"model.seq", "8192"},
                                       {"layout.tp", "4"},
                                       {"layout.pp", "4"},
                                       {"layout.vpp", "4"},
                                       {"layout.schedule", "interleaved"},
                                       {"layout.gpus", "32"},
                                       {"layout.sequence", "true"},
                                       {"layout.zero", "2"},
                                       {"training.micro_batch", "1"},
                                       {"training.recompute", "full"},
                                       {"training.precision", "fp8"},
                                       {"system.cluster", "h100"},
                                       {NULL, NULL}});
    assert_int_equal(kind_of(&w, "training.strange"), TESS_JOB_UNKNOWN);
    assert_int_equal(kind_of(&w, "metrics.log_freq"), TESS_JOB_IGNORED);
    assert_int_equal(kind_of(&w, "compile.enable"), TESS_JOB_UNMODELLED);
    tess_job_info info;
    assert_int_equal(tess_job_query(w.job, &info), TESS_OK);
    assert_true(info.steps == 500);
    assert_string_equal(info.framework, "torchtitan");
    tess_scenario s = {0};
    assert_int_equal(tess_job_apply(w.ctx, w.job, 0, &s), TESS_OK);
    assert_int_equal(tess_job_complete(w.job, &s), TESS_OK);
    assert_int_equal(s.model.layers, 80);
    assert_int_equal(s.training.global_batch, 8); /* 4 samples of each of 2 data-parallel ranks */
    s.layout.gpus = 64;                           /* more GPUs, more samples */
    s.training.global_batch = 0;
    assert_int_equal(tess_job_complete(w.job, &s), TESS_OK);
    assert_int_equal(s.training.global_batch, 16);
    end(&w);
}

/* 16 shards of a replica by 4 replicas; without shards replicas are plain data parallelism. */
static void replicas_of_shards_are_a_layout(void **state)
{
    (void)state;
    world w = parse("job.toml", "[model]\nname = \"llama3\"\nflavor = \"8B\"\n"
                                "[parallelism]\ndata_parallel_shard_degree = 16\n"
                                "data_parallel_replicate_degree = 4\n");
    check(&w,
          (const char *const[][2]){
              {"layout.gpus", "64"}, {"layout.zero", "3"}, {"layout.replicas", "4"}, {NULL, NULL}});
    end(&w);
    w = parse("job.toml", "[model]\nflavor = \"8B\"\n"
                          "[parallelism]\ndata_parallel_shard_degree = 1\n"
                          "data_parallel_replicate_degree = 4\n");
    check(&w,
          (const char *const[][2]){
              {"layout.gpus", "4"}, {"layout.zero", "0"}, {"layout.replicas", "1"}, {NULL, NULL}});
    end(&w);
    w = parse("train.sh",
              "python pretrain_gpt.py --num-layers 8 --num-distributed-optimizer-instances 2\n");
    check(&w, (const char *const[][2]){{"layout.replicas", "2"}, {NULL, NULL}});
    end(&w);
}

static void recomputation_by_module_and_operation_is_read(void **state)
{
    (void)state;
    world w = parse("job.toml", "[model]\nflavor = \"8B\"\n[activation_checkpoint]\n"
                                "mode = \"selective\"\nselective_ac_option = \"op\"\n");
    check(&w, (const char *const[][2]){{"training.recompute", "op"}, {NULL, NULL}});
    end(&w);
    w = parse("train.sh", "python pretrain_gpt.py --num-layers 8 --recompute-granularity selective "
                          "--recompute-modules mla_up_proj layernorm moe_act\n");
    check(&w, (const char *const[][2]){{"training.recompute", "selective"},
                                       {"training.recompute_modules", "mla-up+norm+activation"},
                                       {NULL, NULL}});
    end(&w);
    w = parse("train.sh", "python pretrain_gpt.py --num-layers 8 --recompute-activations "
                          "--recompute-modules router\n");
    assert_int_equal(kind_of(&w, "--recompute-modules"), TESS_JOB_UNKNOWN);
    end(&w);
}

static void keys_of_older_versions_are_read_too(void **state)
{
    (void)state;
    world w = parse("job.toml", "[model]\nflavor = \"8B\"\n"
                                "[training]\nbatch_size = 1\ntensor_parallel_degree = 2\n"
                                "data_parallel_degree = -1\nenable_float8_linear = false\n"
                                "[experimental]\npipeline_parallel_degree = 1\n"
                                "[activation_checkpoint]\nselective_ac_option = '2'\n");
    check(&w, (const char *const[][2]){{"model.name", "llama3-8b"},
                                       {"layout.tp", "2"},
                                       {"layout.gpus", "8"},
                                       {"layout.zero", "3"},
                                       {"training.micro_batch", "1"},
                                       {"training.recompute", "full"},
                                       {"training.recompute_layers", "16"},
                                       {"training.precision", "bf16"},
                                       {"model.seq", "2048"},
                                       {NULL, NULL}});
    end(&w);
}

static void a_model_outside_the_catalogue_is_unknown_and_may_be_given(void **state)
{
    (void)state;
    world w = parse("job.toml", "[model]\nname = \"llama3\"\nflavor = \"13B\"\n"
                                "[training]\nseq_len = 4096\n");
    assert_int_equal(kind_of(&w, "model.flavor"), TESS_JOB_UNKNOWN);
    tess_scenario s = {0};
    assert_int_equal(tess_scenario_set(w.ctx, &s, "model.name", "llama2-13b"), TESS_OK);
    assert_int_equal(tess_job_apply(w.ctx, w.job, 1, &s), TESS_OK);
    assert_int_equal(s.model.layers, 40);
    assert_int_equal(s.model.seq, 4096);
    end(&w);
}

static void values_that_break_a_rule_name_their_line(void **state)
{
    (void)state;
    world w = parse("job.toml", "[training]\n\nseq_len = 'long'\n");
    tess_scenario s = {0};
    assert_int_equal(tess_job_apply(w.ctx, w.job, 0, &s), TESS_EFORMAT);
    assert_string_equal(tess_last_error(), "job.toml: line 3: training.seq_len: model.seq is "
                                           "\"long\", must be an integer 0..4294967296");
    assert_int_equal(s.model.seq, 0);
    end(&w);
}

static void toml_that_is_not_of_the_subset_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *sentence;
    } cases[] = {
        {"a\n", "job.toml: line 1: \"a\" without a value, must be KEY = VALUE"},
        {"a = 1\n\na = 2\n", "job.toml: line 3: \"a\" is given twice, first in line 1"},
        {"[a\n", "job.toml: line 1: a table's name without its ]"},
        {"[[a]]\n", "job.toml: line 1: an array of tables, which is not read here"},
        {"a = \"x\n", "job.toml: line 1: a string without its end quote"},
        {"a = '''x'''\n", "job.toml: line 1: a string over several lines, which is not read here"},
        {"a = 1 2\n", "job.toml: line 1: text behind a value, must be the end of the line"},
        {"a = [1, 2\n", "job.toml: line 2: an array without its ], or a comma is missing"},
        {"a = {b = 1\n", "job.toml: line 1: an inline table without its }"},
        {"a = maybe\n", "job.toml: line 1: \"maybe\", must be a string in quotes, a number, true, "
                        "false, an array or an inline table"},
        {"a = \"\\q\"\n",
         "job.toml: line 1: an escape that is not known, must be \\\" \\\\ \\b \\f "
         "\\n \\r or \\t"},
        {"= 1\n", "job.toml: line 1: a key is missing"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refused("job.toml", cases[i].text, cases[i].sentence);
}

/* ---- Megatron-LM ----------------------------------------------------------------------------- */

static void a_megatron_script_becomes_settings(void **state)
{
    (void)state;
    world w = parse("train.sh",
                    "TP=8\nPP=${PP_SIZE:-4}\nNODES=16\n"
                    "SIZES=(\n  --num-layers 80  # depth\n  --hidden-size 8192\n"
                    "  --num-attention-heads 64 --group-query-attention\n"
                    "  --num-query-groups 8 --swiglu --ffn-hidden-size 28672)\n"
                    "SIZES+=(--position-embedding-type rope)\n"
                    "LAYOUT=\"--tensor-model-parallel-size $TP --pipeline-model-parallel-size "
                    "${PP}\"\n"
                    "torchrun --nproc_per_node 8 --nnodes $NODES pretrain_gpt.py \\\n"
                    "    ${SIZES[@]} $LAYOUT --seq-length $((4 * 1024)) \\\n"
                    "    --micro-batch-size 1 --global-batch-size=512 --train-samples 51200 \\\n"
                    "    --num-layers-per-virtual-pipeline-stage 5 --bf16 --vocab-size 32000 \\\n"
                    "    --use-distributed-optimizer --recompute-activations \\\n"
                    "    --data-path $1 --strange_flag 3 4 --lr 1e-4 >log.txt 2>&1\n");
    check(&w, (const char *const[][2]){{"model.layers", "80"},
                                       {"model.hidden", "8192"},
                                       {"model.kv_heads", "8"},
                                       {"model.ffn", "28672"},
                                       {"model.gated", "true"},
                                       {"model.vocab", "32768"}, /* a multiple of 128 x 8 */
                                       {"model.learned_positions", "false"},
                                       {"model.tied", "true"},
                                       {"model.seq", "4096"},
                                       {"layout.gpus", "128"},
                                       {"layout.tp", "8"},
                                       {"layout.pp", "4"},
                                       {"layout.vpp", "4"},
                                       {"training.global_batch", "512"},
                                       {"training.precision", "bf16"},
                                       {"training.recompute", "selective"},
                                       {"training.distributed_optimizer", "on"},
                                       {"training.overlap_dp", "off"},
                                       {"training.dropout", "on"},
                                       {NULL, NULL}});
    assert_int_equal(kind_of(&w, "--strange-flag"), TESS_JOB_UNKNOWN);
    assert_int_equal(kind_of(&w, "--data-path"), TESS_JOB_IGNORED);
    tess_job_info info;
    assert_int_equal(tess_job_query(w.job, &info), TESS_OK);
    assert_true(info.steps == 100);
    tess_scenario s = {0}, full;
    assert_int_equal(tess_job_apply(w.ctx, w.job, 0, &s), TESS_OK);
    assert_int_equal(tess_scenario_fill(&s, &full), TESS_OK);
    assert_int_equal(full.layout.dp, 4);
    end(&w);
}

static void a_value_that_the_script_does_not_assign_is_unknown(void **state)
{
    (void)state;
    world w = parse("train.sh", "python pretrain.py --num-layers $LAYERS --hidden-size 64\n");
    assert_int_equal(kind_of(&w, "--num-layers"), TESS_JOB_UNKNOWN);
    assert_int_equal(kind_of(&w, "--hidden-size"), TESS_JOB_READ);
    end(&w);
}

static void flags_may_wait_in_variables_and_in_quotes(void **state)
{
    (void)state;
    world w = parse("a.sh", "#SBATCH --nodes=4\n#SBATCH --gpus-per-node=4\n"
                            "run=\"pretrain.py --num-layers 4 --hidden-size 64 --fp8-format hybrid "
                            "--fp8-recipe mxfp8 --num-experts 8 --moe-layer-freq ([0]*2+[1]*2)\"\n"
                            "srun bash -c \"$run\"\n");
    check(&w, (const char *const[][2]){{"layout.gpus", "16"},
                                       {"model.layers", "4"},
                                       {"training.precision", "mxfp8"},
                                       {"model.dense_layers", "2"},
                                       {"model.top_k", "2"},
                                       {NULL, NULL}});
    end(&w);
    w = parse("b.sh", "ARGS=\"--num-layers 4 --hidden-size 64\"\n"); /* sourced by another script */
    check(&w, (const char *const[][2]){{"model.layers", "4"}, {NULL, NULL}});
    end(&w);
}

static void scripts_that_cannot_be_read_are_refused(void **state)
{
    (void)state;
    refused("a.sh", "echo hello\n",
            "a.sh: no argument of Megatron-LM is here, such as --num-layers");
    refused("a.sh", "A=(--num-layers 3\n", "a.sh: line 1: an array without its )");
    refused("a.sh", "\npython x.py \"3\n", "a.sh: line 2: a quote without its end");
    refused("a.sh", "python x.py ${A\n", "a.sh: line 2: ${ without its }");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_torchtitan_file_becomes_settings),
    cmocka_unit_test(replicas_of_shards_are_a_layout),
    cmocka_unit_test(recomputation_by_module_and_operation_is_read),
    cmocka_unit_test(keys_of_older_versions_are_read_too),
    cmocka_unit_test(a_model_outside_the_catalogue_is_unknown_and_may_be_given),
    cmocka_unit_test(values_that_break_a_rule_name_their_line),
    cmocka_unit_test(toml_that_is_not_of_the_subset_is_refused),
    cmocka_unit_test(a_megatron_script_becomes_settings),
    cmocka_unit_test(a_value_that_the_script_does_not_assign_is_unknown),
    cmocka_unit_test(flags_may_wait_in_variables_and_in_quotes),
    cmocka_unit_test(scripts_that_cannot_be_read_are_refused),
};

RUN_TESTS(tests)
