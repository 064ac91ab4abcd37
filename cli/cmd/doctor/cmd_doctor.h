/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_doctor.h - declarations shared by the files of `tessera doctor`. */
#ifndef CLI_CMD_DOCTOR_H
#define CLI_CMD_DOCTOR_H

#include "cli.h"
#include "tessera/advanced/machine.h"

/* Collective: cores and memory of each host, whether all ranks run the same build, and the links
 * between them, as findings on rank 0 and as members of the result. Nothing with one rank.
 * anonymous 1: hosts are called "host 1", "host 2". */
tess_status doctor_ranks(cli *c, int anonymous, tess_finding_fn fn, void *user);

/* Build, machine, system and environment, for a bug report. */
tess_status doctor_report(cli *c);

/* Copies a text without the folders of absolute paths, the user's and the host's name. Returns
 * text. */
char *doctor_mask(const char *s, char *text, size_t bytes);

/* doctor_speeds.c. Collective: speeds (ranks) of the fastest rank's, 0..1. Half a second. */
tess_status doctor_speeds(cli *c, double *speeds);

#endif
