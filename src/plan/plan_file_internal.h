/* SPDX-License-Identifier: Apache-2.0 */
/* plan_file_internal.h - the plans of several steps inside: one object for files that are written
 * and for those that are read. */
#ifndef TESS_PLAN_FILE_INTERNAL_H
#define TESS_PLAN_FILE_INTERNAL_H

#include "plan_internal.h"
#include "tessera/advanced/plan_file.h"

struct tess_plan_file {
    tess_ctx *ctx;
    tess__arena arena; /* strings, and what a file that is read has */
    tess_plan_origin origin;
    int64_t steps;
    /* Of a file that is written: */
    tess_plan_info info; /* of the first plan, its arrays in the arena */
    int64_t last_step;
    char *text; /* the steps as JSON, with commas between them */
    size_t bytes;
    int64_t room;
    /* Of a file that is read: */
    int64_t *step;
    tess_plan **plan;       /* (steps): the owner is the first step that has it */
    const char **runner_up; /* (steps, layers) */
    int64_t **loads;        /* (steps): (layers, heads), or NULL */
    int layers;
};

#endif
