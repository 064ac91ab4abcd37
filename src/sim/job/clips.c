/* SPDX-License-Identifier: Apache-2.0 */
/* clips.c - clips of several sizes in one step.
 *
 *   model.clips = "81x480x832:3+1x480x832:1"     frames x height x width : share
 *
 * A micro-batch has clips of one size, drawn with the shares. The operations of all sizes stand in
 * the list, each with its share of the micro-batches; sums of a part are means over sizes, what it
 * keeps is that of the largest. Data-parallel ranks draw apart from each other, and the one with
 * the longest clips is waited for. With ZeRO-3, which waits at every layer, that is for each
 * micro-batch the expected longest of dp draws, of sizes in the order of their times t_i,
 *
 *   sum of t_i (P(t <= t_i)^dp - P(t < t_i)^dp)
 *
 * and otherwise, of sums of m draws with relative deviation c, at most as if one rank drew nothing
 * but the longest,
 *
 *   passes x c z(dp) / sqrt(m)     z(n): the expected largest of n standard normal values
 */
#include "sim/fields.h"
#include "sim/sim_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

tess_status tess__clip_tokens(const tess_sim_model *m, const tess__clip *clip, const char *name,
                              int64_t *tokens)
{
    const int cell = m->stride_s * m->patch_s;
    const int64_t steps = ((clip->frames - 1) / m->stride_t + m->patch_t) / m->patch_t;
    if (clip->height % cell)
        return tess__fail(TESS_EINVAL, "scenario: %s is %d, must be a multiple of %d",
                          name ? name : "model.height", clip->height, cell);
    if (clip->width % cell)
        return tess__fail(TESS_EINVAL, "scenario: %s is %d, must be a multiple of %d",
                          name ? name : "model.width", clip->width, cell);
    *tokens = steps * (clip->height / cell) * (clip->width / cell) + (m->cross ? 0 : m->text);
    return TESS_OK;
}

/* A whole number of at least 1 at *at, which moves behind it; 0: there is none. */
static int read_count(const char **at)
{
    char *end;
    if (**at < '1' || **at > '9')
        return 0;
    const long value = strtol(*at, &end, 10);
    *at = end;
    return value <= 1000000 ? (int)value : 0;
}

static int read_clip(const char **at, tess__clip *clip)
{
    clip->frames = read_count(at);
    clip->height = *(*at)++ == 'x' ? read_count(at) : 0;
    clip->width = clip->height && *(*at)++ == 'x' ? read_count(at) : 0;
    clip->share = 1.0;
    if (clip->width && **at == ':') {
        (*at)++;
        clip->share = read_count(at);
    }
    return clip->frames && clip->width && clip->share > 0.0;
}

tess_status tess__clips_read(const tess_sim_model *m, tess__clip clips[TESS__CLIPS_MAX], int *n)
{
    const char *at = m->clips;
    double all = 0.0;
    *n = 0;
    while (*at) {
        if (*n == TESS__CLIPS_MAX)
            return tess__fail(TESS_EINVAL, "scenario: model.clips has more than %d sizes",
                              TESS__CLIPS_MAX);
        if (!read_clip(&at, &clips[*n]) || (*at && *at != '+') || (*at == '+' && !at[1]))
            return tess__fail(TESS_EINVAL,
                              "scenario: model.clips is \"%.60s\", must be sizes as 81x480x832:3 "
                              "with + between them",
                              m->clips);
        TESS_TRY(tess__clip_tokens(m, &clips[*n], "a size of model.clips", &clips[*n].tokens));
        all += clips[(*n)++].share;
        at += *at == '+';
    }
    for (int i = 0; i < *n; i++)
        clips[i].share /= all;
    return TESS_OK;
}

/* ---- the operations of all sizes ------------------------------------------------------------- */

static void add_part(tess__model_part *sum, const tess__model_part *p, double share)
{
    tess__model_part both = *p; /* parameters are the same for all sizes */
    for (int pass = 0; pass < TESS__PASSES; pass++) {
        both.pass[pass] = sum->pass[pass] + share * p->pass[pass];
        both.host[pass] = sum->host[pass] + share * p->host[pass];
        for (int c = 0; c < TESS__CLASSES; c++)
            both.of[c][pass] = sum->of[c][pass] + share * p->of[c][pass];
    }
    both.saved = fmax(sum->saved, p->saved);
    both.saved_input = fmax(sum->saved_input, p->saved_input);
    both.saved_dropped = fmax(sum->saved_dropped, p->saved_dropped);
    both.results = fmax(sum->results, p->results);
    both.working = fmax(sum->working, p->working);
    *sum = both;
}

/* Seconds of a micro-batch of this size, of the whole model. */
static double model_seconds(const tess_sim *sim)
{
    const int first = tess__first_kind(&sim->s.model);
    const double counts[TESS__PARTS] = {first, sim->s.model.layers - first, 1, 1, 0};
    double seconds = 0.0;
    for (int part = 0; part < TESS__PARTS; part++)
        for (int pass = 0; pass < TESS__PASSES; pass++)
            seconds += counts[part] * sim->parts[part].pass[pass];
    return seconds;
}

/* The expected longest of `draws` micro-batches. */
static double longest_of(const tess__clip *clips, const double *seconds, int n, int draws)
{
    double expected = 0.0;
    for (int i = 0; i < n; i++) {
        double below = 0.0; /* share of the sizes before this one, in the order of their times */
        for (int k = 0; k < n; k++)
            if (seconds[k] < seconds[i] || (seconds[k] == seconds[i] && k < i))
                below += clips[k].share;
        expected += seconds[i] * (pow(below + clips[i].share, draws) - pow(below, draws));
    }
    return expected;
}

void tess__build_clips(tess_sim *sim)
{
    tess__clip clips[TESS__CLIPS_MAX];
    tess__model_part sums[TESS__PARTS];
    const int64_t mean = sim->s.model.seq;
    double first = 0.0, second = 0.0, squares = 0.0, seconds[TESS__CLIPS_MAX];
    int n = 0;
    sim->n_ops = sim->clip_first = 0;
    sim->clip_share = 1.0;
    sim->clip_deviation = sim->clip_longest = sim->clip_drawn = 0.0;
    sim->attended = (double)mean;
    if (!sim->s.model.clips[0] || tess__clips_read(&sim->s.model, clips, &n) != TESS_OK) {
        tess__build_parts(sim);
        return;
    }
    memset(sums, 0, sizeof sums);
    for (int i = 0; i < n; i++) {
        sim->clip_first = sim->n_ops;
        sim->clip_share = clips[i].share;
        sim->s.model.seq = clips[i].tokens;
        tess__sim_derive(sim);
        tess__build_parts(sim);
        for (int part = 0; part < TESS__PARTS; part++)
            add_part(&sums[part], &sim->parts[part], clips[i].share);
        seconds[i] = model_seconds(sim);
        first += clips[i].share * seconds[i];
        second += clips[i].share * seconds[i] * seconds[i];
        sim->clip_longest = fmax(sim->clip_longest, seconds[i]);
        squares += clips[i].share * (double)clips[i].tokens * (double)clips[i].tokens;
    }
    memcpy(sim->parts, sums, sizeof sums);
    sim->s.model.seq = mean;
    sim->clip_share = 1.0;
    sim->clip_deviation = sqrt(fmax(second / (first * first) - 1.0, 0.0));
    sim->clip_longest = sim->clip_longest / first - 1.0;
    sim->clip_drawn = longest_of(clips, seconds, n, sim->s.layout.dp) / first - 1.0;
    sim->attended = squares / (double)mean;
    tess__sim_derive(sim);
}

double tess__clip_wait(tess_sim *sim, double passes)
{
    const double sums =
        fmin(sim->clip_deviation * tess__largest_of(sim->s.layout.dp) / sqrt((double)sim->batches),
             sim->clip_longest);
    const double wait = passes * (sim->s.layout.zero == 3 ? sim->clip_drawn : sums);
    sim->part = TESS__WHOLE;
    if (wait > 0.0)
        tess__add_wait(sim, "wait for longer clips", TESS__DP, wait);
    return wait;
}
