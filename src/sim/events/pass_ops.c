/* SPDX-License-Identifier: Apache-2.0 */
/* pass_ops.c - operations of tess_sim on streams, and what each waits for, one by one.
 *
 * Data flows along a chain: an operation waits for the one before it. Where the era lets products
 * and collectives run in pieces (tp_exposed), the product next to a collective is cut in two: one
 * piece runs beside it. What the era hides of expert exchanges behind another micro-batch is a call
 * of its own on a stream of its own, which the optimiser waits for. pass_order.c has the order.
 */
#include "events_internal.h"

#include <math.h>

int64_t tess__pass_ns(const tess__pass_input *in, double seconds, int class)
{
    return llround(1e9 * seconds * in->sim->slow * in->scale[class]);
}

int tess__pass_kind(tess__pass_input *in, int n, int stride, int class)
{
    tess__classes *c = in->classes;
    for (int i = 0; i < c->n_kinds; i++)
        if (c->kinds[i].n == n && c->kinds[i].stride == stride && c->kinds[i].class == class)
            return i;
    c->kinds[c->n_kinds] = (tess__group_kind){n, stride, class};
    return c->n_kinds++;
}

/* ---- adding ---------------------------------------------------------------------------------- */

static int put(tess__builder *b, const tess__pass_op *op)
{
    tess__pass *p = b->p;
    if (p->n == TESS__PASS_OPS)
        return p->n - 1; /* a part has at most TESS__OPS_MAX operations, cut ones included */
    p->ops[p->n] = *op;
    return p->n++;
}

void tess__pass_wait(tess__builder *b, int at, int before)
{
    tess__pass_op *op = &b->p->ops[at];
    if (before < 0) {
        op->input = 1;
        return;
    }
    for (int i = 0; i < TESS__PASS_WAITS; i++)
        if (op->waits[i] < 0 || op->waits[i] == before) {
            op->waits[i] = (int16_t)before;
            return;
        }
}

static int class_of(const tess__op *op)
{
    static const uint8_t comm[] = {
        [TESS__TP] = TESS__TL_TP, [TESS__CP] = TESS__TL_CP, [TESS__EP] = TESS__TL_EP,
        [TESS__PP] = TESS__TL_PP, [TESS__DP] = TESS__TL_DP, [TESS__COMPUTE] = 0};
    switch (op->kind) {
    case TESS__GEMM: return TESS__TL_GEMM;
    case TESS__FLASH: return TESS__TL_ATTENTION;
    case TESS__COMM: return comm[op->class];
    case TESS__HOST: return TESS__TL_HOST;
    default: return TESS__TL_ELEMENTWISE;
    }
}

static tess__pass_op compute_op(const tess__builder *b, const tess__op *op, double seconds)
{
    return (tess__pass_op){.name = op->name,
                           .ns = tess__pass_ns(b->in, seconds, class_of(op)),
                           .waits = {-1, -1, -1},
                           .kind = -1,
                           .stream = TESS__STREAM_COMPUTE,
                           .class = (uint8_t)class_of(op),
                           .cat = op->kind == TESS__HOST ? TESS__CAT_HOST : TESS__CAT_COMPUTE};
}

/* Computes `seconds` of an operation. chain: the data's way goes through it. */
int tess__pass_compute(tess__builder *b, const tess__op *op, double seconds, int chain)
{
    const tess__pass_op new = compute_op(b, op, seconds);
    const int at = put(b, &new);
    tess__pass_wait(b, at, b->chain);
    if (b->gathered >= 0)
        tess__pass_wait(b, at, b->gathered);
    b->gathered = -1;
    if (b->pending >= 0 && chain) {
        tess__pass_wait(b, at, b->pending);
        b->pending = -1;
    }
    b->last = at;
    if (chain)
        b->chain = at;
    return at;
}

int tess__pass_comm(tess__builder *b, const tess__op *op, double seconds, int after)
{
    static const uint8_t streams[] = {[TESS__TP] = TESS__STREAM_TP,
                                      [TESS__CP] = TESS__STREAM_CP,
                                      [TESS__EP] = TESS__STREAM_EP,
                                      [TESS__DP] = TESS__STREAM_DP,
                                      [TESS__PP] = 0,
                                      [TESS__COMPUTE] = 0};
    const double all = op->seconds + op->hidden;
    const int ring = op->class == TESS__CP && (int)op->batch == TESS_SEND_RECEIVE;
    const int n = ring ? b->sim->s.layout.cp : (int)op->m;
    const tess__pass_op new = {
        .name = op->name,
        .ns = tess__pass_ns(b->in, seconds, class_of(op)),
        .bytes = llround(op->bytes * (all > 0.0 ? seconds / all : 1.0) * (ring ? n - 1 : 1)),
        .waits = {-1, -1, -1},
        .kind = (int8_t)tess__pass_kind(b->in, n, (int)op->n, op->class),
        .op = (uint8_t)op->batch,
        .stream = streams[op->class],
        .class = (uint8_t)class_of(op),
        .cat = TESS__CAT_COMM};
    const int at = put(b, &new);
    tess__pass_wait(b, at, after);
    return at;
}

double tess__pass_all(const tess__op *op)
{
    return op->seconds + op->hidden;
}

/* ---- collectives beside products ------------------------------------------------------------- */

/* Cuts the last compute operation so that its last `ns` are one of their own; returns the first
 * piece, -1: there is none. */
static int cut_last(tess__builder *b, int64_t ns)
{
    if (b->last < 0 || b->p->ops[b->last].class != TESS__TL_GEMM || ns <= 0)
        return b->chain;
    tess__pass_op *first = &b->p->ops[b->last];
    if (ns >= first->ns)
        return first->input ? -1 : first->waits[0];
    tess__pass_op rest = *first;
    rest.ns = ns;
    rest.input = 0;
    first->ns -= ns;
    for (int i = 0; i < TESS__PASS_WAITS; i++)
        rest.waits[i] = -1;
    const int at = b->last;
    b->last = put(b, &rest);
    tess__pass_wait(b, b->last, at);
    if (b->chain == at)
        b->chain = b->last;
    return at;
}

/* A collective behind a product: what is hidden runs beside its end. */
void tess__pass_behind(tess__builder *b, const tess__op *op)
{
    const int64_t hidden = tess__pass_ns(b->in, op->hidden, class_of(op));
    const int after = hidden > 0 ? cut_last(b, hidden) : b->chain;
    b->chain = tess__pass_comm(b, op, tess__pass_all(op), after);
}

/* A collective before a product: what is hidden runs beside its beginning. The product is cut when
 * it comes. */
void tess__pass_before(tess__builder *b, const tess__op *op)
{
    b->before = tess__pass_comm(b, op, tess__pass_all(op), b->chain);
    b->hidden = op->hidden;
}

/* A product, whose first piece may run beside the collective before it. */
void tess__pass_product(tess__builder *b, const tess__op *gemm)
{
    const int comm = b->before;
    const double first = comm >= 0 ? fmin(b->hidden, gemm->seconds) : 0.0;
    b->before = -1;
    if (first > 0.0)
        tess__pass_compute(b, gemm, first, 1);
    const int at = tess__pass_compute(b, gemm, gemm->seconds - first, 1);
    if (comm >= 0)
        tess__pass_wait(b, at, comm);
}

/* Nothing else runs beside the collective before a product that does not come. */
void tess__pass_close(tess__builder *b)
{
    if (b->before >= 0)
        b->chain = b->before;
    b->before = -1;
}

void tess__pass_experts(tess__builder *b, const tess__op *op)
{
    if (op->seconds > 0.0)
        b->chain = tess__pass_comm(b, op, op->seconds, b->chain);
    if (op->hidden <= 0.0)
        return;
    const int beside = tess__pass_comm(b, op, op->hidden, b->chain);
    b->p->ops[beside].stream = TESS__STREAM_EP_BESIDE;
    b->p->beside = beside;
}
