/* SPDX-License-Identifier: Apache-2.0 */
/* profile_page.h - what profile_page.c and profile_mask.c share. */
#ifndef TESS_PROFILE_PAGE_H
#define TESS_PROFILE_PAGE_H

#include "report_internal.h"
#include "tessera/advanced/profile_report.h"

struct tess_profile_report {
    tess_ctx *ctx;
    tess_profile_report_opts opts; /* with defaults; the texts are below */
    tess__markup subtitle, input, command;
    tess__markup maps, cubes, masks; /* JSON objects, comma-separated */
    int64_t n_maps, n_cubes, n_masks;
    int64_t step; /* of the last map */
    double density,
        recall; /* sums of means over the maps of that step; NaN: a map without recall */
    int64_t of_step;
};

#endif
