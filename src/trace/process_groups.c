/* SPDX-License-Identifier: Apache-2.0 */
/* process_groups.c - process groups of a trace: lists of ranks, each stored once, and their names.
 *
 * A file gives the ranks of a process group as text ("[0, 1]", cut by "..." where it is long), as
 * first rank, stride and size, or in distributedInfo under the name of the process group.
 */
#include "activity_internal.h"

#include <string.h>

enum { RANKS_MAX = 1 << 20 };

/* The number of the process group with these ranks, made where it is new; -1 of no rank. */
static tess_status add_group(tess_activity *f, const int32_t *ranks, int n, int32_t *group)
{
    const size_t bytes = (size_t)n * sizeof *ranks;
    *group = -1;
    if (n == 0)
        return TESS_OK;
    for (int64_t i = 0; i < f->n_groups; i++)
        if (f->groups[i].n == n && memcmp(f->groups[i].ranks, ranks, bytes) == 0) {
            *group = (int32_t)i;
            return TESS_OK;
        }
    TESS_GROW(f->ctx, f->groups, f->n_groups, f->n_groups + 1, f->room_groups);
    int32_t *copy = TESS_TAKE(&f->arena, bytes);
    memcpy(copy, ranks, bytes);
    f->groups[f->n_groups] = (tess__ranks_list){.ranks = copy, .n = n};
    *group = (int32_t)f->n_groups++;
    return TESS_OK;
}

/* The ranks of a text like "[0, 1, 17]"; -1 if it is none. */
static int read_ranks(tess__json_slice text, int32_t *ranks, int room)
{
    if (text.length == 0)
        return 0;
    const char *p = text.text, *end = p + text.length;
    int n = 0;
    while (p < end) {
        if (*p >= '0' && *p <= '9') {
            int64_t rank = 0;
            for (; p < end && *p >= '0' && *p <= '9'; p++)
                rank = TESS_MIN(rank * 10 + (*p - '0'), (int64_t)RANKS_MAX);
            if (rank == RANKS_MAX || n == room)
                return -1;
            ranks[n++] = (int32_t)rank;
        } else if (strchr("[], \"\t\r\n", *p) && *p) {
            p++;
        } else {
            return -1; /* "..." above all */
        }
    }
    return n;
}

tess_status tess__group_text(tess_activity *f, tess__json_slice text, int32_t *group)
{
    int32_t few[512];
    *group = -1;
    const int room = (int)TESS_MIN(text.length, (size_t)RANKS_MAX) / 2 + 1;
    if (room <= 512) {
        const int n = read_ranks(text, few, 512);
        return n > 0 ? add_group(f, few, n, group) : TESS_OK;
    }
    int32_t *many = TESS_ALLOC(f->ctx, (size_t)room * sizeof *many);
    const int n = read_ranks(text, many, room);
    const tess_status status = n > 0 ? add_group(f, many, n, group) : TESS_OK;
    tess__free(f->ctx, many);
    return status;
}

tess_status tess__group_stride(tess_activity *f, int64_t first, int64_t stride, int64_t n,
                               int32_t *group)
{
    *group = -1;
    if (first < 0 || n < 1 || n > RANKS_MAX || stride < (n > 1) || stride > RANKS_MAX ||
        first + (n - 1) * stride >= RANKS_MAX)
        return TESS_OK;
    int32_t *ranks = TESS_ALLOC(f->ctx, (size_t)n * sizeof *ranks);
    for (int64_t i = 0; i < n; i++)
        ranks[i] = (int32_t)(first + i * stride);
    const tess_status status = add_group(f, ranks, (int)n, group);
    tess__free(f->ctx, ranks);
    return status;
}

tess_status tess__group_label_add(tess_activity *f, tess__json_slice name, int32_t group,
                                  int32_t *label)
{
    int64_t i = 0;
    while (i < f->n_labels && !(f->labels[i].bytes == name.length &&
                                memcmp(f->labels[i].raw, name.text, name.length) == 0))
        i++;
    if (i == f->n_labels) {
        TESS_GROW(f->ctx, f->labels, i, i + 1, f->room_labels);
        const char *raw = TESS_TAKE_STRING(&f->arena, name.text, name.length);
        f->labels[f->n_labels++] = (tess__group_label){raw, name.length, -1};
    }
    if (group >= 0)
        f->labels[i].group = group;
    *label = (int32_t)i;
    return TESS_OK;
}
