/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_toml.c - any bytes as torchtitan's TOML. */
#define JOB_NAME "fuzz.toml"
#include "fuzz_job.h"
