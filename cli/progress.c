/* SPDX-License-Identifier: Apache-2.0 */
/* progress.c - one line on stderr about a long call, and the check whether to stop.
 *
 *   statistics of model.safetensors   42 %   1.2 GB/s   0:12 left
 *
 * On a terminal the line is rewritten at most 6 times a second and erased at the end; elsewhere a
 * plain line appears every 10 seconds. The first one waits for that long, so that quick
 * calls print nothing.
 */
#include "cli.h"

#include "tessera/advanced/machine.h"

#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static const int64_t every_terminal = 1000000000 / 6, every_line = 10000000000;

static void restart(progress *p, const char *what)
{
    snprintf(p->what, sizeof p->what, "%s", what);
    p->started = p->printed = tess_clock_ns();
}

/* "1.2 GB": so many of a unit. */
static void count_text(double n, const char *unit, char text[32])
{
    static const char *const prefixes[] = {"", "k", "M", "G", "T", "P", "E"};
    int prefix = 0;
    for (; n >= 999.5 && prefix < 6; prefix++)
        n /= 1000;
    snprintf(text, 32, "%.3g%s%s%s", n, prefix || *unit ? " " : "", prefixes[prefix], unit);
}

char *progress_rate(double rate, char text[32])
{
    const int k = rate >= 1e4, m = rate >= 999.95e3;
    snprintf(text, 32, "%.*f%s", k, rate / (m ? 1e6 : k ? 1e3 : 1.0), m ? "M" : k ? "k" : "");
    return text;
}

char *progress_time(double seconds, char text[32])
{
    const long long s = seconds < 1e15 ? (long long)(seconds + 0.5) : (long long)1e15;
    if (s < 3600)
        snprintf(text, 32, "%lld:%02lld", s / 60, s % 60);
    else
        snprintf(text, 32, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    return text;
}

int progress_width(void)
{
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1 : 79;
}

static void line_text(const progress *p, int64_t done, int64_t total, double seconds, char *text,
                      size_t bytes)
{
    char what[sizeof p->what], rate[32], left[32];
    const double per_second = seconds > 0 ? (double)done / seconds : 0;
    out_clean(p->what, what, sizeof what);
    count_text(per_second, p->span ? "B" : "", rate);
    if (total <= 0 || done <= 0) {
        snprintf(text, bytes, "%s   %s/s", what, rate);
        return;
    }
    snprintf(text, bytes, "%s   %d %%   %s/s   %s left", what,
             (int)(100 * ((double)done / (double)total)), rate,
             progress_time((double)(total - done) / per_second, left));
}

static void show_text(cli *c, const char *text, int64_t now)
{
    progress *p = &c->progress;
    p->printed = now;
    if (!p->terminal) {
        out_error(c, text);
        return;
    }
    fprintf(stderr, "\r%.*s\033[K", progress_width(), text);
    p->shown = 1;
}

static void show(cli *c, int64_t done, int64_t total, int64_t now)
{
    char text[256];
    line_text(&c->progress, done, total, (double)(now - c->progress.started) / 1e9, text,
              sizeof text);
    show_text(c, text, now);
}

static int due(const progress *p, int64_t now)
{
    return p->on && now - p->printed >= (p->terminal ? every_terminal : every_line);
}

int progress_call(void *user, const char *what, int64_t done, int64_t total)
{
    cli *c = user;
    progress *p = &c->progress;
    if (world_failed(c))
        return 1;
    if (signals_caught())
        return !p->hold;
    if (p->inner)
        p->inner(p->inner_user, what, done, total);
    if (!p->on || p->inner)
        return 0;
    if (p->span) {
        const double share = total > 0 ? (double)done / (double)total : 0;
        done = p->part_begin + (int64_t)(share * (double)p->part_size);
        total = p->span_total;
    } else if (done < p->done || strncmp(what, p->what, sizeof p->what - 1) != 0) {
        restart(p, what); /* another call began */
    }
    p->done = done;
    const int64_t now = tess_clock_ns();
    if (due(p, now))
        show(c, done, total, now);
    return 0;
}

void progress_own(cli *c, progress_fn fn, void *user)
{
    c->progress.inner = fn;
    c->progress.inner_user = user;
    c->progress.printed = tess_clock_ns();
}

void progress_line(cli *c, const char *text)
{
    const int64_t now = tess_clock_ns();
    if (due(&c->progress, now))
        show_text(c, text, now);
}

void progress_step(cli *c, const char *text)
{
    if (c->progress.on && c->progress.terminal)
        show_text(c, text, tess_clock_ns());
    else
        progress_line(c, text);
}

void progress_span(cli *c, const char *what, int64_t total)
{
    c->progress.span = what;
    c->progress.span_total = total;
    if (what)
        restart(&c->progress, what);
    else
        progress_clear(c);
}

void progress_part(cli *c, int64_t begin, int64_t size)
{
    c->progress.part_begin = begin;
    c->progress.part_size = size;
}

void progress_clear(cli *c)
{
    if (c->progress.shown)
        fputs("\r\033[K", stderr);
    c->progress.shown = 0;
}
