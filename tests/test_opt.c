/* SPDX-License-Identifier: Apache-2.0 */
/* test_opt.c - the option parser on a table with every type, and on the command's own tables. */
#include "cli.h"
#include "test.h"

#include <math.h>
#include <stdlib.h>

typedef struct {
    common common;
    int fast, cold;
    int64_t count, bytes, limit;
    double rate, amount;
    const char *text, *path, *pick, *first;
    strings words, rest;
} values;

static const char *const picks[] = {"red", "green", "blue", NULL};

static const opt options[] = {
    {"fast", 0, OPT_FLAG, offsetof(values, fast), .help = "h"},
    {"cold", 0, OPT_FLAG, offsetof(values, cold), .initial = "1", .help = "h"},
    {"count", 0, OPT_INT, offsetof(values, count), "N", "7", .min = -3, .max = 10, .help = "h"},
    {"bytes", 0, OPT_SIZE, offsetof(values, bytes), "SIZE", "1K", .help = "h"},
    {"limit", 0, OPT_SIZE, offsetof(values, limit), "SIZE", .min = 1, .max = 4096, .help = "h"},
    {"rate", 0, OPT_DOUBLE, offsetof(values, rate), "X", .min = 0, .max = 1, .help = "h"},
    {"amount", 0, OPT_AMOUNT, offsetof(values, amount), "N", .min = 1, .max = 1e15, .help = "h"},
    {"text", 0, OPT_STRING, offsetof(values, text), "TEXT", .help = "h"},
    {"output", 'o', OPT_PATH, offsetof(values, path), "FILE", .help = "h"},
    {"pick", 0, OPT_CHOICE, offsetof(values, pick), "COLOUR", "green", .choices = picks,
     .help = "h"},
    {"word", 0, OPT_STRINGS, offsetof(values, words), "WORD", .help = "h"},
};

static const opt arguments[] = {
    {"FIRST", 0, OPT_STRING, offsetof(values, first), .required = 1, .help = "h"},
    {"REST", 0, OPT_PATHS, offsetof(values, rest), .help = "h"},
};

static const command demo = {
    .name = "demo",
    .arguments = arguments,
    .n_arguments = 2,
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .size = sizeof(values),
};

enum { WORDS_MAX = 32 };

/* Parses a line that is split at spaces; "_" stands for an empty word. */
static int parse(const char *line, values *v, char error[OPT_ERROR_MAX])
{
    static char copy[512];
    char *argv[WORDS_MAX];
    int argc = 0;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " ")) {
        assert_true(argc < WORDS_MAX);
        argv[argc++] = strcmp(word, "_") == 0 ? word + 1 : word;
    }
    return opt_parse(&demo, argc, argv, v, error);
}

static void check_ok(const char *line, values *v)
{
    char error[OPT_ERROR_MAX];
    if (parse(line, v, error) != 0)
        fail_msg("%s: %s", line, error);
}

static void nothing_given_leaves_the_defaults(void **state)
{
    (void)state;
    values v;
    check_ok("a", &v);
    assert_int_equal(v.fast, 0);
    assert_int_equal(v.cold, 1);
    assert_int_equal(v.count, 7);
    assert_int_equal(v.bytes, 1024);
    assert_true(isnan(v.rate));
    assert_null(v.text);
    assert_string_equal(v.pick, "green");
    assert_int_equal(v.words.n, 0);
    assert_string_equal(v.first, "a");
    assert_int_equal(v.common.threads, 0);
    assert_null(v.common.isa);
    opt_free(&demo, &v);
}

static void every_type_takes_its_value_in_every_form(void **state)
{
    (void)state;
    values v;
    check_ok(
        "--fast a --no-cold --count -3 --bytes=2KB --rate 0.25 --text --fast -oout b --pick RED "
        "--word x --word=y -j 4 --json -qvv c",
        &v);
    assert_int_equal(v.fast, 1);
    assert_int_equal(v.cold, 0);
    assert_int_equal(v.count, -3);
    assert_int_equal(v.bytes, 2000);
    assert_true(v.rate == 0.25);
    assert_string_equal(v.text, "--fast");
    assert_string_equal(v.path, "out");
    assert_string_equal(v.pick, "red");
    assert_int_equal(v.words.n, 2);
    assert_string_equal(v.words.items[1], "y");
    assert_int_equal(v.common.threads, 4);
    assert_int_equal(v.common.json, 1);
    assert_int_equal(v.common.quiet, 1);
    assert_int_equal(v.common.verbose, 2);
    assert_string_equal(v.first, "a");
    assert_int_equal(v.rest.n, 2);
    assert_string_equal(v.rest.items[1], "c");
    opt_free(&demo, &v);
}

static void two_dashes_end_the_options_and_one_is_an_argument(void **state)
{
    (void)state;
    values v;
    check_ok("- -- --fast -- -o", &v);
    assert_string_equal(v.first, "-");
    assert_int_equal(v.fast, 0);
    assert_int_equal(v.rest.n, 3);
    assert_string_equal(v.rest.items[1], "--");
    opt_free(&demo, &v);
}

static void the_last_value_wins_and_a_flag_can_be_taken_back(void **state)
{
    (void)state;
    values v;
    check_ok("a --count 1 --count 2 --fast --no-fast -v --no-verbose -v", &v);
    assert_int_equal(v.count, 2);
    assert_int_equal(v.fast, 0);
    assert_int_equal(v.common.verbose, 1);
    opt_free(&demo, &v);
}

static void help_needs_no_arguments_and_ends_the_reading(void **state)
{
    (void)state;
    values v;
    check_ok("-h --no-such-thing", &v);
    assert_int_equal(v.common.help, 1);
    opt_free(&demo, &v);
}

static void amounts_have_suffixes_of_thousands(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        double amount;
    } cases[] = {
        {"a --amount 250000", 250000}, {"a --amount 1e6", 1e6},       {"a --amount 250K", 250e3},
        {"a --amount 1.5m", 1.5e6},    {"a --amount 3B", 3e9},        {"a --amount 3G", 3e9},
        {"a --amount 14.8T", 14.8e12}, {"a --amount .3B", 300000000},
    };
    values v;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check_ok(cases[i].line, &v);
        assert_true(v.amount == cases[i].amount);
        opt_free(&demo, &v);
    }
    check_ok("a", &v);
    assert_true(isnan(v.amount));
    opt_free(&demo, &v);
}

static void sizes_have_suffixes(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        int64_t bytes;
    } cases[] = {
        {"a --bytes 0", 0},
        {"a --bytes 17B", 17},
        {"a --bytes 64K", 65536},
        {"a --bytes 64KiB", 65536},
        {"a --bytes 3MB", 3000000},
        {"a --bytes 5G", 5368709120},
        {"a --bytes 1TiB", 1099511627776},
        {"a --bytes 9223372036854775807", INT64_MAX},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        values v;
        check_ok(cases[i].line, &v);
        assert_true(v.bytes == cases[i].bytes);
        opt_free(&demo, &v);
    }
}

static void wrong_words_get_a_sentence(void **state)
{
    (void)state;
    static const struct {
        const char *line, *sentence;
    } cases[] = {
        {"", "FIRST is missing: h"},
        {"_", "FIRST is \"\", must be a text that is not empty"},
        {"a --count x", "--count is \"x\", must be an integer -3..10"},
        {"a --count 11", "--count is \"11\", must be an integer -3..10"},
        {"a --count 1.5", "--count is \"1.5\", must be an integer -3..10"},
        {"a --count 99999999999999999999",
         "--count is \"99999999999999999999\", must be an integer -3..10"},
        {"a --count= ", "--count is \"\", must be an integer -3..10"},
        {"a --count", "--count lacks its value, must be an integer -3..10"},
        {"a -j0", "--threads is \"0\", must be an integer 1..1024, in threads"},
        {"a -j", "--threads lacks its value, must be an integer 1..1024, in threads"},
        {"a --seed -1", "--seed is \"-1\", must be an integer of at least 0"},
        {"a --bytes 1X", "--bytes is \"1X\", must be a size such as 4096, 64K or 2GiB"},
        {"a --bytes 1KX", "--bytes is \"1KX\", must be a size such as 4096, 64K or 2GiB"},
        {"a --bytes -1", "--bytes is \"-1\", must be a size such as 4096, 64K or 2GiB"},
        {"a --bytes 9999999T", "--bytes is \"9999999T\", must be a size such as 4096, 64K or 2GiB"},
        {"a --amount 3X",
         "--amount is \"3X\", must be a number such as 250000, 1.5M, 3B or 14.8T, 1..1000T"},
        {"a --amount 1e3K",
         "--amount is \"1e3K\", must be a number such as 250000, 1.5M, 3B or 14.8T, 1..1000T"},
        {"a --amount 2000T",
         "--amount is \"2000T\", must be a number such as 250000, 1.5M, 3B or 14.8T, 1..1000T"},
        {"a --limit 5K", "--limit is \"5K\", must be a size such as 4096, 64K or 2GiB, 1..4K"},
        {"a --rate nan", "--rate is \"nan\", must be a number 0..1"},
        {"a --rate 1e999", "--rate is \"1e999\", must be a number 0..1"},
        {"a --rate 0.5x", "--rate is \"0.5x\", must be a number 0..1"},
        {"a --pick pink", "--pick is \"pink\", must be red, green or blue"},
        {"a --output=", "--output is \"\", must be a text that is not empty"},
        {"a --fast=yes", "--fast is given \"yes\", takes no value"},
        {"a --no-cold=1", "--no-cold is given \"1\", takes no value"},
        {"a --no-count", "--no-count is no option, did you mean --no-cold?"},
        {"a --bites=3", "--bites is no option, did you mean --bytes?"},
        {"a --no-colt", "--no-colt is no option, did you mean --no-cold?"},
        {"a --zzzzzzzzz", "--zzzzzzzzz is no option"},
        {"a -x", "-x is no option"},
        {"a -qx", "-x is no option"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        values v;
        char error[OPT_ERROR_MAX];
        if (parse(cases[i].line, &v, error) == 0)
            fail_msg("\"%s\" was accepted", cases[i].line);
        assert_string_equal(error, cases[i].sentence);
        opt_free(&demo, &v);
    }
}

static void an_argument_too_many_is_named(void **state)
{
    (void)state;
    const command one = {
        .name = "one", .arguments = arguments, .n_arguments = 1, .size = sizeof(values)};
    char *argv[] = {"a", "b"};
    char error[OPT_ERROR_MAX];
    values v;
    assert_int_equal(opt_parse(&one, 2, argv, &v, error), -1);
    assert_string_equal(error, "\"b\" is one argument too many");
}

/* The default that the help shows is the one of the library's struct. */
static void check_default(const command *cmd, const opt *o, const char *given)
{
    char error[OPT_ERROR_MAX], *help = "-h", *untouched = calloc(1, cmd->size);
    const size_t bytes = o->type == OPT_DOUBLE || o->type == OPT_AMOUNT || o->type == OPT_SIZE ? 8
                         : o->type == OPT_CUBE ? 3 * sizeof(int)
                                               : sizeof(int);
    assert_non_null(untouched);
    assert_int_equal(opt_parse(cmd, 1, &help, untouched, error), 0);
    if (o->type == OPT_STRING || o->type == OPT_PATH)
        assert_string_equal(*(const char *const *)(untouched + o->offset), o->initial);
    else
        assert_memory_equal(untouched + o->offset, given + o->offset, bytes);
    opt_free(cmd, untouched);
    free(untouched);
}

/* A default that its own option refuses would be ignored silently. */
static void the_tables_of_the_commands_are_sound(void **state)
{
    (void)state;
    commands_bind();
    for (int i = 0; i < n_commands; i++) {
        const command *cmd = commands[i];
        assert_ptr_equal(command_find(cmd->name), cmd);
        assert_true(cmd->description[strlen(cmd->description) - 1] == '\n');
        for (int k = 0; k < cmd->n_options; k++) {
            const opt *o = &cmd->options[k];
            char line[128], error[OPT_ERROR_MAX];
            assert_true(strchr("hvqoj", o->short_name) != NULL); /* and 0, the string's end */
            assert_int_equal(o->value != NULL, opt_takes_value(o));
            /* Words: of a choice always, of an integer where some stand for numbers. */
            assert_true(o->type == OPT_CHOICE ? opt_choices(o) != NULL
                                              : opt_choices(o) == NULL || o->type == OPT_INT);
            assert_true(o->offset >= (cmd->plain ? sizeof(int) : sizeof(common)));
            assert_true(o->offset < cmd->size);
            if (!o->initial || !opt_takes_value(o))
                continue;
            snprintf(line, sizeof line, "--%s=%s", o->name, o->initial);
            char *argv[] = {line, "-h"};
            void *v = calloc(1, cmd->size);
            assert_non_null(v);
            if (opt_parse(cmd, 2, argv, v, error) != 0)
                fail_msg("%s: %s", cmd->name, error);
            if (o->member && !o->own)
                check_default(cmd, o, v);
            opt_free(cmd, v);
            free(v);
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(nothing_given_leaves_the_defaults),
    cmocka_unit_test(every_type_takes_its_value_in_every_form),
    cmocka_unit_test(two_dashes_end_the_options_and_one_is_an_argument),
    cmocka_unit_test(the_last_value_wins_and_a_flag_can_be_taken_back),
    cmocka_unit_test(help_needs_no_arguments_and_ends_the_reading),
    cmocka_unit_test(amounts_have_suffixes_of_thousands),
    cmocka_unit_test(sizes_have_suffixes),
    cmocka_unit_test(wrong_words_get_a_sentence),
    cmocka_unit_test(an_argument_too_many_is_named),
    cmocka_unit_test(the_tables_of_the_commands_are_sound),
};

RUN_TESTS(tests)
