/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_picture.c - the last two dimensions of a tensor as a heat map.
 *
 * A side above SIDE_MAX is averaged down to it. A picture below SIDE_MIN is enlarged by a whole
 * factor, and one that is a strip further, to SIDE_STRIP. Cells hold the mean of their finite
 * elements; a cell with a NaN is red, one of infinities alone takes the colour of its end of the
 * range.
 */
#include "cmd_tensor.h"

#ifdef CLI_TRAIN

#include "tessera/advanced/clip.h"
#include "tessera/media.h"

#include <math.h>
#include <stdlib.h>

enum { SIDE_STRIP = 32, SIDE_MIN = 512, SIDE_MAX = 2048 };

typedef struct {
    tess_tensor tensor;
    int64_t rows, columns, first; /* first: the slice's first element */
    int height, width;            /* cells */
    float *cells;                 /* (height, width) */
    double low, high;
} heat;

static int cells_of(int64_t side)
{
    return side > SIDE_MAX ? SIDE_MAX : (int)side;
}

/* Reads "3,0" into the offset of the slice. */
static tess_status find_slice(cli *c, const char *slice, heat *h)
{
    const tess_tensor *t = &h->tensor;
    const char *at = slice ? slice : "";
    h->first = 0;
    for (int i = 0; i < t->rank - 2; i++) {
        char *end = (char *)at;
        const long long index = *at ? strtoll(at, &end, 10) : 0;
        if ((*at && end == at) || (*end && *end != ',') || index < 0 || index >= t->shape[i])
            return out_usage(c, "--slice is \"%.80s\", index %d must be 0..%lld", slice, i + 1,
                             (long long)t->shape[i] - 1);
        h->first = h->first * t->shape[i] + index;
        at = *end ? end + 1 : end;
    }
    if (*at)
        return out_usage(c, "--slice is \"%.80s\", must have at most %d indices for %d dimensions",
                         slice, t->rank > 2 ? t->rank - 2 : 0, t->rank);
    h->first *= h->rows * h->columns;
    return TESS_OK;
}

typedef struct {
    double sum;
    int64_t finite, above, below, nan; /* elements of each kind */
} cell;

static float cell_value(const cell *k)
{
    if (k->nan)
        return NAN;
    if (k->finite)
        return (float)(k->sum / (double)k->finite);
    return k->above > k->below ? INFINITY : -INFINITY;
}

static void add(cell *k, float x)
{
    if (isfinite(x)) {
        k->sum += (double)x;
        k->finite++;
    }
    k->nan += isnan(x) != 0;
    k->above += isinf(x) && x > 0;
    k->below += isinf(x) && x < 0;
}

/* row has room for a row of elements, sums for one of cells. */
static tess_status fill(cli *c, heat *h, float *row, cell *sums)
{
    const char *data = (const char *)h->tensor.data;
    const size_t size = tess_dtype_size(h->tensor.dtype);
    int64_t y = 0;
    for (int i = 0; i < h->height; i++) {
        for (int k = 0; k < h->width; k++)
            sums[k] = (cell){0};
        for (; y < (i + 1) * h->rows / h->height; y++) {
            const size_t from = (size_t)(h->first + y * h->columns) * size;
            const tess_status status =
                tess_convert(c->ctx, h->tensor.dtype, data + from, TESS_DTYPE_F32, row, h->columns);
            if (status != TESS_OK)
                return status;
            for (int64_t x = 0; x < h->columns; x++)
                add(&sums[x * h->width / h->columns], row[x]);
        }
        for (int k = 0; k < h->width; k++)
            h->cells[(size_t)i * (size_t)h->width + (size_t)k] = cell_value(&sums[k]);
        if (progress_call(c, "drawing", i, h->height))
            return out_fail(c, TESS_ESTOPPED, "interrupted");
    }
    return TESS_OK;
}

/* The range of the finite cells, where the user gave none. */
static void find_range(const tensor_values *v, heat *h)
{
    double low = INFINITY, high = -INFINITY;
    for (size_t i = 0; i < (size_t)h->height * (size_t)h->width; i++)
        if (isfinite(h->cells[i])) {
            low = fmin(low, (double)h->cells[i]);
            high = fmax(high, (double)h->cells[i]);
        }
    if (low > high) /* no cell is finite */
        low = high = 0;
    h->low = isnan(v->low) ? low : v->low;
    h->high = isnan(v->high) ? high : v->high;
}

/* Dark violet over green to yellow: even in lightness, and legible to the colour-blind. */
static void colour(const heat *h, float value, uint8_t rgb[3])
{
    static const uint8_t stops[][3] = {
        {68, 1, 84}, {59, 82, 139}, {33, 145, 140}, {94, 201, 98}, {253, 231, 37}};
    const int spans = sizeof stops / sizeof *stops - 1;
    if (isnan(value)) {
        rgb[0] = 255;
        rgb[1] = rgb[2] = 0;
        return;
    }
    double t = isinf(value)       ? (value > 0 ? 1 : 0)
               : h->high > h->low ? ((double)value - h->low) / (h->high - h->low)
                                  : 0.5;
    t = fmin(fmax(t, 0), 1) * spans;
    const int i = t >= spans ? spans - 1 : (int)t;
    for (int k = 0; k < 3; k++)
        rgb[k] = (uint8_t)(stops[i][k] + (t - i) * (stops[i + 1][k] - stops[i][k]) + 0.5);
}

/* Pixels of a cell along a side of so many cells; longest is the longer side. */
static int zoom(int cells, int longest)
{
    const int even = longest < SIDE_MIN ? SIDE_MIN / longest : 1;
    return cells * even < SIDE_STRIP ? SIDE_STRIP / cells : even;
}

static tess_status write_picture(cli *c, const char *path, const heat *h)
{
    const int side = h->height > h->width ? h->height : h->width;
    const int zoom_x = zoom(h->width, side), zoom_y = zoom(h->height, side);
    tess_image image = {.width = h->width * zoom_x, .height = h->height * zoom_y, .channels = 3};
    uint8_t *pixels = malloc((size_t)image.width * (size_t)image.height * 3);
    if (!pixels)
        return out_fail(c, TESS_ENOMEM, "no memory for a picture of %d x %d", image.width,
                        image.height);
    for (int y = 0; y < image.height; y++)
        for (int x = 0; x < image.width; x++)
            colour(h, h->cells[(size_t)(y / zoom_y) * (size_t)h->width + (size_t)(x / zoom_x)],
                   pixels + ((size_t)y * (size_t)image.width + (size_t)x) * 3);
    image.pixels = pixels;
    const tess_status status = tess_image_write(c->ctx, path, &image);
    free(pixels);
    if (status == TESS_OK && c->json) {
        json_t *o = json_object();
        out_set(c, o, "path", out_text(path));
        out_set(c, o, "tensor", out_text(h->tensor.name));
        out_set(c, o, "width", json_integer(image.width));
        out_set(c, o, "height", json_integer(image.height));
        out_set(c, o, "low", out_number(h->low));
        out_set(c, o, "high", out_number(h->high));
        out_set(c, c->json, "picture", o);
    } else if (status == TESS_OK) {
        char shape[160], clean[4096];
        fprintf(c->out, "%s: %d x %d pixels, ", out_clean(path, clean, sizeof clean), image.width,
                image.height);
        fprintf(c->out, "%s %s, %.4g (dark) to %.4g (bright)\n",
                out_clean(h->tensor.name, clean, sizeof clean), tensor_shape(&h->tensor, shape),
                h->low, h->high);
    }
    return status;
}

tess_status tensor_picture(cli *c, const tensor_values *v, const tensor_set *set)
{
    heat h = {0};
    if (set->n_picks != 1)
        return out_fail(c, TESS_EINVAL, "--picture draws one tensor, %d are selected: use --name",
                        set->n_picks);
    h.tensor = set->picks[0];
    const int rank = h.tensor.rank;
    h.columns = rank > 0 ? h.tensor.shape[rank - 1] : 1;
    h.rows = rank > 1 ? h.tensor.shape[rank - 2] : 1;
    if (tensor_elements(&h.tensor) == 0)
        return out_fail(c, TESS_EINVAL, "--picture draws elements, %s has none", h.tensor.name);
    tess_status status = find_slice(c, v->slice, &h);
    if (status == TESS_OK)
        status = tensor_load(set, 0, &h.tensor);
    if (status != TESS_OK)
        return status;
    h.height = cells_of(h.rows);
    h.width = cells_of(h.columns);
    h.cells = malloc((size_t)h.height * (size_t)h.width * sizeof *h.cells);
    float *row = malloc((size_t)h.columns * sizeof *row);
    cell *sums = malloc((size_t)h.width * sizeof *sums);
    if (!h.cells || !row || !sums)
        status = out_fail(c, TESS_ENOMEM, "no memory for the picture of %s", h.tensor.name);
    else
        status = fill(c, &h, row, sums);
    if (status == TESS_OK) {
        find_range(v, &h);
        status = write_picture(c, v->picture, &h);
    }
    free(h.cells);
    free(row);
    free(sums);
    return status;
}

#else

tess_status tensor_picture(cli *c, const tensor_values *v, const tensor_set *set)
{
    (void)v;
    (void)set;
    return out_fail(c, TESS_ENOTSUP, "--picture needs libtessera_train, which this build lacks");
}

#endif
