/* SPDX-License-Identifier: Apache-2.0 */
/* judge_mistakes.h - the table of usual mistakes, for the search among them. */
#ifndef TESS_JUDGE_MISTAKES_H
#define TESS_JUDGE_MISTAKES_H

#include "judge.h"

/* What a mistake changes: the computation, or the way a tensor is read. */
typedef struct {
    judge_variant variant; /* in: what it is made on top of */
    judge_reading reading;
    unsigned outputs; /* those it can explain */
    char text[JUDGE_TEXT_MAX / 2 - 8];
} judge_try;

/* Memory of the mistakes: tensors and selections that differ. */
typedef struct {
    judge_keys dense, transposed, changed;
    void *made[2]; /* of the transposed selection */
    int has_transposed, is_padding;
    double *k, *v; /* of the size of k */
} judge_scratch;

tess_status judge_scratch_make(const judge *j, judge_scratch *s);
void judge_scratch_free(judge_scratch *s);

judge_variant judge_right(const judge *j);

/* Mistake number index: 1; 0: it is none here; -1: beyond the last. stacked: those alone that may
 * come on top of another one, which t->variant has. */
int judge_mistake(const judge *j, judge_scratch *s, int index, int stacked, judge_try *t);

#endif
