/* SPDX-License-Identifier: Apache-2.0 */
/* entries.h - the kernels of one instruction set: each has the type of its member of tess__kernels.
 *
 * Included by the files that are compiled once per instruction set, and by no other.
 */
#ifndef TESS_ENTRIES_H
#define TESS_ENTRIES_H

#include "kernels.h"

/* clang-format off */
#define TESS_EACH_KERNEL(X)                                                                        \
    X(fma) X(read)                                                                                 \
    X(attn_forward) X(attn_backward) X(attn_total) X(attn_sums) X(attn_virtual)                    \
    X(attn_means) X(attn_nearest) X(attn_cluster_sums) X(attn_cluster_keys)                        \
    X(f32_from_bf16) X(bf16_from_f32) X(f32_from_f16) X(f16_from_f32)                              \
    X(scan_f32) X(scan_bf16) X(scan_f16) X(scan_f64)                                               \
    X(panel_pack) X(score) X(lse_step) X(mass_step)                                                \
    X(lse_columns) X(kl_columns) X(dot_columns) X(blend_columns) X(add_products)                   \
    X(topk)                                                                                        \
    X(adamw) X(momentum) X(apply_update) X(mix) X(sum_squares)                                     \
    X(bits_row) X(bits_and_count) X(bits_planes)                                                   \
    X(norm_forward) X(norm_backward) X(rms_rotary) X(rms_rotary_backward) X(gelu) X(gelu_backward) \
    X(epilogue) X(scale) X(gate_gradient) X(column_sums)                                           \
    X(fixed_add) X(fixed_read)
/* clang-format on */

#define TESS_DECLARE(name) __typeof__(*((tess__kernels *)NULL)->name) TESS_K(tess__##name);
TESS_EACH_KERNEL(TESS_DECLARE)

#endif
