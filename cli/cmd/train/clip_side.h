/* SPDX-License-Identifier: Apache-2.0 */
/* clip_side.h - frames, height and width as options: multiples of what becomes one token. */
#ifndef TESS_CLI_CLIP_SIDE_H
#define TESS_CLI_CLIP_SIDE_H

#include "cli.h"

/* pack 0: of frames, which are not packed. */
tess_status clip_side_check(cli *c, const char *name, int64_t side, int pack, int patch);

#endif
