/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_table.c - any bytes as a map, a zero byte, and a table: every row becomes settings within
 * their limits or has a reason. */
#include "sim/table.h"

#include <stdlib.h>
#include <string.h>

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition))                                                                          \
            abort();                                                                               \
    } while (0)

static void read_rows(const tess__map *map, const tess__table *table)
{
    static tess__row row;
    for (int i = 0; i < table->rows; i++) {
        if (tess__row_read(map, table, i, &row) != TESS_OK) {
            MUST(strncmp(tess_last_error(), "fuzz.csv: no column", 19) == 0);
            return;
        }
        MUST(row.n >= 0 && row.n <= TESS_ROW_SETTINGS && row.used <= TESS_ROW_TEXT);
        for (int k = 0; k < row.n; k++)
            MUST(tess__row_value(&row, row.settings[k].key) == row.settings[k].value);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    const size_t n = zero ? (size_t)(zero - data) : size;
    tess_ctx *ctx = NULL;
    tess_ctx_info left;
    tess__map map = {0};
    tess__table table = {0};
    MUST(tess_ctx_create(&(tess_ctx_opts){.isa = "base", .threads = 1}, &ctx) == TESS_OK);
    const tess_status read = tess__map_parse(ctx, "fuzz.json", (const char *)data, n, &map);
    MUST(read == TESS_OK || strncmp(tess_last_error(), "fuzz.json: ", 11) == 0);
    if (zero) {
        const tess_status status =
            tess__table_read(ctx, "fuzz.csv", zero + 1, size - n - 1, &table);
        MUST(status == TESS_OK || strncmp(tess_last_error(), "fuzz.csv: ", 10) == 0);
        if (status == TESS_OK && read == TESS_OK)
            read_rows(&map, &table);
    }
    tess__table_close(&table);
    tess__map_close(&map);
    MUST(tess_ctx_query(ctx, &left) == TESS_OK && left.bytes_now == 0);
    tess_ctx_destroy(ctx);
    return 0;
}
