/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_image.c - the kernels as nvcc made them, compiled in; none where the build had no nvcc. */
#include "gpu_internal.h"

#if defined(TESS_GPU_IMAGE)
__asm__(".section .rodata\n.balign 16\n.globl tess__gpu_image\n.hidden tess__gpu_image\n"
        "tess__gpu_image:\n.incbin \"" TESS_GPU_IMAGE "\"\ntess__gpu_image_end:\n"
        ".balign 4\n.globl tess__gpu_image_bytes\n.hidden tess__gpu_image_bytes\n"
        "tess__gpu_image_bytes:\n.int tess__gpu_image_end - tess__gpu_image\n.previous\n");
const char tess__gpu_image_code[] = TESS_GPU_IMAGE_CODE;
const int tess__gpu_image_cuda = TESS_GPU_IMAGE_CUDA;
#else
const unsigned char tess__gpu_image[1];
const int tess__gpu_image_bytes;
const char tess__gpu_image_code[1];
const int tess__gpu_image_cuda;
#endif
