/* SPDX-License-Identifier: Apache-2.0 */
/* sample_ranks.c - the ranks of a sampling: guidance halves and context parallelism.
 *
 * All ranks share the tokens of each clip, and evaluate the velocity with the prompts and then
 * without. With guidance, an even number of ranks may work in two halves instead: ranks 0..R/2-1
 * evaluate with the prompts while R/2..R-1 evaluate without, each half sharing its tokens, and rank
 * r and rank r + R/2 exchange velocities: (batch, size) floats each way.
 *
 *            with prompts    without
 *   halves     0 1             2 3        0 <-> 2, 1 <-> 3
 *
 * Fewer ranks exchange keys and values that way, and a rank computes half as many evaluations.
 * Every rank holds the whole clip and updates it itself, with the same bits.
 *
 * A plan is made from the densities of the step before, the mean over clips and evaluations of this
 * half, and is reused as long as it pays: densities change slowly from one step to the next.
 */
#include "sample_ranks.h"

#include "options/option_check.h"

#include <string.h>

/* ---- life ------------------------------------------------------------------------------------ */

/* Whether there are two halves: the same on ranks with the same options. */
static tess_status choose(const char *who, tess__sample_ranks *ranks, const tess_sample_opts *o,
                          int size)
{
    const int guided = o->guidance != 1.0, possible = guided && size % 2 == 0;
    if (o->halves == TESS_HALVES_ON && !possible)
        return tess__invalid(who,
                             "halves are asked for with %d rank%s and guidance %g, need an even "
                             "number of ranks and a guidance other than 1",
                             size, size == 1 ? "" : "s", o->guidance);
    ranks->halves = possible && o->halves != TESS_HALVES_OFF;
    return TESS_OK;
}

static tess_status split(tess__sample_ranks *ranks, int size)
{
    tess_comm_info info;
    if (!ranks->halves)
        return TESS_OK;
    TESS_TRY(tess_comm_grid(ranks->pg.world, size / 2, &ranks->half_comm, &ranks->pair_comm));
    TESS_TRY(tess_comm_query(ranks->pair_comm, &info));
    ranks->evaluation = info.rank;
    return TESS_OK;
}

/* Ranks with different inputs would sample different clips. */
static tess_status check_same(tess__sample_ranks *ranks, const tess_model *model,
                              const tess_sample_opts *o, const float *text)
{
    const int64_t others[] = {o->frames,   o->height,        o->width,
                              o->text_len, (int64_t)o->seed, !!o->density};
    const size_t prompts = (size_t)o->batch * (size_t)o->text_len * (size_t)model->config.text_dim;
    uint64_t options =
        tess__options_hash(tess__hash(0, others, sizeof others), TESS_OPTIONS_SAMPLE, o);
    const uint64_t attention = o->attention ? tess__attention_hash(o->attention) : 0;
    options = tess__hash(options, &attention, sizeof attention);
    const struct {
        const char *what;
        uint64_t hash;
    } all[] = {
        {"set of options", options},
        {"set of prompts", tess__hash(0, text, prompts * sizeof *text)},
        {"set of weights",
         tess__hash(0, model->values, (size_t)model->params.count * sizeof(float))},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        TESS_TRY(tess__pg_check_same(&ranks->pg, all[i].what, &all[i].hash, sizeof all[i].hash));
    return TESS_OK;
}

void tess__sample_ranks_init(tess_ctx *ctx, const tess_sample_opts *o, tess__sample_ranks *ranks)
{
    *ranks = (tess__sample_ranks){.ctx = ctx, .pg = {.world = o->comm}, .sent = o->sent};
    if (ranks->sent)
        tess__counts_add(ranks->pg.world, -1, ranks->sent);
}

tess_status tess__sample_ranks_open(const char *who, tess_model *model, const tess_sample_opts *o,
                                    const float *text, tess__sample_ranks *ranks)
{
    tess_comm_info info = {.size = 1};
    if (o->comm)
        TESS_TRY(tess_comm_query(o->comm, &info));
    TESS_TRY(tess__pg_agree(&ranks->pg, choose(who, ranks, o, info.size)));
    if (!o->comm)
        return TESS_OK;
    TESS_TRY(check_same(ranks, model, o, text));
    return split(ranks, info.size);
}

/* The communicator of the ranks that share the tokens. */
static tess_comm *group_of(const tess__sample_ranks *ranks)
{
    return ranks->halves ? ranks->half_comm : ranks->pg.world;
}

tess_status tess__sample_ranks_cp(tess__sample_ranks *ranks, const tess__sharing *sharing)
{
    const tess_model_config *config = sharing->config;
    tess_comm_info info = {.size = 1};
    if (!ranks->pg.world)
        return TESS_OK;
    TESS_TRY(tess_comm_query(group_of(ranks), &info));
    if (info.size == 1)
        return TESS_OK;
    const size_t bytes = (size_t)config->layers * (size_t)config->heads * sizeof *ranks->density;
    ranks->layers = config->layers;
    ranks->heads = config->heads;
    ranks->density = tess__alloc_zero(ranks->ctx, bytes);
    TESS_TRY(tess_comm_agree(group_of(ranks), ranks->density ? TESS_OK : tess__nomem(bytes)));
    return tess__pass_cp(ranks->ctx, group_of(ranks), sharing, &ranks->cp);
}

void tess__sample_ranks_close(tess__sample_ranks *ranks)
{
    tess_comm *const comms[] = {ranks->pg.world, ranks->half_comm, ranks->pair_comm};
    for (int i = 0; i < 3 && ranks->sent; i++)
        tess__counts_add(comms[i], 1, ranks->sent);
    tess_cp_destroy(ranks->cp);
    tess__free(ranks->ctx, ranks->density);
    tess_comm_destroy(ranks->pair_comm);
    tess_comm_destroy(ranks->half_comm);
}

/* ---- a step ---------------------------------------------------------------------------------- */

int tess__sample_ranks_evaluates(const tess__sample_ranks *ranks, int evaluation)
{
    return !ranks || !ranks->halves || ranks->evaluation == evaluation;
}

tess_status tess__sample_ranks_plan(tess__sample_ranks *ranks, int step)
{
    if (!ranks || !ranks->cp)
        return TESS_OK;
    const int64_t n = (int64_t)ranks->layers * ranks->heads;
    for (int64_t i = 0; i < n && ranks->evaluated; i++)
        ranks->density[i] /= ranks->evaluated;
    TESS_TRY(tess_cp_plan(ranks->cp, step, ranks->evaluated ? ranks->density : NULL, NULL));
    memset(ranks->density, 0, (size_t)n * sizeof *ranks->density);
    ranks->evaluated = 0;
    return TESS_OK;
}

tess_status tess__sample_ranks_observe(tess__sample_ranks *ranks, const tess_pass *pass, int batch)
{
    if (!ranks || !ranks->cp)
        return TESS_OK;
    for (int layer = 0; layer < ranks->layers; layer++) {
        double *to = ranks->density + (int64_t)layer * ranks->heads;
        tess_attend_result result;
        TESS_TRY(tess_pass_attend_result(pass, layer, &result));
        for (int i = 0; i < batch * ranks->heads; i++)
            to[i % ranks->heads] += result.density[i] / batch;
    }
    ranks->evaluated++;
    return TESS_OK;
}

tess_status tess__sample_ranks_exchange(tess__sample_ranks *ranks, float *v, float *v_none,
                                        int64_t n)
{
    if (!ranks || !ranks->halves)
        return TESS_OK;
    tess_request *request = NULL;
    const int64_t bytes = n * (int64_t)sizeof *v;
    const int other = 1 - ranks->evaluation;
    TESS_TRY(tess_comm_start_sendrecv(ranks->pair_comm, TESS_TRAFFIC_PAYLOAD,
                                      ranks->evaluation ? v_none : v, bytes, other,
                                      ranks->evaluation ? v : v_none, bytes, other, &request));
    return tess_comm_wait(ranks->pair_comm, request);
}

tess_status tess__sample_ranks_allreduce_pair(tess__sample_ranks *ranks, double *x, int64_t n)
{
    return ranks && ranks->halves ? tess_comm_allreduce(ranks->pair_comm, TESS_TRAFFIC_CONTROL, x,
                                                        n, TESS_DTYPE_F64, TESS_REDUCE_SUM)
                                  : TESS_OK;
}
