/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_info.h - build and machine as text or JSON, for `tessera info` and `tessera doctor --report`.
 */
#ifndef CLI_CMD_INFO_H
#define CLI_CMD_INFO_H

#include "cli.h"

/* The result of `tessera info`; measure 1: with the measured peaks. */
tess_status info_report(cli *c, int measure);

void info_title(const cli *c, const char *text);                  /* of a section */
void info_line(const cli *c, const char *name, const char *text); /* wrapped behind its name */

#endif
