/* SPDX-License-Identifier: Apache-2.0 */
/* baseline.h - measurements against those of an earlier run. */
#ifndef TESS_BASELINE_H
#define TESS_BASELINE_H

#include "problem_time.h"

/* Reads what `tessera bench --json` printed earlier. EINVAL if it was another instruction set or
 * number of threads: then nothing can be compared. The caller owns the object. */
tess_status baseline_read(cli *c, const char *path, json_t **baseline);

/* The fraction of the peak that the baseline reached in a row, and the smallest one that its own
 * spread allows. Returns 0 if it did not measure that row. */
int baseline_find(const json_t *baseline, const report *r, const measured *row, double *share,
                  double *least);

#endif
