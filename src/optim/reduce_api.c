/* SPDX-License-Identifier: Apache-2.0 */
/* reduce_api.c - reduce.c and owners.c as public calls (step.h). */
#include "model/pass_internal.h"
#include "process_group.h"
#include "tessera/advanced/step.h"

struct tess_reduce {
    tess_ctx *ctx;
    tess_model *model;
    tess_pass *pass;        /* attached; NULL: none */
    tess__process_group pg; /* sizes and the world alone: it owns nothing */
    tess__owners owners;
    tess__reduce reduce;
};

static tess_status check(const char *who, const tess_model *model, const tess_comm *comm,
                         tess_optim optim, tess_reduce **reduce)
{
    if (!model || !comm || !reduce)
        return tess__invalid(who, "%s is NULL", !model ? "model" : !comm ? "comm" : "reduce");
    if (!model->gradients)
        return tess__invalid(who, "the model was made without gradients");
    TESS_TRY(tess__check_enum(who, "optim", (int)optim, 2, "tess_optim"));
    return TESS_OK;
}

tess_status tess_reduce_create(tess_model *model, tess_comm *comm, tess_optim optim,
                               tess_reduce **reduce)
{
    tess_comm_info info;
    TESS_TRY(check("tess_reduce_create", model, comm, optim, reduce));
    TESS_TRY(tess_comm_query(comm, &info));
    tess_reduce *made = TESS_ALLOC_ZERO(model->ctx, sizeof *made);
    made->ctx = model->ctx;
    made->model = model;
    made->pg = (tess__process_group){.world = comm, .rank = info.rank, .size = info.size};
    tess_status status =
        tess__owners_create(made->ctx, &model->params, optim, info.size, &made->owners);
    if (status == TESS_OK)
        status = tess__reduce_create(made->ctx, &made->pg, &made->owners, model->gradients, NULL, 0,
                                     &made->reduce);
    if (status == TESS_OK)
        *reduce = made;
    else
        tess_reduce_destroy(made);
    return status;
}

tess_status tess_reduce_attach(tess_reduce *reduce, tess_pass *pass)
{
    TESS_REQUIRE(reduce);
    if (pass && pass->model != reduce->model)
        return tess__invalid(__func__, "the pass is of another model");
    if (reduce->pass)
        tess__pass_ready(reduce->pass, NULL, NULL);
    if (pass)
        tess__pass_ready(pass, tess__reduce_ready, &reduce->reduce);
    reduce->pass = pass;
    return TESS_OK;
}

tess_status tess_reduce_values(tess_reduce *reduce)
{
    TESS_REQUIRE(reduce);
    return tess__reduce_values(&reduce->reduce, reduce->model->values);
}

tess_status tess_reduce_query(const tess_reduce *reduce, tess_reduce_info *info)
{
    TESS_REQUIRE(reduce, info);
    *info = (tess_reduce_info){.waited_ns = reduce->reduce.waited_ns,
                               .bytes = tess__reduce_bytes(&reduce->owners, reduce->pg.rank, 0),
                               .owner = reduce->owners.owner,
                               .params = reduce->owners.n_slots};
    return TESS_OK;
}

void tess_reduce_destroy(tess_reduce *reduce)
{
    if (!reduce)
        return;
    if (reduce->pass)
        tess__pass_ready(reduce->pass, NULL, NULL);
    tess__reduce_destroy(&reduce->reduce);
    tess__owners_destroy(&reduce->owners);
    tess__free(reduce->ctx, reduce);
}
