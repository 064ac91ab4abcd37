/* SPDX-License-Identifier: Apache-2.0 */
/* window_size.c - the 3D window of cubes that comes nearest to a density from above.
 *
 * A window of a x b x c cubes sees that many of the A x B x C there are, from every place: at the
 * edges it is moved inside. So its share is a b c / (A B C), and the smallest one that is not below
 * the density is found by trying every a and b. Among equal shares the one is taken whose smallest
 * share of an axis is largest: a window that sees all of one axis and a line of the others would be
 * a poor stand-in for locality. Cost: A B.
 */
#include "decide.h"

#include <math.h>

static double narrowest(const int cubes[3], const int window[3])
{
    double least = 1.0;
    for (int i = 0; i < 3; i++)
        least = fmin(least, (double)window[i] / cubes[i]);
    return least;
}

double tess__window(const int cubes[3], double density, int window[3])
{
    const double all = (double)cubes[0] * cubes[1] * cubes[2];
    const double wanted = density * all * (1.0 - 1e-12);
    double best = INFINITY, best_narrow = 0.0;
    for (int a = 1; a <= cubes[0]; a++)
        for (int b = 1; b <= cubes[1]; b++) {
            const double c = fmax(1.0, ceil(wanted / ((double)a * b)));
            if (c > cubes[2])
                continue;
            const int tried[3] = {a, b, (int)c};
            const double share = a * (double)b * c, narrow = narrowest(cubes, tried);
            if (share > best || (share == best && narrow <= best_narrow))
                continue;
            best = share;
            best_narrow = narrow;
            for (int i = 0; i < 3; i++)
                window[i] = tried[i];
        }
    return best / all;
}
