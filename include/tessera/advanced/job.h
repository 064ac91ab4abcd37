/* SPDX-License-Identifier: Apache-2.0 */
/* job.h - the job files and logs of other frameworks: what the simulator makes of them.
 *
 * A job is torchtitan's TOML (".toml") or a shell script with Megatron-LM's arguments (".sh").
 * Every key of the file becomes an entry: a setting of the scenario, or the reason why it is none.
 * What the file does not say is assumed, and that is an entry too, with its reason.
 *
 * Advanced: functions and structs may change in any version.
 */
#ifndef TESSERA_JOB_H
#define TESSERA_JOB_H

#include "../scenario.h"

TESS_BEGIN_DECLS

/* ---- jobs ------------------------------------------------------------------------------------ */

typedef enum {
    TESS_JOB_READ,       /* a key that became a setting */
    TESS_JOB_ASSUMED,    /* a setting that the file does not say */
    TESS_JOB_UNMODELLED, /* a key that may change the time of a step, and has no setting */
    TESS_JOB_IGNORED,    /* a key that does not concern time and memory of a step */
    TESS_JOB_UNKNOWN,    /* a key, or a value, that the reader does not know */
    TESS_JOB_KINDS
} tess_job_kind;

TESS_API const char *tess_job_kind_name(tess_job_kind kind); /* "read"; NULL outside */

/* Strings live as long as the job. */
typedef struct {
    tess_job_kind kind;
    int line;            /* of the file; 0 of ASSUMED */
    const char *key;     /* "training.seq_len", "--seq-length"; "" of ASSUMED */
    const char *given;   /* the value there */
    const char *setting; /* "model.seq"; "" unless READ or ASSUMED */
    const char *value;   /* as tess_scenario_set takes it */
    const char *why; /* of ASSUMED, UNMODELLED and UNKNOWN: the reason; "" where there is none */
} tess_job_entry;

typedef struct {
    const char *framework; /* "torchtitan", "Megatron-LM" */
    int entries;
    double steps; /* of the whole run; 0: the file does not say */
} tess_job_info;

typedef struct tess_job tess_job;

/* 1: a path that tess_job_load takes, by its ending. */
TESS_API int tess_job_is_file(const char *path);

/* EFORMAT with the line: the file is not of this form. */
TESS_API tess_status tess_job_load(tess_ctx *ctx, const char *path, tess_job **job);
TESS_API void tess_job_destroy(tess_job *job);
TESS_API tess_status tess_job_query(const tess_job *job, tess_job_info *info);
TESS_API tess_status tess_job_entry_query(const tess_job *job, int index, tess_job_entry *entry);

/* Gives the scenario the job's settings. keep_model 1: the scenario's model stays, and has only the
 * job's model.seq. EFORMAT names line and key of a value that breaks its rule. */
TESS_API tess_status tess_job_apply(tess_ctx *ctx, const tess_job *job, int keep_model,
                                    tess_scenario *scenario);

/* After other settings were changed: the global batch, where the file gives that of one
 * data-parallel rank and the scenario none. */
TESS_API tess_status tess_job_complete(const tess_job *job, tess_scenario *scenario);

TESS_END_DECLS

#endif
