/* SPDX-License-Identifier: Apache-2.0 */
/* plan_file.h - the plans of several steps in one file, with what they were made from.
 *
 *   tess_plan_file *file;
 *   tess_plan_origin origin = {.command = "tessera plan ...", .source = "profile.csv"};
 *   tess_plan_file_create(ctx, &origin, &file);
 *   tess_plan_file_add(file, step, plan, work);           // for each step, in order
 *   tess_plan_file_save(file, "run.plan.json");
 *
 *   tess_plan_file_open(ctx, "run.plan.json", &file);     // files of tess_plan_save too
 *   tess_plan_file_query(file, &view);
 *
 * tess_plan_load takes the plan of the last step from such a file.
 *
 * Advanced: functions and structs may change in any version.
 */
#ifndef TESSERA_PLAN_FILE_H
#define TESSERA_PLAN_FILE_H

#include "../strategy.h"

TESS_BEGIN_DECLS

typedef struct tess_plan_file tess_plan_file;

/* Strings may be NULL. */
typedef struct {
    const char *command;  /* that made the plans */
    const char *source;   /* the file with the work; create reads it for source_hash */
    const char *cluster;  /* its name */
    int64_t first_layer;  /* the number of the plans' first layer in the model */
    char source_hash[17]; /* of the bytes of the source, in hexadecimal; "": not known. Not a
                             cryptographic one. create ignores it */
} tess_plan_origin;

/* EIO, ENOENT as opening a file: the source cannot be read. */
TESS_API tess_status tess_plan_file_create(tess_ctx *ctx, const tess_plan_origin *origin,
                                           tess_plan_file **file);

/* The plan used in this step; NULL: that of the step before. All plans have the same ranks, heads,
 * blocks and layers, and steps ascend. work: what the plan was made for; its loads of heads are
 * stored, NULL: none. */
TESS_API tess_status tess_plan_file_add(tess_plan_file *file, int64_t step, const tess_plan *plan,
                                        const tess_work *work);

/* The file appears whole or not at all. EINVAL: no step was added. */
TESS_API tess_status tess_plan_file_save(const tess_plan_file *file, const char *path);

TESS_API tess_status tess_plan_file_open(tess_ctx *ctx, const char *path, tess_plan_file **file);

typedef struct {
    tess_plan_origin origin;
    int steps;
    const int64_t *step;          /* (steps): their numbers */
    const tess_plan *const *plan; /* (steps): one plan may serve several steps */
    const char *const *runner_up; /* (steps, layers): the second best strategy and why it lost, as a
                                     sentence; "": not known */
} tess_plan_file_view;

/* Of a file that was opened. */
TESS_API tess_status tess_plan_file_query(const tess_plan_file *file, tess_plan_file_view *view);

/* The loads of heads that were stored, as work; EINVAL: the file has none. The caller destroys it.
 */
TESS_API tess_status tess_plan_file_work(const tess_plan_file *file, int step, tess_work **work);
TESS_API void tess_plan_file_destroy(tess_plan_file *file);

TESS_END_DECLS

#endif
