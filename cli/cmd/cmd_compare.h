/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_compare.h - declarations shared by the files of `tessera compare`. */
#ifndef CLI_CMD_COMPARE_H
#define CLI_CMD_COMPARE_H

#include "cli.h"
#include "tessera/advanced/compare.h"

/* The comparison as text, or as members of the result. */
tess_status compare_show(cli *c, const tess_compare *compare);

#endif
