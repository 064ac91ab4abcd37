/* SPDX-License-Identifier: Apache-2.0 */
/* last_good.c - the last good state of a run that diverges.
 *
 * A loss is that of the weights before the update. So a loss that diverges shows that the weights
 * of the step before are lost already, and a checkpoint of them would diverge again. The last good
 * state is the newest one whose loss was not above the running mean of the loss: while a loss
 * rises, over one step or many, every loss is above the mean. Of validations, which diverge where
 * the average of the weights does, it is the newest state that was validated.
 *
 * A copy of that state would cost memory. A run has the same bits again, so the newest checkpoint
 * before it is read and the steps from there are run again: time only, and only where a run
 * diverges. Until the first checkpoint, the state at the start is kept in the hidden folder
 * checkpoints/.step-start.
 */
#include "train_internal.h"

#include <math.h>
#include <unistd.h>

static const char start_name[] = "checkpoints/.step-start";
enum { BASE_NONE = -2, BASE_START = -1 }; /* else a step */

/* ---- which states are good ------------------------------------------------------------------- */

/* Whether a loss is so far above what the run had reached that the run is lost. */
static int is_lost(const tess_train *t, double loss)
{
    const double above = t->opts.diverge_above;
    return above > 0 && !t->divergence.again && (isnan(loss) || loss > above * t->loss_level);
}

static void note(tess_train *t, const char *what, int64_t step, double loss)
{
    t->divergence.what = what;
    t->divergence.step = step;
    t->divergence.loss = loss;
}

void tess__good_loss(tess_train *t, double loss)
{
    if (is_lost(t, loss))
        note(t, "the loss", t->step + 1, loss);
    else if (isnan(t->loss_mean) || loss <= t->loss_mean)
        t->divergence.good = t->step;
}

void tess__good_validation(tess_train *t)
{
    tess__divergence *d = &t->divergence;
    if (is_lost(t, t->val_loss)) {
        note(t, "the validation loss", t->step, t->val_loss);
        d->good = TESS_MIN(d->good, d->validated);
    } else {
        d->validated = t->step;
    }
}

/* ---- where the way back begins --------------------------------------------------------------- */

tess_status tess__good_begin(tess_train *t)
{
    char path[PATH_MAX];
    if (!t->opts.folder || t->opts.diverge_above <= 0)
        return TESS_OK;
    TESS_TRY(tess__path(path, t->opts.folder, start_name));
    if (t->pg.rank == 0)
        tess__remove_folder(path);
    return tess__checkpoint_write(t, path);
}

void tess__good_end(const tess_train *t)
{
    char path[PATH_MAX];
    if (t->pg.rank == 0 && t->opts.folder &&
        tess__path(path, t->opts.folder, start_name) == TESS_OK)
        tess__remove_folder(path);
}

/* What rank 0 finds in the folder. */
static tess_status find_base(const tess_train *t, int64_t step, int64_t *base)
{
    char path[PATH_MAX];
    *base = BASE_NONE;
    if (t->pg.rank == 0) {
        TESS_TRY(tess__path(path, t->opts.folder, start_name));
        *base = tess__run_newest(t, step);
        if (*base < 0 && access(path, F_OK) == 0)
            *base = BASE_START;
        else if (*base < 0)
            *base = BASE_NONE;
    }
    return tess__pg_many(&t->pg) ? tess_comm_allreduce(t->pg.world, TESS_TRAFFIC_CONTROL, base, 1,
                                                       TESS_DTYPE_I64, TESS_REDUCE_MAX)
                                 : TESS_OK;
}

/* What takes the time until the run ends. */
static void report_steps(const tess_train *t, int64_t step)
{
    char text[160];
    if (t->pg.rank > 0 || t->step >= step)
        return;
    snprintf(text, sizeof text,
             "the run diverges: steps %lld to %lld are run again, for a checkpoint of the last "
             "good state",
             (long long)t->step + 1, (long long)step);
    if (t->opts.event)
        t->opts.event(t->opts.event_user, text);
    else
        tess__log(t->ctx, TESS_LOG_INFO, "%s", text);
}

tess_status tess__good_return(tess_train *t, int64_t step, int *found)
{
    char path[PATH_MAX];
    int64_t base;
    TESS_TRY(find_base(t, step, &base));
    *found = base != BASE_NONE;
    if (!*found)
        return TESS_OK;
    TESS_TRY(base == BASE_START ? tess__path(path, t->opts.folder, start_name)
                                : tess__run_path(t, base, path));
    TESS_TRY(tess__checkpoint_load(t, path, 0));
    t->saved = base == BASE_START ? -1 : base;
    snprintf(t->checkpoint, sizeof t->checkpoint, "%s", base == BASE_START ? "" : path);
    report_steps(t, step);
    return TESS_OK;
}
