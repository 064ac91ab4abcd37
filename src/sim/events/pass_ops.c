/* SPDX-License-Identifier: Apache-2.0 */
/* pass_ops.c - what a part runs in a pass: the operations of tess_sim on streams, and what each
 * waits for.
 *
 * Data flows along a chain: an operation waits for the one before it. Beside the chain run
 *
 *   gradients of weights   they wait for the chain, and nothing of the pass waits for them
 *   tensor parallel        with tp_async the sum of input gradients runs beside them, and gathering
 *                          the input again beside the gradient of the input. Where the era lets
 *                          products and collectives run in pieces (tp_exposed), the product next to
 *                          a collective is cut in two: one piece runs beside it
 *   ring of keys           beside the attention of what is there; the last part of attention, one
 *                          of cp, waits for the last keys
 *   expert parallel        what the era hides behind another micro-batch is a call of its own on a
 *                          stream of its own, which the optimiser waits for
 *   weights split over dp  gathered while the part before runs, gradients scattered while the part
 *                          after it runs, where the era overlaps them
 *
 * Backward the list is read from its end: gradient of the input, then that of the weights.
 */
#include "events_internal.h"

#include <math.h>
#include <string.h>

typedef struct {
    tess__pass_input *in;
    const tess_sim *sim;
    int part, kind;
    tess__pass *p;
    int chain;     /* last of the data's way; -1: the input of the pass */
    int pending;   /* communication that the compute operation after the next one waits for; -1 */
    int last;      /* compute operation; -1: none */
    int gathered;  /* weights that the first compute operation waits for; -1 */
    int before;    /* collective beside whose end the next product begins; -1 */
    double hidden; /* seconds of it that the product hides */
} builder;

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

static int put(builder *b, const tess__pass_op *op)
{
    tess__pass *p = b->p;
    if (p->n == TESS__PASS_OPS)
        return p->n - 1; /* a part has at most TESS__OPS_MAX operations, cut ones included */
    p->ops[p->n] = *op;
    return p->n++;
}

static void wait_for(builder *b, int at, int before)
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

static tess__pass_op compute_op(const builder *b, const tess__op *op, double seconds)
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
static int put_compute(builder *b, const tess__op *op, double seconds, int chain)
{
    const tess__pass_op new = compute_op(b, op, seconds);
    const int at = put(b, &new);
    wait_for(b, at, b->chain);
    if (b->gathered >= 0)
        wait_for(b, at, b->gathered);
    b->gathered = -1;
    if (b->pending >= 0 && chain) {
        wait_for(b, at, b->pending);
        b->pending = -1;
    }
    b->last = at;
    if (chain)
        b->chain = at;
    return at;
}

static int put_comm(builder *b, const tess__op *op, double seconds, int after)
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
    wait_for(b, at, after);
    return at;
}

static double all_of(const tess__op *op)
{
    return op->seconds + op->hidden;
}

/* ---- collectives beside products ------------------------------------------------------------- */

/* Cuts the last compute operation so that its last `ns` are one of their own; returns the first
 * piece, -1: there is none. */
static int cut_last(builder *b, int64_t ns)
{
    tess__pass_op *first = &b->p->ops[b->last];
    if (b->last < 0 || first->class != TESS__TL_GEMM || ns <= 0)
        return b->chain;
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
    wait_for(b, b->last, at);
    if (b->chain == at)
        b->chain = b->last;
    return at;
}

/* A collective behind a product: what is hidden runs beside its end. */
static void put_behind(builder *b, const tess__op *op)
{
    const int64_t hidden = tess__pass_ns(b->in, op->hidden, class_of(op));
    const int after = hidden > 0 ? cut_last(b, hidden) : b->chain;
    b->chain = put_comm(b, op, all_of(op), after);
}

/* A collective before a product: what is hidden runs beside its beginning. The product is cut when
 * it comes. */
static void put_before(builder *b, const tess__op *op)
{
    b->before = put_comm(b, op, all_of(op), b->chain);
    b->hidden = op->hidden;
}

/* A product, whose first piece may run beside the collective before it. */
static void put_product(builder *b, const tess__op *gemm)
{
    const int comm = b->before;
    const double first = comm >= 0 ? fmin(b->hidden, gemm->seconds) : 0.0;
    b->before = -1;
    if (first > 0.0)
        put_compute(b, gemm, first, 1);
    const int at = put_compute(b, gemm, gemm->seconds - first, 1);
    if (comm >= 0)
        wait_for(b, at, comm);
}

/* Nothing else runs beside the collective before a product that does not come. */
static void close_before(builder *b)
{
    if (b->before >= 0)
        b->chain = b->before;
    b->before = -1;
}

static void put_experts(builder *b, const tess__op *op)
{
    if (op->seconds > 0.0)
        b->chain = put_comm(b, op, op->seconds, b->chain);
    if (op->hidden <= 0.0)
        return;
    const int beside = put_comm(b, op, op->hidden, b->chain);
    b->p->ops[beside].stream = TESS__STREAM_EP_BESIDE;
    b->p->beside = beside;
}

/* ---- attention over context-parallel ranks --------------------------------------------------- */

/* The exchange of the attention at `i`; NULL: none. */
static const tess__op *exchange_of(const builder *b, int i, int pass)
{
    for (int k = i + 1; k < b->sim->n_part_ops; k++) {
        const tess__op *op = &b->sim->ops[k];
        if (op->part == b->part && op->pass == pass && op->class == TESS__CP)
            return op;
    }
    return NULL;
}

/* Whether this operation is the first of attention's core: its keys come from other ranks. */
static int is_core(const builder *b, const tess__op *op)
{
    return b->sim->s.layout.cp > 1 && (op->kind == TESS__FLASH || op->kind == TESS__GEMM) &&
           (strcmp(op->name, "attention") == 0 || strcmp(op->name, "scores") == 0);
}

static void put_core(builder *b, const tess__op *op, const tess__op *exchange)
{
    const double cp = b->sim->s.layout.cp;
    if (!exchange) {
        put_compute(b, op, op->seconds, 1);
        return;
    }
    if ((int)exchange->batch == TESS_ALL_TO_ALL) {
        b->chain = put_comm(b, exchange, all_of(exchange), b->chain);
        put_compute(b, op, op->seconds, 1);
        return;
    }
    const int ring = put_comm(b, exchange, all_of(exchange), b->chain);
    put_compute(b, op, op->seconds * (cp - 1.0) / cp, 1);
    wait_for(b, put_compute(b, op, op->seconds / cp, 1), ring);
}

/* ---- passes ---------------------------------------------------------------------------------- */

static int is_here(const builder *b, const tess__op *op, int pass)
{
    return op->part == b->part && op->pass == pass && all_of(op) > 0.0;
}

/* Weights that are split over data-parallel ranks. */
static void put_gathers(builder *b, int pass)
{
    const int early = tess__overlaps_dp(b->sim, pass == TESS__FORWARD);
    for (int i = 0; i < b->sim->n_part_ops; i++) {
        const tess__op *op = &b->sim->ops[i];
        if (!is_here(b, op, pass) || op->class != TESS__DP || (int)op->batch != TESS_ALL_GATHER)
            continue;
        b->gathered = put_comm(b, op, all_of(op), -1);
        b->p->ops[b->gathered].input = !early;
        b->p->ops[b->gathered].early = (uint8_t)early;
    }
}

static void put_scatters(builder *b)
{
    const int beside = tess__overlaps_dp(b->sim, 0);
    for (int i = 0; i < b->sim->n_part_ops; i++) {
        const tess__op *op = &b->sim->ops[i];
        if (!is_here(b, op, TESS__BACKWARD) || op->class != TESS__DP ||
            (int)op->batch != TESS_REDUCE_SCATTER)
            continue;
        const int at = put_comm(b, op, all_of(op), b->last >= 0 ? b->last : b->chain);
        if (!beside)
            b->chain = at;
    }
}

/* A gather of the forward pass before a product of which a piece may run beside it. */
static int is_cut(const tess__op *op)
{
    return op->class == TESS__TP && op->hidden > 0.0;
}

/* Forward, or the forward operations that run again. */
static void put_forward(builder *b, int pass)
{
    for (int i = 0; i < b->sim->n_part_ops; i++) {
        const tess__op *op = &b->sim->ops[i];
        if (!is_here(b, op, pass) || op->class == TESS__DP || op->kind == TESS__HOST)
            continue;
        if (op->kind != TESS__COMM) {
            if (is_core(b, op))
                put_core(b, op, exchange_of(b, i, pass));
            else if (op->kind == TESS__GEMM)
                put_product(b, op);
            else
                put_compute(b, op, op->seconds, 1);
        } else if (op->class == TESS__EP) {
            put_experts(b, op);
        } else if (op->class == TESS__TP && is_cut(op) && (int)op->batch == TESS_ALL_GATHER) {
            put_before(b, op);
        } else if (op->class == TESS__TP) {
            put_behind(b, op);
        }
    }
    close_before(b);
}

static void put_host(builder *b, int pass)
{
    for (int i = 0; i < b->sim->n_part_ops; i++)
        if (is_here(b, &b->sim->ops[i], pass) && b->sim->ops[i].kind == TESS__HOST)
            put_compute(b, &b->sim->ops[i], b->sim->ops[i].seconds, 1);
}

/* ---- backward -------------------------------------------------------------------------------- */

/* The gather of a part's input for the gradient of the weights at `i`, which is the first of its
 * linear layers; -1: none. */
static int gather_again(const builder *b, int i)
{
    for (int k = i - 1; k > 0; k--) {
        const tess__op *op = &b->sim->ops[k];
        if (op->part != b->part)
            continue;
        if (op->kind == TESS__GEMM && op->pass == TESS__WEIGHT)
            return -1;
        if (op->pass == TESS__BACKWARD && op->class == TESS__TP &&
            (int)op->batch == TESS_REDUCE_SCATTER &&
            (int)b->sim->ops[k - 1].batch == TESS_ALL_GATHER)
            return k - 1;
    }
    return -1;
}

static int is_again(const builder *b, int i)
{
    const tess__op *op = &b->sim->ops[i];
    return op->class == TESS__TP && op->pass == TESS__BACKWARD &&
           (int)op->batch == TESS_ALL_GATHER && i + 1 < b->sim->n_part_ops &&
           b->sim->ops[i + 1].class == TESS__TP && b->sim->ops[i + 1].pass == TESS__BACKWARD &&
           (int)b->sim->ops[i + 1].batch == TESS_REDUCE_SCATTER && op->part == b->part;
}

/* Gradients of the input and of the weights of the linear layer whose weights are at `i`. */
static void put_linear(builder *b, int i, int with_weight)
{
    const tess__op *weight = &b->sim->ops[i], *input = weight - 1;
    const int again = gather_again(b, i);
    const int has_input = i > 0 && is_here(b, input, TESS__BACKWARD) && input->kind == TESS__GEMM;
    const int comm = again >= 0 && all_of(&b->sim->ops[again]) > 0.0
                         ? put_comm(b, &b->sim->ops[again], all_of(&b->sim->ops[again]), b->chain)
                         : -1;
    if (has_input)
        put_product(b, input);
    if (with_weight) {
        const int at = put_compute(b, weight, weight->seconds, 0);
        b->p->last_weight = at;
        if (comm >= 0)
            wait_for(b, at, comm);
    } else if (comm >= 0) {
        b->pending = comm;
    }
}

/* The sum of input gradients: beside the gradients of the weights, or behind all. */
static void put_tp_backward(builder *b, const tess__op *op)
{
    const int reduced = (int)op->batch == TESS_ALL_REDUCE || (int)op->batch == TESS_REDUCE_SCATTER;
    if (reduced && b->sim->era[TESS__ERA_TP_ASYNC] > 0.5) {
        b->chain = put_comm(b, op, all_of(op), b->chain);
        return;
    }
    if (b->last >= 0 && b->last > b->chain)
        b->chain = b->last; /* nothing runs beside it */
    if (reduced || !is_cut(op))
        put_behind(b, op);
    else
        put_before(b, op);
}

static void put_backward(builder *b, int with_weight)
{
    const tess_sim *sim = b->sim;
    for (int i = sim->n_part_ops - 1; i >= 0; i--) {
        const tess__op *op = &sim->ops[i];
        if (is_here(b, op, TESS__WEIGHT)) {
            if (op->kind == TESS__GEMM)
                put_linear(b, i, with_weight);
            else if (with_weight)
                b->p->last_weight = put_compute(b, op, op->seconds, 0);
            continue;
        }
        if (!is_here(b, op, TESS__BACKWARD) || op->class == TESS__DP || op->kind == TESS__HOST)
            continue;
        if (op->kind == TESS__GEMM && i + 1 < sim->n_part_ops &&
            is_here(b, &sim->ops[i + 1], TESS__WEIGHT) && sim->ops[i + 1].kind == TESS__GEMM)
            continue; /* with the gradient of its weights */
        if (op->kind != TESS__COMM) {
            if (is_core(b, op) && (op->kind == TESS__FLASH || op[-1].pass == TESS__FORWARD))
                put_core(b, op, exchange_of(b, i, TESS__BACKWARD));
            else
                put_compute(b, op, op->seconds, 1);
        } else if (op->class == TESS__EP) {
            put_experts(b, op);
        } else if (op->class == TESS__TP && !is_again(b, i)) {
            put_tp_backward(b, op);
        }
    }
    close_before(b);
}

static void put_weights(builder *b)
{
    for (int i = b->sim->n_part_ops - 1; i >= 0; i--)
        if (is_here(b, &b->sim->ops[i], TESS__WEIGHT))
            b->p->last_weight = put_compute(b, &b->sim->ops[i], b->sim->ops[i].seconds, 1);
}

void tess__pass_fill(tess__pass_input *in, int part, int kind, tess__pass *pass)
{
    builder b = {.in = in,
                 .sim = in->sim,
                 .part = part,
                 .kind = kind,
                 .p = pass,
                 .chain = -1,
                 .pending = -1,
                 .last = -1,
                 .gathered = -1,
                 .before = -1};
    pass->n = 0;
    pass->last_weight = pass->beside = -1;
    if (kind == TESS__PASS_F) {
        put_gathers(&b, TESS__FORWARD);
        put_forward(&b, TESS__FORWARD);
        put_host(&b, TESS__FORWARD);
    } else if (kind == TESS__PASS_W) {
        put_weights(&b);
    } else {
        put_gathers(&b, TESS__BACKWARD);
        put_forward(&b, TESS__AGAIN);
        put_backward(&b, kind == TESS__PASS_B);
        put_host(&b, TESS__BACKWARD);
    }
    if (kind == TESS__PASS_B || kind == TESS__PASS_I)
        put_scatters(&b);
    pass->last = b.chain;
}
