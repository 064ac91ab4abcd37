/* SPDX-License-Identifier: Apache-2.0 */
/* schedule_use.c - a pipeline schedule from a file in tess_sim_run, which allocates nothing.
 *
 * tess_sim_use_schedule reserves what the replay of the schedule needs; a run fills the times of
 * its virtual stages and replays it: O(actions).
 */
#include "events_internal.h"

#include <math.h>

/* Reserved with a schedule. */
typedef struct {
    int64_t *times; /* forward, input, weight of each virtual stage */
    int *in_flight; /* of each rank */
    void *memory;
} file_replay;

tess_status tess_sim_use_schedule(tess_sim *sim, const tess_schedule *schedule)
{
    TESS_REQUIRE(sim);
    char *block = NULL;
    if (schedule) {
        const size_t times = 3 * (size_t)schedule->stages * sizeof(int64_t);
        const size_t replay = (tess__schedule_replay_bytes(schedule) + 7) / 8 * 8;
        block = TESS_ALLOC(sim->ctx, sizeof(file_replay) + times + replay +
                                         (size_t)schedule->ranks * sizeof(int));
        file_replay *r = (file_replay *)(void *)block;
        r->times = (int64_t *)(void *)(block + sizeof *r);
        r->memory = block + sizeof *r + times;
        r->in_flight = (int *)(void *)(block + sizeof *r + times + replay);
        tess__schedule_in_flight(schedule, r->in_flight);
    }
    tess__free(sim->ctx, sim->replay);
    sim->replay = block;
    sim->schedule = schedule;
    return TESS_OK;
}

tess_status tess__file_check(const tess_sim *sim)
{
    const tess_sim_layout *l = &sim->s.layout;
    const tess_schedule *s = sim->schedule;
    if (l->schedule != TESS_SIM_SCHEDULE_FILE)
        return TESS_OK;
    if (!s)
        return tess__fail(TESS_EINVAL,
                          "scenario: layout.schedule is the file \"%.100s\", which was not given "
                          "to tess_sim_use_schedule",
                          l->schedule_file);
    const struct {
        const char *what, *name;
        int64_t has, needs;
    } sizes[] = {{"ranks", "layout.pp", s->ranks, l->pp},
                 {"stages", "layout.pp x layout.vpp", s->stages, (int64_t)l->pp * l->vpp},
                 {"micro-batches", "global_batch / (dp x micro_batch)", s->batches,
                  sim->s.training.global_batch / ((int64_t)l->dp * sim->s.training.micro_batch)}};
    for (int i = 0; i < 3; i++)
        if (sizes[i].has != sizes[i].needs)
            return tess__fail(TESS_EINVAL, "scenario: %.100s has %lld %s, but %s is %lld",
                              l->schedule_file, (long long)sizes[i].has, sizes[i].what,
                              sizes[i].name, (long long)sizes[i].needs);
    return TESS_OK;
}

void tess__chunk_counts(const tess_sim *sim, const tess_schedule *s, int k, int counts[TESS__PARTS])
{
    const int rank = s->rank_of[k], more = k == s->stages - 1 ? sim->s.model.predict_layers : 0;
    int chunks = 0, chunk = 0;
    for (int i = 0; i < s->stages; i++) {
        chunk += s->rank_of[i] == rank && i < k;
        chunks += s->rank_of[i] == rank;
    }
    const int dense = sim->layers[rank], all = dense + sim->later[rank];
    const int first = all / chunks * chunk + TESS_MIN(chunk, all % chunks);
    const int n = all / chunks + (chunk < all % chunks);
    counts[TESS__LAYER] = TESS_MAX(0, TESS_MIN(dense - first, n));
    counts[TESS__LATER] = n - counts[TESS__LAYER];
    counts[sim->s.model.experts ? TESS__LATER : TESS__LAYER] += more;
    counts[TESS__EMBED] = k == 0;
    counts[TESS__HEAD] = k == s->stages - 1 ? 1 + more : 0;
    counts[TESS__WHOLE] = 0;
}

/* As tess_schedule_replay counts: passes of chunks, of which all make one of the rank's layers. */
double tess__file_in_flight(const tess_sim *sim, int stage)
{
    const file_replay *r = sim->replay;
    return fmin((double)sim->batches, (double)r->in_flight[stage] / sim->s.layout.vpp);
}

double tess__file_passes(const tess_sim *sim, int blocking)
{
    const tess_schedule *s = sim->schedule;
    const file_replay *r = sim->replay;
    const double host = sim->era[TESS__ERA_HOST_BATCH_MS] * 1e-3 / sim->s.layout.vpp;
    int64_t *const forward = r->times, *const input = forward + s->stages,
                   *const weight = input + s->stages, length = 0;
    for (int k = 0; k < s->stages; k++) {
        int counts[TESS__PARTS];
        double sums[3] = {host, 0.0, 0.0};
        tess__chunk_counts(sim, s, k, counts);
        for (int part = 0; part < TESS__PARTS; part++) {
            const double *pass = sim->parts[part].pass;
            sums[0] += counts[part] * pass[TESS__FORWARD];
            sums[1] += counts[part] * (pass[TESS__BACKWARD] + pass[TESS__AGAIN]);
            sums[2] += counts[part] * pass[TESS__WEIGHT];
        }
        if (blocking && k + 1 < s->stages && s->rank_of[k] != s->rank_of[k + 1])
            sums[0] += sim->hop;
        if (blocking && k > 0 && s->rank_of[k] != s->rank_of[k - 1])
            sums[1] += sim->hop;
        forward[k] = llround(1e9 * sums[0]);
        input[k] = llround(1e9 * sums[1]);
        weight[k] = llround(1e9 * sums[2]);
    }
    const tess_schedule_times times = {forward, input, weight,
                                       blocking ? 0 : llround(1e9 * sim->hop)};
    /* A schedule that was loaded has no deadlock. */
    if (tess__schedule_run_in(s, &times, r->memory, NULL, NULL, &length) != TESS_OK)
        return 0.0;
    return 1e-9 * (double)length;
}
