/* SPDX-License-Identifier: Apache-2.0 */
/* clip_side.c - frames, height and width as options: multiples of what becomes one token.
 *
 *   --height is 30, must be a multiple of 4 (pack 2 x patch 2): 28 or 32
 */
#include "clip_side.h"

tess_status clip_side_check(cli *c, const char *name, int64_t side, int pack, int patch)
{
    const int64_t unit = (int64_t)(pack ? pack : 1) * patch;
    const long long below = (long long)side / unit * unit, above = below + unit;
    char parts[64], right[64];
    if (side % unit == 0)
        return TESS_OK;
    if (pack)
        snprintf(parts, sizeof parts, "pack %d x patch %d", pack, patch);
    else
        snprintf(parts, sizeof parts, "patch %d", patch);
    if (below)
        snprintf(right, sizeof right, "%lld or %lld", below, above);
    else
        snprintf(right, sizeof right, "%lld", above);
    return out_usage(c, "--%s is %lld, must be a multiple of %lld (%s): %s", name, (long long)side,
                     (long long)unit, parts, right);
}
