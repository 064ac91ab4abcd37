/* SPDX-License-Identifier: Apache-2.0 */
/* data_recall.c - boards of cards that move too far for a window: data that need sparse, long-range
 * attention.
 *
 * A card is 2 x 2 tokens whose every number is +1 or -1 at random. Four different cards, each as
 * often as the others (as nearly as the board divides), are placed on a board that fills the frame:
 * 4 x 4 places at 32 x 32 pixels and tokens of 4 x 4. The board does not move for two frames, then
 * it is rolled on a torus by at least two cards along one side or both, and so on:
 *
 *   frames 0, 1          frames 2, 3
 *     A C B D              B D A C
 *     D A C B      -->     C B D A        rolled by two cards to the right
 *     B D A C              A C B D
 *     C B D A              D A C B
 *
 * A token's content appears in 1/16 of all tokens, the same of the 2 x 2 places of the same card:
 * for 8 frames of 8 x 8 tokens that is 32 copies. Under independent noise n copies known are worth
 * n times the signal: the ideal loss is known for every n (docs/data.md).
 *
 * `recall` also moves each board by 0 or 1 tokens in both directions, so that cards straddle cubes
 * of 2 x 2 tokens; `recall-aligned` does not. The cards of a sample are the same in both.
 *
 * Numbers of a sample's stream: ROLLS onward for the rolls, CARDS onward for the cards, one bit per
 * number; 0 onward for the shuffle of the board.
 */
#include "data_internal.h"

#include <string.h>

enum {
    KINDS = 4,                                                     /* different cards */
    HOLD = 2,                                                      /* frames */
    CARD_BITS_MAX = 2 * TESS__TOKEN_MAX * 2 * TESS__TOKEN_MAX * 3, /* of one card */
    CARDS_MAX = 4096,                                              /* of a board */
    HOLDS_MAX = TESS__FRAMES_MAX / HOLD,
};
static const uint64_t ROLLS = 1 << 20, CARDS = 1 << 24;

typedef struct {
    int card;       /* pixels on a side */
    int rows, cols; /* cards of the board */
    uint8_t kind[CARDS_MAX];
    uint32_t bits[KINDS][CARD_BITS_MAX / 32];
    uint32_t shift[HOLDS_MAX][2]; /* of each hold, rows and columns in pixels */
} board;

/* Every kind equally often, then shuffled (Fisher and Yates). */
static void draw_board(const tess_data *data, uint64_t stream, board *b)
{
    const uint32_t n = (uint32_t)(b->rows * b->cols);
    uint32_t draws[CARDS_MAX];
    (void)tess_random_bits(data->seed, stream, 0, draws, n);
    for (uint32_t i = 0; i < n; i++)
        b->kind[i] = (uint8_t)(i % KINDS);
    for (uint32_t i = n - 1; i > 0; i--) {
        const uint32_t j = (uint32_t)((uint64_t)draws[i] * (i + 1) >> 32);
        const uint8_t kept = b->kind[i];
        b->kind[i] = b->kind[j];
        b->kind[j] = kept;
    }
}

/* A roll by dy, dx cards; one of them is at least two on the torus. */
static void roll(const uint32_t draw[2], int rows, int cols, int *dy, int *dx)
{
    const int far_rows = rows - 3, far_cols = cols - 3; /* distances 2 .. n - 2 */
    const uint32_t far = (uint32_t)(far_rows * cols + far_cols * rows - far_rows * far_cols);
    int pick = (int)((uint64_t)draw[0] * far >> 32);
    if (pick < far_rows * cols) { /* far along the rows, anything along the columns */
        *dy = 2 + pick / cols;
        *dx = pick % cols;
        return;
    }
    pick -= far_rows * cols; /* near along the rows: 0, 1 or -1; far along the columns */
    *dy = (pick % 3 + rows - 1) % rows;
    *dx = 2 + pick / 3;
}

static void place(const tess_data *data, uint64_t stream, board *b)
{
    const int shifted = data->source == &tess__data_recall;
    const int holds = (data->info.frames + HOLD - 1) / HOLD;
    int y = 0, x = 0;
    for (int h = 0; h < holds; h++) {
        uint32_t draw[4];
        (void)tess_random_bits(data->seed, stream, ROLLS + (uint64_t)h * 4, draw, 4);
        if (h > 0) {
            int dy, dx;
            roll(draw, b->rows, b->cols, &dy, &dx);
            y = (y + dy) % b->rows;
            x = (x + dx) % b->cols;
        }
        const uint32_t aside = shifted ? (uint32_t)data->token : 0;
        b->shift[h][0] = (uint32_t)(y * b->card) + aside * (draw[2] >> 31);
        b->shift[h][1] = (uint32_t)(x * b->card) + aside * (draw[3] >> 31);
    }
}

static void fill_row(const board *b, int hold, int y, int width, uint8_t *rgb)
{
    const uint32_t height = (uint32_t)(b->rows * b->card), card = (uint32_t)b->card;
    const uint32_t from_y = ((uint32_t)y + height - b->shift[hold][0] % height) % height;
    for (uint32_t x = 0; x < (uint32_t)width; x++) {
        const uint32_t from_x =
            (x + (uint32_t)width - b->shift[hold][1] % (uint32_t)width) % (uint32_t)width;
        const int kind = b->kind[from_y / card * (uint32_t)b->cols + from_x / card];
        const uint32_t bit = (from_y % card * card + from_x % card) * 3;
        for (uint32_t c = 0; c < 3; c++)
            rgb[x * 3 + c] = b->bits[kind][(bit + c) / 32] >> (bit + c) % 32 & 1 ? 255 : 0;
    }
}

static tess_status recall_sample(const tess_data *data, tess_split split, int64_t index, float *x,
                                 tess__sample_meta *meta)
{
    meta->prompt = "a board of cards";
    if (!x)
        return TESS_OK;
    const uint64_t stream = tess__data_stream(split, index);
    const int pack = data->info.pack, width = data->info.width * pack;
    board b = {.card = 2 * data->token};
    b.rows = data->info.height * pack / b.card;
    b.cols = width / b.card;
    draw_board(data, stream, &b);
    const size_t words = ((size_t)b.card * (size_t)b.card * 3 + 31) / 32;
    for (int k = 0; k < KINDS; k++)
        (void)tess_random_bits(data->seed, stream, CARDS + (uint64_t)k * CARD_BITS_MAX, b.bits[k],
                               words);
    place(data, stream, &b);
    uint8_t rgb[TESS__SIDE_MAX * 3];
    for (int t = 0; t < data->info.frames; t++)
        for (int y = 0; y < b.rows * b.card; y++) {
            fill_row(&b, t / HOLD, y, width, rgb);
            tess__pack_row(&data->info, t, y, rgb, x);
        }
    return TESS_OK;
}

static tess_status recall_open(tess_data *data, const tess_data_opts *opts)
{
    data->token = opts->token;
    data->seed = tess__data_seed(opts->seed, "recall");
    const int card = 2 * data->token;
    const int height = data->info.height * data->info.pack,
              width = data->info.width * data->info.pack;
    if (height % card || width % card || height < 4 * card || width < 4 * card)
        return tess__fail(
            TESS_EINVAL,
            "tess_data_open: a frame is %d x %d, must be 4 or more cards of %d pixels on "
            "each side",
            height, width, card);
    if (height / card * (width / card) > CARDS_MAX)
        return tess__fail(TESS_EINVAL,
                          "tess_data_open: a frame of %d x %d has %d cards, must be at most %d",
                          height, width, height / card * (width / card), CARDS_MAX);
    return TESS_OK;
}

const tess__data_source tess__data_recall = {"recall", recall_open, recall_sample, NULL};
const tess__data_source tess__data_recall_aligned = {"recall-aligned", recall_open, recall_sample,
                                                     NULL};
