/* SPDX-License-Identifier: Apache-2.0 */
/* block.c - one block: self attention, attention to the text, feed-forward layer.
 *
 *   x1 = x0 + gate1 attn1(norm(x0))
 *   x2 = x1 + attn2(norm2(x1), text)
 *   x3 = x2 + gate2 ffn(norm(x2))
 *
 * Backward walks the same steps from the end; p->ws.g is the gradient of the stream, in place.
 * Work per token, with d = dim and f = ffn: linear layers 2 (6 d^2 + 2 d f) flop forward and twice
 * that backward, attention 4 d and 10 d for each key.
 */
#include "pass_internal.h"

static void modulate(tess_pass *p, int layer)
{
    const tess_model *m = p->model;
    tess__modulate(p, tess__block_at(m, m->values, layer, B_TABLE), MOD_ALL, p->cond.six, p->z.dim);
}

tess_status tess__block_forward(tess_pass *p, int layer, const tess__set *s, float *x_out)
{
    TESS_TRY(tess__block_recompute(p, layer, s));
    return tess__ffn_forward(p, layer, s, x_out);
}

tess_status tess__block_recompute(tess_pass *p, int layer, const tess__set *s)
{
    modulate(p, layer);
    TESS_TRY(tess__self_forward(p, layer, s));
    return tess__cross_forward(p, layer, s);
}

tess_status tess__block_backward(tess_pass *p, int layer, const tess__set *s)
{
    const tess_model *m = p->model;
    modulate(p, layer);
    TESS_TRY(tess__ffn_backward(p, layer, s));
    TESS_TRY(tess__report_ready(p, TESS__NOT_READY));
    TESS_TRY(tess__cross_backward(p, layer, s));
    TESS_TRY(tess__report_ready(p, TESS__NOT_READY));
    TESS_TRY(tess__self_backward(p, layer, s));
    TESS_TRY(tess__exact_mod(p));
    tess__modulate_backward(p, tess__block_at(m, m->gradients, layer, B_TABLE), MOD_ALL,
                            p->cond.dsix, p->z.dim);
    return TESS_OK;
}
