/* SPDX-License-Identifier: Apache-2.0 */
/* replay_program_row.h - a program's row in the event engine: its streams. */
#ifndef TESS_REPLAY_PROGRAM_ROW_H
#define TESS_REPLAY_PROGRAM_ROW_H

#include "replay_program.h"

enum { TESS__PROGRAM_COMPUTE, TESS__PROGRAM_PREPARE, TESS__PROGRAM_HOST, TESS__PROGRAM_STREAMS };
enum { TESS__PROGRAM_CHANNELS = 4093 };

typedef struct {
    int32_t group, peer, receives; /* group -1: messages with peer */
} tess__program_channel_key;

typedef struct {
    const tess__program *program;
    tess__arena *arena;
    uint8_t *prepares; /* (events) 1: prepares a gather, or is a gather of what was prepared */
    tess__program_channel_key channel[TESS__PROGRAM_CHANNELS];
    int channels;
} tess__program_row;

/* program_streams.c: fills prepares. */
tess_status tess__program_row_prepare(tess__program_row *row);
/* The stream of a call: one for each process group, and for each peer and direction; -1: there are
 * too many. */
int tess__program_channel(tess__program_row *row, const tess__program_event *e);
/* All streams of a row; -1: there are too many. */
int tess__program_row_streams(tess__program_row *row);

#endif
