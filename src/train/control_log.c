/* SPDX-License-Identifier: Apache-2.0 */
/* control_log.c - events.jsonl and density.csv of a run's folder.
 *
 * density.csv is a density profile: after each profile a line for every layer and head, with the
 * head's mean over the noise-level quartiles as it is known by then, in the cubes that were chosen
 * or would be.
 */
#include "dsv/control.h"
#include "plan/work.h"
#include "train_internal.h"

#include <math.h>
#include <string.h>

static const char events_file[] = "events.jsonl", density_file[] = "density.csv";

tess_status tess__events_write(void *train, const tess__event *event)
{
    const tess_train *t = train;
    char text[TESS__EVENT_BYTES], path[PATH_MAX];
    tess_status status = TESS_OK;
    if (t->pg.rank > 0 || t->divergence.again)
        return TESS_OK; /* all ranks decide the same: rank 0 writes it */
    if (t->opts.folder) {
        tess__event_json(event, text);
        status = tess__path(path, t->opts.folder, events_file);
        if (status == TESS_OK)
            status = tess__lines_add(path, text, strlen(text));
    }
    tess__event_text(event, text);
    if (t->opts.event)
        t->opts.event(t->opts.event_user, text);
    else
        tess__log(t->ctx, TESS_LOG_INFO, "%s", text);
    return status;
}

tess_status tess__density_add(const tess_train *t)
{
    const tess__control *c = t->control;
    char path[PATH_MAX], line[TESS_PROFILE_LINE];
    const int cube = tess__best_cube(&c->state);
    if (!c->profiled || !t->opts.folder || t->pg.rank > 0 || t->divergence.again)
        return TESS_OK;
    TESS_TRY(tess__path(path, t->opts.folder, density_file));
    for (int layer = 0; layer < c->config.layers; layer++)
        for (int head = 0; head < c->config.heads; head++) {
            const double density = tess__head_density(&c->state, cube, layer, head);
            const size_t n =
                tess__profile_line(line, c->step, layer, head, isnan(density) ? 1.0 : density);
            TESS_TRY(tess__lines_add(path, line, n));
        }
    return TESS_OK;
}

tess_status tess__events_open(const tess_train *t)
{
    char path[PATH_MAX];
    TESS_TRY(tess__path(path, t->opts.folder, events_file));
    TESS_TRY(tess__lines_cut(t->ctx, path, "", t->step));
    TESS_TRY(tess__path(path, t->opts.folder, density_file));
    return tess__lines_cut(t->ctx, path, TESS_PROFILE_HEAD, t->step);
}
