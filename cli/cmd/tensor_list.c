/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_list.c - the tensors of files as a table or as JSON, with statistics of their elements.
 *
 * The table is printed row by row while statistics are computed, so that a long run shows progress.
 * The name comes last: its width does not move other columns.
 */
#include "cmd_tensor.h"

#include "tessera/advanced/machine.h"

#include <math.h>
#include <string.h>

/* "-" for NaN; whole numbers, and those of five digits and more, in full if they fit the column. */
static char *value_text(double value, char text[32])
{
    if (isnan(value))
        snprintf(text, 32, "-");
    else if ((value == floor(value) && fabs(value) < 1e9) ||
             (fabs(value) >= 1e4 && fabs(value) < 1e7))
        snprintf(text, 32, "%.0f", value == 0 ? 0.0 : value);
    else
        snprintf(text, 32, "%.4g", value);
    return text;
}

static int shape_width(const tensor_set *set, const tensor_input *in)
{
    char text[160];
    int width = (int)strlen("shape");
    for (int i = 0; i < in->n; i++) {
        const int size = (int)strlen(tensor_shape(&set->picks[in->first + i], text));
        width = size > width ? size : width;
    }
    return width;
}

static void print_head(const cli *c, const tensor_values *v, const tensor_set *set,
                       const tensor_input *in)
{
    char text[32], clean[4096];
    tess_meta meta;
    fprintf(c->out, "%s%s%s: %s, %d tensor%s, %s", out_style(c, STYLE_BOLD),
            out_clean(in->path, clean, sizeof clean), out_style(c, STYLE_PLAIN), in->info.kind_name,
            in->info.tensors, out_plural(in->info.tensors), out_bytes(in->info.bytes, text));
    if (in->info.shards > 1)
        fprintf(c->out, " in %d shards", in->info.shards);
    fputc('\n', c->out);
    for (int i = 0; v->meta && tess_file_meta(in->file, i, &meta) == TESS_OK; i++) {
        fprintf(c->out, "  %s: ", out_clean(meta.key, clean, sizeof clean));
        fprintf(c->out, "%s\n", out_clean(meta.value, clean, sizeof clean));
    }
    if (in->n == 0)
        return;
    fprintf(c->out, "  %-5s %-*s", "type", shape_width(set, in), "shape");
    if (v->stats)
        fprintf(c->out, " %10s %10s %10s %10s %5s %5s  name\n", "min", "max", "mean", "deviation",
                "NaN", "inf");
    else
        fprintf(c->out, " %10s  name\n", "size");
}

/* stats NULL: the header alone. */
static void print_row(const cli *c, const tess_tensor *t, int width, const tess_stats *stats)
{
    const int bad = stats && (stats->nan || stats->inf);
    char shape[160], a[32], b[32], d[32], e[32], clean[512];
    fprintf(c->out, "  %-5s %-*s", tess_dtype_name(t->dtype), width, tensor_shape(t, shape));
    if (stats)
        fprintf(c->out, " %10s %10s %10s %10s %s%5lld %5lld%s", value_text(stats->min, a),
                value_text(stats->max, b), value_text(stats->mean, d),
                value_text(stats->deviation, e), bad ? out_style(c, STYLE_BAD) : "",
                (long long)stats->nan, (long long)stats->inf, bad ? out_style(c, STYLE_PLAIN) : "");
    else
        fprintf(c->out, " %10s", out_bytes(tensor_bytes(t), a));
    fprintf(c->out, "  %s\n", out_clean(t->name, clean, sizeof clean));
}

static json_t *json_stats(cli *c, const tess_stats *s)
{
    json_t *o = json_object();
    out_set(c, o, "count", json_integer(s->count));
    out_set(c, o, "nan", json_integer(s->nan));
    out_set(c, o, "inf", json_integer(s->inf));
    out_set(c, o, "zero", json_integer(s->zero));
    out_set(c, o, "min", out_number(s->min));
    out_set(c, o, "max", out_number(s->max));
    out_set(c, o, "mean", out_number(s->mean));
    out_set(c, o, "deviation", out_number(s->deviation));
    return o;
}

static json_t *json_tensor(cli *c, const tess_tensor *t, const tess_stats *stats)
{
    json_t *o = json_object(), *shape = json_array();
    for (int i = 0; i < t->rank; i++)
        out_append(c, shape, json_integer(t->shape[i]));
    out_set(c, o, "name", out_text(t->name));
    out_set(c, o, "dtype", json_string(tess_dtype_name(t->dtype)));
    out_set(c, o, "shape", shape);
    out_set(c, o, "bytes", json_integer(tensor_bytes(t)));
    if (stats)
        out_set(c, o, "stats", json_stats(c, stats));
    return o;
}

/* Adds the file to the result and returns its list of tensors. */
static json_t *json_file(cli *c, const tensor_input *in, json_t *files)
{
    json_t *o = json_object(), *metas = json_object(), *list = json_array();
    tess_meta meta;
    for (int i = 0; tess_file_meta(in->file, i, &meta) == TESS_OK; i++)
        out_set(c, metas, meta.key, out_text(meta.value));
    out_set(c, o, "path", out_text(in->path));
    out_set(c, o, "kind", json_string(in->info.kind_name));
    out_set(c, o, "bytes", json_integer(in->info.bytes));
    out_set(c, o, "shards", json_integer(in->info.shards));
    out_set(c, o, "metadata", metas);
    out_set(c, o, "tensors", list);
    out_append(c, files, o);
    return list;
}

static tess_status list_file(cli *c, const tensor_values *v, const tensor_set *set,
                             const tensor_input *in, json_t *list)
{
    const int width = shape_width(set, in);
    char what[sizeof c->progress.what];
    int64_t total = 0, done = 0;
    for (int i = 0; i < in->n; i++)
        total += tensor_bytes(&set->picks[in->first + i]);
    snprintf(what, sizeof what, "statistics of %s", in->path);
    progress_span(c, what, total);
    for (int i = 0; i < in->n; i++) {
        tess_tensor t = set->picks[in->first + i];
        tess_stats stats;
        tess_status status = TESS_OK;
        progress_part(c, done, tensor_bytes(&t));
        done += tensor_bytes(&t);
        if (v->stats)
            status = tensor_load(set, in->first + i, &t);
        if (v->stats && status == TESS_OK)
            status = tess_tensor_stats(c->ctx, &t, &stats);
        if (status != TESS_OK)
            return status;
        progress_clear(c);
        if (list)
            out_append(c, list, json_tensor(c, &t, v->stats ? &stats : NULL));
        else
            print_row(c, &t, width, v->stats ? &stats : NULL);
        /* Rows that took their time are shown at once; a reader that left ends the work. */
        if (v->stats && out_flush(c) != 0)
            break;
    }
    progress_span(c, NULL, 0);
    return TESS_OK;
}

tess_status tensor_list(cli *c, const tensor_values *v, const tensor_set *set)
{
    json_t *files = NULL;
    if (c->json) {
        files = json_array();
        out_set(c, c->json, "files", files);
    }
    for (int i = 0; i < set->n_inputs; i++) {
        const tensor_input *in = &set->inputs[i];
        json_t *list = NULL;
        if (c->json) {
            list = json_file(c, in, files);
        } else {
            if (i)
                fputc('\n', c->out);
            print_head(c, v, set, in);
        }
        const tess_status status = list_file(c, v, set, in, list);
        if (status != TESS_OK)
            return status;
    }
    return TESS_OK;
}
