/* SPDX-License-Identifier: Apache-2.0 */
/* sample_ranks.c - the ranks of a sampling: who evaluates what, and how they come together.
 *
 * All ranks share the tokens of each clip, and evaluate the velocity with the prompts and then
 * without. With guidance, an even number of ranks may work in two halves instead: ranks 0..R/2-1
 * evaluate with the prompts while R/2..R-1 evaluate without, each half sharing its tokens, and rank
 * r and rank r + R/2 exchange velocities: (batch, size) floats each way.
 *
 *            with prompts    without
 *   halves     0 1             2 3        0 <-> 2, 1 <-> 3
 *
 * Fewer ranks exchange keys and values that way, and no rank waits for twice as many layers. Every
 * rank has the whole clip and moves it itself, by the same bits.
 *
 * A plan is made from the densities of the step before, the mean over clips and evaluations of this
 * half, and is kept as long as it pays: densities change slowly from one step to the next.
 */
#include "sample_ranks.h"

#include "options/option_check.h"

#include <string.h>

/* ---- life ------------------------------------------------------------------------------------ */

/* Whether there will be halves: the same on ranks that are asked the same. */
static tess_status choose(const char *who, tess__crew *crew, const tess_sample_opts *o, int ranks)
{
    const int guided = o->guidance != 1.0, possible = guided && ranks % 2 == 0;
    if (o->halves == TESS_HALVES_ON && !possible)
        return tess__fail(TESS_EINVAL,
                          "%s: halves are asked for with %d rank%s and guidance %g, need an even "
                          "number of ranks and a guidance other than 1",
                          who, ranks, ranks == 1 ? "" : "s", o->guidance);
    crew->halves = possible && o->halves != TESS_HALVES_OFF;
    return TESS_OK;
}

static tess_status split(tess__crew *crew, int ranks)
{
    tess_comm_info info;
    if (!crew->halves)
        return TESS_OK;
    TESS_TRY(tess_comm_grid(crew->world, ranks / 2, &crew->half, &crew->pair));
    TESS_TRY(tess_comm_query(crew->pair, &info));
    crew->turn = info.rank;
    return TESS_OK;
}

/* Ranks that differ would make something that nobody asked for. */
static tess_status same(tess__crew *crew, const tess_model *model, const tess_sample_opts *o,
                        const float *text)
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
    tess_status status = TESS_OK;
    for (size_t i = 0; status == TESS_OK && i < sizeof all / sizeof *all; i++)
        status = tess_comm_same(crew->world, all[i].what, &all[i].hash, sizeof all[i].hash);
    crew->known |= status != TESS_OK;
    return status;
}

void tess__crew_begin(tess_ctx *ctx, const tess_sample_opts *o, tess__crew *crew)
{
    *crew = (tess__crew){.ctx = ctx, .world = o->comm, .sent = o->sent};
    if (crew->sent)
        tess__counts_add(crew->world, -1, crew->sent);
}

tess_status tess__crew_agree(tess__crew *crew, tess_status mine)
{
    if (!crew->world)
        return mine;
    const tess_status agreed = tess_comm_agree(crew->world, mine);
    crew->known |= agreed != TESS_OK;
    return agreed;
}

tess_status tess__crew_leave(const tess__crew *crew, tess_status status)
{
    if (status == TESS_OK || crew->known || !crew->world)
        return status;
    return tess_comm_fail(crew->world, status);
}

tess_status tess__crew_open(const char *who, tess_model *model, const tess_sample_opts *o,
                            const float *text, tess__crew *crew)
{
    tess_comm_info info = {.size = 1};
    if (o->comm)
        TESS_TRY(tess_comm_query(o->comm, &info));
    TESS_TRY(tess__crew_agree(crew, choose(who, crew, o, info.size)));
    if (!o->comm)
        return TESS_OK;
    TESS_TRY(same(crew, model, o, text));
    return split(crew, info.size);
}

/* The ranks that share this one's tokens. */
static tess_comm *group_of(const tess__crew *crew)
{
    return crew->halves ? crew->half : crew->world;
}

tess_status tess__crew_share(tess__crew *crew, const tess__sharing *sharing)
{
    const tess_model_config *config = sharing->config;
    tess_comm_info info = {.size = 1};
    if (!crew->world)
        return TESS_OK;
    TESS_TRY(tess_comm_query(group_of(crew), &info));
    if (info.size == 1)
        return TESS_OK;
    const size_t bytes = (size_t)config->layers * (size_t)config->heads * sizeof *crew->density;
    crew->layers = config->layers;
    crew->heads = config->heads;
    crew->density = tess__alloc_zero(crew->ctx, bytes);
    TESS_TRY(tess_comm_agree(group_of(crew), crew->density ? TESS_OK : tess__nomem(bytes)));
    return tess__pass_context(crew->ctx, group_of(crew), sharing, &crew->context);
}

void tess__crew_close(tess__crew *crew)
{
    tess_comm *const comms[] = {crew->world, crew->half, crew->pair};
    for (int i = 0; i < 3 && crew->sent; i++)
        tess__counts_add(comms[i], 1, crew->sent);
    tess_context_destroy(crew->context);
    tess__free(crew->ctx, crew->density);
    tess_comm_destroy(crew->pair);
    tess_comm_destroy(crew->half);
}

/* ---- a step ---------------------------------------------------------------------------------- */

int tess__crew_evaluates(const tess__crew *crew, int turn)
{
    return !crew || !crew->halves || crew->turn == turn;
}

tess_status tess__crew_plan(tess__crew *crew, int step)
{
    if (!crew || !crew->context)
        return TESS_OK;
    const int64_t n = (int64_t)crew->layers * crew->heads;
    for (int64_t i = 0; i < n && crew->seen; i++)
        crew->density[i] /= crew->seen;
    TESS_TRY(tess_context_plan(crew->context, step, crew->seen ? crew->density : NULL, NULL));
    memset(crew->density, 0, (size_t)n * sizeof *crew->density);
    crew->seen = 0;
    return TESS_OK;
}

tess_status tess__crew_seen(tess__crew *crew, const tess_pass *pass, int batch)
{
    if (!crew || !crew->context)
        return TESS_OK;
    for (int layer = 0; layer < crew->layers; layer++) {
        double *to = crew->density + (int64_t)layer * crew->heads;
        tess_attend_result result;
        TESS_TRY(tess_pass_attend_result(pass, layer, &result));
        for (int i = 0; i < batch * crew->heads; i++)
            to[i % crew->heads] += result.density[i] / batch;
    }
    crew->seen++;
    return TESS_OK;
}

tess_status tess__crew_exchange(tess__crew *crew, float *v, float *v_none, int64_t n)
{
    if (!crew || !crew->halves)
        return TESS_OK;
    tess_request *request = NULL;
    const int64_t bytes = n * (int64_t)sizeof *v;
    const int other = 1 - crew->turn;
    TESS_TRY(tess_comm_start_exchange(crew->pair, TESS_TRAFFIC_PAYLOAD, crew->turn ? v_none : v,
                                      bytes, other, crew->turn ? v : v_none, bytes, other,
                                      &request));
    return tess_comm_wait(crew->pair, request);
}

tess_status tess__crew_sum(tess__crew *crew, double *x, int64_t n)
{
    return crew && crew->world ? tess_comm_sum_f64(crew->world, TESS_TRAFFIC_CONTROL, x, n)
                               : TESS_OK;
}

tess_status tess__crew_sum_halves(tess__crew *crew, double *x, int64_t n)
{
    return crew && crew->halves ? tess_comm_sum_f64(crew->pair, TESS_TRAFFIC_CONTROL, x, n)
                                : TESS_OK;
}
