/* SPDX-License-Identifier: Apache-2.0 */
/* bf16_matrix.c - products of matrices: factors are packed as blocks of products.h, part by part.
 *
 *   c (m, n) = sum over k of a (m, k) b (k, n)
 *
 * DEPTH terms at a time: that part of a is packed whole, then 32 columns of b, which are multiplied
 * by all of a and stay in the first cache meanwhile; a stays in the second one. Lines that are
 * packed next are fetched beside the products. Terms of an element are added in their order,
 * whatever m and n are. Bytes: each element of a and of b read once, and written once in bf16; c
 * read and written once for each DEPTH. Work: 2 m n k flop.
 */
#include "bf16_entries.h"
#include "chunks.h"

enum { DEPTH = TESS_BF16_MATRIX_DEPTH, LINE = 64 };

/* Rows 2 j and 2 j + 1 of b are pairs, where `beside` pairs j and j + 16. */
PRODUCTS void block_depth(uint16_t *out, const uint16_t *const *rows, int column)
{
    const uint16_t *paired[BLOCK];
    for (int j = 0; j < BLOCK / 2; j++) {
        paired[j] = rows[2 * j];
        paired[j + BLOCK / 2] = rows[2 * j + 1];
    }
    block_beside(out, paired, column);
}

static int size_of(const tess__bf16_matrix *x)
{
    return x->bf16 ? (int)sizeof(uint16_t) : (int)sizeof(float);
}

/* Pointers to 32 rows of `columns` elements, rounded up to whole blocks; what x has not are zeros.
 */
static void matrix_rows(const uint16_t **out, uint16_t *stage, const tess__bf16_matrix *x,
                        int64_t row, int64_t column, int rows, int columns)
{
    const int wide = (columns + BLOCK - 1) / BLOCK * BLOCK;
    for (int i = 0; i < BLOCK; i++) {
        const int64_t at = (row + i) * x->stride + column;
        uint16_t *to = stage + (ptrdiff_t)i * wide;
        out[i] = to;
        if (i >= rows) {
            memset(to, 0, (size_t)wide * sizeof *to);
        } else if (!x->bf16) {
            narrow_row(to, (const float *)x->data + at, columns, wide);
        } else if (columns == wide) {
            out[i] = (const uint16_t *)x->data + at;
        } else {
            memcpy(to, (const uint16_t *)x->data + at, (size_t)columns * sizeof *to);
            memset(to + columns, 0, (size_t)(wide - columns) * sizeof *to);
        }
    }
}

static int groups(int n)
{
    return (n + BLOCK - 1) / BLOCK;
}

/* A part of a factor: n rows (of b: columns) of the result from `first` on, `deep` terms from k on.
 */
typedef struct {
    int64_t first, k;
    int n, deep;
} part;

/* Groups of 32 of n, each a block for every 32 terms. */
static void pack_part(uint16_t *blocks, const tess__bf16_matrix *x, part p, int is_b,
                      uint16_t *stage)
{
    const uint16_t *rows[BLOCK];
    const int down = x->by_depth ? p.deep : p.n, right = x->by_depth ? p.n : p.deep;
    const ptrdiff_t depth = groups(p.deep);
    for (int i = 0; i < down; i += BLOCK) {
        matrix_rows(rows, stage, x, (x->by_depth ? p.k : p.first) + i, x->by_depth ? p.first : p.k,
                    down - i < BLOCK ? down - i : BLOCK, right);
        for (int j = 0; j < right; j += BLOCK) {
            const ptrdiff_t at =
                x->by_depth ? j / BLOCK * depth + i / BLOCK : i / BLOCK * depth + j / BLOCK;
            uint16_t *to = blocks + at * BLOCK_SIZE;
            if (x->by_depth && is_b)
                block_depth(to, rows, j);
            else if (x->by_depth)
                block_columns(to, rows, j);
            else if (is_b)
                block_pairs(to, rows, j);
            else
                block_rows(to, rows, j);
        }
    }
}

/* Rows of a part, of which some are fetched at a time. */
typedef struct {
    const char *next;
    int64_t stride;
    int left, lines, at_once;
} fetch;

static fetch fetch_part(const tess__bf16_matrix *x, part p, int times)
{
    const int rows = x->by_depth ? p.deep : p.n, columns = x->by_depth ? p.n : p.deep;
    const int64_t row = x->by_depth ? p.k : p.first, column = x->by_depth ? p.first : p.k;
    const int size = size_of(x);
    return (fetch){(const char *)x->data + (row * x->stride + column) * size, x->stride * size,
                   p.deep > 0 ? rows : 0, (columns * size + LINE - 1) / LINE,
                   (rows + times - 1) / times};
}

VINLINE void fetch_some(fetch *f)
{
    for (int i = 0; i < f->at_once && f->left > 0; i++, f->left--, f->next += f->stride)
        for (int line = 0; line < f->lines; line++)
            v_prefetch(f->next + (ptrdiff_t)line * LINE);
}

static int most(int64_t left, int n)
{
    return left < n ? (int)left : n;
}

void TESS_K(tess__bf16_matrix_multiply)(float *c, int m, int n, int64_t k,
                                        const tess__bf16_matrix *a, const tess__bf16_matrix *b,
                                        const tess__bf16_matrix_room *w)
{
    const int down = groups(m), across = groups(n);
    products_begin();
    for (int64_t at = 0; at < k; at += DEPTH) {
        const int deep = most(k - at, DEPTH), depth = groups(deep);
        pack_part(w->a, a, (part){0, at, m, deep}, 0, w->stage);
        fetch next_a =
            fetch_part(a, (part){0, at + deep, m, most(k - at - deep, DEPTH)}, down * across);
        for (int j = 0; j < across; j++) {
            const part panel = {(int64_t)j * BLOCK, at, most(n - j * BLOCK, BLOCK), deep};
            part after = panel;
            after.first += j + 1 < across ? BLOCK : 0;
            after.n = most(n - after.first, BLOCK);
            pack_part(w->b, b, panel, 1, w->stage);
            fetch next_b = fetch_part(b, after, down);
            for (int i = 0; i < down; i++) {
                fetch_some(&next_a);
                fetch_some(&next_b);
                block_products(
                    c + ((ptrdiff_t)j * down + i) * BLOCK_SIZE, at > 0, depth,
                    (operand){w->a + (ptrdiff_t)i * depth * BLOCK_SIZE, NULL, BLOCK_SIZE},
                    (operand){w->b, NULL, BLOCK_SIZE}, between_nothing, NULL);
            }
        }
    }
    products_end();
}
