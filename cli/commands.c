/* SPDX-License-Identifier: Apache-2.0 */
/* commands.c - the table of commands, in the order of the help. */
#include "commands.h"

#include <string.h>

const command *const commands[] = {
    &command_info,      &command_doctor,   &command_tensor,  &command_data,     &command_check,
    &command_bench,     &command_train,    &command_sweep,   &command_sample,   &command_plan,
    &command_report,    &command_profile,  &command_compare, &command_simulate, &command_validate,
    &command_calibrate, &command_pipeline, &command_trace,   &command_cluster,  &command_collective,
    &command_gpu,       &command_help};
const int n_commands = sizeof commands / sizeof commands[0];

const command *command_find(const char *name)
{
    for (int i = 0; i < n_commands; i++)
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    return NULL;
}
