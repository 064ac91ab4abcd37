/* SPDX-License-Identifier: Apache-2.0 */
/* compare_ranks.c - checks that all ranks train the same run.
 *
 * Ranks with different inputs would not crash: they would train a different model. So the inputs of
 * a run are hashed and compared with those of rank 0: the program, the instruction set, the
 * options, the data (shape and first clip), the weights; after a checkpoint was read, and when one
 * is written, also the step and the decisions.
 */
#include "train_internal.h"

#include <string.h>

static tess_status same_hash(tess_train *t, const char *what, uint64_t hash)
{
    return tess__pg_check_same(&t->pg, what, &hash, sizeof hash);
}

/* Uses the clip buffer of the first batch. */
static tess_status hash_data(const tess_train *t, uint64_t *hash)
{
    const tess_data_info *i = &t->info;
    const int64_t sizes[] = {i->channels, i->frames,   i->height, i->width,
                             i->text_len, i->text_dim, i->pack};
    uint64_t h = tess__hash(0, i->kind, strlen(i->kind));
    h = tess__hash(h, sizes, sizeof sizes);
    memset(t->clip, 0, (size_t)t->size * sizeof *t->clip); /* the sample may be a smaller one */
    TESS_TRY(tess_data_sample(t->data, TESS_SPLIT_TRAIN, 0, t->clip, t->text, NULL, 0));
    h = tess__hash(h, t->clip, (size_t)t->size * sizeof *t->clip);
    *hash = tess__hash(h, t->text, (size_t)t->text_size * sizeof *t->text);
    return TESS_OK;
}

static uint64_t hash_weights(const tess_train *t)
{
    return tess__hash(0, t->model->values, (size_t)t->model->params.count * sizeof(float));
}

tess_status tess__train_same(tess_train *t)
{
    if (!tess__pg_many(&t->pg))
        return TESS_OK;
    const int64_t place[] = {t->step, t->batches};
    TESS_TRY(same_hash(t, "step", tess__hash(0, place, sizeof place)));
    if (t->control)
        TESS_TRY(same_hash(t, "state of sparse attention", tess__control_hash(t->control)));
    return same_hash(t, "set of weights", hash_weights(t));
}

tess_status tess__train_same_start(tess_train *t)
{
    uint64_t data = 0;
    if (!tess__pg_many(&t->pg))
        return TESS_OK;
    TESS_TRY(
        tess__pg_check_same(&t->pg, "version of Tessera", tess_version(), strlen(tess_version())));
    TESS_TRY(tess__pg_check_same(&t->pg, "instruction set", t->ctx->isa, strlen(t->ctx->isa)));
    TESS_TRY(same_hash(t, "set of options", tess__train_options_hash(&t->opts)));
    TESS_TRY(tess__pg_agree(&t->pg, hash_data(t, &data)));
    TESS_TRY(same_hash(t, "set of data", data));
    return tess__train_same(t);
}
