/* SPDX-License-Identifier: Apache-2.0 */
/* shape_tables.h - shapes, colours and directions of the data set `shapes`. */
#ifndef TESS_SHAPE_TABLES_H
#define TESS_SHAPE_TABLES_H

#include <stdint.h>

enum { TESS__SHAPES = 8, TESS__SHAPE_COLOURS = 7, TESS__SHAPE_DIRECTIONS = 4 };

typedef struct {
    const char *name;
    float (*distance)(float x, float y);
    float until; /* its share of the objects, those before it included */
} tess__shape_kind;

typedef struct {
    const char *name;
    uint8_t rgb[3];
} tess__shape_colour;

typedef struct {
    const char *name;
    float dx, dy;
} tess__shape_direction;

extern const tess__shape_kind tess__shape_kinds[TESS__SHAPES];
extern const tess__shape_colour tess__shape_colours[TESS__SHAPE_COLOURS];
extern const tess__shape_direction tess__shape_directions[TESS__SHAPE_DIRECTIONS];
extern const uint8_t tess__shape_background[3];

/* Coverage 0..1 of the pixel whose centre lies at (x, y) pixels from the centre of the object. */
float tess__shape_coverage(int kind, float x, float y, float radius);

#endif
