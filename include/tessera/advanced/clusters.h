/* SPDX-License-Identifier: Apache-2.0 */
/* clusters.h - the clusters of keys that have virtual keys of their own.
 *
 * Advanced: functions and structs may change in any version.
 */
#ifndef TESSERA_CLUSTERS_H
#define TESSERA_CLUSTERS_H

#include "../attn.h"

TESS_BEGIN_DECLS

/* labels (batch, heads, tokens_k) = the cluster, 0..compensate - 1, of each key in the last call on
 * a selection. They belong to the object and change with the next call. EINVAL unless the shape's
 * compensate is 2 or more. */
TESS_API tess_status tess_attn_labels(const tess_attn *attn, const uint8_t **labels);

/* The clusters of the next calls on a selection: a key belongs to the nearest of its head's
 * centroids (batch, heads, compensate, head_dim), the first of several. They stay the caller's and
 * must outlive the calls. NULL: calls find their own. EINVAL unless the shape's compensate is 2 or
 * more. */
TESS_API tess_status tess_attn_centroids(tess_attn *attn, const float *centroids);

TESS_END_DECLS

#endif
