/* SPDX-License-Identifier: Apache-2.0 */
/* timeline_critical.c - the chain of operations that the length of a timeline is the sum of.
 *
 * Every operation begins at 0 or at the end of another one, its cause: the last thing it waited
 * for, or of a call the last thing that the last member waited for. So from the last end back there
 * is a chain without gaps, and the times of its operations add up to the whole.
 */
#include "timeline_internal.h"

#include <string.h>

void tess__timeline_critical(const tess_timeline *t, int64_t ns[TESS__CLASS_MAX])
{
    memset(ns, 0, TESS__CLASS_MAX * sizeof *ns);
    for (int32_t i = t->last_op; i >= 0; i = t->ops[i].cause)
        ns[t->ops[i].class] += t->ops[i].end - t->ops[i].begin;
}

tess_status tess__timeline_mark_critical(tess_timeline *t)
{
    t->critical = TESS_TAKE(&t->arena, (size_t)TESS_MAX(t->n, (int64_t)1));
    memset(t->critical, 0, (size_t)t->n);
    for (int32_t i = t->last_op; i >= 0; i = t->ops[i].cause)
        t->critical[i] = 1;
    return TESS_OK;
}
