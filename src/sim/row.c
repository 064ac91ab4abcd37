/* SPDX-License-Identifier: Apache-2.0 */
/* row.c - one row of a table through its map: settings, or the reason why there are none.
 *
 * Rules that skip are asked first, in the order of the map; then the columns are read, then the
 * rules that set are applied. A cell that is empty where the map does not call it optional, that
 * the map's "values" do not know, or that holds no number where one is wanted, makes the whole row
 * unusable: a row is scored as it was published or not at all.
 */
#include "table.h"

#include "file/json_write.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void refuse(tess__row *row, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void refuse(tess__row *row, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(row->reason, sizeof row->reason, format, args);
    va_end(args);
}

static tess_status find_column(const tess__map *map, const tess__table *table, const char *name,
                               int *column)
{
    *column = tess__table_column(table, name);
    if (*column >= 0)
        return TESS_OK;
    return tess__fail(TESS_EFORMAT, "%s: no column \"%.64s\", which the map %s reads", table->name,
                      name, map->name);
}

static tess_status rule_holds(const tess__map *map, const tess__table *table, int row,
                              const tess__map_rule *rule, int *holds)
{
    *holds = 1;
    for (int i = 0; i < rule->n_when; i++) {
        const tess__condition *c = &rule->when[i];
        int column, any = 0;
        TESS_TRY(find_column(map, table, c->column, &column));
        const char *cell = tess__table_cell(table, row, column);
        for (int k = 0; k < c->n; k++)
            any |= tess__pattern_fits(c->patterns[k], cell);
        *holds &= any;
    }
    return TESS_OK;
}

static void set_text(tess__row *row, const char *key, const char *value)
{
    for (int i = 0; i < row->n; i++)
        if (strcmp(row->settings[i].key, key) == 0) {
            row->settings[i].value = value;
            return;
        }
    if (row->n == TESS_ROW_SETTINGS)
        refuse(row, "the map makes more than %d settings", TESS_ROW_SETTINGS);
    else
        row->settings[row->n++] = (tess__setting){key, value};
}

static void set_number(tess__row *row, const char *key, double number)
{
    char *text = row->text + row->used;
    if (sizeof row->text - row->used < TESS_REAL_TEXT) {
        refuse(row, "the map makes more than %d bytes of numbers", TESS_ROW_TEXT);
        return;
    }
    row->used += strlen(tess__real_text(number, 0, text)) + 1;
    set_text(row, key, text);
}

/* The cell's number times those of other columns. */
static tess_status read_number(const tess__map *map, const tess__table *table, int at,
                               const tess__assignment *a, const char *cell, tess__row *row)
{
    const tess__value *v = &a->value;
    double number, factor;
    if (!tess__first_number(cell, v->after, &number)) {
        refuse(row, "%.40s is \"%.60s\", which holds no number", v->column, cell);
        return TESS_OK;
    }
    number *= v->scale;
    for (int i = 0; i < v->n_times; i++) {
        int column;
        TESS_TRY(find_column(map, table, v->times[i], &column));
        cell = tess__table_cell(table, at, column);
        if (!tess__first_number(cell, NULL, &factor)) {
            refuse(row, "%.40s is \"%.60s\", which holds no number", v->times[i], cell);
            return TESS_OK;
        }
        number *= factor;
    }
    set_number(row, a->key, number);
    return TESS_OK;
}

static tess_status assign(const tess__map *map, const tess__table *table, int at,
                          const tess__assignment *a, tess__row *row)
{
    const tess__value *v = &a->value;
    int column;
    if (!v->column) {
        set_text(row, a->key, v->constant);
        return TESS_OK;
    }
    TESS_TRY(find_column(map, table, v->column, &column));
    const char *cell = tess__table_cell(table, at, column);
    for (int i = 0; i < v->n_words; i++)
        if (tess__pattern_fits(v->words[i], cell)) {
            if (v->values[i])
                set_text(row, a->key, v->values[i]);
            return TESS_OK;
        }
    if (!*cell) {
        if (!v->optional && strncmp(a->key, "measured.", 9) != 0 && strcmp(a->key, "label") != 0 &&
            strcmp(a->key, "group") != 0)
            refuse(row, "%.40s is empty", v->column);
        return TESS_OK;
    }
    if (v->number)
        return read_number(map, table, at, a, cell, row);
    if (v->n_words)
        refuse(row, "%.40s is \"%.60s\", which the map does not know", v->column, cell);
    else
        set_text(row, a->key, cell);
    return TESS_OK;
}

tess_status tess__row_read(const tess__map *map, const tess__table *table, int at, tess__row *row)
{
    int holds;
    row->n = 0;
    row->used = 0;
    row->reason[0] = '\0';
    if (table->fields[at] != table->columns)
        refuse(row, "the row has %d fields, the header %d", table->fields[at], table->columns);
    for (int i = 0; i < map->n_rules && !row->reason[0]; i++) {
        if (!map->rules[i].skip)
            continue;
        TESS_TRY(rule_holds(map, table, at, &map->rules[i], &holds));
        if (holds)
            refuse(row, "%s", map->rules[i].skip);
    }
    for (int i = 0; i < map->n_columns && !row->reason[0]; i++)
        TESS_TRY(assign(map, table, at, &map->columns[i], row));
    for (int i = 0; i < map->n_rules && !row->reason[0]; i++) {
        const tess__map_rule *rule = &map->rules[i];
        if (rule->skip)
            continue;
        TESS_TRY(rule_holds(map, table, at, rule, &holds));
        for (int k = 0; holds && k < rule->n_set && !row->reason[0]; k++)
            TESS_TRY(assign(map, table, at, &rule->set[k], row));
    }
    return TESS_OK;
}

const char *tess__row_value(const tess__row *row, const char *key)
{
    for (int i = 0; i < row->n; i++)
        if (strcmp(row->settings[i].key, key) == 0)
            return row->settings[i].value;
    return NULL;
}
