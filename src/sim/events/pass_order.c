/* SPDX-License-Identifier: Apache-2.0 */
/* pass_order.c - what a part runs in a pass, in order.
 *
 * Beside the chain of data run
 *
 *   gradients of weights   they wait for the chain, and nothing of the pass waits for them
 *   tensor parallel        with tp_async the sum of input gradients runs beside them, and gathering
 *                          the input again beside the gradient of the input
 *   ring of keys           beside the attention of what is there; the last part of attention, one
 *                          of cp, waits for the last keys
 *   weights split over dp  gathered while the part before runs, gradients scattered while the part
 *                          after it runs, where the era overlaps them
 *
 * Backward the list is read from its end: gradient of the input, then that of the weights.
 */
#include "events_internal.h"

#include <string.h>

/* ---- attention over context-parallel ranks --------------------------------------------------- */

/* The exchange of the attention at `i`; NULL: none. */
static const tess__op *exchange_of(const tess__builder *b, int i, int pass)
{
    for (int k = i + 1; k < b->sim->n_part_ops; k++) {
        const tess__op *op = &b->sim->ops[k];
        if (op->part == b->part && op->pass == pass && op->class == TESS__CP)
            return op;
    }
    return NULL;
}

/* Whether this operation is the first of attention's core: its keys come from other ranks. */
static int is_core(const tess__builder *b, const tess__op *op)
{
    return b->sim->s.layout.cp > 1 && (op->kind == TESS__FLASH || op->kind == TESS__GEMM) &&
           (strcmp(op->name, "attention") == 0 || strcmp(op->name, "scores") == 0);
}

static void put_core(tess__builder *b, const tess__op *op, const tess__op *exchange)
{
    const double cp = b->sim->s.layout.cp;
    if (!exchange) {
        tess__pass_compute(b, op, op->seconds, 1);
        return;
    }
    if ((int)exchange->batch == TESS_ALL_TO_ALL) {
        b->chain = tess__pass_comm(b, exchange, tess__pass_all(exchange), b->chain);
        tess__pass_compute(b, op, op->seconds, 1);
        return;
    }
    const int ring = tess__pass_comm(b, exchange, tess__pass_all(exchange), b->chain);
    tess__pass_compute(b, op, op->seconds * (cp - 1.0) / cp, 1);
    tess__pass_wait(b, tess__pass_compute(b, op, op->seconds / cp, 1), ring);
}

/* ---- passes ---------------------------------------------------------------------------------- */

static int is_here(const tess__builder *b, const tess__op *op, int pass)
{
    return op->part == b->part && op->pass == pass && tess__pass_all(op) > 0.0;
}

/* Weights that are split over data-parallel ranks. */
static void put_gathers(tess__builder *b, int pass)
{
    const int early = tess__overlaps_dp(b->sim, pass == TESS__FORWARD);
    for (int i = 0; i < b->sim->n_part_ops; i++) {
        const tess__op *op = &b->sim->ops[i];
        if (!is_here(b, op, pass) || op->class != TESS__DP || (int)op->batch != TESS_ALL_GATHER)
            continue;
        b->gathered = tess__pass_comm(b, op, tess__pass_all(op), -1);
        b->p->ops[b->gathered].input = !early;
        b->p->ops[b->gathered].early = (uint8_t)early;
    }
}

static void put_scatters(tess__builder *b)
{
    const int beside = tess__overlaps_dp(b->sim, 0);
    for (int i = 0; i < b->sim->n_part_ops; i++) {
        const tess__op *op = &b->sim->ops[i];
        if (!is_here(b, op, TESS__BACKWARD) || op->class != TESS__DP ||
            (int)op->batch == TESS_ALL_GATHER)
            continue;
        const int at =
            tess__pass_comm(b, op, tess__pass_all(op), b->last >= 0 ? b->last : b->chain);
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
static void put_forward(tess__builder *b, int pass)
{
    for (int i = 0; i < b->sim->n_part_ops; i++) {
        const tess__op *op = &b->sim->ops[i];
        if (!is_here(b, op, pass) || op->class == TESS__DP || op->kind == TESS__HOST)
            continue;
        if (op->kind != TESS__COMM) {
            if (is_core(b, op))
                put_core(b, op, exchange_of(b, i, pass));
            else if (op->kind == TESS__GEMM)
                tess__pass_product(b, op);
            else
                tess__pass_compute(b, op, op->seconds, 1);
        } else if (op->class == TESS__EP) {
            tess__pass_experts(b, op);
        } else if (op->class == TESS__TP && is_cut(op) && (int)op->batch == TESS_ALL_GATHER) {
            tess__pass_before(b, op);
        } else if (op->class == TESS__TP) {
            tess__pass_behind(b, op);
        }
    }
    tess__pass_close(b);
}

static void put_host(tess__builder *b, int pass)
{
    for (int i = 0; i < b->sim->n_part_ops; i++)
        if (is_here(b, &b->sim->ops[i], pass) && b->sim->ops[i].kind == TESS__HOST)
            tess__pass_compute(b, &b->sim->ops[i], b->sim->ops[i].seconds, 1);
}

/* ---- backward -------------------------------------------------------------------------------- */

/* The gather of a part's input for the gradient of the weights at `i`, which is the first of its
 * linear layers; -1: none. */
static int gather_again(const tess__builder *b, int i)
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

static int is_again(const tess__builder *b, int i)
{
    const tess__op *op = &b->sim->ops[i];
    return op->class == TESS__TP && op->pass == TESS__BACKWARD &&
           (int)op->batch == TESS_ALL_GATHER && i + 1 < b->sim->n_part_ops &&
           b->sim->ops[i + 1].class == TESS__TP && b->sim->ops[i + 1].pass == TESS__BACKWARD &&
           (int)b->sim->ops[i + 1].batch == TESS_REDUCE_SCATTER && op->part == b->part;
}

/* Gradients of the input and of the weights of the linear layer whose weights are at `i`. */
static void put_linear(tess__builder *b, int i, int with_weight)
{
    const tess__op *weight = &b->sim->ops[i], *input = weight - 1;
    const int again = gather_again(b, i);
    const int has_input = i > 0 && is_here(b, input, TESS__BACKWARD) && input->kind == TESS__GEMM;
    const int comm =
        again >= 0 && tess__pass_all(&b->sim->ops[again]) > 0.0
            ? tess__pass_comm(b, &b->sim->ops[again], tess__pass_all(&b->sim->ops[again]), b->chain)
            : -1;
    if (has_input)
        tess__pass_product(b, input);
    if (with_weight) {
        const int at = tess__pass_compute(b, weight, weight->seconds, 0);
        b->p->last_weight = at;
        if (comm >= 0)
            tess__pass_wait(b, at, comm);
    } else if (comm >= 0) {
        b->pending = comm;
    }
}

/* The sum of input gradients: beside the gradients of the weights, or behind all. */
static void put_tp_backward(tess__builder *b, const tess__op *op)
{
    const int reduced = (int)op->batch == TESS_ALL_REDUCE || (int)op->batch == TESS_REDUCE_SCATTER;
    if (reduced && b->sim->era[TESS__ERA_TP_ASYNC] > 0.5) {
        b->chain = tess__pass_comm(b, op, tess__pass_all(op), b->chain);
        return;
    }
    if (b->last >= 0 && b->last > b->chain)
        b->chain = b->last; /* nothing runs beside it */
    if (reduced || !is_cut(op))
        tess__pass_behind(b, op);
    else
        tess__pass_before(b, op);
}

static void put_backward(tess__builder *b, int with_weight)
{
    const tess_sim *sim = b->sim;
    for (int i = sim->n_part_ops - 1; i >= 0; i--) {
        const tess__op *op = &sim->ops[i];
        if (is_here(b, op, TESS__WEIGHT)) {
            if (op->kind == TESS__GEMM)
                put_linear(b, i, with_weight);
            else if (with_weight)
                b->p->last_weight = tess__pass_compute(b, op, op->seconds, 0);
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
                tess__pass_compute(b, op, op->seconds, 1);
        } else if (op->class == TESS__EP) {
            tess__pass_experts(b, op);
        } else if (op->class == TESS__TP && !is_again(b, i)) {
            put_tp_backward(b, op);
        }
    }
    tess__pass_close(b);
}

static void put_weights(tess__builder *b)
{
    for (int i = b->sim->n_part_ops - 1; i >= 0; i--)
        if (is_here(b, &b->sim->ops[i], TESS__WEIGHT))
            b->p->last_weight = tess__pass_compute(b, &b->sim->ops[i], b->sim->ops[i].seconds, 1);
}

void tess__pass_fill(tess__pass_input *in, int part, int kind, tess__pass *pass)
{
    tess__builder b = {.in = in,
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
