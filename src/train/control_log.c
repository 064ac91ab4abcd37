/* SPDX-License-Identifier: Apache-2.0 */
/* control_log.c - events.jsonl and density.csv of a run's folder.
 *
 * density.csv is a density profile: after each profile a line for every layer and head, with the
 * head's mean over the quarters of the noise as it is known by then, in the cubes that were chosen
 * or would be.
 */
#include "dsv/control.h"
#include "plan/work.h"
#include "train_internal.h"

#include <math.h>
#include <string.h>

static const char events_file[] = "events.jsonl", density_file[] = "density.csv";

void tess__control_tell(void *user, const tess__event *event)
{
    tess__control *c = user;
    char text[TESS__EVENT_BYTES], path[PATH_MAX];
    tess_status status = TESS_OK;
    if (c->opts.pg && c->opts.pg->rank > 0)
        return; /* rank 0 tells it */
    if (c->opts.folder) {
        tess__event_json(event, text);
        status = tess__path(path, c->opts.folder, events_file);
        if (status == TESS_OK)
            status = tess__lines_add(path, text, strlen(text));
    }
    c->told = c->told == TESS_OK ? status : c->told;
    tess__event_text(event, text);
    if (c->opts.event)
        c->opts.event(c->opts.event_user, text);
    else
        tess__log(c->ctx, TESS_LOG_INFO, "%s", text);
}

tess_status tess__control_density(const tess__control *c)
{
    char path[PATH_MAX], line[TESS_PROFILE_LINE];
    const int cube = tess__best_cube(&c->state);
    if (!c->opts.folder)
        return TESS_OK;
    TESS_TRY(tess__path(path, c->opts.folder, density_file));
    for (int layer = 0; layer < c->config.layers; layer++)
        for (int head = 0; head < c->config.heads; head++) {
            const double density = tess__head_density(&c->state, cube, layer, head);
            const size_t n =
                tess__profile_line(line, c->step, layer, head, isnan(density) ? 1.0 : density);
            TESS_TRY(tess__lines_add(path, line, n));
        }
    return TESS_OK;
}

tess_status tess__control_open(tess__control *c, int64_t step)
{
    char path[PATH_MAX];
    if (!c->opts.folder)
        return TESS_OK;
    TESS_TRY(tess__path(path, c->opts.folder, events_file));
    TESS_TRY(tess__lines_cut(c->ctx, path, "", step));
    TESS_TRY(tess__path(path, c->opts.folder, density_file));
    return tess__lines_cut(c->ctx, path, TESS_PROFILE_HEAD, step);
}
