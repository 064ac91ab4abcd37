/* SPDX-License-Identifier: Apache-2.0 */
/* gunzip.h - a gzip file piece by piece, unpacked by ISA-L where the build found it, or by zlib.
 *
 * Both check header, codes, distances, length and CRC of a member. zlib also refuses sets of codes
 * that are not complete; ISA-L goes on until a code without a symbol, a distance too far back, or
 * the CRC. Either way the member is called damaged.
 */
#ifndef TESS_GUNZIP_H
#define TESS_GUNZIP_H

#include "base/base_internal.h"

typedef enum {
    TESS__GUNZIP_MORE,   /* packed bytes are used up, or the room is */
    TESS__GUNZIP_END,    /* of a member */
    TESS__GUNZIP_HUNGRY, /* there is room, and nothing to unpack */
    TESS__GUNZIP_HEADER, /* damaged: no gzip header of RFC 1952 */
    TESS__GUNZIP_BLOCK,  /* damaged: a block that deflate does not have */
    TESS__GUNZIP_CHECK,  /* damaged: length or CRC are those of other bytes */
} tess__gunzip_state;

/* Packed bytes and room for unpacked ones; a step moves both. */
typedef struct {
    const unsigned char *in;
    size_t in_left;
    unsigned char *out;
    size_t out_left;
} tess__gunzip_pieces;

/* State is each library's own. */
typedef struct {
    tess_status (*open)(tess_ctx *ctx, void **state);
    tess_status (*step)(void *state, tess__gunzip_pieces *pieces, tess__gunzip_state *at);
    void (*reset)(void *state); /* before the next member */
    void (*close)(void *state);
} tess__gunzip_library;

extern const tess__gunzip_library tess__gunzip_zlib;
extern const tess__gunzip_library *const tess__gunzip_isal; /* NULL: built without */

#endif
