/* SPDX-License-Identifier: Apache-2.0 */
/* order.c - token order by cubes: a permutation of the grid, its inverse, and the cubes' bounds.
 *
 * Cubes in raster order, and tokens in raster order inside each. O(tokens), no memory.
 */
#include "attn_internal.h"

/* The outputs, each NULL if not wanted, and how far they are written. */
typedef struct {
    int64_t *perm, *inverse, *bounds;
    int64_t place;
    int32_t groups;
} writer;

/* Appends the cube whose first token is at `low` and whose sides end before `high`. */
static void write_cube(writer *w, const int grid[3], const int64_t low[3], const int64_t high[3])
{
    for (int64_t f = low[0]; f < high[0]; f++)
        for (int64_t y = low[1]; y < high[1]; y++)
            for (int64_t x = low[2]; x < high[2]; x++) {
                const int64_t raster = (f * grid[1] + y) * grid[2] + x;
                if (w->perm)
                    w->perm[w->place] = raster;
                if (w->inverse)
                    w->inverse[raster] = w->place;
                w->place++;
            }
    w->groups++;
    if (w->bounds)
        w->bounds[w->groups] = w->place;
}

/* Calls write_cube for every cube of the grid. */
static void write_cubes(writer *w, const int grid[3], const int cube[3])
{
    int64_t low[3], high[3];
    for (low[0] = 0; low[0] < grid[0]; low[0] += cube[0])
        for (low[1] = 0; low[1] < grid[1]; low[1] += cube[1])
            for (low[2] = 0; low[2] < grid[2]; low[2] += cube[2]) {
                for (int i = 0; i < 3; i++)
                    high[i] = TESS_MIN(low[i] + cube[i], grid[i]);
                write_cube(w, grid, low, high);
            }
}

tess_status tess_order_cubes(const int grid[3], const int cube[3], int64_t *perm, int64_t *inverse,
                             int64_t *bounds, int32_t *n_groups)
{
    TESS_REQUIRE(grid, cube);
    int64_t tokens = 1, groups = 1;
    TESS_TRY(tess__check_each(__func__, "grid", grid, 3, 1));
    TESS_TRY(tess__check_each(__func__, "cube", cube, 3, 1));
    for (int i = 0; i < 3; i++) {
        tokens = tokens > INT32_MAX ? tokens : tokens * grid[i]; /* stays below 2^62 */
        groups *= tokens > INT32_MAX ? 1 : 1 + (grid[i] - 1) / cube[i];
    }
    if (tokens > INT32_MAX)
        return tess__invalid(__func__, "grid is %d x %d x %d, must be below 2^31 tokens", grid[0],
                             grid[1], grid[2]);
    if (perm || inverse || bounds) {
        if (bounds)
            bounds[0] = 0;
        write_cubes(&(writer){.perm = perm, .inverse = inverse, .bounds = bounds}, grid, cube);
    }
    if (n_groups)
        *n_groups = (int32_t)groups;
    return TESS_OK;
}
