/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_info.c - tessera info: the version, what it was built with, and what this machine offers. */
#include "cmd_info.h"
#include "commands.h"
#include "tessera/advanced/machine.h"

#include "tessera/advanced/machine.h"

#include <string.h>

#ifdef CLI_TRAIN
#include "tessera/advanced/clip.h"
#include "tessera/media.h"
#endif

typedef struct {
    common common;
    int measure;
} values;

typedef struct {
    tess_ctx_info ctx;
    tess_machine machine;
    tess_speed speed;
    tess_bf16_use use;
    int measured;
} facts;

#ifdef CLI_MPI
enum { HAVE_MPI = 1 };
#else
enum { HAVE_MPI = 0 };
#endif

static const char *const amx_names[] = {"absent", "refused", "palette hidden", "ready"};
static const char *const amx_texts[] = {
    "absent",
    "refused by the operating system",
    "works, but its palette leaf is hidden: oneDNN and PyTorch crash",
    "ready",
};

/* ---- components: those of libtessera, then those of libtessera_train --------------------- */

static int component_total(void)
{
    int n = tess_component_count();
#ifdef CLI_TRAIN
    n += tess_train_component_count();
#endif
    return n;
}

static tess_status component_get(int i, tess_component *component)
{
#ifdef CLI_TRAIN
    if (i >= tess_component_count())
        return tess_train_component_query(i - tess_component_count(), component);
#endif
    return tess_component_query(i, component);
}

/* ---- text -------------------------------------------------------------------------------- */

void info_title(const cli *c, const char *text)
{
    fprintf(c->out, "\n%s%s%s\n", out_style(c, STYLE_BOLD), text, out_style(c, STYLE_PLAIN));
}

void info_line(const cli *c, const char *name, const char *text)
{
    fprintf(c->out, "  %-12s ", name);
    out_wrap(c->out, text, 15, 15);
    fputc('\n', c->out);
}

static const char *cache_text(int64_t bytes, char text[32])
{
    return bytes ? out_bytes(bytes, text) : "unknown";
}

static void print_machine(const cli *c, const tess_machine *m)
{
    char text[256], a[32], b[32], d[32];
    info_title(c, "machine");
    snprintf(text, sizeof text, "%s (%s)", m->cpu, m->arch);
    info_line(c, "cpu", text);
    snprintf(text, sizeof text,
             "%d of %d usable, %d hardware thread%s, %d socket%s, %d NUMA node%s", m->cores_usable,
             m->cores, m->hardware_threads, out_plural(m->hardware_threads), m->sockets,
             out_plural(m->sockets), m->numa_nodes, out_plural(m->numa_nodes));
    info_line(c, "cores", text);
    snprintf(text, sizeof text, "L1d %s, L2 %s, L3 %s", cache_text(m->cache_l1d, a),
             cache_text(m->cache_l2, b), cache_text(m->cache_l3, d));
    info_line(c, "caches", text);
    snprintf(text, sizeof text, "%s, of which %s available", out_bytes(m->memory_total, a),
             out_bytes(m->memory_available, b));
    info_line(c, "memory", text);
    info_line(c, "huge pages", m->huge_pages);
    info_line(c, "features", m->features);
    info_line(c, "AMX", amx_texts[m->amx]);
    info_line(c, "read from", m->topology);
}

static void print_isas(const cli *c, const facts *f)
{
    tess_isa isa;
    info_title(c, "instruction sets");
    for (int i = 0; tess_isa_query(i, &isa) == TESS_OK; i++) {
        const int used = strcmp(isa.name, f->ctx.isa) == 0;
        char text[256];
        snprintf(text, sizeof text, "%d-byte vectors%s, %s%s%s", isa.bytes,
                 isa.bf16 ? " and products in bf16" : "",
                 used            ? "in use"
                 : isa.available ? "available"
                                 : "not available: ",
                 isa.why, isa.test_only ? " (for tests only)" : "");
        info_line(c, isa.name, text);
    }
}

static void print_components(const cli *c)
{
    tess_component part;
    info_title(c, "built with");
    for (int i = 0; i < component_total() && component_get(i, &part) == TESS_OK; i++)
        fprintf(c->out, "  %-12s %-10s %s\n", part.name, part.found ? part.version : "without",
                part.effect);
    fprintf(c->out, "  %-12s %-10s %s\n", "MPI", HAVE_MPI ? "found" : "without",
            HAVE_MPI ? "many processes" : "one process only");
}

static void print_speed(const cli *c, const facts *f)
{
    const struct {
        const char *name, *unit;
        double one, all, scale;
    } rows[] = {
        {"FMA", "GFLOP/s", f->speed.flops_one, f->speed.flops_all, 1e9},
        {"memory read", "GB/s", f->speed.read_one, f->speed.read_all, 1e9},
        {"memory copy", "GB/s", f->speed.copy_one, f->speed.copy_all, 1e9},
    };
    char text[64];
    snprintf(text, sizeof text, "measured with %s", f->ctx.isa);
    info_title(c, text);
    snprintf(text, sizeof text, "%d thread%s", f->ctx.threads, out_plural(f->ctx.threads));
    fprintf(c->out, "  %-12s %9s %12s\n", "", "1 thread", text);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        fprintf(c->out, "  %-12s %9.1f %12.1f %s\n", rows[i].name, rows[i].one / rows[i].scale,
                rows[i].all / rows[i].scale, rows[i].unit);
    for (int i = 0; i < f->speed.n_bf16; i++)
        fprintf(c->out, "  %-12s %9.1f %12.1f GFLOP/s of products in bf16\n", f->speed.bf16[i].isa,
                f->speed.bf16[i].one / 1e9, f->speed.bf16[i].all / 1e9);
    if (f->use.precision == TESS_PRECISION_BF16)
        fprintf(c->out, "  precision=bf16 multiplies by %s\n", f->use.isa);
    else
        fprintf(c->out, "  precision=bf16 is storage alone: %s\n", f->use.why);
    fprintf(c->out, "  %d samples kept, %d disturbed ones dropped\n", f->speed.kept,
            f->speed.dropped);
}

/* ---- JSON -------------------------------------------------------------------------------- */

static void json_machine(cli *c, const tess_machine *m)
{
    json_t *o = json_object(), *caches = json_object();
    out_set(c, o, "cpu", out_text(m->cpu));
    out_set(c, o, "arch", json_string(m->arch));
    out_set(c, o, "sockets", json_integer(m->sockets));
    out_set(c, o, "numa_nodes", json_integer(m->numa_nodes));
    out_set(c, o, "cores", json_integer(m->cores));
    out_set(c, o, "cores_usable", json_integer(m->cores_usable));
    out_set(c, o, "hardware_threads", json_integer(m->hardware_threads));
    out_set(c, caches, "l1d", json_integer(m->cache_l1d));
    out_set(c, caches, "l2", json_integer(m->cache_l2));
    out_set(c, caches, "l3", json_integer(m->cache_l3));
    out_set(c, o, "caches", caches);
    out_set(c, o, "memory_total", json_integer(m->memory_total));
    out_set(c, o, "memory_available", json_integer(m->memory_available));
    out_set(c, o, "huge_pages", json_string(m->huge_pages));
    out_set(c, o, "features", json_string(m->features));
    out_set(c, o, "amx", json_string(amx_names[m->amx]));
    out_set(c, o, "topology", json_string(m->topology));
    out_set(c, c->json, "machine", o);
}

static void json_build(cli *c)
{
    json_t *o = json_object(), *list = json_array();
    tess_component part;
    out_set(c, o, "mpi", json_boolean(HAVE_MPI));
    for (int i = 0; i < component_total() && component_get(i, &part) == TESS_OK; i++) {
        json_t *p = json_object();
        out_set(c, p, "name", json_string(part.name));
        out_set(c, p, "found", json_boolean(part.found));
        out_set(c, p, "version", json_string(part.version));
        out_set(c, p, "effect", json_string(part.effect));
        out_append(c, list, p);
    }
    out_set(c, o, "components", list);
    out_set(c, c->json, "build", o);
}

static void json_isas(cli *c)
{
    json_t *list = json_array();
    tess_isa isa;
    for (int i = 0; tess_isa_query(i, &isa) == TESS_OK; i++) {
        json_t *o = json_object();
        out_set(c, o, "name", json_string(isa.name));
        out_set(c, o, "vector_bytes", json_integer(isa.bytes));
        out_set(c, o, "available", json_boolean(isa.available));
        out_set(c, o, "test_only", json_boolean(isa.test_only));
        out_set(c, o, "bf16", json_boolean(isa.bf16));
        out_set(c, o, "why", json_string(isa.why));
        out_append(c, list, o);
    }
    out_set(c, c->json, "isas", list);
}

static void json_speed(cli *c, const tess_speed *s, const tess_bf16_use *use)
{
    json_t *o = json_object(), *list = json_array();
    for (int i = 0; i < s->n_bf16; i++) {
        json_t *rate = json_object();
        out_set(c, rate, "isa", json_string(s->bf16[i].isa));
        out_set(c, rate, "flops_one", out_number(s->bf16[i].one));
        out_set(c, rate, "flops_all", out_number(s->bf16[i].all));
        out_append(c, list, rate);
    }
    out_set(c, o, "bf16", list);
    out_set(c, o, "bf16_isa",
            use->precision == TESS_PRECISION_BF16 ? json_string(use->isa) : json_null());
    out_set(c, o, "bf16_why", json_string(use->why));
    out_set(c, o, "flops_one", out_number(s->flops_one));
    out_set(c, o, "flops_all", out_number(s->flops_all));
    out_set(c, o, "read_one", out_number(s->read_one));
    out_set(c, o, "read_all", out_number(s->read_all));
    out_set(c, o, "copy_one", out_number(s->copy_one));
    out_set(c, o, "copy_all", out_number(s->copy_all));
    out_set(c, o, "kept", json_integer(s->kept));
    out_set(c, o, "dropped", json_integer(s->dropped));
    out_set(c, c->json, "measured", o);
}

/* ---- the command ------------------------------------------------------------------------- */

tess_status info_report(cli *c, int measure)
{
    facts f = {.measured = measure};
    tess_status status = tess_ctx_query(c->ctx, &f.ctx);
    if (status == TESS_OK)
        status = tess_machine_query(c->ctx, &f.machine);
    if (status == TESS_OK && measure)
        status = tess_machine_measure(c->ctx, &f.speed);
    if (status == TESS_OK && measure)
        status = tess_bf16_query(c->ctx, &f.use);
    if (status != TESS_OK)
        return status;
    progress_clear(c);
    if (c->json) {
        json_build(c);
        json_isas(c);
        json_machine(c, &f.machine);
        if (f.measured)
            json_speed(c, &f.speed, &f.use);
        return TESS_OK;
    }
    fprintf(c->out, "tessera %s, %s, %d thread%s\n", tess_version(), f.ctx.isa, f.ctx.threads,
            out_plural(f.ctx.threads));
    print_isas(c, &f);
    print_machine(c, &f.machine);
    print_components(c);
    if (f.measured)
        print_speed(c, &f);
    return TESS_OK;
}

static tess_status run(cli *c, const void *given)
{
    return info_report(c, ((const values *)given)->measure);
}

static const opt options[] = {
    {"measure", 0, OPT_FLAG, offsetof(values, measure),
     .help = "also measure the peaks of arithmetic, in fp32 and bf16, and memory; takes about "
             "three seconds"},
};

static const example examples[] = {
    {"tessera info --measure", "what this machine reaches"},
    {"tessera info --isa base -j 1", "whether a slower instruction set could be used"},
};

const command command_info = {
    .name = "info",
    .summary = "what this build contains and this machine offers",
    .description = "Prints the version, the instruction sets with the reason where one cannot be "
                   "used, the machine as the operating system lets this process use it, and the "
                   "libraries the build found with what is lost without the others.\n",
    TABLE(options),
    TABLE(examples),
    .size = sizeof(values),
    .run = run,
};
