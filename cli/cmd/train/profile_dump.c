/* SPDX-License-Identifier: Apache-2.0 */
/* profile_dump.c - q, k, v and the selections of one head, as files for `tessera check attn`.
 *
 *   q.npy, k.npy, v.npy    (tokens, head_dim): as attention takes them, in the order of the cubes
 *   order.npy              (tokens): the raster index of each token
 *   oracle.npz             keys with --mass of each group's softmax: offsets, indices, bounds_q
 *   predictor.npz          the same of the checkpoint's predictor, where it has one
 *   selector.npz           the same of --selector
 *
 * The first clip of the validation set, at one noise level. The last two have as many keys as the
 * oracle's groups on average, or --density of them.
 */
#include "cmd_profile.h"

#include "tessera/file.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct {
    profile_job *j;
    int head;
    char folder[3800];
} dump;

static tess_status write_file(const dump *d, const char *name, const tess_tensor *tensors, int n)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", d->folder, name);
    return tess_file_write(d->j->c->ctx, path, tensors, n, NULL);
}

static tess_status write_rows(const dump *d, const char *name, const tess_view *view)
{
    const profile_probe *p = &d->j->probe;
    char file[16];
    float *rows = malloc((size_t)(p->tokens * p->head_dim) * sizeof *rows);
    if (!rows)
        return out_fail(d->j->c, TESS_ENOMEM, "no memory for %lld rows", (long long)p->tokens);
    for (int64_t i = 0; i < p->tokens; i++)
        memcpy(rows + i * p->head_dim,
               (const float *)view->data + d->head * view->stride_h + i * view->stride_s,
               (size_t)p->head_dim * sizeof *rows);
    snprintf(file, sizeof file, "%s.npy", name);
    const tess_tensor t = {name, TESS_DTYPE_F32, 2, {p->tokens, p->head_dim}, rows};
    const tess_status status = write_file(d, file, &t, 1);
    free(rows);
    return status;
}

/* *keys: of a group, mean over groups. */
static tess_status write_lists(const dump *d, const char *name, const tess_selection *sel,
                               int32_t *keys)
{
    tess_selection_lists l;
    TRY(tess_selection_view(sel, &l));
    const tess_tensor all[] = {
        {"offsets", TESS_DTYPE_I64, 1, {l.lists + 1}, l.offsets},
        {"indices", TESS_DTYPE_I32, 1, {l.offsets[l.lists]}, l.indices},
        {"bounds_q", TESS_DTYPE_I64, 1, {l.shape.n_q + 1}, l.shape.bounds_q},
    };
    *keys = (int32_t)ceil((double)l.offsets[l.lists] / (double)l.lists);
    return write_file(d, name, all, 3);
}

static tess_status select_by(const dump *d, tess_select_kind kind, const tess_select_in *in,
                             tess_selection *sel)
{
    const profile_probe *p = &d->j->probe;
    tess_selector *selector = NULL;
    tess_status status = tess_selector_create(
        p->ctx, &(tess_selector_opts){.kind = kind, .proxy = p->proxy}, &selector);
    if (status == TESS_OK)
        status = tess_selector_run(selector, in, sel);
    tess_selector_destroy(selector);
    return status;
}

static tess_view head_view(const tess_view *all, int head)
{
    tess_view one = *all;
    one.data = (float *)all->data + head * all->stride_h;
    return one;
}

static tess_status write_selections(const dump *d, const tess_hook_in *hook, tess_selection *sel)
{
    profile_probe *p = &d->j->probe;
    const tess_view q = head_view(hook->q, d->head), k = head_view(hook->k, d->head);
    int32_t keys, ignored;
    TRY(select_by(
        d, TESS_SELECT_ORACLE,
        &(tess_select_in){.q = &q, .k = &k, .head_dim = p->head_dim, .budget = {.mass = p->mass}},
        sel));
    TRY(write_lists(d, "oracle.npz", sel, &keys));
    if (!isnan(p->keys_share))
        keys = (int32_t)ceil(p->keys_share * (double)p->tokens - 1e-9);
    if (hook->q_low) {
        const tess_view low_q = head_view(hook->q_low, d->head),
                        low_k = head_view(hook->k_low, d->head);
        TRY(select_by(
            d, TESS_SELECT_PREDICTOR,
            &(tess_select_in){
                .q = &low_q, .k = &low_k, .head_dim = hook->proj_dim, .budget = {.keys = keys}},
            sel));
        TRY(write_lists(d, "predictor.npz", sel, &ignored));
    }
    if (!p->plugin)
        return TESS_OK;
    tess_plugin_info info;
    TRY(tess_plugin_query(p->plugin, &info));
    p->keys[d->head] = info.masks ? (int32_t)p->tokens : keys;
    const tess_selector_task task = profile_own_task(p, hook, 0, d->head);
    TRY(tess_plugin_run(p->plugin, &task, sel));
    return write_lists(d, "selector.npz", sel, &ignored);
}

static tess_status hook(void *user, const tess_hook_in *hook)
{
    const dump *d = user;
    const profile_probe *p = &d->j->probe;
    const tess_sel_shape shape = profile_groups(p, &p->orders[0], 1, 1);
    const tess_tensor order = {"order", TESS_DTYPE_I64, 1, {p->tokens}, p->raster};
    tess_selection *sel = NULL;
    TRY(write_rows(d, "q", hook->q));
    TRY(write_rows(d, "k", hook->k));
    TRY(write_rows(d, "v", hook->v));
    TRY(write_file(d, "order.npy", &order, 1));
    TRY(tess_selection_create(p->ctx, &shape, p->orders[0].groups * p->tokens, &sel));
    const tess_status status = write_selections(d, hook, sel);
    tess_selection_destroy(sel);
    return status;
}

tess_status profile_dump_check(profile_job *j)
{
    char rest;
    int *layer = &j->dump_layer, *head = &j->dump_head;
    if (!j->v->dump || (sscanf(j->v->dump, "%d,%d%c", layer, head, &rest) == 2 && *layer >= 0 &&
                        *layer < j->config.layers && *head >= 0 && *head < j->config.heads))
        return TESS_OK;
    return out_usage(j->c, "--dump is \"%.40s\", must be LAYER,HEAD: 0..%d,0..%d", j->v->dump,
                     j->config.layers - 1, j->config.heads - 1);
}

tess_status profile_dump(profile_job *j, profile_engine *e)
{
    dump d = {.j = j, .head = j->dump_head};
    snprintf(d.folder, sizeof d.folder, "%.3700s", j->v->dump_to ? j->v->dump_to : "attention");
    if (mkdir(d.folder, 0777) != 0 && errno != EEXIST)
        return out_fail(j->c, TESS_EIO, "%.200s: cannot make the folder: %s", d.folder,
                        strerror(errno));
    const double noise = isnan(j->v->noise) ? profile_level(j, 1.5 / PROFILE_LEVELS) : j->v->noise;
    for (int i = 0; i < j->probe.batch; i++)
        j->levels[i] = noise;
    j->probe.sample = 0;
    TRY(profile_batch(j, 0, j->probe.batch, j->levels));
    for (int i = 0; i < j->config.layers; i++)
        e->layers[i].hook = i == j->dump_layer;
    TRY(tess_pass_attend(
        e->pass,
        &(tess_attend){.layers = e->layers, .predictor = e->predictor, .hook = hook, .user = &d}));
    return tess_pass_forward(e->pass, &(tess_model_in){j->x, j->timestep, j->text}, j->out);
}
