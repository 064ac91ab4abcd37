/* SPDX-License-Identifier: Apache-2.0 */
/* trace_output.c - what `tessera trace` found, as text of 80 columns and as JSON. */
#include "cmd_trace.h"

#include <string.h>

typedef struct {
    int64_t calls, bytes, ns;
} op_sum;

static double ms(int64_t ns)
{
    return (double)ns / 1e6;
}

static tess_status sum_ops(const tess_activity *file, op_sum sums[TESS_CALL_OPS])
{
    const tess_activity_call *calls;
    int64_t n;
    TRY(tess_activity_calls(file, &calls, &n));
    for (int64_t i = 0; i < n; i++) {
        op_sum *s = &sums[calls[i].op];
        s->calls++;
        s->ns += calls[i].ns;
        if (calls[i].in_bytes > 0)
            s->bytes += calls[i].in_bytes;
    }
    return TESS_OK;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *known(int value, int none)
{
    return value == none ? json_null() : json_integer(value);
}

static json_t *notes_of(cli *c, const tess_activity *file, const tess_activity_ranks *ranks)
{
    json_t *list = json_array();
    const char *note;
    for (int i = 0;
         (note = file ? tess_activity_note(file, i) : tess_activity_ranks_note(ranks, i)); i++)
        out_append(c, list, out_text(note));
    return list;
}

static json_t *classes_of(cli *c, const tess_activity_info *info)
{
    json_t *all = json_object();
    for (int k = 0; k < TESS_KERNEL_CLASSES; k++) {
        json_t *one = json_object();
        out_set(c, one, "kernels", json_integer(info->classes[k].kernels));
        out_set(c, one, "ms", out_number(ms(info->classes[k].ns)));
        out_set(c, all, tess_kernel_class_name((tess_kernel_class)k), one);
    }
    return all;
}

/* Of operations that two files or more have calls of. */
static json_t *waits_of(cli *c, const trace_result *r, int file)
{
    json_t *all = json_object();
    for (int op = 0; op < TESS_CALL_UNKNOWN; op++) {
        int64_t ns = 0, calls = 0;
        if (tess_activity_wait(r->ranks, file, (tess_call_op)op, &ns, &calls) == TESS_OK && calls)
            out_set(c, all, tess_call_op_name((tess_call_op)op), out_number(ms(ns)));
    }
    return all;
}

static tess_status set_file(cli *c, const trace_result *r, int i, json_t *list)
{
    json_t *o = json_object();
    tess_activity_info info;
    TRY(tess_activity_query(r->files[i], &info));
    const struct {
        const char *name;
        int64_t ns;
    } times[] = {{"span_ms", info.span_ns},     {"compute_ms", info.compute_ns},
                 {"comm_ms", info.comm_ns},     {"exposed_ms", info.exposed_ns},
                 {"hidden_ms", info.hidden_ns}, {"copy_ms", info.copy_ns},
                 {"idle_ms", info.idle_ns}};
    out_set(c, o, "file", out_text(info.path));
    out_set(c, o, "rank", known(info.rank, -1));
    out_set(c, o, "ranks", known(info.ranks, 0));
    out_set(c, o, "events", json_integer(info.events));
    out_set(c, o, "kernels", json_integer(info.kernels));
    out_set(c, o, "json_bytes", json_integer(info.json_bytes));
    for (size_t k = 0; k < sizeof times / sizeof *times; k++)
        out_set(c, o, times[k].name, out_number(ms(times[k].ns)));
    out_set(c, o, "classes", classes_of(c, &info));
    out_set(c, o, "collectives", json_integer(info.calls));
    out_set(c, o, "collective_wait_ms", waits_of(c, r, i));
    out_set(c, o, "notes", notes_of(c, r->files[i], NULL));
    out_append(c, list, o);
    return TESS_OK;
}

static tess_status set_all(cli *c, const trace_result *r)
{
    tess_activity_ranks_info ranks;
    tess_activity_info slowest;
    json_t *list = json_array();
    out_set(c, c->json, "files", list);
    for (int i = 0; i < r->n; i++)
        TRY(set_file(c, r, i, list));
    TRY(tess_activity_ranks_query(r->ranks, &ranks));
    TRY(tess_activity_query(r->files[ranks.slowest], &slowest));
    out_set(c, c->json, "slowest_rank", known(slowest.rank, -1));
    out_set(c, c->json, "imbalance", out_number(ranks.imbalance));
    out_set(c, c->json, "matched_calls", json_integer(ranks.matched));
    out_set(c, c->json, "notes", notes_of(c, NULL, r->ranks));
    return TESS_OK;
}

/* ---- text ------------------------------------------------------------------------------------ */

static void print_head(const cli *c, const tess_activity_info *info)
{
    char name[512], size[32];
    fprintf(c->out, "%s\n  ", out_clean(info->path, name, sizeof name));
    if (info->rank >= 0)
        fprintf(c->out, "rank %d", info->rank);
    else
        fprintf(c->out, "rank not known");
    if (info->ranks > 0)
        fprintf(c->out, " of %d", info->ranks);
    fprintf(c->out, ", %lld event%s, %lld kernel%s, %s of JSON\n", (long long)info->events,
            out_plural(info->events), (long long)info->kernels, out_plural(info->kernels),
            out_bytes(info->json_bytes, size));
}

static void print_part(const cli *c, const char *name, int64_t ns, int64_t whole, const char *more)
{
    fprintf(c->out, "  %-22s %16.6f ms %6.1f %%%s\n", name, ms(ns),
            whole > 0 ? 100.0 * (double)ns / (double)whole : 0.0, more);
}

static void print_times(const cli *c, const tess_activity_info *info)
{
    char more[64];
    fprintf(c->out, "  %-22s %16.6f ms\n", "span", ms(info->span_ns));
    print_part(c, "compute", info->compute_ns, info->span_ns, "");
    snprintf(more, sizeof more, "  %.6f ms more hidden", ms(info->hidden_ns));
    print_part(c, "exposed communication", info->exposed_ns, info->span_ns,
               info->comm_ns ? more : "");
    print_part(c, "copies nothing hides", info->copy_ns, info->span_ns, "");
    print_part(c, "idle", info->idle_ns, info->span_ns, "");
}

static void print_classes(const cli *c, const tess_activity_info *info)
{
    int64_t sum = 0;
    for (int k = 0; k < TESS_KERNEL_CLASSES; k++)
        sum += info->classes[k].ns;
    fprintf(c->out, "  %-22s %12s %16s %10s\n", "class", "kernels", "ms", "of all");
    for (int k = 0; k < TESS_KERNEL_CLASSES; k++)
        if (info->classes[k].kernels)
            fprintf(c->out, "  %-22s %12lld %16.6f %8.1f %%\n",
                    tess_kernel_class_name((tess_kernel_class)k),
                    (long long)info->classes[k].kernels, ms(info->classes[k].ns),
                    sum ? 100.0 * (double)info->classes[k].ns / (double)sum : 0.0);
}

static tess_status print_ops(const cli *c, const tess_activity *file)
{
    op_sum sums[TESS_CALL_OPS] = {{0}};
    char size[32];
    int any = 0;
    TRY(sum_ops(file, sums));
    for (int op = 0; op < TESS_CALL_OPS; op++) {
        if (!sums[op].calls)
            continue;
        if (!any++)
            fprintf(c->out, "  %-22s %12s %16s %16s\n", "collective", "calls", "ms", "bytes in");
        fprintf(c->out, "  %-22s %12lld %16.6f %16s\n",
                op == TESS_CALL_UNKNOWN ? "not known" : tess_call_op_name((tess_call_op)op),
                (long long)sums[op].calls, ms(sums[op].ns), out_bytes(sums[op].bytes, size));
    }
    return TESS_OK;
}

static void print_note(const cli *c, const char *note)
{
    fprintf(c->out, "  note: ");
    out_wrap(c->out, note, 8, 8);
    fprintf(c->out, "\n");
}

static tess_status print_file(const cli *c, const trace_result *r, int i)
{
    tess_activity_info info;
    const char *note;
    TRY(tess_activity_query(r->files[i], &info));
    print_head(c, &info);
    if (info.span_ns > 0 && r->n == 1) {
        print_times(c, &info);
        print_classes(c, &info);
        TRY(print_ops(c, r->files[i]));
    }
    for (int k = 0; (note = tess_activity_note(r->files[i], k)); k++)
        print_note(c, note);
    return TESS_OK;
}

static int64_t wait_of(const trace_result *r, int file)
{
    int64_t sum = 0, ns, calls;
    for (int op = 0; op < TESS_CALL_OPS; op++)
        if (tess_activity_wait(r->ranks, file, (tess_call_op)op, &ns, &calls) == TESS_OK)
            sum += ns;
    return sum;
}

/* Milliseconds of the parts of the span, a line a rank. */
static tess_status print_ranks(const cli *c, const trace_result *r)
{
    tess_activity_ranks_info ranks;
    tess_activity_info info;
    TRY(tess_activity_ranks_query(r->ranks, &ranks));
    fprintf(c->out, "%6s %11s %11s %9s %9s %9s %9s %8s\n", "rank", "span ms", "compute", "exposed",
            "hidden", "copies", "idle", "waits");
    for (int i = 0; i < r->n; i++) {
        TRY(tess_activity_query(r->files[i], &info));
        fprintf(c->out, "%c%5d %11.3f %11.3f %9.3f %9.3f %9.3f %9.3f %8.3f\n",
                i == ranks.slowest ? '*' : ' ', info.rank, ms(info.span_ns), ms(info.compute_ns),
                ms(info.exposed_ns), ms(info.hidden_ns), ms(info.copy_ns), ms(info.idle_ns),
                ms(wait_of(r, i)));
    }
    fprintf(c->out,
            "* computes longest; imbalance of compute %.3f; %lld call%s matched; a rank waits in\n"
            "  calls that take longer than on the member where they are shortest\n",
            ranks.imbalance, (long long)ranks.matched, out_plural(ranks.matched));
    return TESS_OK;
}

static void print_waits(const cli *c, const trace_result *r)
{
    int64_t ns, calls;
    for (int op = 0; op < TESS_CALL_UNKNOWN; op++) {
        int any = 0;
        for (int i = 0; i < r->n; i++) {
            if (tess_activity_wait(r->ranks, i, (tess_call_op)op, &ns, &calls) != TESS_OK || !calls)
                continue;
            if (!any++)
                fprintf(c->out, "waiting in %s, ms by rank\n ",
                        tess_call_op_name((tess_call_op)op));
            else if ((any - 1) % 8 == 0)
                fprintf(c->out, "\n ");
            fprintf(c->out, " %8.3f", ms(ns));
        }
        if (any)
            fprintf(c->out, "\n");
    }
}

tess_status trace_print(cli *c, const trace_result *r)
{
    const char *note;
    if (c->json)
        return set_all(c, r);
    for (int i = 0; i < r->n; i++)
        TRY(print_file(c, r, i));
    if (r->n > 1) {
        TRY(print_ranks(c, r));
        print_waits(c, r);
    }
    for (int k = 0; (note = tess_activity_ranks_note(r->ranks, k)); k++)
        print_note(c, note);
    return TESS_OK;
}
