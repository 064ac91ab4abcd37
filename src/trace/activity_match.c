/* SPDX-License-Identifier: Apache-2.0 */
/* activity_match.c - several files: the same call on all ranks, waiting, clocks, imbalance.
 *
 * The n-th call of a process group is the same call on all of its members; sends and receives are
 * counted apart, since not every member has all of them. Of a call the shortest member's time is
 * the transfer; what another takes longer it has waited for the last one to come. A call whose
 * members have different operations is not matched. Members end a call together: what a file's ends
 * are away from the middle member's, as the median over its calls, is the offset of its clock.
 *
 * Calls of all files are sorted by process group, kind, number and file: n log n.
 */
#include "activity_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t CLOCK_NS = 1000000; /* an offset above is a note */

typedef struct {
    const tess_activity_call *call;
    int64_t end; /* on the clock of the machine */
    int64_t number;
    int file, one_way;
} member;

typedef struct {
    int64_t wait_ns, calls;
} wait;

struct tess_activity_ranks {
    tess_ctx *ctx;
    tess__arena arena;
    tess_activity_ranks_info info;
    const tess_activity *const *files; /* copied to the arena */
    int n;
    wait (*waits)[TESS_CALL_OPS]; /* (n) */
    const char **notes;
    int64_t room_notes;
};

/* ---- matching -------------------------------------------------------------------------------- */

static int compare(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

static int same_group(const member *a, const member *b)
{
    int c = compare(a->call->n_ranks, b->call->n_ranks);
    for (int i = 0; c == 0 && i < a->call->n_ranks; i++)
        c = compare(a->call->ranks[i], b->call->ranks[i]);
    return c ? c : compare(a->one_way, b->one_way);
}

static int by_call(const void *x, const void *y)
{
    const member *a = x, *b = y;
    int c = same_group(a, b);
    if (c == 0)
        c = compare(a->number, b->number);
    return c ? c : compare(a->file, b->file);
}

static int by_file(const void *x, const void *y)
{
    const member *a = x, *b = y;
    int c = compare(a->file, b->file);
    if (c == 0)
        c = same_group(a, b);
    return c ? c : compare(a->call->call, b->call->call);
}

/* Files that take part: the first of each rank that is known. */
static int takes_part(const tess_activity_ranks *r, int file)
{
    const int rank = r->files[file]->info.rank;
    for (int i = 0; i < file; i++)
        if (r->files[i]->info.rank == rank)
            return 0;
    return rank >= 0;
}

/* The calls of known process groups, numbered within group, kind and file. */
static int64_t gather(const tess_activity_ranks *r, member *members)
{
    int64_t n = 0;
    for (int f = 0; f < r->n; f++) {
        const tess_activity *file = r->files[f];
        if (!takes_part(r, f))
            continue;
        for (int64_t i = 0; i < file->info.calls; i++) {
            const tess_activity_call *call = &file->calls[i];
            if (!call->ranks || call->n_ranks < 2)
                continue;
            members[n++] = (member){.call = call,
                                    .end = file->base_ns + call->begin_ns + call->ns,
                                    .file = f,
                                    .one_way = call->op == TESS_CALL_SEND_RECEIVE};
        }
    }
    qsort(members, (size_t)n, sizeof *members, by_file);
    for (int64_t i = 1; i < n; i++)
        if (members[i].file == members[i - 1].file && same_group(&members[i], &members[i - 1]) == 0)
            members[i].number = members[i - 1].number + 1;
    qsort(members, (size_t)n, sizeof *members, by_call);
    return n;
}

/* The end that the others are compared with: of two the first file's, else the middle one. */
static int64_t middle_end(const member *m, int64_t n, int64_t *scratch)
{
    if (n == 2)
        return m[0].end;
    for (int64_t i = 0; i < n; i++)
        scratch[i] = m[i].end;
    qsort(scratch, (size_t)n, sizeof *scratch, tess__by_int64);
    return scratch[n / 2];
}

/* One call on the files that have it; its members' end becomes their offset. Returns 0 where their
 * operations differ. */
static int match(tess_activity_ranks *r, member *m, int64_t n, int64_t *scratch)
{
    int64_t shortest = m[0].call->ns;
    for (int64_t i = 1; i < n; i++) {
        if (m[i].call->op != m[0].call->op)
            return 0;
        shortest = TESS_MIN(shortest, m[i].call->ns);
    }
    const int64_t end = middle_end(m, n, scratch);
    for (int64_t i = 0; i < n; i++) {
        wait *w = &r->waits[m[i].file][m[i].call->op];
        w->wait_ns += m[i].call->ns - shortest;
        w->calls++;
        m[i].end -= end;
    }
    r->info.matched++;
    return 1;
}

/* Keeps the members of matched calls, *n of them. */
static int64_t match_all(tess_activity_ranks *r, member *members, int64_t *n, int64_t *scratch)
{
    int64_t kept = 0, differ = 0;
    for (int64_t i = 0, next; i < *n; i = next) {
        for (next = i + 1; next < *n && same_group(&members[i], &members[next]) == 0 &&
                           members[next].number == members[i].number;)
            next++;
        if (next - i < 2)
            continue;
        if (!match(r, members + i, next - i, scratch)) {
            differ++;
            continue;
        }
        memmove(members + kept, members + i, (size_t)(next - i) * sizeof *members);
        kept += next - i;
    }
    *n = kept;
    return differ;
}

/* ---- clocks ---------------------------------------------------------------------------------- */

static tess_status note_clock(tess_activity_ranks *r, int file, int64_t offset)
{
    if (offset <= CLOCK_NS && offset >= -CLOCK_NS)
        return TESS_OK;
    return TESS_NOTE(r,
                     "rank %d: its clock is %.1f ms %s the others of its groups, or the file is of "
                     "another step",
                     r->files[file]->info.rank, fabs((double)offset) / 1e6,
                     offset < 0 ? "behind" : "ahead of");
}

static tess_status compare_clocks(tess_activity_ranks *r, const member *members, int64_t n,
                                  int64_t *scratch)
{
    for (int f = 0; f < r->n; f++) {
        int64_t count = 0;
        for (int64_t i = 0; i < n; i++)
            if (members[i].file == f)
                scratch[count++] = members[i].end;
        if (count == 0)
            continue;
        qsort(scratch, (size_t)count, sizeof *scratch, tess__by_int64);
        TESS_TRY(note_clock(r, f, scratch[count / 2]));
    }
    return TESS_OK;
}

/* ---- the ranks ------------------------------------------------------------------------------- */

static tess_status compare_calls(tess_activity_ranks *r)
{
    int64_t n = 1;
    for (int i = 0; i < r->n; i++)
        n += r->files[i]->info.calls;
    member *members = TESS_ALLOC(r->ctx, tess__bytes((size_t)n, sizeof(member) + sizeof(int64_t)));
    int64_t *scratch = (int64_t *)(members + n);
    n = gather(r, members);
    const int64_t differ = match_all(r, members, &n, scratch);
    tess_status status = compare_clocks(r, members, n, scratch);
    if (status == TESS_OK && differ > 0)
        status = TESS_NOTE(r, "%lld call%s not matched: the operation differs between the members",
                           (long long)differ, differ == 1 ? "" : "s");
    tess__free(r->ctx, members);
    return status;
}

static void compare_compute(tess_activity_ranks *r)
{
    double sum = 0.0;
    for (int i = 0; i < r->n; i++) {
        sum += (double)r->files[i]->info.compute_ns;
        if (r->files[i]->info.compute_ns > r->files[r->info.slowest]->info.compute_ns)
            r->info.slowest = i;
    }
    const double most = (double)r->files[r->info.slowest]->info.compute_ns;
    r->info.imbalance = sum > 0.0 ? most * r->n / sum : 1.0;
}

static tess_status note_files(tess_activity_ranks *r)
{
    for (int i = 0; i < r->n; i++) {
        const tess_activity_info *info = &r->files[i]->info;
        if (info->rank < 0 && r->n > 1)
            TESS_TRY(TESS_NOTE(r, "%s: its rank is not known, so its calls are not matched",
                               info->path));
        for (int k = 0; k < i && info->rank >= 0; k++)
            if (r->files[k]->info.rank == info->rank) {
                TESS_TRY(TESS_NOTE(
                    r, "rank %d: two files, %s and %s; calls of the second are not matched",
                    info->rank, r->files[k]->info.path, info->path));
                break;
            }
    }
    return TESS_OK;
}

static tess_status fill(tess_activity_ranks *r, const tess_activity *const *files)
{
    const size_t list = (size_t)r->n * sizeof *files, table = (size_t)r->n * sizeof *r->waits;
    const tess_activity **copy = TESS_TAKE(&r->arena, list);
    r->waits = TESS_TAKE_ZERO(&r->arena, table);
    memcpy(copy, files, list);
    r->files = copy;
    compare_compute(r);
    TESS_TRY(note_files(r));
    return compare_calls(r);
}

tess_status tess_activity_compare(tess_ctx *ctx, const tess_activity *const *files, int n,
                                  tess_activity_ranks **ranks)
{
    TESS_REQUIRE(ctx, files, ranks);
    TESS_TRY(tess__check_range(__func__, "n", n, 1, 1 << 16));
    for (int i = 0; i < n; i++)
        TESS_REQUIRE(files[i]);
    tess_activity_ranks *r = TESS_ALLOC_ZERO(ctx, sizeof *r);
    *r = (tess_activity_ranks){.ctx = ctx, .arena = {.ctx = ctx}, .n = n};
    const tess_status status = fill(r, files);
    if (status == TESS_OK)
        *ranks = r;
    else
        tess_activity_ranks_destroy(r);
    return status;
}

void tess_activity_ranks_destroy(tess_activity_ranks *r)
{
    if (!r)
        return;
    tess__free(r->ctx, r->notes);
    tess__arena_free(&r->arena);
    tess__free(r->ctx, r);
}

tess_status tess_activity_ranks_query(const tess_activity_ranks *ranks,
                                      tess_activity_ranks_info *info)
{
    TESS_REQUIRE(ranks, info);
    *info = ranks->info;
    return TESS_OK;
}

const char *tess_activity_ranks_note(const tess_activity_ranks *ranks, int index)
{
    return ranks && index >= 0 && index < ranks->info.notes ? ranks->notes[index] : NULL;
}

tess_status tess_activity_wait(const tess_activity_ranks *ranks, int file, tess_call_op op,
                               int64_t *wait_ns, int64_t *calls)
{
    TESS_REQUIRE(ranks, wait_ns, calls);
    TESS_TRY(tess__check_range(__func__, "file", file, 0, ranks->n - 1));
    TESS_TRY(tess__check_enum(__func__, "op", (int)op, TESS_CALL_OPS, "tess_call_op"));
    *wait_ns = ranks->waits[file][op].wait_ns;
    *calls = ranks->waits[file][op].calls;
    return TESS_OK;
}
