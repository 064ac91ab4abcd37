/* SPDX-License-Identifier: Apache-2.0 */
/* call_table.c - collectives of files, summed up by operation, process group's size and bytes. */
#include "activity_page.h"

#include <stdlib.h>

enum { ROWS_MAX = 40 };

typedef struct {
    int op, ranks;
    int64_t bytes, ns;
} one_call;

typedef struct {
    one_call key;
    int64_t calls, total, shortest, median, longest;
} row;

static int compare(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

static int same_kind(const one_call *a, const one_call *b)
{
    const int c = compare(a->op, b->op), d = compare(a->ranks, b->ranks);
    return c ? c : d ? d : compare(a->bytes, b->bytes);
}

static int by_kind(const void *x, const void *y)
{
    const one_call *a = x, *b = y;
    const int c = same_kind(a, b);
    return c ? c : compare(a->ns, b->ns);
}

static int by_total(const void *x, const void *y)
{
    const row *a = x, *b = y;
    const int c = compare(b->total, a->total);
    return c ? c : same_kind(&a->key, &b->key);
}

static tess_status gather(const tess_activity *const *files, int n, one_call *calls, int64_t *count)
{
    *count = 0;
    for (int f = 0; f < n; f++) {
        const tess_activity_call *list;
        int64_t k;
        TESS_TRY(tess_activity_calls(files[f], &list, &k));
        for (int64_t i = 0; i < k; i++, ++*count)
            if (calls)
                calls[*count] =
                    (one_call){(int)list[i].op, list[i].n_ranks, list[i].in_bytes, list[i].ns};
    }
    return TESS_OK;
}

/* Sorted calls as rows; rows has room for all of them. */
static int64_t sum_up(const one_call *calls, int64_t n, row *rows)
{
    int64_t count = 0;
    for (int64_t i = 0, next; i < n; i = next) {
        row *r = &rows[count++];
        *r = (row){.key = calls[i], .shortest = calls[i].ns};
        for (next = i; next < n && same_kind(&calls[i], &calls[next]) == 0; next++)
            r->total += calls[next].ns;
        r->calls = next - i;
        r->median = calls[i + r->calls / 2].ns;
        r->longest = calls[next - 1].ns;
    }
    qsort(rows, (size_t)count, sizeof *rows, by_total);
    return count;
}

static void add_row(tess__jw *w, const row *r)
{
    const int64_t times[] = {r->total, r->shortest, r->median, r->longest};
    tess__jw_begin(w, NULL, '[');
    tess__jw_text(w, NULL, tess_call_op_name((tess_call_op)r->key.op));
    tess__jw_int(w, NULL, r->key.ranks);
    tess__jw_int(w, NULL, r->key.bytes);
    tess__jw_int(w, NULL, r->calls);
    for (int i = 0; i < 4; i++)
        tess__jw_real(w, NULL, (double)times[i] / 1e6);
    tess__jw_end(w, ']');
}

tess_status tess__page_calls(tess_ctx *ctx, const tess_activity *const *files, int n, tess__jw *w)
{
    int64_t count;
    TESS_TRY(gather(files, n, NULL, &count));
    one_call *calls = TESS_ALLOC(ctx, (size_t)count * (sizeof *calls + sizeof(row)));
    row *rows = (row *)(calls + count);
    const tess_status status = gather(files, n, calls, &count);
    qsort(calls, (size_t)count, sizeof *calls, by_kind);
    const int64_t kinds = sum_up(calls, count, rows);
    tess__jw_begin(w, "calls", '[');
    for (int64_t i = 0; i < kinds && i < ROWS_MAX; i++)
        add_row(w, &rows[i]);
    tess__jw_end(w, ']');
    tess__jw_int(w, "call_kinds", kinds);
    tess__free(ctx, calls);
    return status;
}
