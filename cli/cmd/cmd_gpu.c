/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_gpu.c - tessera gpu: what kernels and devices there are; gpu_measure.c runs them. */
#include "cmd_gpu.h"
#include "commands.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char *const actions[] = {"info", "check", "bench", NULL};
static const char *const dtypes[] = {"bf16", "fp16", NULL};
static const opt_group groups[] = {{"Check", "keys"}, {"Bench", "tokens"}};
const char *const gpu_outcome_names[] = {"not checked", "failed", "passed"};

void gpu_outcome(const tess_gpu_check_result *r, char *text, size_t bytes)
{
    if (r->outcome == TESS_GPU_NOT_CHECKED)
        snprintf(text, bytes, "not checked on this device; tessera gpu check does it");
    else if (r->outcome == TESS_GPU_CHECK_FAILED)
        snprintf(text, bytes, "failed on this device: %d of %d cases, with %lld keys, %d runs each",
                 r->failed, r->cases, (long long)r->tokens, r->repeats);
    else
        snprintf(text, bytes, "passed on this device: %d cases, with %lld keys, %d runs each",
                 r->cases, (long long)r->tokens, r->repeats);
}

static void line(const cli *c, const char *name, const char *text)
{
    fprintf(c->out, "  %-9s ", name);
    out_wrap(c->out, text, 12, 12);
    fputc('\n', c->out);
}

void gpu_print_device(cli *c, const tess_gpu_info *i, const tess_gpu_check_result *checked)
{
    char text[256], a[32], b[32];
    if (c->json) {
        snprintf(text, sizeof text, "%d.%d", i->major, i->minor);
        out_set(c, c->json, "device",
                json_pack("{s:i,s:o,s:s,s:i,s:I,s:i,s:i}", "number", i->device, "name",
                          out_text(i->name), "capability", text, "driver", i->driver, "memory",
                          (json_int_t)i->memory, "multiprocessors", i->multiprocessors,
                          "shared_bytes", i->shared_bytes));
        out_set(c, c->json, "check", json_string(gpu_outcome_names[checked->outcome]));
        return;
    }
    snprintf(text, sizeof text,
             "%d, %s, compute capability %d.%d, %s, %d multiprocessor%s with %s "
             "of shared memory",
             i->device, i->name, i->major, i->minor, out_bytes(i->memory, a), i->multiprocessors,
             out_plural(i->multiprocessors), out_bytes(i->shared_bytes, b));
    line(c, "device", text);
    snprintf(text, sizeof text, "of CUDA %d.%d", i->driver / 1000, i->driver % 1000 / 10);
    line(c, "driver", text);
    gpu_outcome(checked, text, sizeof text);
    line(c, "check", text);
}

/* What a build has, without a device too. */
static void print_library(cli *c, const char *why)
{
    const char *const image = tess_gpu_image();
    const char *const backend =
        why ? "triton, where Triton serves the device: libtessera_gpu does not"
            : "c: libtessera_gpu is the first that serves this device; backend=\"triton\" asks for "
              "Triton's kernels";
    if (c->json) {
        out_set(c, c->json, "image", image[0] ? json_string(image) : json_null());
        out_set(c, c->json, "why", why ? out_sentence(why) : json_null());
        out_set(c, c->json, "backend", json_string(why ? "triton" : "c"));
        out_set(c, c->json, "backend_why", json_string(backend));
        if (why)
            out_set(c, c->json, "device", json_null());
        return;
    }
    line(c, "kernels", image[0] ? image : "none in this build");
    if (why)
        line(c, "device", why);
    line(c, "PyTorch", backend);
}

static tess_status run_info(cli *c, const gpu_values *v)
{
    tess_gpu *gpu = NULL;
    tess_gpu_info info;
    tess_gpu_check_result checked = {.outcome = TESS_GPU_NOT_CHECKED};
    tess_status status = tess_gpu_open(c->ctx, (int)v->device, &gpu);
    if (status == TESS_ENOTSUP) { /* what is missing is the result */
        char sentence[CLI_SENTENCE_MAX];
        snprintf(sentence, sizeof sentence, "%s", tess_last_error());
        print_library(c, out_plain(sentence));
        c->code = EXIT_MACHINE;
        return TESS_OK;
    }
    if (status != TESS_OK)
        return status;
    status = tess_gpu_query(gpu, &info);
    if (status == TESS_OK && cache_folder(c))
        status = tess_gpu_checked(gpu, cache_folder(c), &checked);
    if (status == TESS_OK) {
        print_library(c, NULL);
        gpu_print_device(c, &info, &checked);
    }
    tess_gpu_close(gpu);
    return status;
}

static int is_default(const opt *o, const gpu_values *v)
{
    const void *const at = (const char *)v + o->offset;
    switch (o->type) {
    case OPT_INT: return *(const int64_t *)at == strtoll(o->initial, NULL, 10);
    case OPT_FLAG: return *(const int *)at == 0;
    case OPT_DOUBLE: return isnan(*(const double *)at);
    default: return strcmp(*(const char *const *)at, o->initial) == 0;
    }
}

/* Options of another action would do nothing. Their groups are named after the actions. */
static tess_status check_options(cli *c, const gpu_values *v)
{
    const char *title;
    for (int i = 0, n; i < command_gpu.n_options; i += n) {
        n = opt_group_of(&command_gpu, i, &title);
        for (int k = 0; actions[k]; k++)
            for (int j = i; j < i + n && strcasecmp(title, actions[k]) == 0; j++)
                if (strcmp(v->action, actions[k]) != 0 && !is_default(&command_gpu.options[j], v))
                    return out_usage(c, "--%s belongs to %s, ACTION is %s",
                                     command_gpu.options[j].name, actions[k], v->action);
    }
    return TESS_OK;
}

static tess_status run(cli *c, const void *given)
{
    const gpu_values *v = given;
    tess_gpu *gpu = NULL;
    TRY(check_options(c, v));
    TRY(cache_choose(c, v->cache));
    if (strcmp(v->action, "info") == 0)
        return run_info(c, v);
    TRY(tess_gpu_open(c->ctx, (int)v->device, &gpu));
    const tess_status status =
        strcmp(v->action, "check") == 0 ? gpu_check(c, v, gpu) : gpu_bench(c, v, gpu);
    tess_gpu_close(gpu);
    return status;
}

static const opt arguments[] = {
    {"ACTION", 0, OPT_CHOICE, offsetof(gpu_values, action), .choices = actions, .required = 1,
     .help = "what to do"},
};

#define AT(member) offsetof(gpu_values, member)
static const opt options[] = {
    {"device", 0, OPT_INT, AT(device), "N", .initial = "0", .max = 1023,
     .help = "the driver's number of the device"},
    {"cache", 0, OPT_PATH, AT(cache), "FOLDER",
     .help = "folder that stores what a check found; default: tessera in $XDG_CACHE_HOME or "
             "~/.cache; none: nothing is stored"},
    {"keys", 0, OPT_INT, AT(check_tokens), "N", .initial = "4096", .min = 64, .max = 65536,
     .help = "keys of each head in a check"},
    {"runs", 0, OPT_INT, AT(check_repeats), "N", .initial = "16", .min = 2, .max = 1000,
     .help = "runs of each case of a check, whose bits must agree"},
    {"tokens", 0, OPT_INT, AT(tokens), "N", .initial = "16384", .min = 1, .max = 1 << 24,
     .help = "queries, and keys, of a bench"},
    {"heads", 0, OPT_INT, AT(heads), "N", .initial = "4", .min = 1, .max = 65536, .help = "heads"},
    {"dim", 0, OPT_INT, AT(head_dim), "N", .initial = "128", .min = 64, .max = 128,
     .help = "head_dim: 64 or 128"},
    {"group", 0, OPT_INT, AT(group), "N", .initial = "64", .min = 1, .max = 65536,
     .help = "queries that share a list"},
    {"unit", 0, OPT_INT, AT(unit), "N", .initial = "1", .min = 1, .max = 65536,
     .help = "keys of a unit, a power of two; 1: lists of single keys"},
    {"rank", 0, OPT_INT, AT(rank), "N", .initial = "16", .min = 1, .max = 64,
     .help = "of the scores that select"},
    {"dtype", 0, OPT_CHOICE, AT(dtype), "TYPE", .initial = "bf16", .choices = dtypes,
     .help = "type of q, k and v"},
    {"densities", 0, OPT_STRING, AT(densities), "LIST", .initial = "0.02,0.05,0.1,0.2,0.5",
     .help = "of the lists, ascending, with commas between them"},
    {"samples", 0, OPT_INT, AT(repeats), "N", .initial = "20", .min = 1, .max = 10000,
     .help = "runs of which a bench takes the median"},
    {"atomic", 0, OPT_FLAG, AT(atomic),
     .help = "sum gradients by atomics: no workspace, not the same bits on every run"},
    {"dense-forward", 0, OPT_DOUBLE, AT(dense_forward), "MS", .min = 1e-9, .max = 1e12,
     .help = "dense attention's time on this device, measured elsewhere; default: these kernels "
             "on all keys, in blocks of 64"},
    {"dense-backward", 0, OPT_DOUBLE, AT(dense_backward), "MS", .min = 1e-9, .max = 1e12,
     .help = "the same of its backward pass"},
};

static const example examples[] = {
    {"tessera gpu info", "device, driver, kernels, and whether they were checked"},
    {"tessera gpu check", "every kernel on this device against the CPU, some minutes"},
    {"tessera gpu bench --tokens 75600 --heads 40 --group 64", "times, and where sparse pays"},
};

const command command_gpu = {
    .name = "gpu",
    .summary = "the GPU's kernels: what is there, whether right, how fast",
    .description =
        "info says which kernels this build has, which device and driver it finds, and whether a "
        "check has passed on them; where something is missing it says what, and exits with 4. "
        "check runs every kind of kernel on the device against those of the CPU: errors, bits over "
        "repeated runs, bytes around the outputs; it exits with 3 if a case fails. The outcome is "
        "stored for this device, driver and library. bench times selection and attention, forward "
        "and backward, at several densities, and says below which density they take less than "
        "dense attention.\n"
        "These kernels are compiled for the devices named in docs/gpu.md and executed in an "
        "emulation on a CPU. We have not run them on a GPU; check and bench run and measure them "
        "on yours.\n"
        "With --json info has the members image, why, backend, backend_why, device and check; "
        "check "
        "has device, outcome, cases, failed, keys, runs and results; bench has device, check, "
        "problem, dense, densities and break_even.\n",
    TABLE(arguments),
    TABLE(options),
    TABLE(groups),
    TABLE(examples),
    .size = sizeof(gpu_values),
    .run = run,
};
