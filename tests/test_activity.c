/* SPDX-License-Identifier: Apache-2.0 */
/* test_activity.c - traces of profilers: every source of a collective, times by hand, ranks side by
 * side, bad input, and the traces of SHARED, whose values were worked out apart. */
#include "ctx_fixture.h"

#include "trace/activity_internal.h"

#include <stdlib.h>
#include <unistd.h>

/* ---- small traces --------------------------------------------------------------------------- */

static tess_activity *parse_as(const char *path, const char *text, const tess_activity_opts *opts)
{
    tess__byte_stream *bytes = NULL;
    tess_activity *f = NULL;
    CHECK_OK(tess__byte_stream_memory(ctx, path, text, strlen(text), &bytes));
    CHECK_OK(tess__activity_parse(ctx, path, bytes, opts, &f));
    return f;
}

static tess_activity *parse(const char *text)
{
    return parse_as("t.json", text, NULL);
}

/* A trace that is being written; ' stands for ". */
static char written[16384];

static void start(void)
{
    strcpy(written, "{\"distributedInfo\": {\"rank\": 0, \"world_size\": 4}, \"traceEvents\": [");
}

/* Text of the trace; an event has a comma before it unless it is the first. */
static void add(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void add(const char *format, ...)
{
    char *at = written + strlen(written);
    va_list args;
    if (at[-1] != '[')
        *at++ = ',';
    va_start(args, format);
    assert_true(vsnprintf(at, (size_t)(written + sizeof written - 8 - at), format, args) < 4000);
    va_end(args);
    for (; *at; at++)
        if (*at == '\'')
            *at = '"';
}

static const char *finished(void)
{
    strcat(written, "]}");
    return written;
}

/* args: members, each with a comma before it. */
static void add_kernel(const char *name, const char *ts, const char *dur, const char *args)
{
    add("{'ph': 'X', 'cat': 'kernel', 'name': '%s', 'pid': 0, 'tid': 7, 'ts': %s, 'dur': %s, "
        "'args': {'stream': 7%s}}",
        name, ts, dur, args);
}

static void add_launch(int ts, int correlation)
{
    add("{'ph': 'X', 'cat': 'cuda_runtime', 'name': 'cudaLaunchKernel', 'pid': 9, 'tid': 9, "
        "'ts': %d, 'dur': 1, 'args': {'correlation': %d}}",
        ts, correlation);
}

static void add_host(const char *cat, const char *name, int ts, int dur, const char *args)
{
    add("{'ph': 'X', 'cat': '%s', 'name': '%s', 'pid': 9, 'tid': 9, 'ts': %d, 'dur': %d, 'args': "
        "{%s}}",
        cat, name, ts, dur, args);
}

static void add_annotation(const char *name, int ts, int dur, const char *args)
{
    add_host("user_annotation", name, ts, dur, args);
}

static void add_params(int ts, int dur, const char *args)
{
    add_host("cpu_op", "record_param_comms", ts, dur, args);
}

/* A communication kernel of correlation 5, and its launch. */
static const char send_recv[] = "ncclDevKernel_SendRecv(ncclDevComm*)";

static void start_launched(const char *name, int launch)
{
    start();
    add_kernel(name, "50", "2", ", 'correlation': 5");
    add_launch(launch, 5);
}

static const tess_activity_call *only_call(const tess_activity *f)
{
    const tess_activity_call *calls;
    int64_t n;
    CHECK_OK(tess_activity_calls(f, &calls, &n));
    assert_int_equal(n, 1);
    return calls;
}

/* What was written has one collective, and this is it. */
static void check_call(tess_call_op op, tess_call_source source, int64_t in, int64_t out,
                       const char *dtype, const char *group)
{
    tess_activity *f = parse(finished());
    const tess_activity_call *call = only_call(f);
    char ranks[128] = "";
    for (int i = 0; i < call->n_ranks; i++)
        snprintf(ranks + strlen(ranks), 16, "%s%d", i ? " " : "", call->ranks[i]);
    assert_string_equal(tess_call_op_name(call->op), tess_call_op_name(op));
    assert_string_equal(tess_call_source_name(call->source), tess_call_source_name(source));
    assert_int_equal(call->in_bytes, in);
    assert_int_equal(call->out_bytes, out);
    assert_string_equal(call->dtype, dtype);
    assert_string_equal(ranks, group);
    tess_activity_destroy(f);
}

/* ---- sources of a collective ----------------------------------------------------------------- */

static void kernels_own_arguments_come_first(void **state)
{
    (void)state;
    start();
    add_kernel(send_recv, "10.5", "2.25",
               ", 'Collective name': '_allgather_base', 'In msg nelems': 100, 'Out msg nelems': "
               "400, 'dtype': 'BFloat16', 'Process Group Ranks': '[0, 1, 2, 3]', 'correlation': 5");
    add_launch(8, 5);
    add_annotation("nccl:all_reduce", 7, 3, "'Input Dims': [[7]], 'Input type': ['float']");
    check_call(TESS_CALL_ALL_GATHER, TESS_CALL_FROM_KERNEL, 200, 800, "bfloat16", "0 1 2 3");
}

static void cut_lists_of_ranks_come_from_stride_label_or_config(void **state)
{
    (void)state;
    start();
    add_kernel(send_recv, "10", "2",
               ", 'Collective name': 'allreduce', 'In msg nelems': 1, 'Out msg nelems': 1, "
               "'dtype': 'Float', 'Process Group Ranks': '[1, 9, ...]', 'Global rank start': 1, "
               "'Global rank stride': 8, 'Group size': 4");
    check_call(TESS_CALL_ALL_REDUCE, TESS_CALL_FROM_KERNEL, 4, 4, "float", "1 9 17 25");
    /* Another event has the stride of the process group with this name, and comes later. */
    start();
    add_kernel(send_recv, "10", "2",
               ", 'Collective name': 'allreduce', 'In msg nelems': 1, 'Out msg nelems': 1, "
               "'dtype': 'Half', 'Process Group Name': 'tp', 'Process Group Ranks': '[0, 2, ...]'");
    add_params(1, 1,
               "'Collective name': 'allreduce', 'Process Group Name': 'tp', 'Global rank start': "
               "0, 'Global rank stride': 2, 'Group size': 3");
    check_call(TESS_CALL_ALL_REDUCE, TESS_CALL_FROM_KERNEL, 2, 2, "half", "0 2 4");
    start();
    add_kernel(send_recv, "10", "2",
               ", 'Collective name': 'reduce', 'In msg nelems': 3, 'Out msg nelems': 3, 'dtype': "
               "'Long', 'Process Group Name': '7', 'Process Group Ranks': '[0, ...]'");
    strcat(written, "], \"distributedInfo\": {\"rank\": 5, \"pg_config\": [{\"pg_name\": \"7\", "
                    "\"ranks\": [5, 6]}]}, \"more\": [");
    check_call(TESS_CALL_REDUCE, TESS_CALL_FROM_KERNEL, 24, 24, "long", "5 6");
}

static void annotations_win_over_the_kernels_name(void **state)
{
    (void)state;
    start_launched("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(x)", 8);
    add_annotation("nccl:all_reduce", 7, 3,
                   "'Input Dims': [[3, 4], [9]], 'Input type': ['c10::Half', 'int']");
    check_call(TESS_CALL_ALL_REDUCE, TESS_CALL_FROM_ANNOTATION, 24, 24, "half", "");
    /* Of two annotations the inner one, with the output of the operator around it. */
    start_launched(send_recv, 8);
    add_annotation("nccl:broadcast", 1, 30, "");
    add_annotation("nccl:_reduce_scatter_base", 7, 3,
                   "'Input Dims': [[64]], 'Input type': ['long int']");
    add_host("cpu_op", "c10d::_reduce_scatter_base_", 6, 9,
             "'Input Dims': [[16], [64], []], 'Input type': ['long int', 'long int', '']");
    check_call(TESS_CALL_REDUCE_SCATTER, TESS_CALL_FROM_ANNOTATION, 512, 128, "long", "");
    /* Shapes are off: the operation and the process group alone. */
    start_launched(send_recv, 8);
    add_annotation("nccl:all_to_all", 7, 3, "");
    add_params(6, 9, "'Process Group Ranks': '[2, 3]'");
    check_call(TESS_CALL_ALL_TO_ALL, TESS_CALL_FROM_ANNOTATION, -1, -1, "", "2 3");
    /* record_param_comms around the annotation has what the annotation lacks. */
    start_launched(send_recv, 8);
    add_annotation("nccl:all_to_all", 7, 3, "");
    add_params(6, 9,
               "'Collective name': 'all_to_all', 'In msg nelems': 3, 'Out msg nelems': 5, "
               "'dtype': 'Byte', 'Process Group Ranks': '[2, 3]'");
    check_call(TESS_CALL_ALL_TO_ALL, TESS_CALL_FROM_ANNOTATION, 3, 5, "byte", "2 3");
}

static void the_name_is_the_last_source(void **state)
{
    (void)state;
    start(); /* no launch: nothing is around it */
    add_kernel("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(x)", "20", "2", "");
    add_annotation("nccl:all_to_all", 7, 30, "");
    check_call(TESS_CALL_REDUCE_SCATTER, TESS_CALL_FROM_NAME, -1, -1, "", "");
    start();
    add_kernel("ncclDevKernel_Generic_4(x)", "20", "2", "");
    check_call(TESS_CALL_UNKNOWN, TESS_CALL_FROM_NAME, -1, -1, "", "");
    /* An annotation that ended before the launch is not around it. */
    start_launched("ncclDevKernel_Broadcast(x)", 18);
    add_annotation("nccl:all_to_all", 7, 3, "");
    check_call(TESS_CALL_BROADCAST, TESS_CALL_FROM_NAME, -1, -1, "", "");
}

static void add_message(int ts, const char *what, int elements)
{
    char args[256];
    snprintf(args, sizeof args,
             "'Collective name': '%s', 'In msg nelems': %d, 'Out msg nelems': %d, 'dtype': "
             "'Float', 'Process Group Ranks': '[0, 1, 2, 3]'",
             what, elements, elements);
    add_params(ts, 1, args);
}

static void coalesced_kernels_have_the_sends_and_receives_before_them(void **state)
{
    (void)state;
    start_launched(send_recv, 31);
    add_message(1, "send", 1000);
    add_message(3, "recv", 1000);
    add_annotation("nccl:coalesced", 5, 1, "");
    add_message(11, "send", 10);
    add_message(13, "recv", 20);
    add_message(15, "wait", 7);
    add_message(17, "send", 30);
    add_annotation("nccl:coalesced", 30, 19, "");
    add_message(35, "send", 99999);
    check_call(TESS_CALL_SEND_RECEIVE, TESS_CALL_FROM_ANNOTATION, 160, 80, "float", "0 1 2 3");
    start_launched("ncclDevKernel_AllGather(x)", 21);
    add_message(11, "_allgather_base", 10);
    add_message(13, "_allgather_base", 20);
    add_annotation("nccl:coalesced", 20, 9, "");
    check_call(TESS_CALL_ALL_GATHER, TESS_CALL_FROM_ANNOTATION, 120, 120, "float", "0 1 2 3");
    start_launched(send_recv, 21);
    add_annotation("nccl:coalesced", 20, 9, "");
    check_call(TESS_CALL_SEND_RECEIVE, TESS_CALL_FROM_ANNOTATION, -1, -1, "", "");
}

static void operations_have_many_names(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        tess_call_op op;
    } cases[] = {{"allreduce_coalesced", TESS_CALL_ALL_REDUCE},
                 {"barrier", TESS_CALL_ALL_REDUCE},
                 {"all_gather_into_tensor_coalesced", TESS_CALL_ALL_GATHER},
                 {"_reduce_scatter_base", TESS_CALL_REDUCE_SCATTER},
                 {"reduce_scatter_tensor_coalesced", TESS_CALL_REDUCE_SCATTER},
                 {"all_to_allv", TESS_CALL_ALL_TO_ALL},
                 {"alltoall_base", TESS_CALL_ALL_TO_ALL},
                 {"_broadcast_oop", TESS_CALL_BROADCAST},
                 {"_reduce_oop", TESS_CALL_REDUCE},
                 {"gather", TESS_CALL_GATHER},
                 {"scatter", TESS_CALL_SCATTER},
                 {"send 0->1", TESS_CALL_SEND_RECEIVE},
                 {"recv 0<-1", TESS_CALL_SEND_RECEIVE},
                 {"ncclDevKernel_AllReduce_Sum_f32_TREE_LL", TESS_CALL_ALL_REDUCE},
                 {"", TESS_CALL_UNKNOWN}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(
            tess_call_op_name(tess__call_op_of(cases[i].name, strlen(cases[i].name))),
            tess_call_op_name(cases[i].op));
}

static void element_types_have_many_spellings(void **state)
{
    (void)state;
    static const struct {
        const char *text, *name;
        int bytes;
    } cases[] = {{"BFloat16", "bfloat16", 2}, {"c10::BFloat16", "bfloat16", 2},
                 {"Float", "float", 4},       {"float", "float", 4},
                 {"Half", "half", 2},         {"c10::Half", "half", 2},
                 {"Long", "long", 8},         {"long int", "long", 8},
                 {"Int", "int", 4},           {"signed char", "char", 1},
                 {"Byte", "byte", 1},         {"unsigned char", "byte", 1},
                 {"Bool", "bool", 1},         {"Float8_e4m3fn", "float8_e4m3fn", 1},
                 {"int64", "long", 8},        {"TensorList", "", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int32_t dtype = tess__dtype_find(cases[i].text, strlen(cases[i].text));
        assert_string_equal(tess__dtype_text(dtype), cases[i].name);
        assert_int_equal(tess__dtype_bytes(dtype), cases[i].bytes);
    }
}

/* ---- times ---------------------------------------------------------------------------------- */

static void parts_of_the_span_add_up_to_the_nanosecond(void **state)
{
    (void)state;
    tess_activity_info i;
    /* compute 100..110, 105..112; comm 108..120; copy 111..130 and fill 140..140.001; the
     * annotation of the GPU and what the host does are no activity. */
    start();
    add_kernel("sgemm", "100", "10", "");
    add_kernel("layer_norm", "105", "7", "");
    add_kernel("nccl_x", "108", "12", "");
    add("{'ph':'X','cat':'Gpu_Memcpy','name':'c','ts':111,'dur':19,'args':{}}");
    add("{'ph':'X','cat':'gpu_memset','name':'s','ts':'140','dur':0.001}");
    add("{'ph':'X','cat':'gpu_user_annotation','name':'nccl:coalesced','ts':1,'dur':9999}");
    add_host("cpu_op", "aten::mm", 1, 5000, "");
    tess_activity *f = parse(finished());
    CHECK_OK(tess_activity_query(f, &i));
    assert_int_equal(i.events, 7);
    assert_int_equal(i.kernels, 3);
    assert_int_equal(i.begin_ns, 100000);
    assert_int_equal(i.span_ns, 40001);
    assert_int_equal(i.compute_ns, 12000);
    assert_int_equal(i.comm_ns, 12000);
    assert_int_equal(i.exposed_ns, 8000);
    assert_int_equal(i.hidden_ns, 4000);
    assert_int_equal(i.copy_ns, 10001);
    assert_int_equal(i.idle_ns, 10000);
    assert_int_equal(i.compute_ns + i.exposed_ns + i.copy_ns + i.idle_ns, i.span_ns);
    assert_int_equal(i.classes[TESS_KERNEL_GEMM].ns, 10000);
    assert_int_equal(i.classes[TESS_KERNEL_NORM].ns, 7000);
    assert_int_equal(i.classes[TESS_KERNEL_COPY].kernels, 2);
    double compute[4], comm[4], copy[4];
    CHECK_OK(tess_activity_busy(f, 4, compute, comm, copy));
    assert_true(fabs(compute[0] * 10.00025 - 10.00025) < 1e-9);
    assert_true(fabs(compute[1] * 10.00025 - 1.99975) < 1e-9);
    assert_true(fabs(copy[2] * 10.00025 - 9.9995) < 1e-9);
    tess_activity_kernel top[2];
    int64_t n;
    CHECK_OK(tess_activity_kernels(f, top, 2, &n));
    assert_int_equal(n, 5);
    assert_string_equal(top[0].name, "c");
    assert_string_equal(top[1].name, "nccl_x");
    tess_activity_destroy(f);
}

static void random_activity_has_the_parts_of_every_nanosecond(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (int round = 0; round < 40; round++) {
        char text[20000] = "{\"traceEvents\":[";
        uint8_t on[600] = {0};
        int first = 600, last = 0, parts[4] = {0}, hidden = 0;
        for (int k = 0; k < 1 + round % 17; k++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            const int begin = (int)(seed >> 33) % 500, ns = (int)(seed >> 45) % 60, kind = k % 3;
            static const char *const cats[] = {"kernel", "kernel", "gpu_memcpy"};
            static const char *const names[] = {"gemm", "rccl_k", "copy"};
            snprintf(text + strlen(text), 200,
                     "%s{\"ph\":\"X\",\"cat\":\"%s\",\"name\":\"%s\",\"ts\":0.%03d,\"dur\":0.%03d}",
                     k ? "," : "", cats[kind], names[kind], begin, ns);
            for (int t = begin; t < begin + ns; t++)
                on[t] |= (uint8_t)(1 << kind);
            first = TESS_MIN(first, begin);
            last = TESS_MAX(last, begin + ns);
        }
        strcat(text, "]}");
        for (int t = first; t < last; t++) {
            parts[on[t] & 1 ? 0 : on[t] & 2 ? 1 : on[t] & 4 ? 2 : 3]++;
            hidden += (on[t] & 3) == 3;
        }
        tess_activity *f = parse(text);
        const tess_activity_info *i = &f->info;
        assert_int_equal(i->span_ns, last - first);
        assert_int_equal(i->compute_ns, parts[0]);
        assert_int_equal(i->exposed_ns, parts[1]);
        assert_int_equal(i->copy_ns, parts[2]);
        assert_int_equal(i->idle_ns, parts[3]);
        assert_int_equal(i->hidden_ns, hidden);
        tess_activity_destroy(f);
    }
}

static void a_step_has_what_it_launched(void **state)
{
    (void)state;
    start();
    add_annotation("ProfilerStep#4", 0, 10, "");
    add_annotation("ProfilerStep#5", 10, 10, "");
    add_launch(9, 1);
    add_launch(19, 2);
    add_kernel("a", "30", "1", ", 'correlation': 1");
    add_kernel("b", "40", "2", ", 'correlation': 2");
    add_kernel("c", "12", "4", "");
    const char *text = finished();
    tess_activity *f = parse_as("t.json", text, &(tess_activity_opts){.step_given = 1, .step = 5});
    assert_int_equal(f->info.kernels, 2);
    assert_int_equal(f->info.span_ns, 30000);
    assert_int_equal(f->acts[1].launch, 19000);
    assert_int_equal(f->acts[1].launch_ns, 1000);
    tess_activity_destroy(f);
    tess__byte_stream *bytes = NULL;
    CHECK_OK(tess__byte_stream_memory(ctx, "t.json", text, strlen(text), &bytes));
    CHECK_FAILS(tess__activity_parse(ctx, "t.json", bytes,
                                     &(tess_activity_opts){.step_given = 1, .step = 7}, &f),
                TESS_EINVAL, "t.json: no ProfilerStep#7, the file has 2 steps from 4 on");
}

static void traces_of_the_recorder_are_read_too(void **state)
{
    (void)state;
    tess_activity *f = parse(
        "{\"otherData\": {\"tessera_trace\": 1, \"rank\": 3, \"ranks\": 8}, \"traceEvents\": ["
        "{\"name\": \"alltoall\", \"ph\": \"X\", \"pid\": 0, \"tid\": 3, \"ts\": 12.5, \"dur\": 2, "
        "\"args\": {\"op\": \"alltoall\", \"traffic\": \"payload\", \"group\": [1, 4, 2], "
        "\"sent\": 300, \"received\": 200, \"peer\": 100, \"compute_ns\": 5000}},"
        "{\"name\": \"wait\", \"ph\": \"X\", \"ts\": 20, \"dur\": 1, \"args\": {\"op\": \"wait\", "
        "\"compute_ns\": 0}}]}");
    const tess_activity_call *call = only_call(f);
    assert_int_equal(f->info.rank, 3);
    assert_int_equal(f->info.ranks, 8);
    assert_int_equal(f->info.compute_ns, 5000);
    assert_int_equal(f->info.comm_ns, 3000);
    assert_int_equal(f->info.span_ns, 13500);
    assert_int_equal(call->op, TESS_CALL_ALL_TO_ALL);
    assert_int_equal(call->in_bytes, 300);
    assert_int_equal(call->out_bytes, 200);
    assert_int_equal(call->n_ranks, 4);
    assert_int_equal(call->ranks[3], 7);
    tess_activity_destroy(f);
}

/* ---- bad input ------------------------------------------------------------------------------ */

static void check_notes(const char *path, const char *text, int rank, const char *notes)
{
    char all[2048] = "";
    tess_activity *f = parse_as(path, text, NULL);
    for (int i = 0; i < f->info.notes; i++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s\n", tess_activity_note(f, i));
    assert_string_equal(all, notes);
    assert_int_equal(f->info.rank, rank);
    assert_null(tess_activity_note(f, f->info.notes));
    tess_activity_destroy(f);
}

/* Of a trace with an array at the top and these events; ' stands for ". */
static void check_array(const char *path, const char *events, int rank, const char *notes)
{
    strcpy(written, "[");
    add("%s", events);
    check_notes(path, written, rank, notes);
}

static void what_is_wrong_with_a_trace_becomes_a_note(void **state)
{
    (void)state;
    static const char kernel[] = "{'ph': 'X', 'cat': 'kernel', 'name': 'k', 'ts': 1, 'dur': 1}]";
    check_array("a/rank7/x_rank-12.json", kernel, 12, "");
    check_array("trace.json", kernel, -1, "");
    check_array("t.json",
                "{'ph': 'X', 'cat': 'kernel', 'name': 'k', 'ts': 1, 'dur': 1}, {'ph': 'X', 'ca", -1,
                "the file ends too early, after 78 bytes of JSON: its JSON is not complete; what "
                "comes before is kept\n");
    check_array("t.json",
                "{'ph': 'X', 'cat': 'kernel', 'name': 'k', 'ts': 1, 'dur': -1},"
                "{'ph': 'X', 'cat': 'kernel', 'name': 'k', 'ts': 'x', 'dur': 1},"
                "{'ph': 'X', 'cat': 'kernel', 'name': 'k', 'ts': 1e40, 'dur': 1},"
                "{'ph': 'X', 'cat': 'kernel', 'name': 'k', 'ts': 1, 'dur': 1}, 17,"
                "{'ph': 'X', 'cat': 'kernel', 'name': 'k', 'ts': 5}, {},"
                "{'ph': 'B', 'pid': 1, 'tid': 1}, {'ph': 'B', 'pid': 1, 'tid': 1},"
                "{'ph': 'E', 'pid': 1, 'tid': 1}, {'ph': 'E', 'pid': 1, 'tid': 2}]",
                -1,
                "1 event left out: its duration is negative\n"
                "2 events left out: their ts or dur are no numbers within range\n"
                "1 complete event left out: it has no dur\n"
                "2 B or E events without the other\n"
                "1 element of traceEvents is no object\n");
    check_notes("t.json", "{\"traceEvents\": []}", -1,
                "no GPU activity (kernel, gpu_memcpy, gpu_memset): no events at all\n");
    check_array("t.json", "{'ph': 'X', 'cat': 'cpu_op', 'name': 'k', 'ts': 1, 'dur': 1}]", -1,
                "no GPU activity (kernel, gpu_memcpy, gpu_memset): the host only, 1 of cpu_op\n");
    check_array("t.json",
                "{'ph': 'X', 'cat': 'cpu_op', 'name': 'k', 'ts': 1, 'dur': 1},"
                "{'ph': 'X', 'cat': 'mtia_ccp_events', 'name': 'k', 'ts': 1, 'dur': 1}]",
                -1,
                "no GPU activity (kernel, gpu_memcpy, gpu_memset): another accelerator or "
                "profiler, 1 of cpu_op, 1 of mtia_ccp_events\n");
    check_array("t.json",
                "{'ph': 'X', 'cat': 'kernel', 'name': 'nccl', 'ts': 1, 'dur': 1, 'args': "
                "{'correlation': 9}}]",
                -1,
                "1 collective of an unknown operation\n"
                "1 collective without known bytes\n"
                "1 collective without a known process group\n"
                "1 kernel or copy without its launch\n");
}

/* ---- ranks ---------------------------------------------------------------------------------- */

/* A rank that computes until `come` and is in an all-reduce until 100, then in a second one of
 * 10; stamps are moved by `offset`; a base of time stands before them. */
static tess_activity *rank_file(int rank, int come, int offset, const char *second)
{
    char text[2048], path[32];
    snprintf(path, sizeof path, "r%d.json", rank);
    snprintf(text, sizeof text,
             "{\"distributedInfo\": {\"rank\": %d}, \"baseTimeNanoseconds\": %d, "
             "\"traceEvents\": ["
             "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"gemm\",\"ts\":0,\"dur\":%d},"
             "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"nccl\",\"ts\":%d,\"dur\":%d,\"args\":"
             "{\"Collective name\":\"allreduce\",\"In msg nelems\":1,\"Out msg nelems\":1,"
             "\"dtype\":\"Float\",\"Process Group Ranks\":\"[0, 1, 2]\"}},"
             "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"nccl\",\"ts\":200,\"dur\":10,\"args\":"
             "{\"Collective name\":\"%s\",\"In msg nelems\":1,\"Out msg nelems\":1,"
             "\"dtype\":\"Float\",\"Process Group Ranks\":\"[0, 1, 2]\"}}]}",
             rank, 1000 * offset, come, come, 100 - come, second);
    return parse_as(path, text, NULL);
}

static void waiting_is_what_a_call_takes_longer_than_the_shortest(void **state)
{
    (void)state;
    tess_activity *files[] = {rank_file(0, 40, 0, "broadcast"), rank_file(1, 90, 0, "broadcast"),
                              rank_file(2, 80, 0, "broadcast")};
    tess_activity_ranks *ranks = NULL;
    tess_activity_ranks_info info;
    static const int64_t waits[] = {50000, 0, 10000};
    CHECK_OK(tess_activity_compare(ctx, (const tess_activity *const *)files, 3, &ranks));
    CHECK_OK(tess_activity_ranks_query(ranks, &info));
    assert_int_equal(info.slowest, 1);
    assert_true(fabs(info.imbalance - 90.0 * 3 / 210) < 1e-12);
    assert_int_equal(info.matched, 2);
    assert_int_equal(info.notes, 0);
    for (int i = 0; i < 3; i++) {
        int64_t ns, calls;
        CHECK_OK(tess_activity_wait(ranks, i, TESS_CALL_ALL_REDUCE, &ns, &calls));
        assert_int_equal(ns, waits[i]);
        assert_int_equal(calls, 1);
        CHECK_OK(tess_activity_wait(ranks, i, TESS_CALL_BROADCAST, &ns, &calls));
        assert_int_equal(ns, 0);
        assert_int_equal(files[i]->calls[1].call, 1);
    }
    tess_activity_ranks_destroy(ranks);
    for (int i = 0; i < 3; i++)
        tess_activity_destroy(files[i]);
}

static void check_ranks_notes(tess_activity *const *files, int n, const char *notes)
{
    char all[1024] = "";
    tess_activity_ranks *ranks = NULL;
    CHECK_OK(tess_activity_compare(ctx, (const tess_activity *const *)files, n, &ranks));
    const char *note;
    for (int i = 0; (note = tess_activity_ranks_note(ranks, i)); i++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s\n", note);
    assert_string_equal(all, notes);
    tess_activity_ranks_destroy(ranks);
    for (int i = 0; i < n; i++)
        tess_activity_destroy(files[i]);
}

static void clocks_and_steps_that_differ_are_noted(void **state)
{
    (void)state;
    check_ranks_notes((tess_activity *[]){rank_file(0, 40, 50000, "broadcast"),
                                          rank_file(1, 90, 50000, "broadcast"),
                                          rank_file(2, 80, 8800, "broadcast")},
                      3,
                      "rank 2: its clock is 41.2 ms behind the others of its groups, or the file "
                      "is of another step\n");
    check_ranks_notes(
        (tess_activity *[]){rank_file(0, 40, 0, "broadcast"), rank_file(1, 90, 2000, "broadcast")},
        2,
        "rank 1: its clock is 2.0 ms ahead of the others of its groups, or the file "
        "is of another step\n");
    check_ranks_notes(
        (tess_activity *[]){rank_file(0, 40, 0, "broadcast"), rank_file(1, 90, 999, "reduce")}, 2,
        "1 call not matched: the operation differs between the members\n");
    check_ranks_notes(
        (tess_activity *[]){rank_file(1, 40, 0, "broadcast"), rank_file(1, 90, 0, "broadcast")}, 2,
        "rank 1: two files, r1.json and r1.json; calls of the second are not "
        "matched\n");
}

static void collectives_are_written_as_csv(void **state)
{
    (void)state;
    char path[] = "/tmp/tessera-activity-XXXXXX", text[512] = "";
    close(mkstemp(path));
    start();
    add_kernel("ncclDevKernel_Broadcast(x)", "20.125", "2", "");
    tess_activity *files[] = {parse_as("a,b.json", finished(), NULL)};
    CHECK_OK(tess_activity_write((const tess_activity *const *)files, 1, path));
    FILE *file = fopen(path, "r");
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    fclose(file);
    unlink(path);
    assert_string_equal(text, "file,rank,call,op,group,in_bytes,out_bytes,dtype,stream,begin_ns,ns,"
                              "source\n\"a,b.json\",0,0,broadcast,,,,,7,20125,2000,name\n");
    tess_activity_destroy(files[0]);
}

/* ---- the traces of SHARED ------------------------------------------------------------------- */

typedef struct {
    int op;
    int64_t in, out, begin, ns;
} expected_call;

/* span, compute, exposed, hidden, copy, idle */
static tess_activity *load_shared(const char *name, const int64_t times[6])
{
    char path[512];
    tess_activity *f = NULL;
    snprintf(path, sizeof path, SHARED "/reference/traces/%s", name);
    if (access(path, R_OK) != 0) {
        print_message("skipped: %s is not there\n", path);
        return NULL;
    }
    CHECK_OK(tess_activity_load(ctx, path, NULL, &f));
    const tess_activity_info *i = &f->info;
    const int64_t got[] = {i->span_ns,   i->compute_ns, i->exposed_ns,
                           i->hidden_ns, i->copy_ns,    i->idle_ns};
    for (int k = 0; k < 6; k++)
        assert_int_equal(got[k], times[k]);
    return f;
}

static void check_calls(const tess_activity *f, const expected_call *want, int n,
                        tess_call_source source)
{
    assert_int_equal(f->info.calls, n);
    for (int i = 0; i < n; i++) {
        const tess_activity_call *call = &f->calls[i];
        assert_int_equal(call->op, want[i].op);
        assert_int_equal(call->source, source);
        assert_int_equal(call->in_bytes, want[i].in);
        assert_int_equal(call->out_bytes, want[i].out);
        assert_int_equal(call->begin_ns, want[i].begin);
        assert_int_equal(call->ns, want[i].ns);
    }
}

static void the_trace_of_one_gpu_has_no_collectives(void **state)
{
    (void)state;
    tess_activity *f = load_shared("kineto_alexnet_train.json.gz",
                                   (int64_t[]){12920244000, 10630000, 0, 0, 55511000, 12854103000});
    if (!f)
        return;
    assert_int_equal(f->info.calls, 0);
    assert_int_equal(f->info.kernels, 79);
    assert_int_equal(f->info.rank, 0);
    tess_activity_destroy(f);
}

static void the_trace_of_two_gpus_has_its_collectives_from_kernels(void **state)
{
    (void)state;
    enum { R = TESS_CALL_ALL_REDUCE, B = TESS_CALL_BROADCAST };
    static const expected_call want[] = {
        {B, 212480, 212480, 4458676423385774, 30975},
        {B, 424, 424, 4458676425938828, 7775},
        {R, 8196000, 8196000, 4458676524716094, 3306963},
        {R, 31502336, 31502336, 4458676534511611, 2424415},
        {R, 26255360, 26255360, 4458676540699399, 2368513},
        {R, 26550272, 26550272, 4458676566435246, 2160803},
        {R, 9724160, 9724160, 4458676606875567, 1689577},
        {B, 212480, 212480, 4458676645361514, 30848},
        {B, 424, 424, 4458676647877865, 7648},
        {R, 8196000, 8196000, 4458676746304447, 2520607},
        {R, 31502336, 31502336, 4458676754637712, 2673916},
        {R, 26255360, 26255360, 4458676760764605, 2621533},
        {R, 26550272, 26550272, 4458676786352198, 2417184},
        {R, 9724160, 9724160, 4458676827134978, 2028293},
        {B, 212480, 212480, 4458676865084389, 29184},
        {B, 424, 424, 4458676867489861, 7904},
        {R, 8196000, 8196000, 4458676965734014, 5993392},
        {R, 31502336, 31502336, 4458676974273963, 5983024},
        {R, 26255360, 26255360, 4458676980491800, 5807890},
        {R, 26550272, 26550272, 4458677009853422, 2636669},
        {R, 9724160, 9724160, 4458677052057143, 2129380},
    };
    tess_activity *f =
        load_shared("kineto_ddp_2gpu.json.gz",
                    (int64_t[]){660551005, 115655847, 39559468, 7317025, 2284699, 503050991});
    if (!f)
        return;
    check_calls(f, want, (int)(sizeof want / sizeof *want), TESS_CALL_FROM_KERNEL);
    for (int64_t i = 0; i < f->info.calls; i++) {
        assert_int_equal(f->calls[i].n_ranks, 2);
        assert_int_equal(f->calls[i].ranks[1], 1);
        assert_int_equal(f->calls[i].call, i);
    }
    assert_int_equal(f->info.ranks, 2);
    assert_int_equal(f->info.events, 40573);
    tess_activity_destroy(f);
}

static void the_trace_of_128_gpus_has_its_collectives_from_annotations(void **state)
{
    (void)state;
    enum { R = TESS_CALL_ALL_REDUCE, G = TESS_CALL_ALL_GATHER, A = TESS_CALL_ALL_TO_ALL };
    static const expected_call want[] = {
        {A, 3072, 3072, 1682725898094377000, 30669000},
        {A, 419430400, 382132224, 1682725898125052000, 62783000},
        {R, 78473228, 78473228, 1682725898295662000, 11727000},
        {R, 107822144, 107822144, 1682725898348496000, 47652000},
        {G, 16777216, 1073741824, 1682725898585321000, 42496000},
        {A, 419430400, 382132224, 1682725898741096000, 67827000},
        {A, 11386880, 10485760, 1682725898854684000, 21124000},
        {R, 105033720, 105033720, 1682725899131066000, 12119000},
        {R, 22866616, 22866616, 1682725899146327000, 36158000},
        {G, 16777216, 1073741824, 1682725899185890000, 63644000},
    };
    tess_activity *f =
        load_shared("kineto_rank0_of_128.json.gz",
                    (int64_t[]){1222847000, 210320000, 336983000, 59216000, 353000, 675191000});
    if (!f)
        return;
    check_calls(f, want, (int)(sizeof want / sizeof *want), TESS_CALL_FROM_ANNOTATION);
    assert_int_equal(f->info.ranks, 128);
    tess_activity_destroy(f);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(kernels_own_arguments_come_first),
    cmocka_unit_test(cut_lists_of_ranks_come_from_stride_label_or_config),
    cmocka_unit_test(annotations_win_over_the_kernels_name),
    cmocka_unit_test(the_name_is_the_last_source),
    cmocka_unit_test(coalesced_kernels_have_the_sends_and_receives_before_them),
    cmocka_unit_test(operations_have_many_names),
    cmocka_unit_test(element_types_have_many_spellings),
    cmocka_unit_test(parts_of_the_span_add_up_to_the_nanosecond),
    cmocka_unit_test(random_activity_has_the_parts_of_every_nanosecond),
    cmocka_unit_test(a_step_has_what_it_launched),
    cmocka_unit_test(traces_of_the_recorder_are_read_too),
    cmocka_unit_test(what_is_wrong_with_a_trace_becomes_a_note),
    cmocka_unit_test(waiting_is_what_a_call_takes_longer_than_the_shortest),
    cmocka_unit_test(clocks_and_steps_that_differ_are_noted),
    cmocka_unit_test(collectives_are_written_as_csv),
    cmocka_unit_test(the_trace_of_one_gpu_has_no_collectives),
    cmocka_unit_test(the_trace_of_two_gpus_has_its_collectives_from_kernels),
    cmocka_unit_test(the_trace_of_128_gpus_has_its_collectives_from_annotations),
};

RUN_TESTS_WITH(tests, make_ctx, drop_ctx)
