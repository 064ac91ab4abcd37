/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_classes.c - what a kernel computes, by its name.
 *
 * The first row of the table whose part is in the name, case apart, decides. Rows that take
 * exceptions out come before the word that they are exceptions of: the sum of a split product is a
 * reduction, and the normal distribution is no norm.
 */
#include "activity_internal.h"

#include <string.h>

static const struct {
    const char *part;
    tess_kernel_class kernel_class;
} rows[] = {
    {"splitkreduce", TESS_KERNEL_REDUCTION},
    {"reducesplitk", TESS_KERNEL_REDUCTION},
    {"reduce_wgrad", TESS_KERNEL_REDUCTION},
    {"reduce_kernel", TESS_KERNEL_REDUCTION},
    {"distribution", TESS_KERNEL_ELEMENTWISE},
    {"flash", TESS_KERNEL_ATTENTION},
    {"fmha", TESS_KERNEL_ATTENTION},
    {"attention", TESS_KERNEL_ATTENTION},
    {"attn", TESS_KERNEL_ATTENTION},
    {"sdpa", TESS_KERNEL_ATTENTION},
    {"gemm", TESS_KERNEL_GEMM},
    {"gemv", TESS_KERNEL_GEMM},
    {"nvjet", TESS_KERNEL_GEMM},
    {"cijk_", TESS_KERNEL_GEMM},
    {"matmul", TESS_KERNEL_GEMM},
    {"winograd", TESS_KERNEL_GEMM},
    {"wgrad", TESS_KERNEL_GEMM},
    {"dgrad", TESS_KERNEL_GEMM},
    {"fprop", TESS_KERNEL_GEMM},
    {"convolution", TESS_KERNEL_GEMM},
    {"scudnn", TESS_KERNEL_GEMM},
    {"conv2d", TESS_KERNEL_GEMM},
    {"conv3d", TESS_KERNEL_GEMM},
    {"triton_tem", TESS_KERNEL_GEMM},
    {"cutlass", TESS_KERNEL_GEMM},
    {"bn_fw", TESS_KERNEL_NORM},
    {"bn_bw", TESS_KERNEL_NORM},
    {"gammabeta", TESS_KERNEL_NORM},
    {"layernorm", TESS_KERNEL_NORM},
    {"layer_norm", TESS_KERNEL_NORM},
    {"rmsnorm", TESS_KERNEL_NORM},
    {"rms_norm", TESS_KERNEL_NORM},
    {"groupnorm", TESS_KERNEL_NORM},
    {"group_norm", TESS_KERNEL_NORM},
    {"batchnorm", TESS_KERNEL_NORM},
    {"batch_norm", TESS_KERNEL_NORM},
    {"rowwisemoments", TESS_KERNEL_NORM},
    {"welford", TESS_KERNEL_NORM},
    {"softmax", TESS_KERNEL_REDUCTION},
    {"triton_red", TESS_KERNEL_REDUCTION},
    {"triton_per", TESS_KERNEL_REDUCTION},
    {"devicereduce", TESS_KERNEL_REDUCTION},
    {"devicescan", TESS_KERNEL_REDUCTION},
    {"elementwise", TESS_KERNEL_ELEMENTWISE},
    {"pointwise", TESS_KERNEL_ELEMENTWISE},
    {"triton_poi", TESS_KERNEL_ELEMENTWISE},
    {"multi_tensor_apply", TESS_KERNEL_ELEMENTWISE},
    {"catarray", TESS_KERNEL_ELEMENTWISE},
    {"tonhwc", TESS_KERNEL_ELEMENTWISE},
    {"tonchw", TESS_KERNEL_ELEMENTWISE},
    {"transpose", TESS_KERNEL_ELEMENTWISE},
    {"dropout", TESS_KERNEL_ELEMENTWISE},
    {"fillfunctor", TESS_KERNEL_ELEMENTWISE},
    {"reduce", TESS_KERNEL_REDUCTION},
};

const char *tess_kernel_class_name(tess_kernel_class kernel_class)
{
    static const char *const names[TESS_KERNEL_CLASSES] = {
        "gemm", "attention", "norm", "elementwise", "reduction", "communication", "copy", "other"};
    return (int)kernel_class >= 0 && kernel_class < TESS_KERNEL_CLASSES ? names[kernel_class]
                                                                        : NULL;
}

tess_kernel_class tess__kernel_class_of(const char *name)
{
    char lower[1024];
    size_t n = 0;
    if (strstr(name, "nccl") || strstr(name, "rccl"))
        return TESS_KERNEL_COMMUNICATION;
    for (; name[n] && n + 1 < sizeof lower; n++)
        lower[n] = (char)(name[n] >= 'A' && name[n] <= 'Z' ? name[n] | 0x20 : name[n]);
    lower[n] = '\0';
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strstr(lower, rows[i].part))
            return rows[i].kernel_class;
    return TESS_KERNEL_OTHER;
}
