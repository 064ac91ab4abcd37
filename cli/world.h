/* SPDX-License-Identifier: Apache-2.0 */
/* world.h - declarations shared by world.c, world_launch.c, world_build.c and world_end.c. */
#ifndef TESS_CLI_WORLD_H
#define TESS_CLI_WORLD_H

#include "cli.h"

/* ---- world_launch.c: the launcher's variables   ------------------------------------------- */

typedef struct {
    const char *name; /* "Open MPI's mpirun" */
    int ranks;        /* it was to start; 0: unknown */
    int rank;         /* of this process */
    int wired;        /* 1: MPI can find the other ranks through it; srun may start ranks without */
} launcher;

/* 0 if no launcher started this process. */
int launcher_find(launcher *found);

/* ---- world_build.c: which build this is -------------------------------------------------- */

/* Of the version and the machine code of the command and of Tessera's libraries in this process. */
uint64_t build_fingerprint(void);

/* ---- world_end.c: exit of all ranks together----------------------------------------------- */

/* Collective, over MPI_COMM_WORLD: without it world_end only returns what it is given. */
void end_open(void);

/* Before MPI_Finalize: aborts all ranks if one of them did not respond; after a failure, limits the
 * time until the process exits. */
void end_close(tess_status status, int code);

#endif
