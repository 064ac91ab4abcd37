/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_sample.c - tessera sample: its options; sample_run.c does the rest. */
#include "commands.h"
#include "sample.h"

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

static const opt arguments[] = {
    {"CHECKPOINT", 0, OPT_PATH, AT(checkpoint), .required = 1,
     .help = "a checkpoint, a run (its newest one), or the folder of a model"},
};

static const opt options[] = {
    {"prompt", 0, OPT_STRINGS, AT(prompts), "TEXT",
     .help = "what to show; may be given several times; without one, anything"},
    {"output", 'o', OPT_PATH, AT(output), "FILE",
     .help = "written by its end: .mp4, .gif, .y4m, .png (a contact sheet), .npy (latents)"},
    {"count", 0, OPT_INT, AT(count), "N", "1", .min = 1, .max = 100000,
     .help = "clips for each prompt"},
    {"batch", 0, OPT_INT, AT(batch), "N", "4", .min = 1, .max = 65536, .help = "clips at once"},
    {"steps", 0, OPT_INT, AT(steps), "N", "25", .min = 1, .max = 10000,
     .help = "of Euler's method"},
    {"guidance", 0, OPT_DOUBLE, AT(guidance), "X", .min = 0.001, .max = 1000,
     .help = "how much more than without the prompt; 1: none; default: the checkpoint's"},
    {"shift", 0, OPT_DOUBLE, AT(shift), "X", .min = 0.001, .max = 1000,
     .help = "of noise levels; default: the checkpoint's"},
    {"frames", 0, OPT_INT, AT(frames), "N", .min = 1, .max = 4096,
     .help = "default: the checkpoint's"},
    {"height", 0, OPT_INT, AT(height), "N", .min = 1, .max = 16384,
     .help = "in pixels, or of the latent; default: the checkpoint's"},
    {"width", 0, OPT_INT, AT(width), "N", .min = 1, .max = 16384,
     .help = "in pixels, or of the latent; default: the checkpoint's"},
    {"fps", 0, OPT_DOUBLE, AT(fps), "N", .min = 0.1, .max = 1000,
     .help = "of the video; default: the checkpoint's"},
    {"scale", 0, OPT_INT, AT(scale), "N", "1", .min = 1, .max = 64,
     .help = "each pixel of a picture or video becomes N x N"},
    {"text", 0, OPT_PATH, AT(text), "FILE",
     .help = "the prompt's embedding made elsewhere, text_len x text_dim, instead of words"},
    {"ema", 0, OPT_FLAG, AT(ema), .initial = "1",
     .help = "the last weights, not the averaged ones"},
};

static const example examples[] = {
    {"tessera sample run --prompt \"a red disc moving left\" --scale 8 -o out.mp4", "one clip"},
    {"tessera sample run --prompt \"a red disc\" --prompt \"a blue square\" --count 4 -o sheet.png",
     "a contact sheet of eight"},
};

const command command_sample = {
    .name = "sample",
    .summary = "make new clips with a trained model",
    .description =
        "Draws noise and follows the velocity that the model learned until a clip is left, with "
        "guidance towards the prompt. The same seed gives the same clip, bit for bit, with any "
        "number of threads. Several clips are put side by side, in a contact sheet one per row.\n",
    .arguments = arguments,
    .n_arguments = sizeof arguments / sizeof *arguments,
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .examples = examples,
    .n_examples = sizeof examples / sizeof *examples,
    .size = sizeof(sample_values),
    .run = run,
};
