/* SPDX-License-Identifier: Apache-2.0 */
/* control_calibrate.c - estimated changes of the model's output, corrected by measured ones.
 *
 *   calibration *= sqrt(measured / (limit sparse)),  at most doubled or halved
 *
 * at each validation where heads are sparse; sparse: the fraction of pairs of head and noise-level
 * quartile that are, for each may cause an equal part of the limit. The root damps: densities
 * follow their running means. What the run was calibrated by is in its checkpoints.
 */
#include "control.h"

#include <math.h>

static const double most = 256.0; /* of the calibration, and 1 / most at least */

static double clamp(double x, double limit)
{
    return fmin(fmax(x, 1.0 / limit), limit);
}

static double sparse_share(const tess__control *c)
{
    const int64_t all = (int64_t)c->config.layers * TESS_NOISE_BUCKETS * c->config.heads;
    double sum = 0.0;
    for (int64_t i = 0; i < all; i++)
        sum += c->state.choice[i];
    return sum / (double)all;
}

int tess__control_calibrates(const tess__control *c)
{
    return c && c->attention.error > 0.0 && sparse_share(c) > 0.0;
}

tess_status tess__control_calibrate(tess__control *c, double measured)
{
    if (!c || !isfinite(measured))
        return TESS_OK;
    const double wanted = c->attention.error * sparse_share(c);
    c->state.calibration = clamp(c->state.calibration * clamp(sqrt(measured / wanted), 2.0), most);
    c->decision.next.calibration = c->state.calibration; /* the next step is decided already */
    return tess__control_write(c, &(tess__event){.kind = TESS__EVENT_ERROR,
                                                 .step = c->step + 1,
                                                 .layer = -1,
                                                 .head = -1,
                                                 .why = {{"output_change", measured},
                                                         {"error_limit", c->attention.error},
                                                         {"calibration", c->state.calibration}},
                                                 .n_why = 3});
}
