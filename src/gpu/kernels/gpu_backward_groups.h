/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_backward_groups.h - the backward kernels of one D and TYPE: groups of up to 32 and 64
 * queries, of which a larger group takes several blocks; blocks of 16 and of 64 keys. */
#define GROUP 32
#define WM 2
#define BN 32
#include "gpu_backward.h"
#undef GROUP
#undef WM
#define GROUP 64
#define WM 4
#include "gpu_backward.h"
#undef GROUP
#undef WM
#undef BN
#define KEYS 16
#define WM 1
#include "gpu_key_blocks.h"
#undef KEYS
#undef WM
#define KEYS 64
#define WM 4
#include "gpu_key_blocks.h"
#undef KEYS
#undef WM
#include "gpu_delta.h"
