/* SPDX-License-Identifier: Apache-2.0 */
/* simulate_sample.c - tessera simulate --sample: a clip instead of a training step.
 *
 *   GPU-hours of a clip = seconds x GPUs / clips made at the same time / 3600
 */
#include "cmd/cmd_simulate.h"

#include <math.h>

enum { USUAL_STEPS = 50 }; /* of Wan2.1 and HunyuanVideo */

tess_status simulate_sample_use(simulate_job *j)
{
    const simulate_values *v = j->given;
    tess_scenario *s = &j->s;
    if (v->sample && !s->sampling.steps) {
        s->sampling.steps = USUAL_STEPS;
        s->training.global_batch = 0; /* of a step; here each rank makes its clips */
        s->training.recompute = TESS_SIM_RECOMPUTE_NONE;
    }
    if (!s->sampling.steps)
        return TESS_OK;
    const char *const other = simulate_timeline_wanted(v) ? "an option of the timeline"
                              : v->schedule_out           ? "--schedule-out"
                              : v->search                 ? "--search"
                              : !isnan(v->steps)          ? "--steps"
                              : !isnan(v->tokens)         ? "--tokens"
                                                          : NULL;
    return other
               ? out_usage(j->c, "%s is given, which is of training: clips are sampled here", other)
               : TESS_OK;
}

double simulate_sample_hours(const tess_sim_result *r)
{
    return r->gpu_hours / (double)r->clips;
}

/* What the model does not say the cost of, or the scenario switches off. */
static int left_out(const tess_sim_result *r, const char *names[2])
{
    int n = 0;
    if (r->decode_s == 0)
        names[n++] = "autoencoder";
    if (r->encode_s == 0)
        names[n++] = "text encoder";
    return n;
}

void simulate_sample_print(const simulate_job *j)
{
    const tess_sim_result *r = &j->r;
    const tess_sim_sampling *p = &r->scenario.sampling;
    const char *names[2];
    const int n = left_out(r, names);
    FILE *f = j->c->out;
    fprintf(f, "denoising       %12d steps, %d passes one after the other\n", p->steps, r->passes);
    for (int i = 0; i < n; i++)
        fprintf(f, "%s%s%s", i ? ", " : "left out        ", names[i], i + 1 == n ? "\n" : "");
    fprintf(f, "throughput      %12.4g clips an hour\n", (double)r->clips * 3600 / r->step_s);
    fprintf(f, "utilisation     %12.1f %% MFU\n", 100 * r->mfu);
    fprintf(f, "GPU-seconds     %12.4g of a clip\n", 3600 * simulate_sample_hours(r));
    if (!isnan(j->given->price))
        fprintf(f, "cost            %12.4g of a clip (at %g per GPU-hour)\n",
                simulate_sample_hours(r) * j->given->price, j->given->price);
}

void simulate_sample_json(const simulate_job *j)
{
    cli *c = j->c;
    const tess_sim_result *r = &j->r;
    const tess_interval *i = &j->interval;
    const char *names[2];
    const int n = left_out(r, names);
    json_t *list = json_array();
    for (int k = 0; k < n; k++)
        out_append(c, list, out_text(names[k]));
    out_set(c, c->json, "clip_s", out_number(r->step_s));
    if (i->known) {
        out_set(c, c->json, "clip_s_low", out_number(i->step_low_s));
        out_set(c, c->json, "clip_s_high", out_number(i->step_high_s));
    }
    out_set(c, c->json, "clips", json_integer(r->clips));
    out_set(c, c->json, "denoising_steps", json_integer(r->scenario.sampling.steps));
    out_set(c, c->json, "passes", json_integer(r->passes));
    out_set(c, c->json, "gpu_seconds", out_number(3600 * simulate_sample_hours(r)));
    out_set(c, c->json, "left_out", list);
}
