/* SPDX-License-Identifier: Apache-2.0 */
/* world_launch.c - which launcher started this process, by the variables that it sets.
 *
 * A process that Open MPI's mpirun starts inside a Slurm job has srun's variables too, of the
 * daemon that started it: the launcher nearest to the process comes first. A batch script has
 * SLURM_NTASKS without having been started by srun; only srun sets SLURM_STEP_NUM_TASKS. PMIx says
 * no number in the environment: srun does, where it is the launcher.
 */
#include "world.h"

#include <stdlib.h>

static const struct {
    const char *name, *ranks, *rank;
    int least; /* ranks from which on it is a launcher of ranks */
} launchers[] = {
    {"Open MPI's mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", 0},
    {"an mpirun of the MPICH family", "PMI_SIZE", "PMI_RANK", 0},
    {"srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", 2}, /* a task alone is like any process */
    {"a PMIx launcher", "SLURM_STEP_NUM_TASKS", "PMIX_RANK", 0},
};

/* The number in a variable, or -1. */
static int number(const char *name)
{
    const char *text = getenv(name);
    char *end;
    if (!text || !*text)
        return -1;
    const long value = strtol(text, &end, 10);
    return *end || value < 0 || value > 1000000000 ? -1 : (int)value;
}

int launcher_find(launcher *found)
{
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        const int ranks = number(launchers[i].ranks), rank = number(launchers[i].rank);
        if (rank < 0 || (launchers[i].least > 0 && ranks < launchers[i].least))
            continue;
        *found = (launcher){launchers[i].name, ranks > 0 ? ranks : 0, rank,
                            launchers[i].least == 0 || getenv("PMI_RANK") || getenv("PMIX_RANK")};
        return 1;
    }
    return 0;
}

int world_rank(void)
{
    launcher l;
    return launcher_find(&l) && l.wired ? l.rank : 0;
}
