/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_profile.c - tessera profile: its options; profile_run.c does the rest. */
#include "cmd_profile.h"
#include "commands.h"

static tess_status run(cli *c, const void *given)
{
#ifdef CLI_TRAIN
    return profile_run(c, given);
#else
    (void)given;
    return out_fail(c, TESS_ENOTSUP, "this build has no training stack, needs oneDNN");
#endif
}

static const char *const axes[] = {"noise", "training", NULL};

#define AT(member) offsetof(profile_values, member)

static const opt arguments[] = {
    {"CHECKPOINT", 0, OPT_PATHS, AT(checkpoints), .required = 1,
     .help =
         "checkpoints of one model, runs (their newest ones), or a Wan model that diffusers opens: "
         "its folder, a pipeline's, or its weights"},
};

static const opt options[] = {
    {"data", 0, OPT_PATH, AT(data), "NAME|DIR",
     .help = "clips to run it on; default: what it was trained on; a model alone needs it"},
    {"clips", 0, OPT_INT, AT(clips), "N", "8", .min = 1, .max = 1e6, .unit = "clips",
     .help = "of the validation set, each at four noise levels"},
    {"batch", 0, OPT_INT, AT(batch), "N", "4", .min = 1, .max = 65536, .unit = "clips",
     .help = "clips at once"},
    {"mass", 0, OPT_DOUBLE, AT(mass), "X", "0.9", .min = 0.001, .max = 1,
     .help = "share of the softmax that the keys must hold"},
    {"cube", 0, OPT_STRING, AT(cube), "FxHxW",
     .help = "tokens of a group of queries, in frames, rows and columns; default: the last "
             "checkpoint's, or 2x2x2"},
    {"proxy", 0, OPT_CHOICE, AT(proxy), "KIND", .choices_of = "proxy",
     .table = TESS_OPTIONS_ATTENTION,
     .help = "what stands for a group before its predictor; default: the last checkpoint's"},
    {"selector", 0, OPT_PATH, AT(selector), "FILE",
     .help =
         "selector whose recall is measured in place of the predictor's: a shared object with a "
         "function of tessera/selector.h, or a tensor file of masks"},
    {"density", 0, OPT_DOUBLE, AT(density), "X", .min = 1e-6, .max = 1,
     .help = "share of the keys at which recall is measured; default: each head's own density"},
    {"cubes", 0, OPT_FLAG, AT(cubes), .initial = "1",
     .help = "do not measure the overlap in cubes of other sizes"},
    {"csv", 0, OPT_PATH, AT(csv), "FILE",
     .help = "write step,layer,head,density, which `tessera plan --density` reads"},
    {"by", 0, OPT_CHOICE, AT(by), "AXIS", .choices = axes,
     .help = "what the CSV's steps are: noise, quartiles of its level, 0 the lowest, of the last "
             "checkpoint; training, steps of the checkpoints, over all noise. Default: training "
             "with several checkpoints"},
    {"out", 'o', OPT_PATH, AT(out), "FILE",
     .help = "write a page: heat maps, and what heads attend to, drawn on frames"},
    {"layer", 0, OPT_INT, AT(layer), "N", "-1", .min = -1, .max = 65535,
     .help = "draw heads of this layer alone"},
    {"head", 0, OPT_INT, AT(head), "N", "-1", .min = -1, .max = 65535,
     .help = "draw this head alone; with neither, the sparsest, the median and the densest"},
    {"noise", 0, OPT_DOUBLE, AT(noise), "S", .min = 0, .max = 1,
     .help = "noise level at which heads are drawn; default: the middle of the second quartile"},
    {"dump", 0, OPT_STRING, AT(dump), "LAYER,HEAD",
     .help =
         "write q, k, v and the selections of a head on the first clip, as `tessera check attn` "
         "reads them"},
    {"dump-to", 0, OPT_PATH, AT(dump_to), "FOLDER", .help = "where; attention unless given"},
    {"text", 0, OPT_PATH, AT(text), "PATH",
     .help = "folder or file of text embeddings made elsewhere; default: the run's"},
    {"frames", 0, OPT_INT, AT(frames), "N", .min = 1, .max = 4096, .unit = "frames",
     .help = "frames of a clip; default: the checkpoint's"},
    {"height", 0, OPT_INT, AT(height), "N", .min = 1, .max = 16384, .unit = "pixels",
     .help = "height of a clip in pixels; default: the checkpoint's"},
    {"width", 0, OPT_INT, AT(width), "N", .min = 1, .max = 16384, .unit = "pixels",
     .help = "width of a clip in pixels; default: the checkpoint's"},
    {"ema", 0, OPT_FLAG, AT(ema), .initial = "1",
     .help = "the last weights, not the averaged ones"},
};

static const example examples[] = {
    {"tessera profile runs/shapes -o profile.html --csv density.csv",
     "how sparse the newest checkpoint is"},
    {"tessera profile runs/shapes/checkpoints/step-* -o profile.html", "and how it became so"},
    {"tessera plan --density density.csv --ranks 8", "what that means for eight ranks"},
    {"tessera profile runs/shapes --dump 3,0 --dump-to head",
     "q, k, v and lists of layer 3, head 0"},
};

const command command_profile = {
    .name = "profile",
    .summary = "measure how sparse a trained model's attention is",
    .description =
        "Runs the model, dense, on clips of the validation set at four noise levels. For every "
        "layer and head it measures the share of keys that a group of queries needs to hold --mass "
        "of its softmax, and where the checkpoint has a predictor, its recall: the mass of as many "
        "keys chosen by it / that of the best. Groups and the predictor's proxy are those that the "
        "checkpoint was trained with, unless options say otherwise. Also measured is what sharing "
        "keys in cubes of "
        "several sizes costs.\n",
    TABLE(arguments),
    TABLE(options),
    TABLE(examples),
    .size = sizeof(profile_values),
    .run = run,
};
