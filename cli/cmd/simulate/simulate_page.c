/* SPDX-License-Identifier: Apache-2.0 */
/* simulate_page.c - tessera simulate --html: a step by its parts, and how it changes with each
 * input.
 *
 * An input is a parameter that an operation of the step names, or a rate of the cluster. Each by
 * itself is given 10 % less and 10 % more, and the step simulated again: two steps for an input.
 */
#include "cmd/cmd_simulate.h"

#include "tessera/advanced/cost.h"
#include "tessera/advanced/cost_report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 12, NAME_MAX_BYTES = 96 };

typedef struct {
    char name[NAME_MAX_BYTES];
    double less, more; /* change of the step in % */
} lever;

typedef struct {
    lever *items;
    int n, room;
} levers;

static int by_change(const void *a, const void *b)
{
    const lever *x = a, *y = b;
    const double p = fmax(fabs(x->less), fabs(x->more)), q = fmax(fabs(y->less), fabs(y->more));
    return (q > p) - (q < p);
}

static tess_status add(simulate_job *j, levers *all, const char *name, const double change[2])
{
    if (all->n == all->room) {
        const int room = all->room ? 2 * all->room : 64;
        lever *more = realloc(all->items, (size_t)room * sizeof *more);
        if (!more)
            return out_fail(j->c, TESS_ENOMEM, "no memory for %d inputs", room);
        all->items = more;
        all->room = room;
    }
    lever *l = &all->items[all->n++];
    *l = (lever){.less = change[0], .more = change[1]};
    snprintf(l->name, sizeof l->name, "%s", name);
    return TESS_OK;
}

/* The step with another cluster or other parameters, as a change in %; 0 where it cannot be. */
static double change_of(simulate_job *j, const tess_cluster *cluster)
{
    tess_sim_result r;
    return tess_sim_run(j->sim, cluster, &j->s, &r) == TESS_OK ? 100 * (r.step_s / j->r.step_s - 1)
                                                               : 0;
}

/* ---- parameters ------------------------------------------------------------------------------ */

static tess_status mark_used(simulate_job *j, char *used)
{
    for (int i = 0; i < tess_sim_ops(j->sim); i++) {
        tess_sim_op op;
        TRY(tess_sim_op_query(j->sim, i, &op));
        for (int k = 0; k < 4; k++)
            if (op.params[k] >= 0)
                used[op.params[k]] = 1;
    }
    return TESS_OK;
}

static tess_status vary_parameter(simulate_job *j, int index, levers *all)
{
    tess_sim_param p;
    char name[NAME_MAX_BYTES];
    double change[2] = {0};
    TRY(tess_sim_params_query(j->params, index, &p));
    if (p.value == 0)
        return TESS_OK;
    for (int k = 0; k < 2; k++) {
        const double value = p.value * (k ? 1.1 : 0.9);
        TRY(tess_sim_params_set(j->params, index, fmin(fmax(value, p.low), p.high)));
        change[k] = change_of(j, j->cluster);
    }
    TRY(tess_sim_params_set(j->params, index, p.value));
    snprintf(name, sizeof name, "%.40s %.40s", p.owner, p.name);
    return add(j, all, name, change);
}

/* ---- the cluster ----------------------------------------------------------------------------- */

static const struct {
    const char *name;
    size_t offset; /* of a double in tess_cluster_info */
} rates[] = {{"GPU peak, bf16", offsetof(tess_cluster_info, flops_bf16)},
             {"GPU peak, fp8", offsetof(tess_cluster_info, flops_fp8)},
             {"GPU memory bandwidth", offsetof(tess_cluster_info, memory_bandwidth)},
             {"link bandwidth", offsetof(tess_cluster_info, link_bandwidth)},
             {"network bandwidth", offsetof(tess_cluster_info, nic_bandwidth)}};

/* What collectives take follows from the bandwidths: it is derived again. */
static tess_status vary_rate(simulate_job *j, int rate, levers *all)
{
    double change[2] = {0};
    for (int k = 0; k < 2; k++) {
        tess_cluster_info info;
        tess_cluster *other = NULL;
        double value;
        TRY(tess_cluster_query(j->cluster, &info));
        memcpy(&value, (const char *)&info + rates[rate].offset, sizeof value);
        const double factor = k ? 1.1 : 0.9;
        value *= factor;
        memcpy((char *)&info + rates[rate].offset, &value, sizeof value);
        if (rates[rate].offset == offsetof(tess_cluster_info, link_bandwidth)) {
            info.collectives.ring *= factor;
            info.collectives.nvls_bandwidth *= factor;
            for (int i = 0; i <= TESS_COLLECTIVE_GPUS_MAX; i++)
                info.collectives.ring_by_gpus[i] *= factor;
        }
        if (rates[rate].offset == offsetof(tess_cluster_info, nic_bandwidth))
            info.collectives.network *= factor;
        if (value == 0)
            return TESS_OK;
        TRY(tess_cluster_create(j->c->ctx, &info, &other));
        change[k] = change_of(j, other);
        tess_cluster_destroy(other);
    }
    return add(j, all, rates[rate].name, change);
}

static tess_status vary(simulate_job *j, levers *all)
{
    const int n = tess_sim_params_count(j->params);
    tess_sim_result again;
    char *used = calloc((size_t)n + 1, 1);
    if (!used)
        return out_fail(j->c, TESS_ENOMEM, "no memory for %d parameters", n);
    tess_status status = mark_used(j, used);
    for (int i = 0; status == TESS_OK && i < n; i++)
        if (used[i])
            status = vary_parameter(j, i, all);
    for (size_t i = 0; status == TESS_OK && i < sizeof rates / sizeof *rates; i++)
        status = vary_rate(j, (int)i, all);
    free(used);
    if (status == TESS_OK) /* --explain asks for the operations of the step itself */
        status = tess_sim_run(j->sim, j->cluster, &j->s, &again);
    if (all->n > 1)
        qsort(all->items, (size_t)all->n, sizeof *all->items, by_change);
    return status;
}

/* ---- the page -------------------------------------------------------------------------------- */

static tess_status write_page(simulate_job *j, const levers *all)
{
    simulate_part parts[SIMULATE_CLIP_PARTS];
    simulate_room rooms[SIMULATE_ROOMS];
    tess_cost_part time[SIMULATE_CLIP_PARTS], money[SIMULATE_CLIP_PARTS], memory[SIMULATE_ROOMS];
    tess_cost_input inputs[SHOWN];
    const tess_sim_result *r = &j->r;
    const tess_sim_layout *l = &r->scenario.layout;
    const int priced = !isnan(j->given->price), whole = !isnan(j->steps);
    const double steps = whole ? simulate_run_scale(j) : 1, cost = priced ? j->given->price : 0;
    const double unit = r->clips ? 1 : 1e3;
    static const char *const fits[] = {"does not fit", "fits", "may fit"};
    const tess_interval *i80 = &j->interval;
    char title[128], subtitle[256];
    int n = 0;
    const int n_parts = simulate_parts(r, parts);
    const double hours = r->clips ? simulate_sample_hours(r) : r->gpu_hours;
    simulate_rooms(&r->memory, rooms);
    for (int i = 0; i < n_parts; i++) {
        time[i] = (tess_cost_part){parts[i].name, unit * parts[i].seconds};
        money[i] =
            (tess_cost_part){parts[i].name, parts[i].seconds / r->step_s * hours * steps * cost};
    }
    for (int i = 0; i < SIMULATE_ROOMS; i++)
        memory[i] = (tess_cost_part){rooms[i].name, rooms[i].bytes / SIMULATE_GIB};
    for (; n < SHOWN && n < all->n; n++)
        inputs[n] = (tess_cost_input){all->items[n].name, all->items[n].less, all->items[n].more};
    const char *const one = r->clips ? "clip" : "step";
    char names[3][32];
    snprintf(names[0], sizeof names[0], "%s, %s", one, r->clips ? "s" : "ms");
    snprintf(names[1], sizeof names[1], "GPU-hours of a %s", one);
    snprintf(names[2], sizeof names[2], "cost of a %s", one);
    tess_cost_part tiles[] = {
        {names[0], unit * r->step_s},
        {r->clips ? "clips an hour" : "tokens/s",
         r->clips ? (double)r->clips * 3600 / r->step_s : r->tokens_per_s},
        {"MFU, %", 100 * r->mfu},
        {"GiB of a GPU", r->memory.peak / SIMULATE_GIB},
        {whole ? "hours of the run" : names[1], whole ? steps * r->step_s / 3600 : hours},
        {whole ? "cost of the run" : names[2], steps * hours * cost},
        {"goodput, %", 100 * j->goodput.goodput}};
    int n_tiles = priced ? 6 : 5;
    if (j->given->failures)
        tiles[n_tiles++] = tiles[6];
    snprintf(title, sizeof title, "Cost of a %s: %.80s", one, j->given->scenario);
    snprintf(subtitle, sizeof subtitle, "%d GPUs of %.64s: tp %d, pp %d, cp %d, ep %d, dp %d; %s",
             l->gpus, r->scenario.system.cluster, l->tp, l->pp, l->cp, l->ep, l->dp,
             fits[j->interval.fits]);
    char *const line = out_command(j->c);
    const tess_status status = tess_cost_report_write(
        j->c->ctx,
        &(tess_cost_report_opts){.title = title,
                                 .subtitle = subtitle,
                                 .command = line,
                                 .tiles = tiles,
                                 .n_tiles = n_tiles,
                                 .time = time,
                                 .n_time = n_parts,
                                 .time_low = i80->known ? unit * i80->step_low_s : 0,
                                 .time_high = i80->known ? unit * i80->step_high_s : 0,
                                 .clip = r->clips > 0,
                                 .memory_low = i80->known ? i80->peak_low / SIMULATE_GIB : 0,
                                 .memory_high = i80->known ? i80->peak_high / SIMULATE_GIB : 0,
                                 .memory = memory,
                                 .n_memory = SIMULATE_ROOMS,
                                 .capacity = r->memory.capacity / SIMULATE_GIB,
                                 .money = money,
                                 .n_money = priced ? n_parts : 0,
                                 .inputs = inputs,
                                 .n_inputs = n},
        j->given->html);
    free(line);
    return status;
}

tess_status simulate_page(simulate_job *j)
{
    levers all = {0};
    tess_status status = vary(j, &all);
    if (status == TESS_OK)
        status = write_page(j, &all);
    free(all.items);
    return status;
}
