/* SPDX-License-Identifier: Apache-2.0 */
/* table_csv.c - a CSV file in memory: the header, and the cells of every row.
 *
 * Two walks over the text: the first counts rows and fields, so that the arrays are taken once; the
 * second copies the cells, quotes written twice made one. A row with fewer fields than the header
 * ends in empty cells; of one with more, the number is kept, so that its user can refuse it.
 */
#include "table.h"

#include "file/csv.h"
#include "file/file_internal.h"

#include <string.h>

/* Copies a field to `to`, ended by a NUL; returns where the next one goes. */
static char *copy_cell(const tess__csv_field *field, char *to)
{
    for (size_t i = 0; i < field->length; i++) {
        const char c = field->text[i];
        *to++ = (unsigned char)c < ' ' ? ' ' : c;
        if (c == '"' && i + 1 < field->length && field->text[i + 1] == '"')
            i++;
    }
    *to++ = '\0';
    return to;
}

/* Passes over a record: how many fields it has. */
static tess_status count_fields(tess__csv *csv, int *n)
{
    tess__csv_field field;
    *n = 0;
    do {
        TESS_TRY(tess__csv_next(csv, &field));
        (*n)++;
    } while (!csv->end_of_record);
    return TESS_OK;
}

static tess_status count(tess__table *table, tess__csv csv)
{
    int fields;
    if (!tess__csv_record(&csv))
        return tess__fail(TESS_EFORMAT, "%s: empty, must begin with a header", table->name);
    TESS_TRY(count_fields(&csv, &table->columns));
    if (table->columns > TESS_TABLE_COLUMNS)
        return tess__fail(TESS_EFORMAT, "%s: line %lld: %d columns, must be at most %d",
                          table->name, (long long)csv.line, table->columns, TESS_TABLE_COLUMNS);
    while (tess__csv_record(&csv)) {
        TESS_TRY(count_fields(&csv, &fields));
        if (++table->rows > TESS_TABLE_ROWS)
            return tess__fail(TESS_EFORMAT, "%s: line %lld: more than %d rows", table->name,
                              (long long)csv.line, TESS_TABLE_ROWS);
    }
    return TESS_OK;
}

static tess_status read_record(const tess__table *table, tess__csv *csv, char **to,
                               const char **cells, int *fields)
{
    tess__csv_field field;
    int n = 0;
    do {
        TESS_TRY(tess__csv_next(csv, &field));
        if (n < table->columns) {
            cells[n] = *to;
            *to = copy_cell(&field, *to);
        }
        n++;
    } while (!csv->end_of_record);
    for (int i = n; i < table->columns; i++)
        cells[i] = "";
    *fields = n;
    return TESS_OK;
}

static tess_status check_header(const tess__table *table)
{
    for (int i = 0; i < table->columns; i++)
        if (table->header[i][0] && tess__table_column(table, table->header[i]) != i)
            return tess__fail(TESS_EFORMAT, "%s: the column \"%.64s\" is there twice", table->name,
                              table->header[i]);
    return TESS_OK;
}

static tess_status fill(tess__table *table, tess__csv csv)
{
    const size_t columns = (size_t)table->columns, rows = (size_t)table->rows;
    int fields;
    table->header = TESS_TAKE(&table->arena, columns * sizeof *table->header);
    table->cells = TESS_TAKE(&table->arena, rows * columns * sizeof *table->cells);
    table->fields = TESS_TAKE(&table->arena, rows * sizeof *table->fields);
    table->lines = TESS_TAKE(&table->arena, rows * sizeof *table->lines);
    /* Behind every field but the last stands a comma or the end of a line: room for its NUL. */
    char *to = TESS_TAKE(&table->arena, csv.bytes + 1);
    tess__csv_record(&csv);
    TESS_TRY(read_record(table, &csv, &to, table->header, &fields));
    TESS_TRY(check_header(table));
    for (size_t i = 0; i < rows; i++) {
        tess__csv_record(&csv);
        table->lines[i] = csv.line;
        TESS_TRY(read_record(table, &csv, &to, table->cells + i * columns, &table->fields[i]));
    }
    return TESS_OK;
}

tess_status tess__table_read(tess_ctx *ctx, const char *name, const void *text, size_t bytes,
                             tess__table *table)
{
    tess__table made = {.arena = {.ctx = ctx}, .name = name};
    const tess__csv csv = tess__csv_start(name, text, bytes);
    tess_status status = count(&made, csv);
    if (status == TESS_OK)
        status = fill(&made, csv);
    if (status == TESS_OK)
        *table = made;
    else
        tess__arena_free(&made.arena);
    return status;
}

tess_status tess__table_open(tess_ctx *ctx, const char *path, tess__table *table)
{
    tess__source source;
    TESS_TRY(tess__source_open(path, &source));
    const tess_status status = tess__table_read(ctx, path, source.data, source.bytes, table);
    tess__source_close(&source);
    return status;
}

void tess__table_close(tess__table *table)
{
    if (table->arena.ctx)
        tess__arena_free(&table->arena);
    *table = (tess__table){0};
}

int tess__table_column(const tess__table *table, const char *name)
{
    for (int i = 0; i < table->columns; i++)
        if (strcmp(table->header[i], name) == 0)
            return i;
    return -1;
}

const char *tess__table_cell(const tess__table *table, int row, int column)
{
    return table->cells[(size_t)row * (size_t)table->columns + (size_t)column];
}
