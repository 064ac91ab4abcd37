/* SPDX-License-Identifier: Apache-2.0 */
/* ring.c - the longest tiles of each iteration of a ring, and the time of a pass.
 *
 * Three are kept of each diagonal, so that the longest is known without any two of its tiles.
 */
#include "ring.h"

/* Puts a tile of rank r among the three longest of its diagonal. */
static void rank_tile(double time, int32_t r, double longest[3], int32_t place[3])
{
    int i = 3;
    for (; i > 0 && (place[i - 1] < 0 || time > longest[i - 1]); i--)
        if (i < 3) {
            longest[i] = longest[i - 1];
            place[i] = place[i - 1];
        }
    if (i < 3) {
        longest[i] = time;
        place[i] = r;
    }
}

void tess__ring_rank(tess__ring_search *ring, int s)
{
    double *const longest = ring->longest + 3 * s;
    int32_t *const place = ring->place + 3 * s;
    for (int i = 0; i < 3; i++) {
        longest[i] = 0.0;
        place[i] = -1;
    }
    for (int r = 0; r < ring->ring; r++)
        rank_tile(tess__tile_time(ring, r, tess__wrap(r - s, ring->ring)), r, longest, place);
}

void tess__ring_add(tess__ring_search *ring)
{
    ring->time = 0.0;
    for (int s = 0; s < ring->ring; s++)
        ring->time += ring->longest[3 * s];
}

void tess__ring_update(tess__ring_search *ring)
{
    for (int s = 0; s < ring->ring; s++)
        tess__ring_rank(ring, s);
    tess__ring_add(ring);
}
