/* SPDX-License-Identifier: Apache-2.0 */
/* judge_output.c - the verdict as text and JSON, and the reference as files. */
#include "judge.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- the reference --------------------------------------------------------------------------- */

/* (batch, heads, tokens, width) to (batch, tokens, heads, width) */
static void to_shd(const judge *j, int output, double *to, const double *from)
{
    const int64_t heads = judge_heads_of(j, output), rows = judge_rows_of(j, output);
    const int64_t width = judge_width(j, output);
    for (int64_t i = 0; i < j->batch * heads * rows; i++) {
        const int64_t row = i % rows, h = i / rows % heads, b = i / rows / heads;
        memcpy(to + ((b * rows + row) * heads + h) * width, from + i * width,
               (size_t)width * sizeof *to);
    }
}

/* The shape in the layout and rank of q. */
static void set_shape(const judge *j, int output, tess_tensor *t)
{
    const int64_t heads = judge_heads_of(j, output), rows = judge_rows_of(j, output);
    const int lse = output == JUDGE_LSE;
    t->rank = 0;
    if (j->rank > 3)
        t->shape[t->rank++] = j->batch;
    if (j->rank > 2)
        t->shape[t->rank++] = j->shd && !lse ? rows : heads;
    t->shape[t->rank++] = j->shd && !lse && j->rank > 2 ? heads : rows;
    if (!lse)
        t->shape[t->rank++] = j->dim;
}

tess_status judge_dump(const judge *j)
{
    const char *folder = j->files->dump;
    if (!folder)
        return TESS_OK;
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return out_fail(j->c, TESS_EIO, "--dump %.200s: cannot make the folder: %s", folder,
                        strerror(errno));
    for (int o = 0; o < JUDGE_OUTPUTS; o++) {
        const double *data = j->reference[o];
        if (!data)
            continue;
        char path[4096];
        if (snprintf(path, sizeof path, "%s/%s.npy", folder, judge_out_names[o]) >=
            (int)sizeof path)
            return out_fail(j->c, TESS_EINVAL, "--dump: the path is too long");
        double *moved = NULL;
        if (j->shd && o != JUDGE_LSE) {
            moved =
                malloc((size_t)(judge_rows_of(j, o) * judge_heads_of(j, o) * j->batch * j->dim) *
                       sizeof *moved);
            if (!moved)
                return out_fail(j->c, TESS_ENOMEM, "no memory for the reference");
            to_shd(j, o, moved, data);
        }
        tess_tensor t = {
            .name = judge_out_names[o], .dtype = TESS_DTYPE_F64, .data = moved ? moved : data};
        set_shape(j, o, &t);
        const tess_status status = tess_file_write(j->c->ctx, path, &t, 1, NULL);
        free(moved);
        TRY(status);
    }
    return TESS_OK;
}

/* ---- text ------------------------------------------------------------------------------------ */

static void print_head(const judge *j)
{
    fprintf(j->c->out, "attention: batch %d, %d head%s", j->batch, j->heads, out_plural(j->heads));
    if (j->heads_k != j->heads)
        fprintf(j->c->out, " (%d of k and v)", j->heads_k);
    fprintf(j->c->out, ", %lld quer%s, %lld key%s, head_dim %d, scale %.6g\n",
            (long long)j->tokens_q, j->tokens_q == 1 ? "y" : "ies", (long long)j->tokens_k,
            out_plural(j->tokens_k), j->dim, j->scale);
    fprintf(j->c->out, "  layout %s, precision %s, keys: %s\n", j->shd ? "shd" : "hsd",
            j->precision,
            j->keys.mask      ? "mask"
            : j->keys.offsets ? "lists"
                              : "all");
}

static void print_one(const judge *j, int o, const judge_worst *w)
{
    FILE *f = j->c->out;
    const int good = w->ratio <= 1;
    if (w->compared == 0) {
        fprintf(f, "  not compared  %s: a head takes minutes; --all compares it\n",
                judge_out_names[o]);
        return;
    }
    fprintf(f, "  %s%-8s%s  %-4s", out_style(j->c, good ? STYLE_GOOD : STYLE_BAD),
            good ? "ok" : "mismatch", out_style(j->c, STYLE_PLAIN), judge_out_names[o]);
    if (good) {
        fprintf(f, "off by at most %.2g of what is allowed\n", w->ratio);
        return;
    }
    fprintf(f, "%.7g, must be %.7g within %.2g, at batch %lld, head %lld, row %lld", w->got,
            w->want, w->allowed, (long long)w->batch, (long long)w->head, (long long)w->row);
    if (o != JUDGE_LSE)
        fprintf(f, ", column %lld", (long long)w->column);
    fprintf(f, "\n                %lld of %lld elements are off\n", (long long)w->beyond,
            (long long)w->compared);
}

/* One line for all tensors of one mistake. */
static void print_mistakes(const judge *j, const judge_worst worst[JUDGE_OUTPUTS],
                           char text[JUDGE_OUTPUTS][JUDGE_TEXT_MAX])
{
    unsigned done = 0;
    for (int o = 0; o < JUDGE_OUTPUTS; o++) {
        if (!j->out[o].data || worst[o].ratio <= 1 || done >> o & 1)
            continue;
        const char *comma = "  ";
        for (int i = o; i < JUDGE_OUTPUTS; i++)
            if (j->out[i].data && worst[i].ratio > 1 && strcmp(text[i], text[o]) == 0) {
                fprintf(j->c->out, "%s%s", comma, judge_out_names[i]);
                comma = ", ";
                done |= 1U << i;
            }
        fprintf(j->c->out, ": %s\n",
                *text[o]                  ? text[o]
                : j->in[JUDGE_OLD_K].data ? "no usual mistake fits"
                                          : "no usual mistake fits; --old-k FILE tests for keys "
                                            "of an earlier step");
    }
}

static void print_plan(const judge *j, const judge_plan *plan)
{
    const int heads = j->batch * j->heads_k;
    if (plan->n_whole == heads)
        return;
    fprintf(j->c->out, "  compared: %lld of %lld rows of each head", (long long)plan->n_rows,
            (long long)j->tokens_q);
    if (plan->n_whole > 0)
        fprintf(j->c->out, ", all rows of %d of %d heads of k", plan->n_whole, heads);
    fprintf(j->c->out, "; --all compares every row\n");
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *output_json(cli *c, int o, const judge_worst *w, const char *why)
{
    json_t *x = json_object(), *at = json_array();
    const int64_t place[4] = {w->batch, w->head, w->row, w->column};
    for (int i = 0; i < 4; i++)
        out_append(c, at, json_integer(place[i]));
    out_set(c, x, "name", json_string(judge_out_names[o]));
    out_set(c, x, "ok", json_boolean(w->ratio <= 1));
    out_set(c, x, "ratio", out_number(w->ratio));
    out_set(c, x, "at", at);
    out_set(c, x, "got", out_number(w->got));
    out_set(c, x, "want", out_number(w->want));
    out_set(c, x, "allowed", out_number(w->allowed));
    out_set(c, x, "compared", json_integer(w->compared));
    out_set(c, x, "beyond", json_integer(w->beyond));
    out_set(c, x, "mistake", *why ? json_string(why) : json_null());
    return x;
}

static void set_members(const judge *j, json_t *outputs)
{
    cli *c = j->c;
    out_set(c, c->json, "ok", json_boolean(c->code == 0));
    out_set(c, c->json, "batch", json_integer(j->batch));
    out_set(c, c->json, "heads", json_integer(j->heads));
    out_set(c, c->json, "heads_k", json_integer(j->heads_k));
    out_set(c, c->json, "tokens_q", json_integer(j->tokens_q));
    out_set(c, c->json, "tokens_k", json_integer(j->tokens_k));
    out_set(c, c->json, "head_dim", json_integer(j->dim));
    out_set(c, c->json, "scale", out_number(j->scale));
    out_set(c, c->json, "layout", json_string(j->shd ? "shd" : "hsd"));
    out_set(c, c->json, "precision", json_string(j->precision));
    out_set(c, c->json, "outputs", outputs);
}

tess_status judge_show(judge *j, const judge_plan *plan, const judge_worst worst[JUDGE_OUTPUTS],
                       char text[JUDGE_OUTPUTS][JUDGE_TEXT_MAX])
{
    json_t *outputs = j->c->json ? json_array() : NULL;
    progress_clear(j->c);
    if (!outputs)
        print_head(j);
    for (int o = 0; o < JUDGE_OUTPUTS; o++) {
        if (!j->out[o].data)
            continue;
        if (outputs && worst[o].compared > 0)
            out_append(j->c, outputs, output_json(j->c, o, &worst[o], text[o]));
        else if (!outputs)
            print_one(j, o, &worst[o]);
    }
    if (outputs) {
        set_members(j, outputs);
        return TESS_OK;
    }
    print_mistakes(j, worst, text);
    print_plan(j, plan);
    if (j->files->dump)
        fprintf(j->c->out, "  wrote the reference to %s\n", j->files->dump);
    return TESS_OK;
}
