/* SPDX-License-Identifier: Apache-2.0 */
/* gif.c - writing GIF89a: one palette, whole frames, played forever.
 *
 * Pixels are coded by LZW: codes of 9 to 12 bits, lowest bit first, name strings of palette
 * indices. 0..255 are the indices, 256 clears the table, 257 ends. The coder extends the string it
 * has while the table knows it; when it does not, it sends the code of the string so far, and
 * string plus index becomes the next code. A full table of 4096 is cleared. The table is a hash
 * from (code, index) to code. Bytes leave in blocks of up to 255.
 *
 * Delays are hundredths of a second; they are rounded so that their sum stays right.
 */
#include "media_internal.h"

#include <string.h>

enum { CLEAR = 256, END = 257, CODES = 4096, SLOTS = 8192, BLOCK = 255 };

typedef struct {
    tess__out *out;
    tess_status status;
    uint32_t bits, n_bits; /* waiting to be whole bytes */
    uint8_t block[1 + BLOCK];
    int width;           /* of a code */
    int next;            /* the code to be given next */
    int32_t keys[SLOTS]; /* code << 8 | index, -1: free */
    uint16_t codes[SLOTS];
} lzw;

static void end_block(lzw *z)
{
    if (z->block[0] > 0 && z->status == TESS_OK)
        z->status = tess__out_write(z->out, z->block, 1 + (size_t)z->block[0]);
    z->block[0] = 0;
}

static void send(lzw *z, int code)
{
    z->bits |= (uint32_t)code << z->n_bits;
    z->n_bits += (uint32_t)z->width;
    while (z->n_bits >= 8) {
        z->block[++z->block[0]] = (uint8_t)z->bits;
        z->bits >>= 8;
        z->n_bits -= 8;
        if (z->block[0] == BLOCK)
            end_block(z);
    }
}

static void clear(lzw *z)
{
    send(z, CLEAR);
    memset(z->keys, -1, sizeof z->keys);
    z->width = 9;
    z->next = END + 1;
}

/* The slot of a key: where it is, or where it would be. */
static size_t slot_of(const lzw *z, int32_t key)
{
    size_t slot = (uint32_t)key * 2654435761U >> 19; /* 13 bits */
    while (z->keys[slot] != -1 && z->keys[slot] != key)
        slot = (slot + 1) % SLOTS;
    return slot;
}

static void code_frame(lzw *z, const tess__palette *palette, const uint8_t *rgb, size_t pixels)
{
    int string = tess__palette_index(palette, rgb);
    z->bits = z->n_bits = 0;
    z->block[0] = 0;
    z->width = 9;
    clear(z);
    for (size_t i = 1; i < pixels; i++) {
        const int index = tess__palette_index(palette, rgb + i * 3);
        const int32_t key = string << 8 | index;
        const size_t slot = slot_of(z, key);
        if (z->keys[slot] == key) {
            string = z->codes[slot];
            continue;
        }
        send(z, string);
        string = index;
        if (z->next == CODES) {
            clear(z);
            continue;
        }
        z->keys[slot] = key;
        z->codes[slot] = (uint16_t)z->next;
        if (z->next++ == 1 << z->width && z->width < 12)
            z->width++;
    }
    send(z, string);
    if (z->next == 1 << z->width && z->width < 12)
        z->width++; /* the reader learns a code of that string too */
    send(z, END);
    if (z->n_bits > 0) {
        z->width = 8 - (int)z->n_bits; /* zeros up to the byte */
        send(z, 0);
    }
    end_block(z);
}

static void put16(uint8_t *at, int value)
{
    at[0] = (uint8_t)value;
    at[1] = (uint8_t)(value >> 8);
}

static tess_status write_head(tess__out *out, const tess__montage *m, const tess__palette *palette)
{
    uint8_t head[13] = "GIF89a", colours[TESS__PALETTE_MAX * 3] = {0};
    put16(head + 6, m->width);
    put16(head + 8, m->height);
    head[10] = 0xf7; /* a palette of 2^(7 + 1) colours */
    memcpy(colours, palette->rgb, (size_t)palette->n * 3);
    TESS_TRY(tess__out_write(out, head, sizeof head));
    TESS_TRY(tess__out_write(out, colours, sizeof colours));
    return tess__out_write(out, "\x21\xff\x0bNETSCAPE2.0\x03\x01\0\0", 19); /* forever */
}

static int hundredths(const tess__montage *m, int t)
{
    return (int)(100.0 * t / m->fps + 0.5);
}

static tess_status write_frame(lzw *z, const tess__montage *m, int t, const tess__palette *palette,
                               const uint8_t *rgb)
{
    uint8_t control[8] = {0x21, 0xf9, 4, 4}; /* each frame stays until the next covers it */
    uint8_t image[11] = {0x2c};
    put16(control + 4, hundredths(m, t + 1) - hundredths(m, t));
    put16(image + 5, m->width);
    put16(image + 7, m->height);
    image[10] = 8; /* bits of a palette index */
    TESS_TRY(tess__out_write(z->out, control, sizeof control));
    TESS_TRY(tess__out_write(z->out, image, sizeof image));
    code_frame(z, palette, rgb, (size_t)m->height * (size_t)m->width);
    TESS_TRY(z->status);
    return tess__out_write(z->out, "", 1); /* the empty block that ends the image */
}

static tess_status write_all(lzw *z, const tess__montage *m, const tess__palette *palette,
                             uint8_t *rgb)
{
    TESS_TRY(write_head(z->out, m, palette));
    for (int t = 0; t < m->frames; t++) {
        tess__montage_frame(m, t, rgb);
        TESS_TRY(write_frame(z, m, t, palette, rgb));
    }
    return tess__out_write(z->out, ";", 1);
}

tess_status tess__gif_write(tess_ctx *ctx, const char *path, const tess__montage *m)
{
    tess__arena arena = {.ctx = ctx};
    uint8_t *rgb = tess__arena_take(&arena, (size_t)m->height * (size_t)m->width * 3);
    tess__palette *palette = rgb ? tess__arena_take(&arena, sizeof *palette) : NULL;
    lzw *z = palette ? tess__arena_take(&arena, sizeof *z) : NULL;
    tess_status status = z ? tess__palette_make(ctx, m, rgb, palette) : TESS_ENOMEM;
    if (status == TESS_OK) {
        z->status = TESS_OK;
        status = tess__out_open(ctx, path, &z->out);
    }
    if (status == TESS_OK) {
        status = write_all(z, m, palette, rgb);
        if (status == TESS_OK)
            status = tess__out_commit(z->out);
        else
            tess__out_abort(z->out);
    }
    tess__arena_free(&arena);
    return status;
}
