/* SPDX-License-Identifier: Apache-2.0 */
/* dist_selective.h - layers in which only selected keys travel: what their files share.
 *
 *   dist_selective.c   planning, forward and backward
 *   dist_ask.c         which rows of keys ranks ask each other for, and those rows on their way
 */
#ifndef TESS_DIST_SELECTIVE_H
#define TESS_DIST_SELECTIVE_H

#include "dist_tile.h"

/* Heads that some rank has shares of, as `item` counts: first[rank] + its number among them. */
typedef struct {
    int64_t *first; /* (ranks + 1) */
    int32_t *heads; /* (first[ranks]): ascending for each rank */
    int64_t n_mine; /* of this rank */
    /* Units with rows at home on each rank. */
    int64_t *unit_begin, *unit_end; /* (ranks) */
    int64_t words, home_words;      /* of a set of all units, of those with rows here */
    tess__road low;
    int64_t message_out, message_in; /* bytes of what this rank asks, and is asked, at most */
} tess__selective;

/* What the ranks ask of each other, in set->own. A set of units for each sample and head. */
typedef struct {
    uint64_t *mine;   /* (batch, n_mine, words): what this rank needs */
    uint64_t *theirs; /* (batch, first[ranks], home_words): what others need of the rows here, units
                         counted from unit_begin */
    int64_t *places;  /* (batch * n_mine + 1): rows of keys before those of a sample and head */
} tess__asked;

size_t tess__asked_bytes(const tess_dist_attn *d, const tess__selective *x);
tess__asked tess__asked_of(const tess_dist_attn *d, const tess__selective *x, uint8_t *own);

/* Bytes of scratch that tess__ask takes. */
int64_t tess__ask_scratch(const tess_dist_attn *d, const tess__selective *x);

/* Asks every owner for the units of a->mine, and finds what is asked of this rank; all ranks agree
 * on failures, run->mine among them. Afterwards places are known, set->keys has room for the rows,
 * and d->send and d->recv for the messages, both ways. */
tess_status tess__ask(tess_dist_attn *d, tess__dist_run *run, const tess__selective *x,
                      const tess__asked *a);

/* K and V of the units asked for, from run->k and run->v to set->keys: (2, places, head_dim). */
tess_status tess__keys_come(tess_dist_attn *d, tess__dist_run *run, const tess__selective *x,
                            const tess__asked *a);

/* Their gradients, (2, places, head_dim), back to run->home_dk and run->home_dv. */
tess_status tess__keys_return(tess_dist_attn *d, tess__dist_run *run, const tess__selective *x,
                              const tess__asked *a, float *gradients);

#endif
