/* SPDX-License-Identifier: Apache-2.0 */
/* weight_names.c - what the original repository calls the parameters that diffusers renamed.
 *
 * A name is its place (nothing, or "blocks.N."), a module, and ".weight", ".bias" or nothing behind
 * it; only modules differ. Mind the norms: the original's norm3 is diffusers' norm2, the one before
 * attention to the text. It stands third in the original's class and runs second.
 */
#include "weights.h"

#include <string.h>

typedef struct {
    const char *diffusers, *original;
} pair;

static const pair outside[] = {
    {"condition_embedder.time_embedder.linear_1", "time_embedding.0"},
    {"condition_embedder.time_embedder.linear_2", "time_embedding.2"},
    {"condition_embedder.time_proj", "time_projection.1"},
    {"condition_embedder.text_embedder.linear_1", "text_embedding.0"},
    {"condition_embedder.text_embedder.linear_2", "text_embedding.2"},
    {"scale_shift_table", "head.modulation"},
    {"proj_out", "head.head"},
    {NULL, NULL},
};

static const pair in_blocks[] = {
    {"scale_shift_table", "modulation"},
    {"attn1.to_q", "self_attn.q"},
    {"attn1.to_k", "self_attn.k"},
    {"attn1.to_v", "self_attn.v"},
    {"attn1.to_out.0", "self_attn.o"},
    {"attn1.norm_q", "self_attn.norm_q"},
    {"attn1.norm_k", "self_attn.norm_k"},
    {"attn2.to_q", "cross_attn.q"},
    {"attn2.to_k", "cross_attn.k"},
    {"attn2.to_v", "cross_attn.v"},
    {"attn2.to_out.0", "cross_attn.o"},
    {"attn2.norm_q", "cross_attn.norm_q"},
    {"attn2.norm_k", "cross_attn.norm_k"},
    {"norm2", "norm3"},
    {"ffn.net.0.proj", "ffn.0"},
    {"ffn.net.2", "ffn.2"},
    {NULL, NULL},
};

/* The length of "blocks.N." at the beginning of name; 0 outside the blocks. */
static int place_length(const char *name)
{
    int n = 0;
    return sscanf(name, "blocks.%*d.%n", &n) == 0 ? n : 0;
}

void tess__weight_name(tess_weight_names names, const char *diffusers,
                       char out[TESS_WEIGHT_NAME_BYTES])
{
    const int place = place_length(diffusers);
    const char *module = diffusers + place;
    const pair *p = place ? in_blocks : outside;
    size_t n = 0;
    for (; p->diffusers; p++) {
        n = strlen(p->diffusers);
        if (strncmp(module, p->diffusers, n) == 0 && (module[n] == '.' || module[n] == '\0'))
            break;
    }
    if (names == TESS_WEIGHTS_ORIGINAL && p->diffusers)
        snprintf(out, TESS_WEIGHT_NAME_BYTES, "%.*s%s%s", place, diffusers, p->original,
                 module + n);
    else
        snprintf(out, TESS_WEIGHT_NAME_BYTES, "%s", diffusers);
}
