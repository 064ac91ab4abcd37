/* SPDX-License-Identifier: Apache-2.0 */
/* fake_image.c - an image for the driver of tests, which runs the emulated kernels instead. */
#include "gpu/gpu_internal.h"

const unsigned char tess__gpu_image[1] = {0};
const int tess__gpu_image_bytes = 1;
const char tess__gpu_image_code[] = "none, a test's";
const int tess__gpu_image_cuda = 12000;
