/* SPDX-License-Identifier: Apache-2.0 */
/* work_lists.c - work from lists of key blocks in a file of two integer tensors.
 *
 *   counts    ([layers,] heads, query blocks)          key blocks of a query block
 *   indices   ([layers,] heads, query blocks, room)    their numbers, the first counts of a row
 *
 * as block-sparse kernels take them; the names of the tensors do not matter, for indices have one
 * dimension more. There are as many key blocks as tokens_k and unit say, else as query blocks. The
 * lists become masks, a byte for each pair of blocks while they are read.
 */
#include "work.h"

#include "file/file_internal.h"

#include <string.h>

static int is_integer(const tess_tensor *t)
{
    return t->dtype == TESS_DTYPE_I32 || t->dtype == TESS_DTYPE_I64;
}

static int64_t element(const tess_tensor *t, int64_t i)
{
    return t->dtype == TESS_DTYPE_I32 ? ((const int32_t *)t->data)[i]
                                      : ((const int64_t *)t->data)[i];
}

/* The two tensors by their ranks: shapes agree but for the last dimension of the indices. */
static tess_status find_lists(const char *name, tess_file *file, tess_tensor *counts,
                              tess_tensor *indices)
{
    tess_tensor t[2];
    for (int i = 0; i < 2; i++) {
        tess_tensor described;
        TESS_TRY(tess_file_describe(file, i, &described));
        TESS_TRY(tess_file_tensor(file, described.name, &t[i]));
    }
    const int more = t[1].rank > t[0].rank;
    *counts = t[!more];
    *indices = t[more];
    int same = indices->rank == counts->rank + 1 && (counts->rank == 2 || counts->rank == 3);
    for (int i = 0; same && i < counts->rank; i++)
        same = counts->shape[i] == indices->shape[i] && counts->shape[i] > 0;
    if (!same || !is_integer(counts) || !is_integer(indices))
        return tess__fail(TESS_EFORMAT,
                          "%s: two tensors must be counts, [layers,] heads, query blocks, and "
                          "indices, the same and a row of key blocks, both I32 or I64",
                          name);
    return TESS_OK;
}

/* A byte for each pair of blocks of the rows from `first` on. */
static tess_status fill(const char *name, const tess_tensor *counts, const tess_tensor *indices,
                        const tess_mask_set *m, int64_t first, uint8_t *mask)
{
    const int64_t rows = (int64_t)m->layers * m->heads * m->q_blocks;
    const int64_t room = indices->shape[indices->rank - 1];
    for (int64_t i = 0; i < rows; i++) {
        const int64_t n = element(counts, first + i), row = (first + i) % m->q_blocks;
        const int64_t head = (first + i) / m->q_blocks % m->heads;
        if (n < 0 || n > room)
            return tess__fail(TESS_EFORMAT,
                              "%s: head %lld, query block %lld: count is %lld, must be 0..%lld",
                              name, (long long)head, (long long)row, (long long)n, (long long)room);
        for (int64_t j = 0; j < n; j++) {
            const int64_t block = element(indices, (first + i) * room + j);
            if (block < 0 || block >= m->k_blocks)
                return tess__fail(TESS_EFORMAT,
                                  "%s: head %lld, query block %lld: key block is %lld, must be "
                                  "0..%d",
                                  name, (long long)head, (long long)row, (long long)block,
                                  m->k_blocks - 1);
            mask[i * m->k_blocks + block] = 1;
        }
    }
    return TESS_OK;
}

tess_status tess__work_read_lists(tess_ctx *ctx, const char *name, tess_file *file,
                                  const tess_mask_opts *o, tess_work **work)
{
    tess_tensor counts, indices;
    TESS_TRY(find_lists(name, file, &counts, &indices));
    const int64_t *s = counts.shape + counts.rank - 2, layers = counts.rank == 3 ? s[-1] : 1;
    const int64_t k_blocks = o->tokens_k && o->unit ? (o->tokens_k + o->unit - 1) / o->unit : s[1];
    if (layers > 65536 || s[0] > 65536 || s[1] > INT32_MAX || k_blocks > INT32_MAX)
        return tess__fail(TESS_EFORMAT, "%s: must have 1..65536 layers and heads", name);
    if (o->layer < 0 || o->layers < 0 || (int64_t)o->layer + TESS_MAX(o->layers, 1) > layers)
        return tess__fail(TESS_EINVAL, "%s: layers %d..%lld are asked for, it has 0..%lld", name,
                          o->layer, (long long)o->layer + TESS_MAX(o->layers, 1) - 1,
                          (long long)layers - 1);
    tess_mask_set m = {.layers = o->layers ? o->layers : (int)layers - o->layer,
                       .heads = (int)s[0],
                       .q_blocks = (int32_t)s[1],
                       .k_blocks = (int32_t)k_blocks,
                       .kind = TESS_MASK_BYTES,
                       .tokens_q = o->tokens_q ? o->tokens_q : s[1] * o->group,
                       .tokens_k = o->tokens_k ? o->tokens_k : k_blocks * o->unit,
                       .group = o->group,
                       .unit = o->unit};
    const size_t rows = (size_t)m.layers * (size_t)m.heads * (size_t)m.q_blocks;
    uint8_t *mask = tess__alloc_zero(ctx, tess__bytes(rows, (size_t)k_blocks));
    if (!mask)
        return TESS_ENOMEM;
    m.data = mask;
    tess_status status =
        fill(name, &counts, &indices, &m, (int64_t)o->layer * m.heads * m.q_blocks, mask);
    if (status == TESS_OK)
        status = tess_work_from_masks(ctx, &m, work);
    tess__free(ctx, mask);
    return status;
}
