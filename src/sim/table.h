/* SPDX-License-Identifier: Apache-2.0 */
/* table.h - tables of published measurements, and the maps that say what their columns mean.
 *
 * A table is a CSV file as it was published. A map is a JSON file (docs/scenarios.md) that makes of
 * each row settings of a scenario and measured quantities, both as "key" and text, or a reason why
 * the row cannot be expressed. Nothing here knows a table or a key by name: what the keys mean
 * is the business of fields.c and cases.c.
 *
 *   bytes -> tess__table -> (tess__map) -> tess__row: settings, measured, or a reason
 */
#ifndef TESS_SIM_TABLE_H
#define TESS_SIM_TABLE_H

#include "base/base_internal.h"

/* ---- table_csv.c: a CSV file in memory ------------------------------------------------------- */

enum { TESS_TABLE_COLUMNS = 256, TESS_TABLE_ROWS = 1 << 20 };

typedef struct {
    tess__arena arena;
    const char *name; /* what errors call it */
    int columns, rows;
    const char **header; /* (columns) */
    const char **cells;  /* (rows, columns): without quotes; a missing one is "" */
    int *fields;         /* (rows): how many the row had */
    int64_t *lines;      /* (rows): that the row begins in, from 1 */
} tess__table;

/* {0} and a closed one may be closed. The name must live as long as the table. */
tess_status tess__table_read(tess_ctx *ctx, const char *name, const void *text, size_t bytes,
                             tess__table *table);
tess_status tess__table_open(tess_ctx *ctx, const char *path, tess__table *table);
void tess__table_close(tess__table *table);

int tess__table_column(const tess__table *table, const char *name); /* -1: there is none */
const char *tess__table_cell(const tess__table *table, int row, int column);

/* ---- pattern.c: what a cell looks like ------------------------------------------------------- */

/* Whether the text fits the pattern, ASCII case apart: `*` stands for any characters, a leading `!`
 * for "not"; `<`, `<=`, `>`, `>=` and a number compare the first number of the text. */
int tess__pattern_fits(const char *pattern, const char *text);

/* The first number in the text from `after` on ("" or NULL: from its begin); commas between digits
 * are passed over. 0: there is none. */
int tess__first_number(const char *text, const char *after, double *value);

/* ---- map_read.c ------------------------------------------------------------------------------ */

enum { TESS_VALUE_TIMES = 4 };

/* Where a value comes from. */
typedef struct {
    const char *column;   /* NULL: constant is the value */
    const char *constant; /* text */
    int number;           /* 1: the first number in the cell */
    int optional;         /* 1: an empty cell gives no value; 0: it makes the row unusable */
    const char *after;    /* which stands behind this text; NULL: anywhere */
    double scale;         /* of the number */
    int n_times;          /* columns whose numbers it is multiplied with */
    const char *times[TESS_VALUE_TIMES];
    int n_words;
    const char **words, **values; /* cells that fit words[i] become values[i]; NULL: no value */
} tess__value;

typedef struct {
    const char *key;
    tess__value value;
} tess__assignment;

/* Of every condition one pattern must fit. */
typedef struct {
    const char *column;
    int n;
    const char **patterns;
} tess__condition;

typedef struct {
    int n_when, n_set;
    tess__condition *when;
    const char *skip; /* NULL: the settings below */
    tess__assignment *set;
} tess__map_rule;

typedef struct {
    tess__arena arena;
    const char *name; /* as shipped, or the path */
    const char *about;
    int n_detect, n_columns, n_rules;
    const char **detect; /* columns that a table of this map has */
    tess__assignment *columns;
    tess__map_rule *rules;
} tess__map;

tess_status tess__map_parse(tess_ctx *ctx, const char *name, const char *text, size_t bytes,
                            tess__map *map);
void tess__map_close(tess__map *map);

/* ---- map_find.c ------------------------------------------------------------------------------ */

extern const tess__shipped tess__shipped_tables[];
extern const int tess__n_shipped_tables;

/* The map of a canonical table (one with a column "measured.*"), or the shipped map that knows the
 * header: of those whose detect columns are all there, the one with the most. EFORMAT: none is. */
tess_status tess__map_find(tess_ctx *ctx, const tess__table *table, tess__map *map);

/* ---- row.c ----------------------------------------------------------------------------------- */

enum { TESS_ROW_SETTINGS = 96, TESS_ROW_TEXT = 8192, TESS_ROW_REASON = 320 };

typedef struct {
    const char *key, *value;
} tess__setting;

/* One row through a map. A later setting of the same key replaces the first. */
typedef struct {
    int n;
    tess__setting settings[TESS_ROW_SETTINGS];
    char reason[TESS_ROW_REASON]; /* "": the row can be used; else why not */
    size_t used;
    char text[TESS_ROW_TEXT]; /* made values */
} tess__row;

/* EFORMAT: the map names a column that the table lacks. What is wrong with the row itself is its
 * reason. */
tess_status tess__row_read(const tess__map *map, const tess__table *table, int row, tess__row *out);
const char *tess__row_value(const tess__row *row, const char *key); /* NULL: none */

#endif
