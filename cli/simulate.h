/* SPDX-License-Identifier: Apache-2.0 */
/* simulate.h - what the files of `tessera simulate` share. */
#ifndef TESS_CLI_SIMULATE_H
#define TESS_CLI_SIMULATE_H

#include "cli.h"

/* The step of a traced rank on a cluster; scale NaN: as recorded; per_node 0: the cluster's. */
tess_status simulate_trace(cli *c, const char *path, const char *cluster, double scale,
                           int64_t per_node);

#endif
