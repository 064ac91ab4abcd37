/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_script.c - any bytes as a script with Megatron-LM's arguments. */
#define JOB_NAME "fuzz.sh"
#include "fuzz_job.h"
