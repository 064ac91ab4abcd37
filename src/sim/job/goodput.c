/* SPDX-License-Identifier: Apache-2.0 */
/* goodput.c - failures and checkpoints: the fraction of time that trains (formula in the header).
 *
 * What is lost is divided by its cause: checkpoints take write / t of the training's time, and
 * an interruption, of which there is one every M, its restart; the rest is work done again.
 */
#include "tessera/advanced/goodput.h"
#include "base/base_internal.h"

#include <math.h>

/* Daly's interval of training between checkpoints; where a checkpoint takes as long as the job
 * lives, it is the life itself. */
static double best_interval(double write, double mean)
{
    if (write >= 2.0 * mean)
        return mean;
    const double x = sqrt(write / (2.0 * mean));
    return sqrt(2.0 * write * mean) * (1.0 + x / 3.0 + x * x / 9.0) - write;
}

static double share(double interval, double write, double restart, double mean)
{
    return interval / (mean * exp(restart / mean) * expm1((interval + write) / mean));
}

tess_status tess_goodput(const tess_goodput_opts *opts, tess_goodput_result *result)
{
    TESS_REQUIRE(opts, result);
    tess_goodput_opts o = *opts;
    TESS_TRY(tess__check_range(__func__, "gpus", o.gpus, 1, 1 << 24));
    TESS_TRY(tess__check_number_or_0(__func__, "mtbf_hours", o.mtbf_hours, 1e-3, 1e12));
    TESS_TRY(tess__check_number_or_0(__func__, "write_s", o.write_s, 1e-6, 1e7));
    TESS_TRY(tess__check_number_or_0(__func__, "restart_s", o.restart_s, 1e-6, 1e7));
    TESS_TRY(tess__check_number_or_0(__func__, "interval_s", o.interval_s, 1e-3, 1e9));
    if (o.mtbf_hours == 0.0)
        o.mtbf_hours = TESS_GOODPUT_MTBF_HOURS;
    if (o.restart_s == 0.0)
        o.restart_s = TESS_GOODPUT_RESTART_S;
    if (o.write_s == 0.0) {
        TESS_TRY(tess__check_number(__func__, "parameters", o.parameters, 1, 1e18));
        o.write_s = o.parameters * TESS_GOODPUT_STATE_BYTES / (o.gpus * TESS_GOODPUT_WRITE_RATE);
    }
    const double mean = 3600.0 * o.mtbf_hours / o.gpus;
    tess_goodput_result r = {.best_s = best_interval(o.write_s, mean),
                             .write_s = o.write_s,
                             .restart_s = o.restart_s,
                             .mtbf_hours = o.mtbf_hours,
                             .failure_hours = mean / 3600.0};
    r.interval_s = o.interval_s > 0.0 ? o.interval_s : r.best_s;
    r.goodput = share(r.interval_s, o.write_s, o.restart_s, mean);
    r.written = r.goodput * o.write_s / r.interval_s;
    r.restarted = fmin(o.restart_s / mean, 1.0 - r.goodput - r.written);
    r.repeated = 1.0 - r.goodput - r.written - r.restarted;
    *result = r;
    return TESS_OK;
}
