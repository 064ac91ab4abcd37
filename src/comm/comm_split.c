/* SPDX-License-Identifier: Apache-2.0 */
/* comm_split.c - sub-communicators: by colour and key, or as rows and columns of a grid.
 *
 * All ranks all-gather their colour, key and node; each rank then knows the members of its
 * sub-communicator. A rank without memory reports it, and all ranks return the failure together.
 *
 * Cost of splitting n ranks: an all-gather of 24 bytes per rank, an agreement, and 8 n bytes of
 * scratch. Members are sorted by insertion, O(n) where keys ascend with ranks as in a grid, and the
 * node of a member is searched among the members before it: O(n^2) comparisons at worst, half a
 * million for 1024 ranks. Splitting happens once; a hash table would not pay.
 */
#include "comm_internal.h"

#include <assert.h>

typedef struct {
    int32_t color, key, node, missing;
    int64_t tag; /* a new one: the sub-communicator gets that of its first member */
} entry;

/* The members of this rank's colour in the order of their keys; equal keys in rank order. */
static int find_members(const entry *entries, int size, int color, int *order)
{
    int n = 0;
    for (int p = 0; p < size && color >= 0; p++) {
        if (entries[p].color != color)
            continue;
        int i = n++;
        for (; i > 0 && entries[order[i - 1]].key > entries[p].key; i--)
            order[i] = order[i - 1];
        order[i] = p;
    }
    return n;
}

/* The nodes of the members, numbered as they first appear, and that of member `rank`. */
static void count_nodes(const entry *entries, const int *order, int n, int rank, int *numbers,
                        int *nodes, int *node)
{
    *nodes = 0;
    for (int i = 0; i < n; i++) {
        int j = 0;
        while (j < i && entries[order[j]].node != entries[order[i]].node)
            j++;
        numbers[i] = j < i ? numbers[j] : (*nodes)++;
    }
    *node = n > 0 ? numbers[rank] : 0;
}

static tess_status make_subgroup(tess_comm *comm, const entry *entries, int color, int *order,
                                 int *numbers, tess_comm **sub)
{
    const int n = find_members(entries, comm->size, color, order);
    int rank = 0, first = comm->size, nodes = 1, node = 0;
    for (int i = 0; i < n; i++) {
        if (order[i] == comm->rank)
            rank = i;
        if (order[i] < first)
            first = order[i];
    }
    count_nodes(entries, order, n, rank, numbers, &nodes, &node);
    const tess_status status =
        comm->ops->subgroup(comm, order, n, rank, n > 0 ? entries[first].tag : 0, sub);
    if (status == TESS_OK && *sub) {
        (*sub)->nodes = nodes;
        (*sub)->node = node;
    }
    return status;
}

static tess_status split(tess_comm *comm, int color, int key, tess_comm **sub)
{
    int *order = tess__alloc(comm->ctx, 2 * (size_t)comm->size * sizeof *order);
    const entry own = {.color = color,
                       .key = key,
                       .node = comm->node,
                       .missing = !order,
                       .tag = comm->ops->new_tag(comm)};
    entry alone = own, *entries = comm->size > 1 ? (entry *)(void *)comm->scratch : &alone;
    tess_status status =
        tess__comm_allgather(comm, TESS_TRAFFIC_CONTROL, &own, sizeof own, entries);
    int missing = 0;
    for (int p = 0; p < comm->size && status == TESS_OK; p++)
        missing |= entries[p].missing;
    if (missing)
        status = tess__fail(TESS_ENOMEM, "a rank has no memory for a communicator");

    tess_comm *made = NULL;
    if (status == TESS_OK) {
        assert(order); /* or this rank would be one of the missing */
        status = tess_comm_agree(
            comm, make_subgroup(comm, entries, color, order, order + comm->size, &made));
    }
    tess__free(comm->ctx, order);
    if (status == TESS_OK)
        *sub = made;
    else
        tess_comm_destroy(made);
    return status;
}

tess_status tess_comm_split(tess_comm *comm, int color, int key, tess_comm **sub)
{
    TESS_REQUIRE(comm, sub);
    return comm->ops->split ? comm->ops->split(comm, color, key, sub)
                            : split(comm, color, key, sub);
}

tess_status tess_comm_grid(tess_comm *comm, int columns, tess_comm **row, tess_comm **column)
{
    TESS_REQUIRE(comm, row, column);
    if (columns < 1 || comm->size % columns != 0)
        return tess__invalid(__func__, "columns is %d, must divide the %d ranks", columns,
                             comm->size);
    const int r = comm->rank / columns, c = comm->rank % columns;
    if (comm->ops->grid)
        return comm->ops->grid(comm, columns, row, column);
    tess_comm *made = NULL, *other = NULL;
    TESS_TRY(split(comm, r, c, &made));
    const tess_status status = split(comm, c, r, &other);
    if (status != TESS_OK) {
        tess_comm_destroy(made);
        return status;
    }
    *row = made;
    *column = other;
    return TESS_OK;
}
