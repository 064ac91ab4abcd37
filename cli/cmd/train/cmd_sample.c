/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_sample.c - tessera sample: its options; sample_run.c does the rest. */
#include "cmd_sample.h"
#include "commands.h"

static tess_status run(cli *c, const void *given)
{
#ifdef CLI_TRAIN
    return sample_run(c, given);
#else
    (void)given;
    return out_fail(c, TESS_ENOTSUP, "this build has no training stack, needs oneDNN");
#endif
}

#define AT(member) offsetof(sample_values, member)

/* Options whose default is the checkpoint's. */
#define ATTENTION(name, place, metavar, of, text)                                                  \
    {                                                                                              \
        (name), .offset = AT(place), .value = (metavar), .own = OPT_OWN, .member = #of,            \
                .table = TESS_OPTIONS_ATTENTION, .help = (text)                                    \
    }
#define SAMPLE(name, metavar, of) OPT_OF(SAMPLE, AT(opts), name, 0, metavar, of)

static const sample_values defaults = {.opts = TESS_SAMPLE_OPTS_INIT, .compensate = -1};

static const opt arguments[] = {
    {"CHECKPOINT", 0, OPT_PATH, AT(checkpoint), .required = 1,
     .help = "a checkpoint, a run (its newest one), or a model: its folder, a pipeline's, or its "
             "weights"},
};

static opt options[] = {
    {"prompt", 0, OPT_STRINGS, AT(prompts), "TEXT",
     .help = "what to show; may be given several times; without one, anything"},
    {"prompts", 0, OPT_PATH, AT(prompt_file), "FILE",
     .help = "text file of further prompts, one a line"},
    {"output", 'o', OPT_PATH, AT(output), "FILE|DIR/",
     .help = "written by its end: .mp4, .gif, .y4m, .png (a contact sheet), .npy (latents); a "
             "folder, ending in /: a .y4m for each clip and its prompt in a .txt, as tessera data "
             "reads them"},
    {"count", 0, OPT_INT, AT(count), "N", "1", .min = 1, .max = 100000, .unit = "clips",
     .help = "clips for each prompt"},
    {"batch", 0, OPT_INT, AT(batch), "N", "4", .min = 1, .max = 65536, .unit = "clips",
     .help = "clips at once"},
    SAMPLE("steps", "N", steps),
    {"guidance", .offset = AT(guidance), .value = "X", .own = OPT_OWN, .member = "guidance",
     .table = TESS_OPTIONS_SAMPLE,
     .help = "classifier-free guidance scale; 1: none; default: the checkpoint's"},
    {"shift", .offset = AT(shift), .value = "X", .own = OPT_OWN, .member = "shift",
     .table = TESS_OPTIONS_SAMPLE, .help = "shift of the noise levels; default: the checkpoint's"},
    {"frames", 0, OPT_INT, AT(frames), "N", .min = 1, .max = 4096, .unit = "frames",
     .help = "default: the checkpoint's"},
    {"height", 0, OPT_INT, AT(height), "N", .min = 1, .max = 16384, .unit = "pixels",
     .help = "in pixels, or of the latent; default: the checkpoint's"},
    {"width", 0, OPT_INT, AT(width), "N", .min = 1, .max = 16384, .unit = "pixels",
     .help = "in pixels, or of the latent; default: the checkpoint's"},
    {"fps", 0, OPT_DOUBLE, AT(fps), "N", .min = 0.1, .max = 1000, .unit = "frames per second",
     .help = "of the video; default: the checkpoint's"},
    {"scale", 0, OPT_INT, AT(scale), "N", "1", .min = 1, .max = 64,
     .help = "each pixel of a picture or video becomes N x N"},
    {"text", 0, OPT_PATH, AT(text), "FILE",
     .help = "the prompt's embedding made elsewhere, (rows, width), instead of words; missing rows "
             "are zeros"},
    ATTENTION("attention", attention, "KIND", kind,
              "self attention; default: as the checkpoint was trained"),
    {"selector", 0, OPT_PATH, AT(selector), "FILE",
     .help = "selector of one's own: a shared object with a function of tessera/selector.h, or a "
             "tensor file of masks"},
    {"density", 0, OPT_DOUBLE, AT(density), "X", .min = 1e-6, .max = 1,
     .help = "fraction of the keys of every head; default: the checkpoint's budgets"},
    ATTENTION("mass", mass, "X", mass,
              "fraction of the softmax that budgets hold; measured while sampling, where it "
              "differs from the checkpoint's"),
    ATTENTION("max-density", max_density, "X", max_density, "most of a head's own density"),
    {"compensate", .offset = AT(compensate), .value = "N", .own = OPT_OWN, .member = "compensate",
     .table = TESS_OPTIONS_ATTENTION,
     .help = "virtual keys that stand for the keys that were dropped: 0 or off: none, 1 or on: one "
             "for all, more: one for each of so many clusters; default: the checkpoint's"},
    {"cube", 0, OPT_STRING, AT(cube), "FxHxW",
     .help = "queries that share keys; with --density, --mass or another --attention; default: the "
             "checkpoint's, or 2x4x4"},
    ATTENTION("proxy", proxy, "KIND", proxy,
              "what stands for the queries of a cube before dsv's predictor; default: the "
              "checkpoint's"),
    {"search-every", .offset = AT(search_every), .value = "N", .own = OPT_OWN_SHOWN,
     .member = "search_every", .table = TESS_OPTIONS_SAMPLE},
    {"density-out", 0, OPT_PATH, AT(density_out), "FILE",
     .help = "CSV of the density of each step, layer and head, as tessera plan --density reads it"},
    {"compare-dense", 0, OPT_FLAG, AT(compare),
     .help = "sample the same noise with dense attention too, and print PSNR and both times"},
    {"ema", 0, OPT_FLAG, AT(ema), .initial = "1",
     .help = "the last weights, not the averaged ones"},

    SAMPLE("precision", "KIND", precision),

    SAMPLE("halves", "WHEN", halves),
    SAMPLE("strategy", "WORD", strategy),
    OPT_OF(SAMPLE, AT(opts), "cluster", OPT_PATH, "NAME|FILE", cluster),
    SAMPLE("exact-ranks", NULL, exact_ranks),
    {"plan-log", 0, OPT_FLAG, AT(plan_log),
     .help = "print what was planned for each step, and when a plan was reused"},
};

static void bind(void)
{
    opt_bind(options, (int)(sizeof options / sizeof *options), &defaults);
}

static const example examples[] = {
    {"tessera sample run --prompt \"a red disc moving left\" --scale 8 -o out.mp4", "one clip"},
    {"tessera sample run --prompt \"a red disc\" --prompt \"a blue square\" --count 4 -o sheet.png",
     "a contact sheet of eight"},
    {"tessera sample run --prompts prompts.txt -o samples/",
     "a file for each clip, for tessera data samples/ --judge"},
    {"tessera sample run --attention oracle --mass 0.9 --compare-dense --density-out density.csv "
     "-o out.mp4",
     "how sparse a model could be, and what that changes"},
    {"mpirun -n 4 tessera sample run --prompt \"a red disc\" --plan-log -o out.mp4",
     "on four ranks, two with the prompt and two without"},
};

const command command_sample = {
    .name = "sample",
    .summary = "make new clips with a trained model",
    .description =
        "Draws noise and integrates the velocity that the model predicts until a clip is left, "
        "with "
        "classifier-free guidance towards the prompt. The same seed gives the same clip, bit for "
        "bit, with any "
        "number of threads. Several clips are put side by side, in a contact sheet one per row.\n"
        "A model attends as it was trained: one that was trained sparse uses its predictors and "
        "budgets. Another --attention, or a --density, holds for every head of every layer; "
        "without a density, budgets are measured by dense attention in the first step of each "
        "noise-level quartile.\n"
        "Under mpirun or srun all ranks sample together: they share the tokens of each clip, by "
        "plans made from the densities of the step before, and rank 0 writes the result, which is "
        "that of one rank up to rounding.\n",
    TABLE(arguments),
    TABLE(options),
    TABLE(examples),
    .size = sizeof(sample_values),
    .defaults = &defaults,
    .bind = bind,
    .everywhere = 1,
    .run = run,
};
