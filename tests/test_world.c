/* SPDX-License-Identifier: Apache-2.0 */
/* test_world.c - what the ranks of a command exchange, here as threads: why one of them
 * failed, and what all of them sent. */
#include "cli.h"

#include "test.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

enum { RANKS = 4 };

typedef struct {
    int failing[RANKS]; /* 1: by a sentence of its own, 2: by the library's, 3: by a signal */
    tess_status status[RANKS];
    char sentence[RANKS][CLI_SENTENCE_MAX];
    char *text; /* what rank 0 printed */
    json_t *json;
} story;

static cli rank_of(tess_comm *comm, int rank)
{
    return (cli){.comm = comm, .rank = rank, .ranks = RANKS};
}

static tess_status agree(void *user, tess_ctx *ctx, tess_comm *comm)
{
    story *s = user;
    tess_comm_info info;
    (void)ctx;
    tess_status status = tess_comm_query(comm, &info);
    cli c = rank_of(comm, info.rank);
    if (s->failing[info.rank] == 2)
        status = tess_comm_query(comm, NULL);
    else if (s->failing[info.rank] && tess_comm_query(NULL, NULL) == TESS_EINVAL) /* an old one */
        status = s->failing[info.rank] == 3
                     ? TESS_ESTOPPED
                     : out_fail(&c, TESS_EIO, "no room on rank %d", info.rank);
    s->status[info.rank] = world_agree(&c, comm, status);
    memcpy(s->sentence[info.rank], c.sentence, sizeof c.sentence);
    return s
        ->status[info.rank]; /* and so ends the communicator, maybe before others are notified */
}

static void ranks_hear_why_the_first_one_failed(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++) { /* who leaves first is left to chance */
        story s = {.failing = {0, 1, 0, 2}};
        assert_int_equal(tess_comm_threads(NULL, RANKS, NULL, agree, &s), TESS_EIO);
        assert_int_equal(s.status[0], TESS_EIO);
        assert_string_equal(s.sentence[0], "rank 1: no room on rank 1");
        assert_string_equal(s.sentence[2], "rank 1: no room on rank 1");
        assert_int_equal(s.status[1], TESS_EIO); /* who failed keeps its own */
        assert_string_equal(s.sentence[1], "no room on rank 1");
        assert_int_equal(s.status[3], TESS_EINVAL);
        assert_string_equal(s.sentence[3], "tess_comm_query: info is NULL");
    }
    story s = {.failing = {0, 0, 0, 2}};
    assert_int_equal(tess_comm_threads(NULL, RANKS, NULL, agree, &s), TESS_EINVAL);
    assert_int_equal(s.status[0], TESS_EINVAL);
    assert_string_equal(s.sentence[0], "rank 3: tess_comm_query: info is NULL");

    s = (story){.failing = {0}};
    CHECK_OK(tess_comm_threads(NULL, RANKS, NULL, agree, &s));
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(s.status[r], TESS_OK);
}

/* The library has no sentence for it. */
static void ranks_hear_of_a_signal(void **state)
{
    (void)state;
    story s = {.failing = {0, 0, 3, 0}};
    signals_catch();
    kill(getpid(), SIGUSR1);
    while (!signals_caught())
        usleep(1000); /* a thread of its own takes it */
    assert_int_equal(tess_comm_threads(NULL, RANKS, NULL, agree, &s), TESS_ESTOPPED);
    assert_string_equal(s.sentence[2], "interrupted by a signal");
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(s.status[r], TESS_ESTOPPED);
        if (r != 2)
            assert_string_equal(s.sentence[r], "rank 2: interrupted by a signal");
    }
}

/* Rank r sent r times as much as rank 1. */
static tess_status report(void *user, tess_ctx *ctx, tess_comm *comm)
{
    story *s = user;
    tess_comm_info info;
    (void)ctx;
    TRY(tess_comm_query(comm, &info));
    const int64_t r = info.rank;
    const tess_comm_counts mine = {.bytes = {1024 * r, 3 * r, 100 * r}, .messages = {r, 2 * r, 5}};
    cli c = rank_of(comm, info.rank);
    char *text = NULL;
    size_t bytes = 0;
    c.json = r == 0 ? s->json : NULL;
    c.out = open_memstream(&text, &bytes);
    const tess_status status = c.out ? world_sent(&c, "sent ", &mine) : TESS_ENOMEM;
    if (c.out)
        fclose(c.out);
    if (r == 0)
        s->text = text;
    else
        free(text);
    return status;
}

static void what_all_ranks_sent_is_added_up(void **state)
{
    (void)state;
    story s = {.text = NULL};
    CHECK_OK(tess_comm_threads(NULL, RANKS, NULL, report, &s));
    assert_string_equal(s.text, "sent 6 KiB payload, 18 B index, 600 B control in 38 messages\n");
    free(s.text);
    s = (story){.json = json_object()};
    CHECK_OK(tess_comm_threads(NULL, RANKS, NULL, report, &s));
    assert_string_equal(s.text, "");
    char *said = json_dumps(s.json, JSON_COMPACT);
    assert_string_equal(said, "{\"sent\":{\"payload\":{\"bytes\":6144,\"messages\":6},"
                              "\"index\":{\"bytes\":18,\"messages\":12},"
                              "\"control\":{\"bytes\":600,\"messages\":20}}}");
    free(said);
    free(s.text);
    json_decref(s.json);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(ranks_hear_why_the_first_one_failed),
    cmocka_unit_test(ranks_hear_of_a_signal),
    cmocka_unit_test(what_all_ranks_sent_is_added_up),
};
RUN_TESTS(tests)
