/* SPDX-License-Identifier: Apache-2.0 */
/* cp_output.c - the table of a context-parallel problem, as text and as JSON. */
#include "cp_bench.h"

#include <math.h>

/* ---- text ------------------------------------------------------------------------------------ */

static void print_row(const cli *c, const cp_row *row)
{
    char predicted[32] = "-", modelled[32] = "-";
    if (!row->run->possible) {
        fprintf(c->out, "  %-11s %s\n", row->run->name, row->run->why);
        return;
    }
    if (row->predicted >= 0)
        snprintf(predicted, sizeof predicted, "%.2f", row->predicted * 1e3);
    if (row->modelled >= 0)
        snprintf(modelled, sizeof modelled, "%.4f", (double)row->sent / (double)row->modelled);
    fprintf(c->out, "  %-11s %7.3f %8.3f %7.3f %7.3f %9s %8.2f %7.2f %8.2f %7.2f %8.2f %7s %9.1f",
            row->run->name, row->imbalance, row->cpu_best, row->cpu, row->cpu_worst, predicted,
            row->measured * 1e3, row->attend * 1e3, row->exchange * 1e3, row->rest * 1e3,
            (double)row->sent / 1048576.0, row->modelled > 0 ? modelled : "-",
            (double)row->index / 1024.0);
    if (row->apart > 0)
        fprintf(c->out, "  keys %.3fx their union", (double)row->keys / (double)row->apart);
    fputc('\n', c->out);
}

void cp_print(const cli *c, const char *text, const cp_report *r)
{
    char chosen[64] = "was not measured";
    fprintf(c->out, "%s%s%s\n", out_style(c, STYLE_BOLD), text, out_style(c, STYLE_PLAIN));
    fprintf(c->out, "  %s\n", r->job.rates);
    fputs("  strategy    planned     best  median   worst predicted measured  attend exchange    "
          "rest "
          "MiB sent  /model index KiB\n",
          c->out);
    for (int i = 0; i < r->job.n; i++)
        print_row(c, &r->rows[i]);
    if (!isnan(r->chosen))
        snprintf(chosen, sizeof chosen, "takes %.3fx as long as the fastest", r->chosen / r->best);
    fprintf(c->out, "  chosen: %s, which %s", r->choice, chosen);
    if (!isnan(r->correlation))
        fprintf(c->out, "; predicted and measured correlate at %.3f", r->correlation);
    fputs("\n", c->out);
}

void cp_print_line(const cli *c, const problem *p, const cp_report *r, int first)
{
    const int64_t nodes = p->node_ranks ? (p->ranks + p->node_ranks - 1) / p->node_ranks : 1;
    if (first)
        fputs("  ranks  tokens    us    GB/s  nodes  net us  net GB/s  correlation  chosen/best  "
              "choice\n",
              c->out);
    fprintf(c->out, "  %5lld %7lld", (long long)p->ranks, (long long)p->tokens);
    if (problem_on_mpi(p))
        fprintf(c->out, " %5s %7s %6s", "mpi", "-", "-");
    else
        fprintf(c->out, " %5.4g %7.4g %6lld", p->latency, p->bandwidth, (long long)nodes);
    if (nodes > 1 && !problem_on_mpi(p))
        fprintf(c->out, " %7.4g %9.4g", p->network_latency, p->network_bandwidth);
    else
        fprintf(c->out, " %7s %9s", "-", "-");
    fprintf(c->out, " %12.3f %12.3f  %s\n", r->correlation, r->chosen / r->best, r->choice);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *row_json(cli *c, const cp_row *row)
{
    json_t *o = json_object();
    out_set(c, o, "strategy", json_string(row->run->name));
    out_set(c, o, "possible", json_boolean(row->run->possible));
    if (!row->run->possible) {
        out_set(c, o, "reason", json_string(row->run->why));
        return o;
    }
    out_set(c, o, "words", json_string(row->run->words[0]));
    out_set(c, o, "imbalance_planned", out_number(row->imbalance));
    out_set(c, o, "cpu_max_over_mean", out_number(row->cpu));
    out_set(c, o, "cpu_max_over_mean_best", out_number(row->cpu_best));
    out_set(c, o, "cpu_max_over_mean_worst", out_number(row->cpu_worst));
    out_set(c, o, "seconds_predicted", out_number(row->predicted < 0 ? NAN : row->predicted));
    out_set(c, o, "seconds_measured", out_number(row->measured));
    out_set(c, o, "seconds_attend", out_number(row->attend));
    out_set(c, o, "seconds_exchange", out_number(row->exchange));
    out_set(c, o, "seconds_rest", out_number(row->rest));
    out_set(c, o, "bytes_sent_most", json_integer(row->sent));
    out_set(c, o, "bytes_modelled_most", json_integer(row->modelled));
    out_set(c, o, "index_bytes", json_integer(row->index));
    if (row->apart > 0) {
        out_set(c, o, "key_bytes", json_integer(row->keys));
        out_set(c, o, "union_bytes", json_integer(row->apart));
    }
    return o;
}

void cp_json(cli *c, json_t *object, const cp_report *r)
{
    json_t *rows = json_array();
    for (int i = 0; i < r->job.n; i++)
        out_append(c, rows, row_json(c, &r->rows[i]));
    out_set(c, object, "rates", json_string(r->job.rates));
    out_set(c, object, "choice", json_string(r->choice));
    out_set(c, object, "seconds_chosen", out_number(r->chosen));
    out_set(c, object, "seconds_best", out_number(r->best));
    out_set(c, object, "chosen_over_best", out_number(r->chosen / r->best));
    out_set(c, object, "rank_correlation", out_number(r->correlation));
    out_set(c, object, "strategies", rows);
}
