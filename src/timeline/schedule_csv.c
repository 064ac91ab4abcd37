/* SPDX-License-Identifier: Apache-2.0 */
/* schedule_csv.c - a schedule in the CSV of torch.distributed.pipelining.
 *
 *   0F0,0F1,,,0B0,0B1          a row a rank; <stage><F|B|I|W><micro-batch>
 *   ,1F0,1F1,1B0,1B1           an empty cell is idle in PyTorch's own grid of time: skipped
 *   (0F7;7B3)OVERLAP_F_B       its two members, one after the other
 *
 * PyTorch also dumps what a rank sends, receives, gathers and reduces (0SEND_F1, 2UNSHARD, ...).
 * These follow from the passes, and are skipped too. Its list of Schedule1F1B (2.15) has the
 * forward passes of the last rank one too high, 3F1,3B0,3F2,3B1: it is read as 3F0,3B0,3F1,3B1,
 * which PyTorch runs.
 */
#include "file/csv.h"
#include "file/file_internal.h"
#include "file/out.h"
#include "timeline_internal.h"

#include <string.h>

enum { ROWS_MAX = 65536, NUMBER_MAX = 1 << 24 };

/* ---- reading --------------------------------------------------------------------------------- */

static const char *const skipped[] = {
    "UNSHARD", "RESHARD",     "SEND_F",      "RECV_F",      "SEND_B",
    "RECV_B",  "WAIT_SEND_F", "WAIT_SEND_B", "REDUCE_GRAD", "WAIT_REDUCE_GRAD"};

typedef struct {
    tess_schedule *s;
    tess__csv csv;
    int rank;
} reader;

static tess_status fail_cell(const reader *r, const tess__csv_field *cell)
{
    char quoted[TESS_CSV_QUOTE];
    return tess__fail(TESS_EFORMAT,
                      "%s: line %lld: rank %d has the action \"%s\", must be like 0F1, 3B2, 3I2 or "
                      "3W2",
                      r->csv.name, (long long)r->csv.line, r->rank, tess__csv_quote(cell, quoted));
}

/* Digits at *p, which moves behind them; below 0: none, or too many. */
static int64_t read_digits(const char **p, const char *end)
{
    int64_t n = -1;
    for (; *p < end && **p >= '0' && **p <= '9'; (*p)++) {
        n = 10 * TESS_MAX(n, (int64_t)0) + (**p - '0');
        if (n >= NUMBER_MAX)
            return -1;
    }
    return n;
}

static int is_skipped(const char *word, size_t length)
{
    for (size_t i = 0; i < sizeof skipped / sizeof *skipped; i++)
        if (strlen(skipped[i]) == length && memcmp(skipped[i], word, length) == 0)
            return 1;
    return 0;
}

/* One action, a text without spaces around it. */
static tess_status read_action(reader *r, const char *text, const char *end,
                               const tess__csv_field *cell)
{
    const char *p = text;
    const int64_t stage = read_digits(&p, end);
    const char *word = p;
    while (p < end && ((*p >= 'A' && *p <= 'Z') || *p == '_'))
        p++;
    const size_t letters = (size_t)(p - word);
    const int number = p < end;
    const int64_t batch = read_digits(&p, end);
    if (stage < 0 || p != end || letters == 0)
        return fail_cell(r, cell);
    if (is_skipped(word, letters))
        return number && batch < 0 ? fail_cell(r, cell) : TESS_OK;
    if (letters != 1 || !strchr("FBIW", *word) || batch < 0)
        return fail_cell(r, cell);
    return tess__schedule_put(r->s, *word, (int)stage, batch);
}

/* "0F7;7B3" between the brackets of a cell. */
static tess_status read_members(reader *r, const char *text, const char *end,
                                const tess__csv_field *cell)
{
    const int64_t first = r->s->n;
    for (const char *p = text; p < end;) {
        const char *stop = memchr(p, ';', (size_t)(end - p));
        stop = stop ? stop : end;
        const char *a = p, *b = stop;
        while (a < b && *a == ' ')
            a++;
        while (b > a && b[-1] == ' ')
            b--;
        TESS_TRY(read_action(r, a, b, cell));
        p = stop < end ? stop + 1 : end;
    }
    for (int64_t i = first; i + 1 < r->s->n; i++)
        r->s->actions[i].joined = 1;
    return TESS_OK;
}

static tess_status read_cell(reader *r, const tess__csv_field *cell)
{
    static const char word[] = "OVERLAP_F_B";
    const char *text = cell->text, *end = text + cell->length;
    if (cell->length == 0)
        return TESS_OK;
    if (*text != '(')
        return read_action(r, text, end, cell);
    const char *close = memchr(text, ')', cell->length);
    if (!close || (size_t)(end - close - 1) != sizeof word - 1 ||
        memcmp(close + 1, word, sizeof word - 1) != 0)
        return fail_cell(r, cell);
    return read_members(r, text + 1, close, cell);
}

static int64_t count_rows(const char *name, const char *text, size_t bytes)
{
    int64_t rows = 0;
    for (tess__csv csv = tess__csv_start(name, text, bytes); tess__csv_record(&csv); rows++) {
        tess__csv_field cell;
        do
            if (tess__csv_next(&csv, &cell) != TESS_OK)
                return -1;
        while (!csv.end_of_record);
    }
    return rows;
}

static tess_status read_rows(reader *r)
{
    tess_schedule *s = r->s;
    for (r->rank = 0; tess__csv_record(&r->csv); r->rank++) {
        tess__csv_field cell;
        s->first[r->rank] = s->n;
        do {
            TESS_TRY(tess__csv_next(&r->csv, &cell));
            TESS_TRY(read_cell(r, &cell));
        } while (!r->csv.end_of_record);
    }
    s->first[s->ranks] = s->n;
    return TESS_OK;
}

/* Forward passes 1..n of the last rank beside backward passes 0..n-1 of the same stage become
 * 0..n-1. As it stands such a row is no schedule: micro-batch 0 never runs forward. */
static void number_from_zero(tess_schedule *s)
{
    const int64_t n = s->n - s->first[s->ranks - 1];
    if (n == 0)
        return;
    tess__action *const row = s->actions + s->first[s->ranks - 1];
    int64_t passes[2] = {0, 0}, sums[2] = {0, 0};
    int first = INT32_MAX;
    for (int64_t i = 0; i < n; i++) {
        const int forward = row[i].kind == TESS__ACT_F;
        if (row[i].stage != row[0].stage || (!forward && row[i].kind != TESS__ACT_B))
            return;
        passes[forward]++;
        sums[forward] += row[i].batch;
        first = forward ? TESS_MIN(first, row[i].batch) : first;
    }
    if (first != 1 || passes[0] != passes[1] || sums[1] != sums[0] + passes[1])
        return;
    for (int64_t i = 0; i < n; i++)
        row[i].batch -= row[i].kind == TESS__ACT_F;
}

/* That every action comes to run, whatever the times are. */
static tess_status check_order(const tess_schedule *s, const char *name)
{
    const size_t bytes = (size_t)s->stages * sizeof(int64_t);
    int64_t *zero = TESS_ALLOC_ZERO(s->ctx, bytes);
    int64_t length;
    const tess_schedule_times times = {zero, zero, zero, 0};
    tess_status status = tess__schedule_run(s, &times, NULL, NULL, &length);
    tess__free(s->ctx, zero);
    if (status == TESS_EINVAL) {
        char sentence[256];
        snprintf(sentence, sizeof sentence, "%s", tess_last_error());
        return tess__fail(TESS_EINVAL, "%s: %s", name, sentence);
    }
    return status;
}

tess_status tess__schedule_parse(tess_ctx *ctx, const char *name, const char *text, size_t bytes,
                                 tess_schedule **schedule)
{
    const int64_t rows = count_rows(name, text, bytes);
    if (rows < 0)
        return TESS_EFORMAT;
    if (rows == 0 || rows > ROWS_MAX)
        return tess__fail(TESS_EFORMAT, "%s: has %lld rows, must have one for each rank, 1..%d",
                          name, (long long)rows, ROWS_MAX);
    reader r = {.csv = tess__csv_start(name, text, bytes)};
    TESS_TRY(tess__schedule_create(ctx, (int)rows, &r.s));
    tess_status status = read_rows(&r);
    if (status == TESS_OK) {
        number_from_zero(r.s);
        status = tess__schedule_check(r.s, name);
    }
    if (status == TESS_OK)
        status = check_order(r.s, name);
    if (status != TESS_OK) {
        tess_schedule_destroy(r.s);
        return status;
    }
    *schedule = r.s;
    return TESS_OK;
}

tess_status tess_schedule_load(tess_ctx *ctx, const char *path, tess_schedule **schedule)
{
    TESS_REQUIRE(ctx, path, schedule);
    tess__source source;
    TESS_TRY(tess__source_open(path, &source));
    const tess_status status =
        tess__schedule_parse(ctx, path, (const char *)source.data, source.bytes, schedule);
    tess__source_close(&source);
    return status;
}

/* ---- writing --------------------------------------------------------------------------------- */

static tess_status write_rank(const tess_schedule *s, int rank, tess__out *out)
{
    int open = 0; /* 1: inside of brackets */
    for (int64_t i = s->first[rank]; i < s->first[rank + 1]; i++) {
        char action[40], cell[96];
        const tess__action *a = &s->actions[i];
        const int more = a->joined && i + 1 < s->first[rank + 1];
        const int n = snprintf(cell, sizeof cell, "%s%s%s%s",
                               i == s->first[rank] ? ""
                               : open              ? ";"
                                                   : ",",
                               more && !open ? "(" : "", tess__action_text(a, action),
                               open && !more ? ")OVERLAP_F_B" : "");
        open = more;
        TESS_TRY(tess__out_write(out, cell, (size_t)n));
    }
    return tess__out_write(out, "\n", 1);
}

tess_status tess_schedule_write(const tess_schedule *s, const char *path)
{
    TESS_REQUIRE(s, path);
    tess__out *out = NULL;
    TESS_TRY(tess__out_open(s->ctx, path, &out));
    tess_status status = TESS_OK;
    for (int r = 0; r < s->ranks && status == TESS_OK; r++)
        status = write_rank(s, r, out);
    if (status == TESS_OK)
        return tess__out_commit(out);
    tess__out_abort(out);
    return status;
}
