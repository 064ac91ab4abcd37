/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_gather.h - rows of a list on their way to shared memory, and where they are there.
 *
 * A row of D elements is 2 D bytes, in pieces of 16. Piece p of row r is stored at piece
 * p ^ (r & 7) of its row: the eight rows of a matrix that ldmatrix reads then lie in eight
 * different groups of four banks. A macro, because a function would take the array's length from a
 * variable.
 */
#ifndef TESS_GPU_GATHER_H
#define TESS_GPU_GATHER_H

#include "gpu_args.h"

#define ROW (2 * D) /* bytes */
#define PIECES (D / 8)

#if !defined(TESS_GPU_TABLE)
#include "dialect.h"

#define SWIZZLE(row, piece) ((row)*ROW + (((piece) ^ ((row)&7)) << 4))

/* Where a lane's row for ldmatrix is, of a 16x16 tile at (row, piece): A operands, and B operands
 * whose rows are their columns (K for Q K^T), or, by LDSM4T, B operands as they are stored (V). Row
 * is a multiple of 8, piece is even: the lane's part of SWIZZLE is then one of four numbers, which
 * stay in registers, and the rest a constant of the instruction. */
#define TILE(row, piece, lane) ((row)*ROW + (((piece)&8) << 4) + ((lane) ^ (((piece)&7) << 4)))
#define A_TILE(row, piece) TILE(row, piece, SWIZZLE(LANE & 15, LANE >> 4))
#define B_TILE(row, piece)                                                                         \
    TILE(row, piece, SWIZZLE((LANE & 7) + ((LANE >> 4) << 3), (LANE >> 3) & 1))

/* A list: its first index, how many rows it has. */
typedef struct {
    i64 first;
    int units, rows;
} key_list;

FN key_list find_list(const tess_gpu_lists *l, int number)
{
    key_list list;
    list.first = l->offsets[number];
    list.units = (int)(l->offsets[number + 1] - list.first);
    list.rows = list.units << l->shift;
    if (l->shift > 0 && list.units > 0) {
        const int last = l->indices[list.first + list.units - 1];
        const i64 end = ((i64)last + 1) << l->shift;
        list.rows -= end > l->tokens_k ? (int)(end - l->tokens_k) : 0;
    }
    return list;
}

/* Row number n of the list, or -1 beyond its end. */
FN int list_row(const tess_gpu_lists *l, key_list list, int n)
{
    const int shift = l->shift;
    if (n >= list.rows)
        return -1;
    return l->indices[list.first + (n >> shift)] << shift | (n & ((1 << shift) - 1));
}

/* The first place of [from, to) whose index is not below `unit`. */
FN i64 lower_bound(const int *indices, i64 from, i64 to, int unit)
{
    while (from < to) {
        const i64 middle = from + (to - from) / 2;
        if (indices[middle] < unit)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

FN const u8 *head_rows(const tess_gpu_rows *rows, int heads, int head)
{
    return rows->data + (i64)(head / heads) * rows->b + (i64)(head % heads) * rows->h;
}

#endif

#endif
