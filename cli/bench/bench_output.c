/* SPDX-License-Identifier: Apache-2.0 */
/* bench_output.c - reports of tessera bench: as text, as JSON, beside a baseline. */
#include "bench_output.h"

#include <math.h>

/* ---- text --------------------------------------------------------------------------------- */

/* "12.34", or "-" where a ratio does not apply. */
static const char *ratio(double x, const char *format, char text[32])
{
    if (isnan(x))
        return "-";
    snprintf(text, 32, format, x);
    return text;
}

static void print_row(const cli *c, const measured *m)
{
    char ideal[32], dense[32], whole[32];
    fprintf(c->out, "  %-6s %-4s %8.4f %9.3f %9.3f %8.1f %6.3f %6s %7s %7s %5d %4d\n", m->name,
            m->pass, m->density, m->time.best * 1e3, m->time.median * 1e3, m->gflops,
            m->share_of_peak, ratio(m->over_ideal, "%.2f", ideal),
            ratio(m->speedup_over_dense, "%.2fx", dense),
            ratio(m->speedup_with_select, "%.2fx", whole), m->time.kept, m->time.dropped);
}

/* In the order of break_even_source. */
static const char *const break_even_words[] = {"given", "measured", "from the cache"};
static const char *const break_even_names[] = {"given", "measured", "cached"};

static void print_sparse(const cli *c, const sparse_report *s)
{
    fprintf(c->out,
            "  speed-up %.2fx, %.2f of the bound %.2fx = 1 / (1 - a + a rho): attention a %.3f, "
            "density rho %.4f\n",
            s->speedup, s->speedup / s->bound, s->bound, s->attention, s->density);
    fprintf(c->out,
            "  selection %.2f %%, predictor's loss %.2f %% and update %.2f %%, profile %.2f %% and "
            "check %.2f %% of the sparse step\n",
            100 * s->select, 100 * s->learn, 100 * s->update, 100 * s->profile, 100 * s->check);
    fprintf(c->out, "  cubes of %d x %d x %d; a profile every %lld steps, a check every %lld\n",
            s->cube[0], s->cube[1], s->cube[2], (long long)s->profile_every,
            (long long)s->check_every);
    if (s->break_even_from != BREAK_EVEN_GIVEN)
        fprintf(c->out, "  break-even density %.3f, %s\n", s->break_even,
                break_even_words[s->break_even_from]);
    if (s->dense_heads)
        fprintf(c->out,
                "  %d of %d heads are above the break-even density %.2f and ran dense: %.4f of the "
                "pairs were computed\n",
                s->dense_heads, s->heads, s->break_even, s->ran);
}

/* Where the heads of a profile are not those of the problem. */
static void print_profile(const cli *c, const report *r)
{
    const int heads = (int)r->p.heads, have = r->profile_heads;
    if (have && heads > have)
        fprintf(c->out, "  the profile has %d heads: each stands for %s%d of the problem's %d\n",
                have, heads % have ? "at most " : "", (heads + have - 1) / have, heads);
    else if (have > heads)
        fprintf(c->out, "  the profile has %d heads: the problem takes %d, evenly spaced\n", have,
                heads);
}

void bench_print(const cli *c, const report *r)
{
    const measured *sparse = measured_find(r, "sparse");
    int disturbed = 0;
    if (r->context || r->step_ranks.ranks) {
        if (r->context)
            cp_print(c, r->text, r->context);
        else
            step_ranks_print(c, r->text, &r->step_ranks);
        print_profile(c, r);
        return;
    }
    fprintf(c->out, "%s%s%s\n", out_style(c, STYLE_BOLD), r->text, out_style(c, STYLE_PLAIN));
    fputs("  name   pass  density   best ms    median  GFLOP/s  share  ideal   dense select "
          " kept drop\n",
          c->out);
    for (int i = 0; i < r->n; i++) {
        print_row(c, &r->rows[i]);
        disturbed |= r->rows[i].time.disturbed;
    }
    if (r->p.kind == PROBLEM_STEP) {
        char bytes[32];
        fprintf(c->out,
                "  attention %.1f %%, linear layers %.1f %%, the rest %.1f %%; model and pass %s\n",
                100 * r->shares[0], 100 * r->shares[1], 100 * r->shares[2],
                out_bytes(r->step_bytes, bytes));
    }
    if (r->sparse.measured)
        print_sparse(c, &r->sparse);
    print_profile(c, r);
    if (r->products.text[0])
        fprintf(c->out, "  %s\n", r->products.text);
    fprintf(c->out, "  peak %.1f GFLOP/s on one thread", r->peak_one / 1e9);
    if (r->threads > 1)
        fprintf(c->out, ", %.1f on %d at once; fractions are of %d times one", r->peak_all / 1e9,
                r->threads, r->threads);
    fputc('\n', c->out);
    if (sparse && sparse->speedup_with_select < 1)
        fputs("  sparse with its selection is slower than dense at this density\n", c->out);
    if (disturbed)
        fputs("  the machine was disturbed: fewer samples were quiet than asked for\n", c->out);
}

/* One line for each context problem, where there are several. */
static void print_links(const cli *c, const report *reports, int n)
{
    int contexts = 0, printed = 0;
    for (int i = 0; i < n; i++)
        contexts += reports[i].context != NULL;
    for (int i = 0; i < n && contexts > 1; i++)
        if (reports[i].context)
            cp_print_line(c, &reports[i].p, reports[i].context, printed++ == 0);
}

static void print_break_even(const cli *c, const report *reports, int n)
{
    for (int i = 0; i < n; i++)
        if (!isnan(reports[i].break_even))
            fprintf(c->out, "%s\n  break-even density %.3f, %s\n", reports[i].text,
                    reports[i].break_even,
                    reports[i].break_even_measured ? "between measured ones" : "estimated");
}

void bench_print_all(const cli *c, const report *reports, int n)
{
    print_break_even(c, reports, n);
    print_links(c, reports, n);
}

/* ---- JSON --------------------------------------------------------------------------------- */

static json_t *row_json(cli *c, const measured *m)
{
    json_t *o = json_object();
    out_set(c, o, "name", json_string(m->name));
    out_set(c, o, "pass", json_string(m->pass));
    out_set(c, o, "density", out_number(m->density));
    out_set(c, o, "seconds", out_number(m->time.best));
    out_set(c, o, "seconds_median", out_number(m->time.median));
    out_set(c, o, "seconds_low", out_number(m->time.low));
    out_set(c, o, "seconds_high", out_number(m->time.high));
    out_set(c, o, "gflops", out_number(m->gflops));
    out_set(c, o, "share_of_peak", out_number(m->share_of_peak));
    out_set(c, o, "over_ideal", out_number(m->over_ideal));
    out_set(c, o, "speedup_over_dense", out_number(m->speedup_over_dense));
    out_set(c, o, "speedup_with_select", out_number(m->speedup_with_select));
    out_set(c, o, "kept", json_integer(m->time.kept));
    out_set(c, o, "dropped", json_integer(m->time.dropped));
    out_set(c, o, "disturbed", json_boolean(m->time.disturbed));
    return o;
}

static void set_sparse(cli *c, json_t *object, const sparse_report *s)
{
    json_t *cube = json_array();
    for (int i = 0; i < 3; i++)
        out_append(c, cube, json_integer(s->cube[i]));
    out_set(c, object, "speedup", out_number(s->speedup));
    out_set(c, object, "bound", out_number(s->bound));
    out_set(c, object, "of_bound", out_number(s->speedup / s->bound));
    out_set(c, object, "self_attention_share", out_number(s->attention));
    out_set(c, object, "density", out_number(s->density));
    out_set(c, object, "density_ran", out_number(s->ran));
    out_set(c, object, "select_share", out_number(s->select));
    out_set(c, object, "learn_share", out_number(s->learn));
    out_set(c, object, "update_share", out_number(s->update));
    out_set(c, object, "profile_share", out_number(s->profile));
    out_set(c, object, "check_share", out_number(s->check));
    out_set(c, object, "overhead_share",
            out_number(s->select + s->learn + s->update + s->profile + s->check));
    out_set(c, object, "profile_every", json_integer(s->profile_every));
    out_set(c, object, "check_every", json_integer(s->check_every));
    out_set(c, object, "recall", out_number(s->recall));
    out_set(c, object, "heads", json_integer(s->heads));
    out_set(c, object, "dense_heads", json_integer(s->dense_heads));
    out_set(c, object, "break_even", out_number(s->break_even));
    out_set(c, object, "break_even_from", json_string(break_even_names[s->break_even_from]));
    out_set(c, object, "cube", cube);
}

static void set_members(cli *c, json_t *object, const report *r)
{
    out_set(c, object, "problem", json_string(r->text));
    if (r->profile_heads)
        out_set(c, object, "profile_heads", json_integer(r->profile_heads));
    if (r->context) {
        cp_json(c, object, r->context);
        return;
    }
    if (r->step_ranks.ranks) {
        step_ranks_json(c, object, &r->step_ranks);
        return;
    }
    json_t *rows = json_array();
    for (int i = 0; i < r->n; i++)
        out_append(c, rows, row_json(c, &r->rows[i]));
    out_set(c, object, "precision", json_string(r->p.precision ? r->p.precision : "fp32"));
    if (r->products.text[0]) {
        out_set(c, object, "products_isa", json_string(r->products.isa));
        out_set(c, object, "products", json_string(r->products.text));
    }
    out_set(c, object, "peak_gflops", out_number(r->peak / 1e9));
    out_set(c, object, "peak_one_gflops", out_number(r->peak_one / 1e9));
    out_set(c, object, "peak_all_gflops", out_number(r->peak_all / 1e9));
    out_set(c, object, "break_even_density", out_number(r->break_even));
    out_set(c, object, "break_even_measured", json_boolean(r->break_even_measured));
    if (r->p.kind == PROBLEM_STEP) {
        out_set(c, object, "attention_share", out_number(r->shares[0]));
        out_set(c, object, "linear_share", out_number(r->shares[1]));
        out_set(c, object, "rest_share", out_number(r->shares[2]));
        out_set(c, object, "step_bytes", json_integer(r->step_bytes));
    }
    if (r->sparse.measured)
        set_sparse(c, object, &r->sparse);
    out_set(c, object, "results", rows);
}

/* One problem's members are the result's; several are a list. */
void bench_json(cli *c, const report *reports, int n)
{
    if (n == 1) {
        set_members(c, c->json, &reports[0]);
        return;
    }
    json_t *list = json_array();
    for (int i = 0; i < n; i++) {
        json_t *object = json_object();
        set_members(c, object, &reports[i]);
        out_append(c, list, object);
    }
    out_set(c, c->json, "problems", list);
}

/* ---- beside a baseline ---------------------------------------------------------------------- */

void bench_compare(cli *c, const json_t *baseline, const report *reports, int n)
{
    json_t *list = c->json ? json_array() : NULL;
    int slower = 0, compared = 0;
    for (int i = 0; i < n; i++)
        for (int row = 0; row < reports[i].n; row++) {
            const measured *m = &reports[i].rows[row];
            double share, least;
            if (!baseline_find(baseline, &reports[i], m, &share, &least))
                continue;
            compared++;
            if (m->share_of_peak >= least)
                continue;
            slower++;
            if (list) {
                json_t *o = json_object();
                out_set(c, o, "problem", json_string(reports[i].text));
                out_set(c, o, "name", json_string(m->name));
                out_set(c, o, "share_of_peak", out_number(m->share_of_peak));
                out_set(c, o, "baseline", out_number(share));
                out_set(c, o, "least", out_number(least));
                out_append(c, list, o);
            } else {
                fprintf(c->out, "%s\n  %sslower%s  %s: share %.3f, was %.3f, allowed is %.3f\n",
                        reports[i].text, out_style(c, STYLE_BAD), out_style(c, STYLE_PLAIN),
                        m->name, m->share_of_peak, share, least);
            }
        }
    if (list) {
        out_set(c, c->json, "compared", json_integer(compared));
        out_set(c, c->json, "slower", list);
    } else {
        fprintf(c->out, "compared with the baseline: %d, slower: %d\n", compared, slower);
    }
    c->code = slower ? EXIT_MISMATCH : 0;
}
