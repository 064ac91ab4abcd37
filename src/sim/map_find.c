/* SPDX-License-Identifier: Apache-2.0 */
/* map_find.c - which of the shipped maps knows a table: its columns decide, not its file's name. */
#include "table.h"

static int knows(const tess__map *map, const tess__table *table)
{
    for (int i = 0; i < map->n_detect; i++)
        if (tess__table_column(table, map->detect[i]) < 0)
            return 0;
    return 1;
}

tess_status tess__map_find(tess_ctx *ctx, const tess__table *table, tess__map *map)
{
    tess__map best = {0};
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
                          "%s: no shipped map knows these columns; give one, or use the canonical "
                          "columns (docs/formats.md)",
                          table->name);
    *map = best;
    return TESS_OK;
}
