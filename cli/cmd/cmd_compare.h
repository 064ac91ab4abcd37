/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_compare.h - declarations shared by the files of `tessera compare`. */
#ifndef CLI_CMD_COMPARE_H
#define CLI_CMD_COMPARE_H

#include "cli.h"
#include "tessera/advanced/compare.h"

/* Compares runs, prints the result and writes the page; page NULL: none. */
tess_status compare_write(cli *c, const tess_compare_run *runs, int n,
                          const tess_compare_opts *opts, const char *page);

/* The comparison as text, or as members of the result. */
tess_status compare_show(cli *c, const tess_compare *compare);

#endif
