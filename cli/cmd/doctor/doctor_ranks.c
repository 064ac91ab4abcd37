/* SPDX-License-Identifier: Apache-2.0 */
/* doctor_ranks.c - findings about many ranks: hosts, builds, links.
 *
 * Every rank sends its facts to rank 0, which groups the ranks by host and judges. Links are
 * measured by all ranks together: ping-pong messages, and an all-to-all.
 */
#include "cmd_doctor.h"
#include "tessera/advanced/collectives.h"
#include "world.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Facts of a rank, as they are sent. */
typedef struct {
    char host[64], cpu[64], isa[16], version[16];
    int32_t cores, usable, threads;
    int64_t memory; /* bytes available on its host */
    uint64_t build;
} rank_facts;

typedef struct {
    cli *c;
    const rank_facts *all;
    tess_finding_fn fn;
    void *user;
    json_t *hosts;
} doctor;

static tess_status query_facts(const cli *c, rank_facts *f)
{
    tess_machine machine;
    tess_ctx_info info;
    TRY(tess_machine_query(c->ctx, &machine));
    TRY(tess_ctx_query(c->ctx, &info));
    *f = (rank_facts){.cores = machine.cores,
                      .usable = machine.cores_usable,
                      .threads = info.threads,
                      .memory = machine.memory_available,
                      .build = build_fingerprint()};
    if (gethostname(f->host, sizeof f->host - 1) != 0)
        snprintf(f->host, sizeof f->host, "unknown");
    snprintf(f->cpu, sizeof f->cpu, "%.63s", machine.cpu);
    snprintf(f->isa, sizeof f->isa, "%.15s", info.isa);
    snprintf(f->version, sizeof f->version, "%.15s", tess_version());
    return TESS_OK;
}

static void say(const doctor *d, tess_finding_level level, const char *topic, const char *advice,
                const char *format, ...) __attribute__((format(printf, 5, 6)));

static void say(const doctor *d, tess_finding_level level, const char *topic, const char *advice,
                const char *format, ...)
{
    char sentence[512];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    d->fn(d->user, &(tess_finding){level, topic, sentence, advice});
}

/* ---- hosts ------------------------------------------------------------------------------- */

/* "0-3, 8": the ranks of a host. */
static void ranks_text(const doctor *d, const char *host, char *text, size_t bytes)
{
    size_t used = 0;
    *text = 0;
    for (int i = 0; i < d->c->ranks && used < bytes; i++) {
        int last = i;
        if (strcmp(d->all[i].host, host) != 0)
            continue;
        while (last + 1 < d->c->ranks && strcmp(d->all[last + 1].host, host) == 0)
            last++;
        used += (size_t)snprintf(text + used, bytes - used, last > i ? "%s%d-%d" : "%s%d",
                                 used ? ", " : "", i, last);
        i = last;
    }
}

static void host_json(const doctor *d, int first, const char *ranks, int n, int threads)
{
    const rank_facts *f = &d->all[first];
    json_t *o = json_object();
    cli *c = d->c;
    out_set(c, o, "host", out_text(f->host));
    out_set(c, o, "ranks", out_text(ranks));
    out_set(c, o, "count", json_integer(n));
    out_set(c, o, "threads", json_integer(threads));
    out_set(c, o, "cores", json_integer(f->cores));
    out_set(c, o, "cores_usable", json_integer(f->usable));
    out_set(c, o, "cpu", out_text(f->cpu));
    out_set(c, o, "isa", out_text(f->isa));
    out_set(c, o, "memory_available", json_integer(f->memory));
    out_append(c, d->hosts, o);
}

/* The host of rank first, its lowest one. */
static void judge_host(const doctor *d, int first)
{
    const rank_facts *f = &d->all[first];
    char ranks[128], memory[32];
    int n = 0, threads = 0, crowded = -1;
    for (int i = first; i < d->c->ranks; i++) {
        const rank_facts *other = &d->all[i];
        if (strcmp(other->host, f->host) != 0)
            continue;
        n++;
        threads += other->threads;
        if (other->threads > other->usable && crowded < 0)
            crowded = i;
    }
    ranks_text(d, f->host, ranks, sizeof ranks);
    out_bytes(f->memory, memory);
    if (d->hosts)
        host_json(d, first, ranks, n, threads);
    if (threads > f->cores)
        say(d, TESS_FINDING_WARNING, f->host,
            "start fewer ranks on it, or give each fewer threads with --threads",
            "ranks %s with %d threads in all share %d cores", ranks, threads, f->cores);
    else if (crowded >= 0)
        say(d, TESS_FINDING_WARNING, f->host,
            "bind each rank to as many cores as it has threads: mpirun --map-by slot:PE=N, srun "
            "--cpus-per-task=N",
            "rank %d has %d threads on %d usable core%s", crowded, d->all[crowded].threads,
            d->all[crowded].usable, out_plural(d->all[crowded].usable));
    else
        say(d, TESS_FINDING_FINE, f->host, "",
            "ranks %s, %d threads in all on %d cores, %s, %s available", ranks, threads, f->cores,
            f->isa, memory);
}

/* The lowest rank on the host of rank i. */
static int first_on_host(const rank_facts *all, int i)
{
    int first = 0;
    while (strcmp(all[first].host, all[i].host) != 0)
        first++;
    return first;
}

static void judge_hosts(const doctor *d)
{
    for (int i = 0; i < d->c->ranks; i++)
        if (first_on_host(d->all, i) == i)
            judge_host(d, i);
}

/* "host 1", "host 2" in the order of ranks, instead of the names. */
static void hide_hosts(rank_facts *all, int ranks)
{
    for (int i = 0, hosts = 0; i < ranks; i++) {
        char name[sizeof all->host];
        if (strncmp(all[i].host, "host ", 5) == 0) /* no name of a host has a space */
            continue;
        memcpy(name, all[i].host, sizeof name);
        hosts++;
        for (int j = i; j < ranks; j++)
            if (strcmp(all[j].host, name) == 0)
                snprintf(all[j].host, sizeof name, "host %d", hosts);
    }
}

/* ---- builds ------------------------------------------------------------------------------ */

static void judge_builds(const doctor *d)
{
    const rank_facts *a = &d->all[0];
    int build = 0, isa = 0;
    for (int i = d->c->ranks - 1; i > 0; i--) {
        const rank_facts *b = &d->all[i];
        build = b->build != a->build ? i : build;
        isa = strcmp(b->isa, a->isa) != 0 ? i : isa;
    }
    if (build)
        say(d, TESS_FINDING_PROBLEM, "builds", "install the same build on all hosts",
            "rank %d has another build of tessera than rank 0: versions %s and %s", build,
            d->all[build].version, a->version);
    else
        say(d, TESS_FINDING_FINE, "builds", "", "all ranks have the same build of tessera %s",
            a->version);
    if (isa)
        say(d, TESS_FINDING_WARNING, "instruction sets",
            "choose one that all hosts have with --isa, for the same bits everywhere",
            "rank %d computes with %s, rank 0 with %s", isa, d->all[isa].isa, a->isa);
}

/* ---- links ------------------------------------------------------------------------------- */

static void judge_link(const doctor *d, const char *topic, int64_t latency, double bandwidth)
{
    say(d, TESS_FINDING_FINE, topic, "", "%.1f us, %.2f GB/s into and out of each rank",
        (double)latency / 1e3, bandwidth / 1e9);
    if (!d->c->json)
        return;
    json_t *o = json_object();
    out_set(d->c, o, "latency_ns", json_integer(latency));
    out_set(d->c, o, "bandwidth", out_number(bandwidth));
    out_set(d->c, d->c->json, strcmp(topic, "network") == 0 ? "network" : "links", o);
}

/* ---- speeds ------------------------------------------------------------------------------ */

/* Relative to the fastest rank; a warning where one is a fifth slower. */
static void judge_speeds(const doctor *d, const double *speeds)
{
    char list[160];
    size_t used = 0;
    int slowest = 0;
    json_t *all = d->c->json ? json_array() : NULL;
    for (int p = 0; p < d->c->ranks; p++) {
        slowest = speeds[p] < speeds[slowest] ? p : slowest;
        if (p < 16 && used < sizeof list)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%.2f", p ? " " : "",
                                     speeds[p]);
        if (all)
            out_append(d->c, all, out_number(speeds[p]));
    }
    if (all)
        out_set(d->c, d->c->json, "speeds", all);
    if (speeds[slowest] < 0.8)
        say(d, TESS_FINDING_WARNING, "speeds",
            "look for other jobs on its cores; train on clips of several sizes gives it less",
            "%s%s: rank %d is slowest", list, d->c->ranks > 16 ? " and more" : "", slowest);
    else
        say(d, TESS_FINDING_FINE, "speeds", "", "%s%s of the fastest rank, by rank", list,
            d->c->ranks > 16 ? " and more" : "");
}

tess_status doctor_ranks(cli *c, int anonymous, tess_finding_fn fn, void *user)
{
    rank_facts mine;
    tess_link link = {0};
    if (!c->comm || c->ranks < 2)
        return TESS_OK;
    const size_t n = (size_t)c->ranks;
    rank_facts *all = calloc(n, sizeof *all);
    int64_t *bytes = calloc(n, sizeof *bytes);
    double *speeds = calloc(n, sizeof *speeds);
    tess_status status = all && bytes && speeds
                             ? query_facts(c, &mine)
                             : out_fail(c, TESS_ENOMEM, "no memory for %d ranks", c->ranks);
    for (size_t i = 0; i < n && bytes; i++)
        bytes[i] = sizeof mine;
    status = world_agree(c, c->comm, status);
    if (status == TESS_OK)
        status =
            tess_comm_allgatherv(c->comm, TESS_TRAFFIC_CONTROL, &mine, sizeof mine, all, bytes);
    if (status == TESS_OK)
        status = tess_comm_measure(c->comm, &link);
    if (status == TESS_OK)
        status = doctor_speeds(c, speeds);
    if (status == TESS_OK && c->rank == 0) {
        if (anonymous)
            hide_hosts(all, c->ranks);
        const doctor d = {c, all, fn, user, c->json ? json_array() : NULL};
        judge_builds(&d);
        judge_hosts(&d);
        judge_speeds(&d, speeds);
        if (link.node_ranks != 1) /* else no other rank to measure them with */
            judge_link(&d, "links", link.latency, link.bandwidth);
        if (link.node_ranks)
            judge_link(&d, "network", link.network_latency, link.network_bandwidth);
        if (c->json)
            out_set(c, c->json, "hosts", d.hosts);
    }
    free(speeds);
    free(bytes);
    free(all);
    return status;
}
