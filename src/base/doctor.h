/* SPDX-License-Identifier: Apache-2.0 */
/* doctor.h - the facts the doctor judges, so that tests can show it any machine. */
#ifndef TESS_DOCTOR_H
#define TESS_DOCTOR_H

#include "base_internal.h"

enum { TESS_DOCTOR_MAX = 16, TESS_DOCTOR_TEXT = 512 };

typedef struct {
    tess_machine machine;
    const char *isa, *isa_best; /* in use; the best this machine runs */
    int threads;                /* of the context */
    int thread_limit;           /* $OMP_THREAD_LIMIT; 0 if unset */
    char runtimes[128]; /* OpenMP runtimes loaded in this process, "libgomp.so.1 libomp.so.5" */
    int n_runtimes;
    int launcher_ranks; /* processes an MPI launcher says it started; 0: no launcher was found */
    int launcher_local; /* of launcher_ranks, on this machine */
    int mpi_ranks;      /* ranks MPI itself reports; 0: MPI is not in use */
    int64_t shm_free;   /* bytes free in /dev/shm; -1 unknown */
    const char *dir;    /* where results go */
    int dir_error;      /* errno of checking it; 0 if it can be written */
    int64_t disk_free;  /* bytes; -1 unknown */
    int64_t disk_wanted;
    const char *build_type; /* "Release" */
    const char *sanitizers; /* "" for none */
} tess__facts;

typedef struct {
    tess_finding_level level;
    const char *topic, *advice;
    char sentence[TESS_DOCTOR_TEXT];
} tess__diagnosis;

/* One diagnosis per topic, worst first; returns how many. */
int tess__doctor_judge(const tess__facts *facts, tess__diagnosis found[TESS_DOCTOR_MAX]);

#endif
