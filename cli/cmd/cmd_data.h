/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_data.h - declarations of `tessera data`. */
#ifndef CLI_CMD_DATA_H
#define CLI_CMD_DATA_H

#include "cli.h"
#include "tessera/advanced/dataset.h"

/* data_summary.c: what is in the files of a source, as lines or in the JSON; nothing for drawn
 * data. */
tess_status data_summary(cli *c, const tess_data *data, const tess_data_info *info);

/* data_judge.c: prompt adherence of the clips of a folder, or of these samples of drawn data. */
typedef struct {
    tess_split split;
    int64_t first, count;
} data_judge_range;
tess_status data_judge(cli *c, const tess_data *data, const tess_data_info *info,
                       const data_judge_range *range);

#endif
