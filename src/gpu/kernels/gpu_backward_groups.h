/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_backward_groups.h - the backward kernels of one D and TYPE: groups of up to 32 and 64
 * queries, of which a larger group takes several blocks; blocks of 16 and of 64 keys. */
#define GROUP 32
#define WM 2
#define BN (2048 / D) /* as many keys as leave room for eight warps on a multiprocessor */
#include "gpu_backward.h"
#undef GROUP
#undef WM
#undef BN
#define GROUP 64
#define WM 4
#define BN 32
#include "gpu_backward.h"
#undef GROUP
#undef WM
#undef BN
#define KEYS 16
#define WK 1
#define WQ 4
#define BQ 64
#include "gpu_key_blocks.h"
#undef KEYS
#undef WK
#undef WQ
#undef BQ
#define KEYS 64
#define WK 4
#define WQ 1
#define BQ 32
#include "gpu_key_blocks.h"
#undef KEYS
#undef WK
#undef WQ
#undef BQ
#include "gpu_delta.h"
