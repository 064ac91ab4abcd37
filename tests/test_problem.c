/* SPDX-License-Identifier: Apache-2.0 */
/* test_problem.c - problem texts: what they mean, their canonical form, what is wrong with one. */
#include "bench/problem.h"
#include "test.h"

static void check_canonical(const char *text, const char *want)
{
    char error[OPT_ERROR_MAX], got[PROBLEM_TEXT_MAX];
    problem p;
    if (problem_parse(text, 5, &p, error) != 0)
        fail_msg("%s: %s", text, error);
    assert_string_equal(error, "");
    problem_text(&p, got);
    assert_string_equal(got, want);
    /* A canonical text is its own. */
    assert_int_equal(problem_parse(got, 6, &p, error), 0);
    problem_text(&p, got);
    assert_string_equal(got, want);
}

static void texts_have_one_canonical_form(void **state)
{
    (void)state;
    check_canonical("attn", "attn,batch=1,heads=1,dim=128,tokens=4096,density=1,pass=fwd,"
                            "storage=f32,layout=bhsd,precision=fp32,seed=5");
    check_canonical("attn,pass=BWD,group=32,unit=1,density=0.10,dim=064,heads=8,tokens=8192,seed=0",
                    "attn,batch=1,heads=8,dim=64,tokens=8192,density=0.1,unit=1,group=32,pass=bwd,"
                    "storage=f32,layout=bhsd,precision=fp32,seed=0");
    check_canonical("attn,tokens_q=7,tokens_k=7",
                    "attn,batch=1,heads=1,dim=128,tokens=7,density=1,pass=fwd,storage=f32,"
                    "layout=bhsd,precision=fp32,seed=5");
    check_canonical("attn,tokens=9,tokens_k=7,density=1,unit=3",
                    "attn,batch=1,heads=1,dim=128,tokens_q=9,tokens_k=7,density=1,pass=fwd,"
                    "storage=f32,layout=bhsd,precision=fp32,seed=5");
    check_canonical("attn,density=0.9999999999999999,unit=2",
                    "attn,batch=1,heads=1,dim=128,tokens=4096,density=0.9999999999999999,unit=2,"
                    "group=64,pass=fwd,storage=f32,layout=bhsd,precision=fp32,seed=5");
    check_canonical("select", "select,kind=predictor,proxy=mean,rank=16,batch=1,heads=1,"
                              "tokens=4096,density=0.1,unit=1,group=64,seed=5");
    check_canonical("select,kind=pooled,proxy=softmax,density=1,unit=64,rank=128",
                    "select,kind=pooled,rank=128,batch=1,heads=1,tokens=4096,density=1,unit=64,"
                    "group=64,seed=5");
    check_canonical("linear,m=4096,pass=both", "linear,m=4096,n=1536,k=1536,pass=both,seed=5");
    check_canonical("step,tokens=100,store=bf16,keep=blocks",
                    "step,batch=1,heads=4,dim=128,layers=4,ffn=2048,tokens=100,text=512,pass=both,"
                    "keep=blocks,store=bf16,precision=fp32,seed=5");
    check_canonical("step,density=1,group=32,break_even=0.5",
                    "step,batch=1,heads=4,dim=128,layers=4,ffn=2048,tokens=4096,text=512,pass=both,"
                    "keep=all,store=f32,precision=fp32,seed=5");
    check_canonical("step,density=0.2,compensate=1",
                    "step,batch=1,heads=4,dim=128,layers=4,ffn=2048,tokens=4096,text=512,pass=both,"
                    "keep=all,store=f32,precision=fp32,density=0.2,group=64,compensate=1,seed=5");
    check_canonical(
        "step,profile_layers=5:20,profile=a b/c.csv,group=8,break_even=0.5",
        "step,batch=1,heads=4,dim=128,layers=4,ffn=2048,tokens=4096,text=512,pass=both,"
        "keep=all,store=f32,precision=fp32,profile=a b/c.csv,profile_layers=5:20,group=8,"
        "break_even=0.5,seed=5");
    check_canonical("step,ranks=2,strategy=auto",
                    "step,ranks=2,batch=1,heads=4,dim=128,layers=4,ffn=2048,tokens=4096,text=512,"
                    "pass=both,keep=all,store=f32,precision=fp32,seed=5");
    check_canonical("step,strategy=1x2s,ranks=2",
                    "step,ranks=2,strategy=1x2s,batch=1,heads=4,dim=128,layers=4,ffn=2048,"
                    "tokens=4096,text=512,pass=both,keep=all,store=f32,precision=fp32,seed=5");
    check_canonical("context,ranks=8,strategy=4x2r,bandwidth=0.125,density=1",
                    "context,ranks=8,heads=12,dim=128,tokens=4096,layers=1,density=1,pass=fwd,"
                    "strategy=4x2r,latency=5,bandwidth=0.125,seed=5");
    check_canonical("context,profile=p.csv,node_ranks=2,lists=local,layers=3",
                    "context,ranks=4,heads=12,dim=128,tokens=4096,layers=3,profile=p.csv,"
                    "lists=local,unit=1,group=64,pass=fwd,strategy=all,latency=5,bandwidth=10,"
                    "node_ranks=2,network_latency=50,network_bandwidth=1,seed=5");
}

static void keys_reach_the_problem(void **state)
{
    (void)state;
    char error[OPT_ERROR_MAX];
    problem p;
    assert_int_equal(problem_parse("attn,batch=2,heads=3,dim=64,tokens=100,tokens_k=200,"
                                   "density=0.25,unit=4,group=5,pass=bwd,storage=bf16,"
                                   "layout=bshd,precision=fp32,seed=9",
                                   0, &p, error),
                     0);
    assert_int_equal(p.kind, PROBLEM_ATTN);
    assert_true(p.batch == 2 && p.heads == 3 && p.dim == 64);
    assert_true(p.tokens_q == 100 && p.tokens_k == 200);
    assert_true(p.density == 0.25 && p.unit == 4 && p.group == 5 && p.seed == 9);
    assert_true(!p.forward && p.backward);
    assert_string_equal(p.storage, "bf16");
    assert_string_equal(p.layout, "bshd");
    assert_string_equal(p.precision, "fp32");
    assert_int_equal(problem_parse("linear,pass=both,n=2", 0, &p, error), 0);
    assert_true(p.forward && p.backward && p.n == 2 && p.m == 4096);
}

static void check_wrong(const char *text, const char *sentence)
{
    char error[OPT_ERROR_MAX];
    problem p;
    assert_int_equal(problem_parse(text, 0, &p, error), -1);
    assert_string_equal(error, sentence);
}

static void wrong_texts_get_one_sentence(void **state)
{
    (void)state;
    check_wrong("", "problem is \"\", must begin with attn, select, linear, step or context");
    check_wrong("matmul",
                "problem is \"matmul\", must begin with attn, select, linear, step or context");
    check_wrong("liner,m=1", "problem is \"liner\", did you mean linear?");
    check_wrong("attn,", "attn: \"\" is no key");
    check_wrong("attn,hads=8", "attn: \"hads\" is no key, did you mean heads?");
    check_wrong("attn,heads", "attn: heads lacks its value, must be an integer 1..65536");
    check_wrong("attn,heads=0", "attn: heads is \"0\", must be an integer 1..65536");
    check_wrong("attn,heads=", "attn: heads is \"\", must be an integer 1..65536");
    check_wrong("attn,heads=8=8", "attn: heads is \"8=8\", must be an integer 1..65536");
    check_wrong("attn,heads=1,heads=1", "attn: heads is given twice");
    check_wrong("attn,density=nan", "attn: density is \"nan\", must be a number 0..1");
    check_wrong("attn,density=1.1", "attn: density is \"1.1\", must be a number 0..1");
    check_wrong("attn,pass=up", "attn: pass is \"up\", must be fwd, bwd or both");
    check_wrong("attn,dim=20", "attn: dim is 20, must be a multiple of 8 up to 256");
    check_wrong("attn,seed=-1", "attn: seed is \"-1\", must be an integer of at least 0");
    check_wrong("attn,tokens=2147483647,heads=65536",
                "attn: a tensor has 1.8e+16 elements, must be at most 1.1e+12");
    check_wrong("select,rank=72", "select: rank is 72, must be a multiple of 8 up to 64");
    check_wrong("linear,m=16777216,n=16777216",
                "linear: a matrix has 2.81e+14 elements, must be at most 1.1e+12");
    check_wrong("step,profile_layers=1:2",
                "step: profile_layers is given, but there is no profile");
    check_wrong("step,profile=x,profile_layers=2:2",
                "step: profile_layers is \"2:2\", must be A:B with 0 <= A < B");
    check_wrong("step,profile=x,profile_layers=1:2x",
                "step: profile_layers is \"1:2x\", must be A:B with 0 <= A < B");
    check_wrong("step,strategy=ring",
                "step: strategy is \"ring\", but ranks is 1, must be 2 or more");
    check_wrong("step,profile=x,density=0.5",
                "step: density and profile are given, must be one of them");
    check_wrong("context,profile=x,density=0.5",
                "context: density and profile are given, must be one of them");
    check_wrong("context,strategy=abcdefghijklmnopqrstuvwxyzabcdefgh",
                "context: strategy has 34 characters, must have fewer than 32");
    check_wrong("context,ranks=65", "context: ranks is \"65\", must be an integer 1..64");
    check_wrong("context,tokens=63",
                "context: tokens is \"63\", must be an integer 64..16777216, in tokens");
    check_wrong("linear,dim=8", "linear: \"dim\" is no key");
}

static void a_text_has_an_end(void **state)
{
    (void)state;
    char text[PROBLEM_TEXT_MAX + 1];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = 0;
    check_wrong(text, "problem has 768 characters, must have fewer than 768");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(texts_have_one_canonical_form),
    cmocka_unit_test(keys_reach_the_problem),
    cmocka_unit_test(wrong_texts_get_one_sentence),
    cmocka_unit_test(a_text_has_an_end),
};
RUN_TESTS(tests)
