/* SPDX-License-Identifier: Apache-2.0 */
/* precision.h - what the products of an attention object are computed in.
 *
 * Advanced: functions and structs may change in any version.
 */
#ifndef TESSERA_PRECISION_H
#define TESSERA_PRECISION_H

#include "../attn.h"

TESS_BEGIN_DECLS

typedef struct {
    tess_precision asked;    /* of the shape */
    tess_precision products; /* computed; FP32 though BF16 was asked for: see tess_bf16_query */
    const char *isa;         /* the instruction set that multiplies */
} tess_attn_precision;

TESS_API tess_status tess_attn_precision_query(const tess_attn *attn,
                                               tess_attn_precision *precision);

TESS_END_DECLS

#endif
