/* SPDX-License-Identifier: Apache-2.0 */
/* attention_ops.c - the attention of a layer: projections, scores, context parallelism.
 *
 * Of one rank: heads / tp heads, tokens rows; a causal query sees half of the keys on average, and
 * context parallelism hands out the rows so that all ranks have the same pairs. Flash attention is
 * one kernel each way. Without it the scores exist: two batched products, a softmax and, where
 * training drops out, a mask,
 *
 *   scores (s, s, head_dim), softmax, dropout, values (s, head_dim, s)     for batch heads / tp
 *
 * each forward product with two backward ones. The fused softmax takes rows of at most 16384 and a
 * multiple of 4 heads times samples; otherwise scale, mask, conversion and softmax are kernels.
 *
 * Latent attention (MLA) projects down to q_rank and kv_rank and up again to heads of nope_dim +
 * rope_dim for scores and value_dim for values.
 */
#include "sim_internal.h"

#include <math.h>

/* Keys that a query of a sample sees on average. */
static double keys_attended(const tess_sim_model *m)
{
    const double s = (double)m->seq;
    double keys = m->full ? s : s / 2.0;
    if (m->window && (double)m->window < s) {
        const double w = (double)m->window;
        keys = m->full ? fmin(2.0 * w, s) : w - w * w / (2.0 * s);
    }
    return keys;
}

/* Seconds of sparse layers: a kernel that gathers keys runs at a fraction of the dense one's
 * rate, and opens and closes a query row in the time of the cluster's row_keys. */
static double sparse_seconds(const tess_sim *sim, double queries, double keys, double heads,
                             int backward)
{
    const tess_sim_model *m = &sim->s.model;
    const tess_cluster_info *c = sim->cluster;
    const double given = backward ? m->sparse_backward : m->sparse_forward;
    const double row = c->attn_row_keys - sim->hw[TESS__HW_FLASH_KEYS];
    return tess__flash_seconds(sim, heads, queries, fmax(keys * m->density + row, 0.0), m->head_dim,
                               m->value_dim, backward) /
           (given > 0.0 ? given : c->attn_sparse);
}

/* One of the layers on average, where some of them are sparse. */
static void flash(tess_sim *sim, const char *name, double queries, double keys, double heads)
{
    const tess_sim_model *m = &sim->s.model;
    const double sparse = m->density < 1.0 ? (double)m->sparse_layers / m->layers : 0.0;
    const double mean = keys * (sparse * m->density + 1.0 - sparse);
    for (int pass = TESS__FORWARD; pass <= TESS__BACKWARD; pass++) {
        const int backward = pass == TESS__BACKWARD;
        const double dense =
            tess__flash_seconds(sim, heads, queries, keys, m->head_dim, m->value_dim, backward);
        tess__op *op =
            tess__add_flash(sim, name, pass, heads, queries, mean, m->head_dim, m->value_dim);
        op->again = op->freed = backward ? 0 : TESS_SIM_AGAIN_CORE;
        /* Dense layers are even, whatever the sparse ones are. */
        op->seconds = sparse > 0.0 ? (1.0 - sparse) * dense +
                                         sparse * m->imbalance *
                                             sparse_seconds(sim, queries, keys, heads, backward)
                                   : dense * m->imbalance;
    }
}

/* DSV's selection, in the forward pass of sparse layers alone. Every group of queries scores all
 * keys in a space of 16 numbers a head and keeps the best, in one kernel that runs twice over the
 * keys (to find the limit, to list what is above) on the units for fp32, since the products are too
 * slim for others. Some queries are also scored in full, for the predictor to learn from. */
enum { PREDICTOR_RANK = 16, SELECT_PASSES = 2, LEARN_STRIDE = 64, LEARN_BYTES = 8 };

static void selection(tess_sim *sim, double queries, double keys, double heads)
{
    const tess_sim_model *m = &sim->s.model;
    if (m->density >= 1.0 || m->select_group == 0)
        return;
    const double sparse = (double)m->sparse_layers / m->layers;
    const double scores = heads * queries * keys;
    const int precision =
        sim->s.training.precision == TESS_SIM_FP32 ? TESS_SIM_FP32 : TESS_SIM_BF16;
    for (int pass = TESS__FORWARD; pass <= TESS__BACKWARD; pass++)
        tess__add_gemm(sim, "predictor", pass, 1, sim->tokens, 2.0 * PREDICTOR_RANK * heads,
                       m->hidden, precision)
            ->seconds *= sparse;
    tess__op *op = tess__add_gemm(sim, "select keys", TESS__FORWARD, SELECT_PASSES * heads,
                                  queries / m->select_group, keys, PREDICTOR_RANK, TESS_SIM_FP32);
    op->seconds = sparse * op->flop / (sim->cluster->flops_fp32 * sim->hw[TESS__HW_GEMM_FP32]);
    tess__add_memory(sim, "predictor's loss", TESS__FORWARD,
                     sparse * LEARN_BYTES * scores / LEARN_STRIDE);
}

int tess__softmax_fused(const tess_sim *sim)
{
    const tess_sim_model *m = &sim->s.model;
    return sim->attention == TESS_SIM_FUSED_SOFTMAX && m->seq <= 16384 &&
           (int64_t)sim->s.training.micro_batch * (m->heads / sim->s.layout.tp) % 4 == 0;
}

/* The fused kernel of a causal model reads the half that is not masked and writes all. Separate
 * ones scale and mask (2 e each), convert to fp32 (e + 4), take the softmax (8) and convert back
 * (4 + e). */
static void softmax(tess_sim *sim, double scores)
{
    const int fused = tess__softmax_fused(sim);
    const double e = sim->element, read = sim->s.model.full ? e : e / 2.0;
    tess__op *op = tess__add_memory(sim, "softmax", TESS__FORWARD,
                                    scores * (fused ? read + e : 6.0 * e + 16.0));
    op->again = op->freed = TESS_SIM_AGAIN_CORE;
    op->saved = scores * e;
    tess__add_memory(sim, "softmax", TESS__BACKWARD,
                     scores * (fused ? 2.0 * read + e : 7.0 * e + 20.0));
    if (sim->dropout > 0.0) {
        op = tess__add_memory(sim, "dropout of scores", TESS__FORWARD, scores * (2.0 * e + 1.0));
        op->again = op->freed = TESS_SIM_AGAIN_CORE;
        op->saved = scores * (e + 1.0);
        tess__add_memory(sim, "dropout of scores", TESS__BACKWARD, scores * (2.0 * e + 1.0));
    }
}

/* A batched product of attention, which may be slower than a plain one. */
static void batched(tess_sim *sim, const char *name, int pass, double b, double m, double n,
                    double k)
{
    const tess_sim_model *model = &sim->s.model;
    const int precision =
        sim->s.training.precision == TESS_SIM_FP32 ? TESS_SIM_FP32 : TESS_SIM_BF16;
    tess__op *op = tess__add_gemm(sim, name, pass, b, m, n, k, precision);
    op->again = op->freed = pass == TESS__FORWARD ? TESS_SIM_AGAIN_CORE : 0;
    if (op->measured)
        return;
    op->seconds /= sim->hw[TESS__HW_BMM_SHARE];
    /* Rows that are no multiple of 16 bytes cannot be loaded as vectors. */
    if (model->head_dim % 8)
        op->seconds /= sim->hw[TESS__HW_BMM_ODD];
}

static void scores_and_values(tess_sim *sim, double samples, double heads)
{
    const tess_sim_model *m = &sim->s.model;
    const double s = (double)m->seq, queries = s / sim->s.layout.cp, b = samples * heads;
    batched(sim, "scores", TESS__FORWARD, b, queries, s, m->head_dim);
    batched(sim, "scores", TESS__BACKWARD, b, queries, m->head_dim, s);
    batched(sim, "scores", TESS__BACKWARD, b, s, m->head_dim, queries);
    softmax(sim, b * queries * s);
    batched(sim, "values", TESS__FORWARD, b, queries, m->value_dim, s);
    batched(sim, "values", TESS__BACKWARD, b, queries, s, m->value_dim);
    batched(sim, "values", TESS__BACKWARD, b, s, m->value_dim, queries);
    /* The result goes from (samples, heads, rows) to rows of all heads. */
    tess__add_memory(sim, "reorder", TESS__FORWARD,
                     2.0 * sim->element * sim->tokens * heads * m->value_dim)
        ->again = TESS_SIM_AGAIN_CORE;
    tess__add_memory(sim, "reorder", TESS__BACKWARD,
                     2.0 * sim->element * sim->tokens * heads * m->value_dim);
}

/* What keys and values cost to bring to the queries, beside `seconds` of attention. */
static void context_parallel(tess_sim *sim, double heads, double kv, const double seconds[2])
{
    const tess_sim_model *m = &sim->s.model;
    const tess_sim_layout *l = &sim->s.layout;
    const double e = sim->element, share = sim->era[TESS__ERA_CP_EXPOSED];
    if (l->cp < 2)
        return;
    const double kv_bytes = e * sim->tokens * kv * (m->head_dim + m->value_dim);
    const double q_bytes = e * sim->tokens * heads * (m->head_dim + m->value_dim);
    const int exchange = l->cp_kind == TESS_SIM_CP_ULYSSES  ? l->cp
                         : l->cp_kind == TESS_SIM_CP_HYBRID ? l->cp_heads
                                                            : 1;
    const int ring = l->cp / exchange;
    for (int pass = TESS__FORWARD; pass <= TESS__BACKWARD; pass++) {
        const double twice = pass == TESS__BACKWARD ? 2.0 : 1.0;
        if (exchange > 1)
            tess__add_comm(sim, "exchange heads", pass, TESS__CP, TESS_ALL_TO_ALL,
                           kv_bytes + q_bytes, exchange, l->tp, 1.0);
        if (ring == 1)
            continue;
        /* A ring: while one part is computed the next arrives (backward: with its gradients). */
        tess__op *op = tess__add_comm(sim, "ring of keys", pass, TESS__CP, TESS_SEND_RECEIVE,
                                      twice * kv_bytes, 2, l->tp * exchange, 1.0);
        const double step = op->seconds, compute = seconds[pass] / ring;
        const double waited = (ring - 1) * (fmax(step - compute, 0.0) * share);
        op->hidden = (ring - 1) * step - waited;
        op->seconds = waited;
    }
}

/* Norm and rotation of queries and keys: read and written once. */
static void rotary(tess_sim *sim, double columns)
{
    const double bytes = 2.0 * sim->element * sim->tokens * columns;
    tess__add_memory(sim, "rotary", TESS__FORWARD, bytes);
    tess__add_memory(sim, "rotary", TESS__BACKWARD, bytes);
}

static void latent_projections(tess_sim *sim, double heads, double saved)
{
    const tess_sim_model *m = &sim->s.model;
    const double t = sim->tokens, e = sim->element;
    sim->reads = TESS_SIM_AGAIN_NORM;
    if (m->q_rank) {
        tess__add_linear(sim, "q down", 1, sim->rows, m->q_rank, m->hidden, saved);
        tess__add_memory(sim, "q norm", TESS__FORWARD, 2.0 * e * t * m->q_rank)->saved =
            e * sim->rows * m->q_rank;
        tess__add_memory(sim, "q norm", TESS__BACKWARD, 3.0 * e * t * m->q_rank);
        const int up = sim->n_ops;
        sim->reads = 0;
        tess__add_linear(sim, "q up", 1, t, heads * m->head_dim, m->q_rank,
                         e * sim->rows * m->q_rank);
        tess__mark_again(sim, up, TESS_SIM_AGAIN_MLA_UP, 1);
    } else {
        tess__add_linear(sim, "q", 1, t, heads * m->head_dim, m->hidden, saved);
    }
    const double down = m->kv_rank + m->rope_dim;
    sim->reads = TESS_SIM_AGAIN_NORM;
    tess__add_linear(sim, "kv down", 1, sim->rows, down, m->hidden, m->q_rank ? 0.0 : saved);
    tess__add_memory(sim, "kv norm", TESS__FORWARD, 2.0 * e * t * m->kv_rank)->saved =
        e * sim->rows * down;
    tess__add_memory(sim, "kv norm", TESS__BACKWARD, 3.0 * e * t * m->kv_rank);
    const int up = sim->n_ops;
    sim->reads = 0;
    tess__add_linear(sim, "kv up", 1, t, heads * (m->nope_dim + m->value_dim), m->kv_rank,
                     e * sim->rows * m->kv_rank);
    rotary(sim, heads * (2.0 * m->head_dim));
    tess__mark_again(sim, up, TESS_SIM_AGAIN_MLA_UP, 1);
}

/* Whether attention is computed in the pieces of a ring. */
static int rings(const tess_sim_layout *l)
{
    return l->cp > 1 && (l->cp_kind == TESS_SIM_CP_RING ||
                         (l->cp_kind == TESS_SIM_CP_HYBRID && l->cp_heads < l->cp));
}

void tess__attention_ops(tess_sim *sim)
{
    const tess_sim_model *m = &sim->s.model;
    const tess_sim_layout *l = &sim->s.layout;
    const double t = sim->tokens, e = sim->element, tp = l->tp;
    const double heads = m->heads / tp, kv = fmax(m->kv_heads / tp, 1.0);
    const double input = e * sim->rows * m->hidden;
    const double q = heads * m->head_dim, k = kv * m->head_dim, v = kv * m->value_dim;
    if (m->kv_rank) {
        latent_projections(sim, heads, input);
    } else {
        sim->reads = TESS_SIM_AGAIN_NORM;
        tess__add_token_linear(sim, "qkv", "qkv of prompt", q + k + v, m->hidden, input);
        sim->reads = 0;
    }
    if (m->gated && !m->kv_rank)
        rotary(sim, q + k);

    const double samples = sim->s.training.micro_batch;
    const double kk = m->kv_rank ? heads * m->head_dim : k,
                 vv = m->kv_rank ? heads * m->value_dim : v;
    tess__add_memory(sim, "queries, keys, values", TESS__FORWARD, 0.0)->saved =
        e * t * (q + kk + vv);
    sim->ops[sim->n_ops - 1].seconds = 0.0; /* only saved: the projection has written it */
    sim->ops[sim->n_ops - 1].freed = m->kv_rank ? TESS_SIM_AGAIN_MLA_UP : 0;
    int first = sim->n_ops;
    if (sim->attention == TESS_SIM_FLASH) {
        const double queries = samples * (double)m->seq / l->cp;
        selection(sim, queries, keys_attended(m), heads);
        first = sim->n_ops;
        flash(sim, "attention", queries, keys_attended(m), heads);
        sim->ops[first].saved = 4.0 * t * heads;
    } else {
        scores_and_values(sim, samples, heads);
    }
    double seconds[2] = {0.0, 0.0};
    for (int i = first; i < sim->n_ops && rings(l); i++)
        sim->ops[i].seconds *= sim->era[TESS__ERA_CP_SLOW];
    for (int i = first; i < sim->n_ops; i++)
        seconds[sim->ops[i].pass == TESS__BACKWARD] += sim->ops[i].seconds;
    context_parallel(sim, heads, m->kv_rank ? heads : kv, seconds);
    sim->adapted = sim->s.training.lora_on != TESS_SIM_LORA_QKV;
    tess__add_token_linear(sim, "projection", "projection of prompt", m->hidden,
                           heads * m->value_dim, e * t * heads * m->value_dim);
}
