/* SPDX-License-Identifier: Apache-2.0 */
/* emulation_internal.h - what the files of the emulation share. */
#ifndef TESS_EMULATION_INTERNAL_H
#define TESS_EMULATION_INTERNAL_H

#include "emulation.h"

/* What a lane brings to a collective, which writes to *result; where in the kernel. */
typedef struct {
    const void *operand;
    void *result;
    int line;
} emulation_lane;

/* The work of all lanes, done once, when the last one has come. */
typedef void collective(emulation_lane lane[32]);
void emulation_meet(collective *work, const void *operand, void *result, int line);

/* What is wrong with the launch, which then ends. */
void emulation_problem(const char *format, ...) __attribute__((format(printf, 1, 2)));

int emulation_inside_shared(const u8 *p, int bytes); /* and aligned to 16 bytes */

extern emulation_counts emulation_counted;

#endif
