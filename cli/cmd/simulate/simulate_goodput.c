/* SPDX-License-Identifier: Apache-2.0 */
/* simulate_goodput.c - tessera simulate --failures: interruptions, checkpoints, what they cost. */
#include "cmd/cmd_simulate.h"

#include <math.h>

tess_status simulate_goodput_usage(cli *c, const simulate_values *v)
{
    const char *const given = !isnan(v->mtbf)      ? "mtbf"
                              : !isnan(v->write)   ? "write"
                              : !isnan(v->restart) ? "restart"
                              : !isnan(v->every)   ? "every"
                                                   : NULL;
    if (given && !v->failures)
        return out_usage(c, "--%s is given, but no --failures", given);
    if (v->failures && v->search)
        return out_usage(c, "--failures is given, which --search does not take");
    return TESS_OK;
}

static double or_0(double value)
{
    return isnan(value) ? 0 : value;
}

tess_status simulate_goodput(simulate_job *j)
{
    const simulate_values *v = j->given;
    j->goodput.goodput = 1;
    if (!v->failures)
        return TESS_OK;
    if (j->r.clips)
        return out_usage(j->c, "--failures is given, which is of training: clips are sampled here");
    const tess_goodput_opts opts = {.gpus = j->r.scenario.layout.gpus,
                                    .parameters = j->r.parameters,
                                    .mtbf_hours = or_0(v->mtbf),
                                    .write_s = or_0(v->write),
                                    .restart_s = or_0(v->restart),
                                    .interval_s = or_0(v->every)};
    return tess_goodput(&opts, &j->goodput);
}

void simulate_goodput_print(const simulate_job *j)
{
    const tess_goodput_result *g = &j->goodput;
    FILE *f = j->c->out;
    if (!j->given->failures)
        return;
    fprintf(f, "goodput         %12.2f %% of the time trains steps that stay\n", 100 * g->goodput);
    fprintf(f, "  failures        %10.4g hours between two of the job (a GPU: %.6g)\n",
            g->failure_hours, g->mtbf_hours);
    fprintf(f, "  checkpoints     %10.4g s each, one every %.5g s; best: every %.5g s\n",
            g->write_s, g->interval_s, g->best_s);
    fprintf(f,
            "  lost            %10.2f %% to checkpoints, %.2f %% to restarts of %.4g s, %.2f %% "
            "to steps done again\n",
            100 * g->written, 100 * g->restarted, g->restart_s, 100 * g->repeated);
}

void simulate_goodput_json(const simulate_job *j)
{
    cli *c = j->c;
    const tess_goodput_result *g = &j->goodput;
    if (!j->given->failures)
        return;
    json_t *one = json_object();
    out_set(c, one, "goodput", out_number(g->goodput));
    out_set(c, one, "failure_hours", out_number(g->failure_hours));
    out_set(c, one, "mtbf_hours", out_number(g->mtbf_hours));
    out_set(c, one, "checkpoint_s", out_number(g->write_s));
    out_set(c, one, "interval_s", out_number(g->interval_s));
    out_set(c, one, "best_interval_s", out_number(g->best_s));
    out_set(c, one, "restart_s", out_number(g->restart_s));
    out_set(c, one, "lost_to_checkpoints", out_number(g->written));
    out_set(c, one, "lost_to_restarts", out_number(g->restarted));
    out_set(c, one, "lost_to_repeated_steps", out_number(g->repeated));
    out_set(c, c->json, "goodput", one);
}
