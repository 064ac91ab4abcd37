/* SPDX-License-Identifier: Apache-2.0 */
/* control_file.c - the controller's part of a checkpoint: decisions.json, predictor.safetensors.
 *
 * A resumed run takes over everything, and must attend in the same way. A run that branches off
 * takes over what was measured in cubes that it knows too, and predictors of the same form with
 * their moments; it decides anew, and what it does not find it learns and measures as a new run.
 */
#include "dsv/control.h"
#include "train_internal.h"

#include <string.h>
#include <unistd.h>

static const char decisions_file[] = "decisions.json", predictor_file[] = "predictor.safetensors";

tess_status tess__control_save(const tess__control *c, const char *dir)
{
    char path[PATH_MAX];
    TESS_TRY(tess__path(path, dir, decisions_file));
    const int32_t n = tess__control_units(c, c->state.cubes[tess__best_cube(&c->state)].cube);
    TESS_TRY(tess__dsv_state_write(c->ctx, path, &c->state, &c->attention, n));
    TESS_TRY(tess__clusters_save(c, dir));
    if (!c->predictor)
        return TESS_OK;
    TESS_TRY(tess__path(path, dir, predictor_file));
    return tess_predictor_save(c->predictor, path);
}

/* *found 0: there is none, and d is not touched. */
static tess_status read_decisions(const tess__control *c, const char *dir, tess__dsv_state *d,
                                  int *found)
{
    char path[PATH_MAX];
    *found = 0;
    TESS_TRY(tess__path(path, dir, decisions_file));
    if (access(path, F_OK) != 0)
        return TESS_OK;
    TESS_TRY(tess__dsv_state_read(c->ctx, path, NULL, 0, d));
    *found = d->layers == c->config.layers && d->heads == c->config.heads;
    if (*found)
        return TESS_OK;
    const int layers = d->layers, heads = d->heads;
    tess__dsv_state_destroy(d);
    return tess__invalid(path, "is of %d layers of %d heads, must be of the model's %d of %d",
                         layers, heads, c->config.layers, c->config.heads);
}

/* ---- predictors ------------------------------------------------------------------------------ */

static const char *form_of(const tess_predictor_opts *o)
{
    return o->input == TESS_PREDICT_QK ? "qk" : o->rotary ? "hidden" : "hidden-plain";
}

/* Copies the values of a file's predictors. Those of another form are EINVAL where they must be the
 * same, and left alone where not. */
static tess_status read_predictor(tess__control *c, const char *dir, int must)
{
    char path[PATH_MAX];
    tess_predictor *read = NULL;
    tess_predictor_info own, info;
    c->loaded = 0;
    TESS_TRY(tess__path(path, dir, predictor_file));
    if (!c->predictor || access(path, F_OK) != 0)
        return TESS_OK;
    TESS_TRY(tess_predictor_load(c->ctx, &c->config, path, &read));
    tess_status status = tess_predictor_query(read, &info);
    if (status == TESS_OK)
        status = tess_predictor_query(c->predictor, &own);
    if (status == TESS_OK) {
        c->loaded = info.opts.input == own.opts.input && info.opts.proj_dim == own.opts.proj_dim &&
                    info.opts.rotary == own.opts.rotary;
        if (c->loaded)
            memcpy(own.values, info.values, (size_t)own.count * sizeof *own.values);
        else if (must)
            status = tess__fail(
                TESS_EINVAL, "%s: predictors are of %s at rank %d, must be of %s at rank %d", path,
                form_of(&info.opts), info.opts.proj_dim, form_of(&own.opts), own.opts.proj_dim);
    }
    tess_predictor_destroy(read);
    return status;
}

/* ---- resuming -------------------------------------------------------------------------------- */

static int same_cube(const int a[3], const int b[3])
{
    return memcmp(a, b, 3 * sizeof *a) == 0;
}

static tess_status check_same(const tess__control *c, const char *dir, const tess__dsv_state *d)
{
    const int *own = c->attention.cube, *its = d->cubes[0].cube;
    if (d->attention.kind != c->attention.kind)
        return tess__invalid(dir, "attention was %s, must be resumed with it, not %s",
                             tess__attention_name(d->attention.kind),
                             tess__attention_name(c->attention.kind));
    if (own[0] && !(d->cube_chosen && same_cube(own, its)))
        return tess__invalid(dir, "cubes were %dx%dx%d, must be resumed with them, not %dx%dx%d",
                             its[0], its[1], its[2], own[0], own[1], own[2]);
    if (c->opts.train && c->predictor && !c->loaded && d->updates > 0)
        return tess__invalid(dir,
                             "%s is not there, must be: its predictors were updated %lld times",
                             predictor_file, (long long)d->updates);
    return TESS_OK;
}

tess_status tess__control_resume(tess__control *c, const char *dir)
{
    tess__dsv_state d;
    int found;
    TESS_TRY(read_predictor(c, dir, 1));
    TESS_TRY(read_decisions(c, dir, &d, &found));
    if (!found)
        return TESS_OK;
    const tess_status status = check_same(c, dir, &d);
    if (status != TESS_OK) {
        tess__dsv_state_destroy(&d);
        return status;
    }
    TESS_TRY(tess__control_adopt(c, &d));
    TESS_TRY(tess__clusters_load(c, dir));
    /* Those of the file may have changed since. */
    TESS_TRY(tess__control_impose(c, d.imposed ? d.imposed : c->imposed.choice));
    tess__control_changed(c);
    return TESS_OK;
}

/* ---- branching ------------------------------------------------------------------------------- */

tess_status tess__control_branch(tess__control *c, const char *dir)
{
    tess__dsv_state d;
    int found;
    TESS_TRY(read_predictor(c, dir, 0));
    TESS_TRY(read_decisions(c, dir, &d, &found));
    if (!found)
        return TESS_OK;
    if (d.cube_chosen && !c->attention.cube[0]) {
        tess__dsv_state_forget(&d);
        if (!c->loaded)
            d.updates = 0;
        TESS_TRY(tess__control_adopt(c, &d));
        TESS_TRY(tess__control_impose(c, c->imposed.choice ? c->imposed.choice : d.imposed));
        tess__control_changed(c);
        return TESS_OK;
    }
    for (int i = 0; i < c->state.n_cubes; i++)
        for (int k = 0; k < d.n_cubes; k++)
            if (same_cube(c->state.cubes[i].cube, d.cubes[k].cube))
                tess__cube_stats_copy(&d, &d.cubes[k], &c->state.cubes[i]);
    if (c->loaded) {
        c->state.loss = d.loss;
        c->state.updates = d.updates;
    }
    const tess_status status =
        tess__control_impose(c, c->imposed.choice ? c->imposed.choice : d.imposed);
    tess__dsv_state_destroy(&d);
    tess__control_changed(c);
    return status;
}

/* ---- sampling -------------------------------------------------------------------------------- */

tess_status tess__control_attention(tess_ctx *ctx, const char *dir, tess_attention_opts *attention)
{
    char path[PATH_MAX];
    tess__dsv_state d;
    TESS_TRY(tess__path(path, dir, decisions_file));
    *attention = (tess_attention_opts)TESS_ATTENTION_OPTS_INIT;
    if (access(path, F_OK) != 0)
        return TESS_OK;
    TESS_TRY(tess__dsv_state_read(ctx, path, NULL, 0, &d));
    *attention = d.attention;
    if (d.cube_chosen)
        memcpy(attention->cube, d.cubes[0].cube, sizeof attention->cube);
    tess__dsv_state_destroy(&d);
    return TESS_OK;
}
