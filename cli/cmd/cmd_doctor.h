/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_doctor.h - what the files of `tessera doctor` share. */
#ifndef CLI_CMD_DOCTOR_H
#define CLI_CMD_DOCTOR_H

#include "cli.h"

/* Collective: what each host has, whether all ranks run the same build, and the links between them,
 * as findings on rank 0 and as members of the result. Nothing with one rank. */
tess_status doctor_ranks(cli *c, tess_finding_fn fn, void *user);

#endif
