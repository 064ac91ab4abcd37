/* SPDX-License-Identifier: Apache-2.0 */
/* stream.c - activations of a pass in F32 and as halves: the stream, attention's output, rows.
 *
 * A pass in F32 has the stream and attention's output in the slots of a block's set, so that most
 * of this does nothing. In BF16 slots are halves: the stream is F32 in two buffers in turn, of
 * which p->ws.t is the free one, and each step's result is rounded into its slot for the gradients.
 * At a block's input the stream itself is rounded, and norms read it rounded throughout: a block
 * that is run again from its input gives the same bits, and gradients are those of the values that
 * the forward pass had.
 */
#include "model/pass_internal.h"

#include <omp.h>

tess__matrix tess__slot_of(const tess_pass *p, const tess__set *s, tess__slot slot)
{
    return (tess__matrix){.at = s->at[slot], .half = p->z.half};
}

tess__matrix tess__stream_rounded(const tess_pass *p, const float *stream)
{
    return (tess__matrix){.at = (void *)(uintptr_t)stream, .round = p->z.half};
}

static float *room_of(const tess_pass *p)
{
    return p->ws.room + omp_get_thread_num() * p->z.row_room;
}

const float *tess__matrix_read(const tess_pass *p, tess__matrix x, int64_t first, int64_t n)
{
    if (!x.half && !x.round)
        return (const float *)x.at + first;
    float *room = room_of(p);
    uint16_t *rounded = (uint16_t *)(room + p->z.row_room / 2);
    if (x.round)
        p->ctx->kernels->bf16_from_f32(rounded, (const float *)x.at + first, (size_t)n);
    p->ctx->kernels->f32_from_bf16(room, x.round ? rounded : (const uint16_t *)x.at + first,
                                   (size_t)n);
    return room;
}

/* ---- the stream ------------------------------------------------------------------------------ */

float *tess__stream_at(const tess_pass *p, const tess__set *s, tess__slot slot)
{
    return p->z.half ? p->act.stream : s->at[slot];
}

float *tess__stream_begin(const tess_pass *p, const tess__set *s, tess__slot slot)
{
    return p->z.half ? p->ws.t : s->at[slot];
}

static void narrow(const tess_pass *p, const float *x, uint16_t *to)
{
    tess_convert(p->ctx, TESS_DTYPE_F32, x, TESS_DTYPE_BF16, to, p->z.rows * p->z.dim);
}

void tess__stream_swap(tess_pass *p)
{
    float *made = p->ws.t;
    p->ws.t = p->act.stream;
    p->act.stream = made;
}

void tess__stream_end(tess_pass *p, const tess__set *s, tess__slot slot)
{
    if (!p->z.half)
        return;
    tess__stream_swap(p);
    if (s->at[slot])
        narrow(p, p->act.stream, s->at[slot]);
}

void tess__stream_round(tess_pass *p, uint16_t *to)
{
    const int64_t dim = p->z.dim;
    float *x = p->act.stream;
#pragma omp parallel for num_threads(p->ctx->threads) schedule(static)
    for (int64_t row = 0; row < p->z.rows; row++) {
        uint16_t *saved = to ? to + row * dim : (uint16_t *)room_of(p);
        p->ctx->kernels->bf16_from_f32(saved, x + row * dim, (size_t)dim);
        p->ctx->kernels->f32_from_bf16(x + row * dim, saved, (size_t)dim);
    }
}

void tess__stream_read(tess_pass *p, const uint16_t *from)
{
    tess_convert(p->ctx, TESS_DTYPE_BF16, from, TESS_DTYPE_F32, p->act.stream,
                 p->z.rows * p->z.dim);
}

/* ---- attention's output ---------------------------------------------------------------------- */

void tess__output_begin(tess_pass *p, const tess__set *s, tess__slot slot)
{
    p->ws.o = p->z.half ? p->ws.t : s->at[slot];
}

void tess__output_end(tess_pass *p, const tess__set *s, tess__slot slot)
{
    if (p->z.half)
        narrow(p, p->ws.o, s->at[slot]);
}

void tess__output_read(tess_pass *p, const tess__set *s, tess__slot slot)
{
    p->ws.o = p->z.half ? p->act.stream : s->at[slot];
    if (p->z.half)
        tess_convert(p->ctx, TESS_DTYPE_BF16, s->at[slot], TESS_DTYPE_F32, p->ws.o,
                     p->z.rows * p->z.dim);
}
