/* SPDX-License-Identifier: Apache-2.0 */
/* image.cu - the kernels for nvcc: one image with the code of every device. */
#include "gpu_variants.h"
