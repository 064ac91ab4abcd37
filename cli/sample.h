/* SPDX-License-Identifier: Apache-2.0 */
/* sample.h - what the files of `tessera sample` share. */
#ifndef TESS_CLI_SAMPLE_H
#define TESS_CLI_SAMPLE_H

#include "cli.h"

typedef struct {
    common common;
    const char *checkpoint, *output, *text;
    strings prompts;
    int64_t count, batch, steps, frames, height, width, scale;
    double guidance, shift, fps;
    int ema;
} sample_values;

tess_status sample_run(cli *c, const sample_values *v);

#endif
