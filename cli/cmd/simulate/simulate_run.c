/* SPDX-License-Identifier: Apache-2.0 */
/* simulate_run.c - the whole run of --steps, --tokens or a job: hours, GPU-hours, cost.
 *
 *   steps     = ceil(tokens / (global_batch x seq))
 *   hours     = steps x step / 3600 / goodput of --failures
 *   GPU-hours = hours x GPUs
 */
#include "cmd/cmd_simulate.h"

#include <math.h>
#include <string.h>

static double step_tokens(const tess_scenario *full)
{
    return (double)full->training.global_batch * (double)full->model.seq;
}

/* A search over the tokens of a step has no one number of steps. */
static tess_status check_over(simulate_job *j)
{
    static const char *const keys[] = {"training.global_batch=", "model.seq="};
    const strings *over = &j->given->over;
    for (int i = 0; i < over->n; i++)
        for (int k = 0; k < 2; k++)
            if (strncmp(over->items[i], keys[k], strlen(keys[k])) == 0)
                return out_usage(j->c,
                                 "--tokens is given, but --over changes %.*s, and with it the "
                                 "tokens of a step; use --steps",
                                 (int)strlen(keys[k]) - 1, keys[k]);
    return TESS_OK;
}

tess_status simulate_steps(simulate_job *j)
{
    tess_scenario full;
    tess_job_info info = {.steps = 0};
    if (j->job)
        TRY(tess_job_query(j->job, &info));
    if (isnan(j->given->tokens)) {
        j->steps = isnan(j->given->steps) && info.steps >= 1 ? info.steps : j->given->steps;
        return TESS_OK;
    }
    TRY(check_over(j));
    TRY(tess_scenario_fill(&j->s, &full));
    j->steps = ceil(j->given->tokens / step_tokens(&full));
    return TESS_OK;
}

double simulate_run_scale(const simulate_job *j)
{
    return (isnan(j->steps) ? 1 : j->steps) / j->goodput.goodput;
}

static double run_hours(const simulate_job *j)
{
    return simulate_run_scale(j) * j->r.step_s / 3600;
}

static double gpu_hours(const simulate_job *j)
{
    return simulate_run_scale(j) * j->r.gpu_hours;
}

void simulate_run_print(const simulate_job *j)
{
    const tess_sim_result *r = &j->r;
    FILE *f = j->c->out;
    if (isnan(j->steps))
        return;
    fprintf(f, "run             %12.4g hours, %.6g GPU-hours", run_hours(j), gpu_hours(j));
    if (!isnan(j->given->price))
        fprintf(f, ", cost %.6g", gpu_hours(j) * j->given->price);
    fprintf(f, "; %.10g steps, %.4g tokens\n", j->steps, j->steps * step_tokens(&r->scenario));
}

void simulate_run_json(const simulate_job *j)
{
    cli *c = j->c;
    const tess_sim_result *r = &j->r;
    if (isnan(j->steps))
        return;
    json_t *run = json_object();
    out_set(c, run, "steps", out_number(j->steps));
    out_set(c, run, "tokens", out_number(j->steps * step_tokens(&r->scenario)));
    out_set(c, run, "hours", out_number(run_hours(j)));
    out_set(c, run, "gpu_hours", out_number(gpu_hours(j)));
    out_set(c, run, "price",
            isnan(j->given->price) ? json_null() : out_number(gpu_hours(j) * j->given->price));
    out_set(c, c->json, "run", run);
}
