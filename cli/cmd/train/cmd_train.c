/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_train.c - tessera train: its options; train_settings.c and train_run.c do the rest. */
#include "cmd_train.h"
#include "commands.h"

static tess_status run(cli *c, const void *given)
{
#ifdef CLI_TRAIN
    return train_run(c, given);
#else
    (void)given;
    return out_fail(c, TESS_ENOTSUP, "this build has no training stack, needs oneDNN");
#endif
}

static const char *const presets[] = {"tiny", "small", "1.3b", "14b", NULL};

static const train_values defaults = {.opts = TESS_TRAIN_OPTS_INIT,
                                      .data = {TESS_DATA_OPTS_DEFAULTS, .stride = 1}};

#define AT(member) offsetof(train_values, member)
#define TRAIN(name, metavar, of) OPT_OF(TRAIN, AT(opts), name, 0, metavar, of)
#define ATTENTION(name, metavar, of) OPT_OF(ATTENTION, AT(opts.attention), name, 0, metavar, of)
#define DATA(name, metavar, of) OPT_OF(DATA, AT(data), name, 0, metavar, of)

static opt options[] = {
    {"out", 'o', OPT_PATH, AT(out), "DIR", .help = "folder of the run, made if it does not exist"},
    {"resume", 0, OPT_FLAG, AT(resume),
     .help = "continuation of the run in --out from its newest checkpoint, with its settings"},
    {"init", 0, OPT_PATH, AT(init), "DIR",
     .help = "run, checkpoint or model whose weights begin a new run, at any resolution"},
    {"branch", 0, OPT_PATH, AT(branch), "DIR",
     .help = "checkpoint or run that a new --out goes on from, with its settings and other ones"},
    {"settings", 0, OPT_PATH, AT(settings), "FILE",
     .help = "JSON file of options by name; options of the command line win"},
    TRAIN("steps", "N", steps),
    {"until", 0, OPT_INT, AT(until), "N", .max = 1e9, .unit = "steps",
     .help = "step at which the run ends early, with a checkpoint and the learning rates of "
             "--steps; 0: none"},
    TRAIN("checkpoint-every", "N", checkpoint_every),
    TRAIN("keep", "N", checkpoint_limit),
    {"dry-run", 0, OPT_FLAG, AT(dry_run),
     .help = "memory and time that the run would need, without training"},

    {"preset", 0, OPT_CHOICE, AT(preset), "NAME", "small", .choices = presets,
     .help = "size of the model"},
    {"config", 0, OPT_PATH, AT(config), "FILE",
     .help = "config.json of the model, in place of --preset"},
    TRAIN("recompute", NULL, keep),
    TRAIN("store", "KIND", store),
    TRAIN("precision", "KIND", precision),

    OPT_OF(DATA, AT(data), "data", OPT_PATH, "NAME|DIR", source),
    OPT_OF(DATA, AT(data), "text", OPT_PATH, "PATH", text),
    DATA("frames", "N", frames),
    DATA("height", "N", height),
    DATA("width", "N", width),
    OPT_OF(DATA, AT(data), "sizes", OPT_STRING, "LIST", sizes),
    {"pack", 0, OPT_INT, AT(pack), "N", "0", .max = 16, .unit = "pixels",
     .help = "side of the squares of pixels that become channels of one position; 0: as the "
             "model's channels ask for"},
    DATA("fps", "N", fps),
    DATA("stride", "N", stride),
    DATA("random-start", NULL, random_start),
    DATA("random-crop", NULL, random_crop),
    DATA("flip", NULL, flip),
    OPT_OF(DATA, AT(data), "data-memory", OPT_SIZE, "SIZE", cache),

    TRAIN("batch", "N", batch),
    TRAIN("accumulate", "N", accumulate),
    TRAIN("weigh", "RULE", weigh),
    TRAIN("optimiser", "NAME", optim),
    TRAIN("lr", "X", lr),
    TRAIN("lr-muon", "X", lr_muon),
    TRAIN("warmup", "N", warmup),
    TRAIN("decay-from", "X", decay_from),
    TRAIN("beta1", "X", beta1),
    TRAIN("beta2", "X", beta2),
    TRAIN("momentum", "X", momentum),
    TRAIN("weight-decay", "X", weight_decay),
    TRAIN("clip", "X", clip),
    TRAIN("ema", "X", ema),
    TRAIN("shift", "X", shift),
    TRAIN("prompt-dropout", "X", prompt_dropout),
    TRAIN("diverge-above", "X", diverge_above),

    TRAIN("validate-every", "N", validate_every),
    TRAIN("validate-clips", "N", validate_clips),
    TRAIN("sample-every", "N", sample_every),
    TRAIN("sample-steps", "N", sample_steps),
    TRAIN("guidance", "X", guidance),
    TRAIN("tensorboard", NULL, tensorboard),

    ATTENTION("attention", "KIND", kind),
    OPT_OF(ATTENTION, AT(opts.attention), "selector", OPT_PATH, "FILE", selector),
    ATTENTION("density", "X", density),
    ATTENTION("mass", "X", mass),
    ATTENTION("error", "X", error),
    ATTENTION("min-density", "X", min_density),
    ATTENTION("max-density", "X", max_density),
    ATTENTION("compensate", "N", compensate),
    ATTENTION("cluster-every", "N", cluster_every),
    ATTENTION("choose", "RULE", choose),
    ATTENTION("group", "KIND", group),
    ATTENTION("predictor", "KIND", predictor),
    ATTENTION("rank", "N", proj_dim),
    ATTENTION("predictor-loss", "KIND", loss),
    ATTENTION("predictor-lr", "X", lr),
    ATTENTION("proxy", "KIND", proxy),
    ATTENTION("cube", "FxHxW|auto", cube),
    ATTENTION("switch", "RULE", switch_by),
    ATTENTION("switch-step", "N", switch_step),
    ATTENTION("switch-recall", "X", switch_recall),
    ATTENTION("switch-loss", "X", switch_loss),
    ATTENTION("back-recall", "X", back_recall),
    ATTENTION("profile-every", "N", profile_every),
    ATTENTION("check-every", "N", check_every),
    OPT_OF(ATTENTION, AT(opts.attention), "index-memory", OPT_SIZE, "SIZE", index_memory),
    OPT_OF(ATTENTION, AT(opts.attention), "dispatch", OPT_PATH, "FILE|auto|sparse", dispatch),
    {"cache", 0, OPT_PATH, AT(cache), "DIR|none",
     .help = "folder of the measurements that decide which heads gain; default: tessera in "
             "XDG_CACHE_HOME or ~/.cache"},

    TRAIN("ranks-context", "N", ranks_context),
    TRAIN("strategy", "WORD", strategy),
    OPT_OF(TRAIN, AT(opts), "cluster", OPT_PATH, "NAME|FILE", cluster),
    TRAIN("exact-ranks", NULL, exact_ranks),
    OPT_OF(TRAIN, AT(opts), "speeds", OPT_STRING, "LIST", speeds),
    {"trace-out", 0, OPT_PATH, AT(trace_out), "FILE.json",
     .help = "trace of what a step of one rank of many sends and computes, for `tessera simulate "
             "--trace`, without training"},
    {"trace-ranks", 0, OPT_INT, AT(trace_ranks), "N", .max = 1024, .unit = "ranks",
     .help = "ranks of the job that --trace-out records"},
    {"trace-rank", 0, OPT_STRING, AT(trace_rank), "R",
     .help = "rank that --trace-out records, or all: every rank, into rank0.json, rank1.json, ... "
             "of the folder that --trace-out names; default: 0"},
    {"trace-together", 0, OPT_INT, AT(trace_together), "N", .min = 1, .max = 256, .unit = "ranks",
     .help =
         "with --trace-rank all, ranks that are traced at the same time, each in a process of "
         "its own, so that they share memory bus and caches as in the job; 1: in turn; default: "
         "as many as a node has ranks and this machine cores"},
};

static const opt_group groups[] = {
    {"Run", "out"},
    {"Model", "preset"},
    {"Data", "data"},
    {"Optimiser", "batch"},
    {"Validation", "validate-every"},
    {"Sparse attention", "attention"},
    {"Ranks", "ranks-context"},
};

static void bind(void)
{
    opt_bind(options, (int)(sizeof options / sizeof *options), &defaults);
}

static const example examples[] = {
    {"tessera train --data shapes --out run", "the small model on moving shapes"},
    {"tessera train --out run --resume", "go on where it stopped"},
    {"tessera train --data clips/ --frames 16 --height 64 --width 64 --dry-run",
     "what training on a folder of videos would need"},
    {"tessera train --init run --frames 16 --out longer", "the same model on longer clips"},
    {"tessera train --attention dsv --out sparse", "with dynamic sparse attention"},
    {"tessera train --branch run/checkpoints/step-000300 --attention window --density 0.125 "
     "--out window",
     "another way to attend, from the same dense beginning"},
    {"mpirun -n 4 tessera train --ranks-context 2 --out run",
     "on four ranks: two groups with half of the clips each"},
    {"tessera train --frames 16 --height 64 --width 64 --trace-ranks 8 --cluster h100 --trace-out "
     "rank0.json",
     "what rank 0 of eight would send and compute in a step"},
};

const command command_train = {
    .name = "train",
    .summary = "train the video model on clips",
    .description =
        "Trains a Wan video transformer by flow matching and writes everything to the folder of "
        "the "
        "run: settings.json, metrics.jsonl and metrics.csv, checkpoints, sheets of samples. A "
        "checkpoint opens in diffusers. A run that was stopped, killed or resumed with another "
        "number of threads ends with the same bits as one that was not.\n"
        "Ctrl-C and SIGTERM write a checkpoint and exit with 130; a second one ends at once. A "
        "loss that is not finite ends the run with a checkpoint of the state before it; one that "
        "diverges (--diverge-above) ends it with a checkpoint of its last good state.\n"
        "With --attention dsv a run has two stages: dense while predictors learn which keys "
        "matter, then sparse, layer by layer. Each decision is printed and stored in events.jsonl; "
        "docs/dsv.md explains the rules.\n"
        "Under mpirun or srun all ranks train together, as docs/training.md explains: the losses "
        "are "
        "those of one rank, and a run may be resumed on any number of them.\n",
    TABLE(options),
    TABLE(groups),
    TABLE(examples),
    .size = sizeof(train_values),
    .defaults = &defaults,
    .bind = bind,
    .everywhere = 1,
    .run = run,
};
