/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_forward_groups.h - the forward kernels of one D and TYPE: groups of up to 16, 32, 64 and 128
 * queries. A larger group takes several blocks of the last one. */
#define GROUP 16
#define MT 1
#define WM 1
#define WN 4
#define BN (2048 / D)
#define BLOCKS 2
#include "gpu_forward.h"
#undef GROUP
#undef MT
#define GROUP 32
#define MT 2
#include "gpu_forward.h"
#undef GROUP
#undef WM
#undef WN
#undef BN
#define GROUP 64
#define WM 2
#define WN 2
#define BN (4096 / D)
#include "gpu_forward.h"
#undef GROUP
#undef WM
#undef WN
#define GROUP 128
#define WM 4
#define WN 1
#include "gpu_forward.h"
#undef GROUP
#undef MT
#undef WM
#undef WN
#undef BN
#undef BLOCKS
