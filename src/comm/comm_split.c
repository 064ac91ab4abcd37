/* SPDX-License-Identifier: Apache-2.0 */
/* comm_split.c - parts of a communicator.
 *
 * Everyone tells everyone its colour, its key and its node; each rank then knows its part without
 * asking again. A rank that lacks memory says so, and all leave together.
 *
 * Cost of parting n ranks: a gather of 24 bytes of each, an agreement, and 8 n bytes of scratch.
 * Members are sorted by insertion, O(n) where keys ascend with ranks as in a grid, and a member's
 * node is looked for among the members before it: O(n^2) comparisons at worst, of which 1024 ranks
 * make half a million. A part is made once; it is not worth a table.
 */
#include "comm_internal.h"

typedef struct {
    int32_t color, key, node, missing;
    int64_t tag; /* new_tag: the part has that of its first member */
} entry;

/* The members of this rank's part in the order of their keys; equal keys in rank order. */
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
    if (status == TESS_OK)
        status = tess_comm_agree(comm, make_subgroup(comm, entries, color, order,
                                                     order ? order + comm->size : NULL, &made));
    tess__free(comm->ctx, order);
    if (status != TESS_OK) {
        tess_comm_destroy(made);
        return status;
    }
    *sub = made;
    return TESS_OK;
}

/* The ranks first, first + stride, ... */
static tess_status play_part(tess_comm *comm, int first, int n, int stride, tess_comm **sub)
{
    int *order = tess__alloc(comm->ctx, (size_t)n * sizeof *order);
    if (!order)
        return TESS_ENOMEM;
    for (int i = 0; i < n; i++)
        order[i] = first + i * stride;
    const tess_status status =
        comm->ops->subgroup(comm, order, n, (comm->rank - first) / stride, 0, sub);
    tess__free(comm->ctx, order);
    return status;
}

/* Of a trace: nobody needs to be asked. */
static tess_status play_grid(tess_comm *comm, int columns, tess_comm **row, tess_comm **column)
{
    const int r = comm->rank / columns, c = comm->rank % columns;
    tess_comm *made = NULL;
    TESS_TRY(play_part(comm, r * columns, columns, 1, &made));
    const tess_status status = play_part(comm, c, comm->size / columns, columns, column);
    if (status != TESS_OK) {
        tess_comm_destroy(made);
        return status;
    }
    *row = made;
    return TESS_OK;
}

tess_status tess_comm_split(tess_comm *comm, int color, int key, tess_comm **sub)
{
    TESS_REQUIRE(comm, sub);
    if (comm->ops->note)
        return tess__fail(TESS_ENOTSUP, "tess_comm_split: a trace cannot know the colours of other "
                                        "ranks; tess_comm_grid makes parts of it");
    return split(comm, color, key, sub);
}

tess_status tess_comm_grid(tess_comm *comm, int columns, tess_comm **row, tess_comm **column)
{
    const char *fn = "tess_comm_grid";
    TESS_REQUIRE(comm, row, column);
    if (columns < 1 || comm->size % columns != 0)
        return tess__fail(TESS_EINVAL, "%s: columns is %d, must divide the %d ranks", fn, columns,
                          comm->size);
    const int r = comm->rank / columns, c = comm->rank % columns;
    if (comm->ops->note)
        return play_grid(comm, columns, row, column);
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
