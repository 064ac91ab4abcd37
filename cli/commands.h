/* SPDX-License-Identifier: Apache-2.0 */
/* commands.h - the commands, one per cmd_<name>.c. */
#ifndef TESS_COMMANDS_H
#define TESS_COMMANDS_H

#include "cli.h"

extern const command command_info, command_doctor, command_tensor, command_data, command_check,
    command_bench, command_train, command_sample, command_plan, command_report, command_compare,
    command_cluster, command_collective, command_help;
extern const command command_simulate, command_validate, command_calibrate, command_pipeline;
extern const command command_trace, command_gpu;
extern const command command_profile, command_sweep;

#endif
