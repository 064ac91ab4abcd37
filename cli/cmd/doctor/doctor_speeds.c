/* SPDX-License-Identifier: Apache-2.0 */
/* doctor_speeds.c - how fast each rank is: dense attention on all ranks at once, by the clock.
 *
 * Every rank calls the attention of 1024 tokens of a head of 64 over and over for a quarter of a
 * second, with its threads, while the others do. The clock counts, not the time of the process: a
 * rank that shares its cores, or is held back, is slower by as much as it would be in a run.
 */
#include "cmd_doctor.h"
#include "tessera/advanced/collectives.h"
#include "tessera/advanced/machine.h"
#include "tessera/attn.h"
#include "world.h"

#include <stdlib.h>

enum { TOKENS = 1024, DIM = 64, ALL = TOKENS * DIM };
static const int64_t LONG = 250000000;

/* Calls per second. x: (4, ALL): q, k, v, o. */
static tess_status count_calls(tess_attn *attn, float *x, double *rate)
{
    tess_view v[4];
    int64_t n = 0, now, begin;
    for (int i = 0; i < 4; i++)
        v[i] = (tess_view){x + (size_t)i * ALL, TESS_DTYPE_F32, ALL, ALL, DIM};
    TRY(tess_attn_forward(attn, NULL, &v[0], &v[1], &v[2], &v[3], NULL)); /* warms up */
    begin = now = tess_clock_ns();
    while (now - begin < LONG) {
        TRY(tess_attn_forward(attn, NULL, &v[0], &v[1], &v[2], &v[3], NULL));
        n++;
        now = tess_clock_ns();
    }
    *rate = 1e9 * (double)n / (double)(now - begin);
    return TESS_OK;
}

static tess_status measure(cli *c, double *rate)
{
    const tess_attn_shape shape = {
        .batch = 1, .heads = 1, .head_dim = DIM, .tokens_q = TOKENS, .tokens_k = TOKENS};
    tess_attn *attn = NULL;
    float *x = calloc(4 * ALL, sizeof *x);
    tess_status status = x ? TESS_OK : out_fail(c, TESS_ENOMEM, "no memory for a measurement");
    for (uint64_t i = 0; i < 3 && status == TESS_OK; i++)
        status = tess_random_normal(1, i, 0, x + i * ALL, ALL);
    if (status == TESS_OK)
        status = tess_attn_create(c->ctx, &shape, &attn);
    status = world_agree(c, c->comm, status); /* all begin together */
    if (status == TESS_OK)
        status = count_calls(attn, x, rate);
    tess_attn_destroy(attn);
    free(x);
    return status;
}

tess_status doctor_speeds(cli *c, double *speeds)
{
    double most = 0.0;
    for (int p = 0; p < c->ranks; p++)
        speeds[p] = 0.0;
    TRY(world_agree(c, c->comm, measure(c, &speeds[c->rank])));
    TRY(tess_comm_allreduce(c->comm, TESS_TRAFFIC_CONTROL, speeds, c->ranks, TESS_DTYPE_F64,
                            TESS_REDUCE_SUM));
    for (int p = 0; p < c->ranks; p++)
        most = speeds[p] > most ? speeds[p] : most;
    for (int p = 0; p < c->ranks; p++)
        speeds[p] /= most;
    return TESS_OK;
}
