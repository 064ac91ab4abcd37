/* SPDX-License-Identifier: Apache-2.0 */
/* world.h - what the files about ranks share: world.c, world_launch.c, world_build.c, world_end.c.
 */
#ifndef TESS_CLI_WORLD_H
#define TESS_CLI_WORLD_H

#include "cli.h"

/* ---- world_launch.c: what the environment says ------------------------------------------- */

typedef struct {
    const char *name; /* "Open MPI's mpirun" */
    int ranks;        /* it meant to start; 0: it does not say */
    int rank;         /* of this process */
    int wired;        /* 1: it tells MPI how to find the others; srun may start ranks without */
} launcher;

/* 0 if no launcher started this process. */
int launcher_find(launcher *found);

/* ---- world_build.c: which build this is -------------------------------------------------- */

/* Of the version and the machine code of the command and of Tessera's libraries in this process. */
uint64_t build_fingerprint(void);

/* ---- world_end.c: how ranks leave together ----------------------------------------------- */

/* Collective, over MPI_COMM_WORLD: without it world_end only returns what it is given. */
void end_open(void);

/* Before MPI_Finalize: ends all ranks here if one of them did not come, and sees to it that after a
 * failure the process ends soon. */
void end_close(tess_status status, int code);

#endif
