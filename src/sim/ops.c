/* SPDX-License-Identifier: Apache-2.0 */
/* ops.c - operations, added one by one to the part that is being described.
 *
 * A linear layer y = x W^T of m rows, n outputs and k inputs is three products:
 *
 *   forward   y  = x W^T     (m, n, k)
 *   backward  dx = dy W      (m, k, n)
 *   weight    dW = dy^T x    (n, k, m)
 *
 * In 8 bits its operands are cast first: fp8_cast passes over x in the forward and over dy in the
 * backward pass, each of which reads 2 bytes and writes 2 (the matrix and its transpose).
 *
 * With LoRA of rank r the weights W are frozen: there is no dW, no transpose is cast for it, and x
 * is kept only where an adapter needs it. An adapter is two linear layers beside, x A^T of r
 * columns and its product with B, in the element type, whose result is added to y and dx.
 */
#include "sim_internal.h"

#include <assert.h>

static tess__op *add(tess_sim *sim, const char *name, int kind, int pass)
{
    assert(sim->n_ops < TESS__OPS_MAX);
    tess__op *op = &sim->ops[sim->n_ops++];
    *op = (tess__op){.name = name,
                     .kind = kind,
                     .pass = pass,
                     .part = sim->part,
                     .batch = 1.0,
                     .share = sim->clip_share};
    return op;
}

tess__op *tess__add_memory(tess_sim *sim, const char *name, int pass, double bytes)
{
    tess__op *op = add(sim, name, TESS__MEMORY, pass);
    op->bytes = bytes;
    op->seconds = tess__memory_seconds(sim, bytes);
    return op;
}

tess__op *tess__add_gemm(tess_sim *sim, const char *name, int pass, double batch, double m,
                         double n, double k, int precision)
{
    tess__op *op = add(sim, name, TESS__GEMM, pass);
    op->batch = batch;
    op->m = m;
    op->n = n;
    op->k = k;
    op->flop = 2.0 * batch * m * n * k;
    op->measured = tess__measured_find(sim, op, precision, &op->seconds);
    if (!op->measured)
        op->seconds = tess__gemm_seconds(sim, batch, m, n, k, precision, pass == TESS__WEIGHT, 0);
    return op;
}

tess__op *tess__add_flash(tess_sim *sim, const char *name, int pass, double heads, double queries,
                          double keys, double head_dim, double value_dim)
{
    tess__op *op = add(sim, name, TESS__FLASH, pass);
    const int backward = pass == TESS__BACKWARD;
    op->batch = heads;
    op->m = queries;
    op->n = keys;
    op->k = head_dim;
    op->flop = heads * queries * keys * tess__flash_flop(head_dim, value_dim, backward);
    op->seconds = tess__flash_seconds(sim, heads, queries, keys, head_dim, value_dim, backward);
    return op;
}

static int eight_bits(int precision)
{
    return precision == TESS_SIM_FP8 || precision == TESS_SIM_MXFP8 || precision == TESS_SIM_NVFP4;
}

/* The products of a linear layer. Products of experts run one after the other. */
static void add_products(tess_sim *sim, const char *name, double batch, double m, double n,
                         double k, int precision, int trained, double saved)
{
    tess__op *ops[] = {tess__add_gemm(sim, name, TESS__FORWARD, batch, m, n, k, precision),
                       tess__add_gemm(sim, name, TESS__BACKWARD, batch, m, k, n, precision),
                       trained ? tess__add_gemm(sim, name, TESS__WEIGHT, batch, n, k, m, precision)
                               : NULL};
    ops[0]->saved = saved;
    for (int i = 0; i < 3 && batch > 1.0; i++)
        if (ops[i] && !ops[i]->measured)
            ops[i]->seconds = tess__gemm_seconds(sim, batch, ops[i]->m, ops[i]->n, ops[i]->k,
                                                 precision, i == 2, 1);
    tess__model_part *part = &sim->parts[sim->part];
    const double add = sim->era[TESS__ERA_ACCUM_BYTES];
    part->weights += batch * n * k;
    if (!trained)
        return;
    part->trained += batch * n * k;
    if (add > 0.0)
        tess__add_memory(sim, "add gradient", TESS__WEIGHT, add * batch * n * k);
}

static void add_adapter(tess_sim *sim, double batch, double m, double n, double k)
{
    const double rank = sim->s.training.lora, e = sim->element;
    const int precision =
        sim->s.training.precision == TESS_SIM_FP32 ? TESS_SIM_FP32 : TESS_SIM_BF16;
    add_products(sim, "adapter down", batch, m, rank, k, precision, 1, 0.0);
    add_products(sim, "adapter up", batch, m, n, rank, precision, 1, e * batch * m * rank);
    tess__add_memory(sim, "add adapter", TESS__FORWARD, 3.0 * e * batch * m * n);
    tess__add_memory(sim, "add adapter", TESS__BACKWARD, 3.0 * e * batch * m * k);
}

void tess__add_linear(tess_sim *sim, const char *name, double batch, double m, double n, double k,
                      double saved)
{
    const int precision = sim->s.training.precision, frozen = sim->s.training.lora > 0;
    const int adapted = frozen && sim->adapted;
    const double each = frozen ? 3.0 : 4.0;
    const double cast = eight_bits(precision) ? each * sim->era[TESS__ERA_FP8_CAST] : 0.0;
    if (cast > 0.0) {
        tess__add_memory(sim, "cast input", TESS__FORWARD, cast * batch * m * k);
        tess__add_memory(sim, "cast gradient", TESS__BACKWARD, cast * batch * m * n);
    }
    const int first = sim->n_ops;
    add_products(sim, name, batch, m, n, k, precision, !frozen, frozen && !adapted ? 0.0 : saved);
    sim->ops[first].freed |= sim->reads;
    if (adapted)
        add_adapter(sim, batch, m, n, k);
}

void tess__add_weights(tess_sim *sim, double n)
{
    sim->parts[sim->part].weights += n;
    sim->parts[sim->part].trained += sim->s.training.lora ? 0.0 : n;
}

tess__op *tess__add_comm(tess_sim *sim, const char *name, int pass, int class,
                         tess_collective_op what, double bytes, int n, int stride, double share)
{
    tess__op *op = add(sim, name, TESS__COMM, pass);
    const double seconds = tess__comm_seconds(sim, what, bytes, n, stride);
    op->class = class;
    op->batch = what;
    op->bytes = bytes;
    op->m = n;
    op->n = stride;
    op->seconds = share * seconds;
    op->hidden = seconds - op->seconds;
    return op;
}

void tess__mark_again(tess_sim *sim, int first, int module, int input)
{
    for (int i = first; i < sim->n_ops; i++) {
        tess__op *op = &sim->ops[i];
        if (op->pass != TESS__FORWARD)
            continue;
        op->again |= module;
        if (op->kind != TESS__GEMM && op->kind != TESS__COMM && op->saved > 0.0)
            input = 0;
        if (op->saved > 0.0 && !input)
            op->freed |= module;
    }
}

void tess__add_wait(tess_sim *sim, const char *name, int class, double seconds)
{
    tess__op *op = add(sim, name, TESS__WAIT, TESS__STEP);
    op->class = class;
    op->seconds = seconds;
}

void tess__add_host(tess_sim *sim, int part, int pass, double seconds)
{
    if (seconds <= 0.0 || sim->n_ops == TESS__OPS_MAX)
        return;
    sim->part = part;
    add(sim, "wait for the host", TESS__HOST, pass)->seconds = seconds;
}
