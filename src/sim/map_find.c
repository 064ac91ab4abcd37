/* SPDX-License-Identifier: Apache-2.0 */
/* map_find.c - which map a table needs: its columns decide, not its file's name.
 *
 * A table with a column "measured.*" is canonical: its columns are settings already. Otherwise the
 * shipped map wins that knows most of the columns.
 */
#include "case.h"

#include <string.h>

static int knows(const tess__map *map, const tess__table *table)
{
    for (int i = 0; i < map->n_detect; i++)
        if (tess__table_column(table, map->detect[i]) < 0)
            return 0;
    return 1;
}

static int is_key(const char *name)
{
    return strchr(name, '.') || strcmp(name, "label") == 0 || strcmp(name, "group") == 0 ||
           strcmp(name, "source") == 0;
}

static int is_canonical(const tess__table *table)
{
    for (int i = 0; i < table->columns; i++)
        if (strncmp(table->header[i], "measured.", 9) == 0)
            return 1;
    return 0;
}

/* The map of a canonical table: every column with a point in its name is the setting of that name,
 * others are notes. */
static tess_status make_canonical(tess_ctx *ctx, const tess__table *table, tess__map *map)
{
    tess__map made = {.arena = {.ctx = ctx}, .name = "canonical", .about = "canonical columns"};
    made.columns = TESS_TAKE(&made.arena, (size_t)table->columns * sizeof *made.columns);
    for (int i = 0; i < table->columns; i++) {
        const char *name = table->header[i];
        if (!is_key(name))
            continue;
        if (strncmp(name, "measured.", 9) == 0 && !tess__column_measured(name))
            tess__column_warn(ctx, table->name, name);
        const char *own = tess__arena_string(&made.arena, name, strlen(name));
        if (!own) {
            tess__map_close(&made);
            return TESS_ENOMEM;
        }
        made.columns[made.n_columns++] =
            (tess__assignment){own, {.column = own, .scale = 1, .optional = 1}};
    }
    *map = made;
    return TESS_OK;
}

tess_status tess__map_find(tess_ctx *ctx, const tess__table *table, tess__map *map)
{
    tess__map best = {0};
    if (is_canonical(table))
        return make_canonical(ctx, table, map);
    for (int i = 0; i < tess__n_shipped_tables; i++) {
        const tess__shipped *file = &tess__shipped_tables[i];
        tess__map found;
        const tess_status status =
            tess__map_parse(ctx, file->name, (const char *)file->text, file->bytes, &found);
        if (status != TESS_OK) {
            tess__map_close(&best);
            return status;
        }
        if (!knows(&found, table) || found.n_detect <= best.n_detect) {
            tess__map_close(&found);
        } else {
            tess__map_close(&best);
            best = found;
        }
    }
    if (!best.n_detect)
        return tess__fail(TESS_EFORMAT,
                          "%s: no shipped map knows these columns; give a map that says what they "
                          "mean, or use the canonical columns (docs/scenarios.md)",
                          table->name);
    *map = best;
    return TESS_OK;
}
