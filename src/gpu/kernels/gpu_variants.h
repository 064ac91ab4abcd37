/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_variants.h - every kernel that is shipped, once for each head_dim and type.
 *
 * Included as code, it defines the kernels. With TESS_GPU_TABLE(name, kind, type, dim, rows,
 * threads, shared bytes) defined it is a table of them, so that the host, the fake driver and the
 * image cannot disagree on a number.
 */
#define D 64
#define TYPE bf16
#include "gpu_backward_groups.h"
#include "gpu_forward_groups.h"
#undef TYPE
#define TYPE fp16
#include "gpu_backward_groups.h"
#include "gpu_forward_groups.h"
#include "gpu_rows.h"
#undef D
#define D 128
#include "gpu_backward_groups.h"
#include "gpu_forward_groups.h"
#undef TYPE
#define TYPE bf16
#include "gpu_backward_groups.h"
#include "gpu_forward_groups.h"
#undef TYPE
#include "gpu_rows.h"
#undef D
#define RANK 16
#define PARTS 1
#include "gpu_select.h"
#undef RANK
#undef PARTS
#define RANK 32
#define PARTS 2
#include "gpu_select.h"
#undef RANK
#undef PARTS
#define RANK 64
#define PARTS 4
#include "gpu_select.h"
#undef RANK
#undef PARTS
#include "gpu_lists.h"
