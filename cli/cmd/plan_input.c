/* SPDX-License-Identifier: Apache-2.0 */
/* plan_input.c - the work of each step: from a density profile, or from a mask, which has one step.
 */
#include "choices.h"
#include "cmd_plan.h"

#include <string.h>

enum { TOKENS = 32760 }; /* 81 frames of 832 x 480 pixels in Wan2.1 */

/* The place of a number in an ascending list, or -1. */
static int place_of(int64_t number, const int64_t *list, int n)
{
    for (int i = 0; i < n; i++)
        if (list[i] == number)
            return i;
    return -1;
}

int plan_ends_in(const char *path, const char *end)
{
    const size_t n = strlen(path), m = strlen(end);
    return n > m && strcmp(path + n - m, end) == 0;
}

static int is_torch(const char *path)
{
    return plan_ends_in(path, ".pt") || plan_ends_in(path, ".pth");
}

tess_status plan_open_profile(cli *c, const plan_values *v, const char *path,
                              tess_profile **profile)
{
    int tiles[3] = {0};
    const int windows = plan_ends_in(path, ".json");
    if (v->kept && v->dropped)
        return out_usage(c, "--kept and --dropped exclude each other");
    if (is_torch(path))
        return out_usage(c,
                         "%s is a file of torch.save; convert densities 0..1 of (layers, heads): "
                         "python3 -c \"import torch; d = torch.load('%s'); print('layer,head,"
                         "density'); [print(l, h, float(x), sep=',') for l, r in enumerate(d) for "
                         "h, x in enumerate(r)]\" >densities.csv",
                         path, path);
    if (v->tiles && !choices_cube(v->tiles, tiles))
        return out_usage(c, "--tiles is \"%.40s\", must be frames x rows x columns, such as 5x6x10",
                         v->tiles);
    if (v->tiles && !windows)
        return out_usage(c, "--tiles belongs to windows in a .json, and %s is none", path);
    if (windows && (v->column || v->kept || v->dropped))
        return out_usage(c, "%s belongs to a table, and %s has windows",
                         v->column ? "--column"
                         : v->kept ? "--kept"
                                   : "--dropped",
                         path);
    if (windows && !v->tiles)
        return out_usage(c,
                         "%s has windows of sliding tile attention, needs --tiles TxHxW, the "
                         "tiles of a clip",
                         path);
    const tess_profile_opts opts = {.tiles = {tiles[0], tiles[1], tiles[2]},
                                    .column = v->column,
                                    .meaning = v->kept      ? 1
                                               : v->dropped ? 2
                                                            : 0};
    const tess_status status = tess_profile_open(c->ctx, path, &opts, profile);
    if (status == TESS_EFORMAT && strstr(tess_last_error(), ": no column \""))
        return out_fail(c, status,
                        "%s; --column NAME names the column of the kept fraction, and --dropped "
                        "says that it is the dropped one",
                        tess_last_error());
    return status;
}

/* What cannot be masks, said in a sentence that helps. */
tess_status plan_check_masks(cli *c, const char *option, const char *path)
{
    if (is_torch(path))
        return out_usage(c,
                         "%s: %s is a file of torch.save; convert it: python3 -c \"import numpy, "
                         "torch; numpy.save('masks.npy', torch.load('%s').bool().numpy())\"",
                         option, path, path);
    tess_plan *plan = NULL;
    if (!plan_ends_in(path, ".json") || plan_ends_in(path, ".index.json")) /* of safetensors */
        return TESS_OK;
    if (tess_plan_load(c->ctx, path, &plan) == TESS_OK) {
        tess_plan_destroy(plan);
        return out_usage(c, "%s: %s is a plan, not masks; 'tessera plan %s' prints it", option,
                         path, path);
    }
    return out_usage(c,
                     "%s: %s is no file of masks; windows of sliding tile attention are a profile, "
                     "%s %s --tiles TxHxW",
                     option, path, strcmp(option, "--mask") == 0 ? "--density" : option, path);
}

tess_status plan_check_plan(cli *c, const char *path)
{
    if (is_torch(path))
        return plan_check_masks(c, "PLAN.json", path);
    if (plan_ends_in(path, ".npy") || plan_ends_in(path, ".npz") || plan_ends_in(path, ".csv"))
        return out_usage(c, "%s is no plan; 'tessera plan %s %s' makes one from it", path,
                         plan_ends_in(path, ".csv") ? "--density" : "--mask", path);
    return TESS_OK;
}

static tess_status open_profile(cli *c, const plan_values *v, plan_input *in)
{
    TRY(plan_open_profile(c, v, v->density, &in->profile));
    TRY(tess_profile_query(in->profile, &in->view));
    in->steps = in->view.steps;
    in->layers = in->view.layers;
    in->heads = in->view.heads;
    if (v->step >= 0) {
        in->first = place_of(v->step, in->view.step, in->view.steps);
        in->steps = 1;
        if (in->first < 0)
            return out_usage(c, "--step is %lld, the profile has steps %lld to %lld",
                             (long long)v->step, (long long)in->view.step[0],
                             (long long)in->view.step[in->view.steps - 1]);
    }
    if (v->layer >= 0) {
        in->layer = place_of(v->layer, in->view.layer, in->view.layers);
        in->layers = 1;
        if (in->layer < 0)
            return out_usage(c, "--layer is %lld, the profile has layers %lld to %lld",
                             (long long)v->layer, (long long)in->view.layer[0],
                             (long long)in->view.layer[in->view.layers - 1]);
    }
    return TESS_OK;
}

static tess_status load_masks(cli *c, const plan_values *v, plan_input *in)
{
    const tess_mask_opts opts = {
        .group = (int32_t)v->group,
        .unit = (int32_t)v->group,
        .tokens_q = v->tokens,
        .tokens_k = v->tokens,
        .layer = in->layer,
        .layers = v->layer >= 0,
    };
    tess_work_info info;
    TRY(plan_check_masks(c, "--mask", v->mask));
    TRY(tess_work_load(c->ctx, v->mask, &opts, &in->masks));
    TRY(tess_work_query(in->masks, &info));
    in->layers = info.layers;
    in->heads = info.heads;
    return TESS_OK;
}

tess_status plan_input_open(cli *c, const plan_values *v, plan_input *in)
{
    *in = (plan_input){.given = v};
    if (!v->density == !v->mask)
        return out_usage(c, v->mask ? "--density and --mask exclude each other"
                                    : "give --density FILE.csv or --mask FILE.npy");
    if (v->density)
        return open_profile(c, v, in);
    if (v->column || v->tiles || v->kept || v->dropped || v->step >= 0 || v->opts.union_share > 0)
        return out_usage(c, "%s belongs to a profile, needs --density",
                         v->column      ? "--column"
                         : v->tiles     ? "--tiles"
                         : v->kept      ? "--kept"
                         : v->dropped   ? "--dropped"
                         : v->step >= 0 ? "--step"
                                        : "--union");
    in->steps = 1;
    in->layer = v->layer >= 0 ? (int)v->layer : 0;
    return load_masks(c, v, in);
}

int64_t plan_input_step(const plan_input *in, int i)
{
    return in->profile ? in->view.step[in->first + i] : 0;
}

int64_t plan_input_layer(const plan_input *in, int i)
{
    return in->profile ? in->view.layer[in->layer + i] : in->layer + i;
}

tess_status plan_input_work(cli *c, plan_input *in, int i, tess_work **work)
{
    const plan_values *v = in->given;
    const tess_profile_view *p = &in->view;
    if (!in->profile) {
        *work = in->masks;
        in->masks = NULL;
        return TESS_OK;
    }
    const double *density =
        p->density + ((int64_t)(in->first + i) * p->layers + in->layer) * p->heads;
    return tess_work_from_density(c->ctx, density, in->layers, p->heads,
                                  v->tokens ? v->tokens : TOKENS, (int32_t)v->group, work);
}

void plan_input_close(plan_input *in)
{
    tess_profile_close(in->profile);
    tess_work_destroy(in->masks);
}
