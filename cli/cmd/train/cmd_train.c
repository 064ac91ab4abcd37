/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_train.c - tessera train: its options; train_settings.c and train_run.c do the rest. */
#include "cmd_train.h"
#include "choices.h"
#include "commands.h"

#include <math.h>

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
static const char *const predictors[] = {"qk", "hidden", "hidden-plain", NULL};
static const char *const losses[] = {"kl", "cosine", NULL};
static const char *const stores[] = {"fp32", "bf16", NULL};
static const char *const optimisers[] = {"muon", "adamw", NULL};

#define AT(member) offsetof(train_values, member)

static const opt options[] = {
    {"out", 'o', OPT_PATH, AT(out), "DIR", .help = "folder of the run, made if it does not exist"},
    {"resume", 0, OPT_FLAG, AT(resume),
     .help = "go on from the newest checkpoint in --out, with its settings"},
    {"settings", 0, OPT_PATH, AT(settings), "FILE",
     .help = "JSON object of options; options given here win"},
    {"dry-run", 0, OPT_FLAG, AT(dry_run), .help = "print what the run needs, and stop"},

    {"preset", 0, OPT_CHOICE, AT(preset), "NAME", "small", .choices = presets,
     .help = "size of the model"},
    {"config", 0, OPT_PATH, AT(config), "FILE", .help = "its config.json instead"},
    {"init", 0, OPT_PATH, AT(init), "DIR",
     .help = "begin with the weights of a run, checkpoint or model, at any resolution"},
    {"branch", 0, OPT_PATH, AT(branch), "DIR",
     .help = "go on from a checkpoint or run in a new --out, with its settings and other ones"},
    {"attention", 0, OPT_CHOICE, AT(attention), "KIND", "dense", .choices = choices_attention,
     .help = "self attention; dsv learns which keys matter, the others are for comparison; search "
             "is oracle here, and keeps its keys for some steps in tessera sample alone"},
    {"recompute", 0, OPT_FLAG, AT(recompute),
     .help = "compute each block again when its gradients need it: less memory, more time"},
    {"store", 0, OPT_CHOICE, AT(store), "KIND", "fp32", .choices = stores,
     .help = "numbers kept for the gradients"},

    {"density", 0, OPT_DOUBLE, AT(density), "X", "0", .max = 1,
     .help = "share of the keys of every sparse head; 0: each head's own, from the profile"},
    {"mass", 0, OPT_DOUBLE, AT(mass), "X", "0.9", .min = 1e-6, .max = 1,
     .help = "share of the softmax that a head's own density holds"},
    {"min-density", 0, OPT_DOUBLE, AT(min_density), "X", "0.03", .min = 1e-6, .max = 1,
     .help = "least of a head's own density"},
    {"max-density", 0, OPT_DOUBLE, AT(max_density), "X", "1", .min = 1e-6, .max = 1,
     .help = "most of a head's own density; less is faster, and loses what --mass says"},
    {"compensate", 0, OPT_CHOICE, AT(compensate), "WHEN", "on", .choices = choices_on_off,
     .help = "one more key stands for all that were dropped"},
    {"predictor", 0, OPT_CHOICE, AT(predictor), "KIND", "qk", .choices = predictors,
     .help = "what predictors see: q and k, or the block's input, with or without its places"},
    {"rank", 0, OPT_INT, AT(rank), "N", "16", .min = 8, .max = 64,
     .help = "length of the predictors' vectors, a multiple of 8"},
    {"predictor-loss", 0, OPT_CHOICE, AT(predictor_loss), "KIND", "kl", .choices = losses,
     .help = "what predictors learn from"},
    {"predictor-lr", 0, OPT_DOUBLE, AT(predictor_lr), "X", "0.01", .min = 1e-12, .max = 1000,
     .help = "rate of the predictors; a tenth of it in stage 2"},
    {"proxy", 0, OPT_CHOICE, AT(proxy), "KIND", "mean", .choices = choices_proxy,
     .help = "what stands for the queries of a cube"},
    {"cube", 0, OPT_STRING, AT(cube), "FxHxW|auto", "auto",
     .help = "queries that share keys; auto: the largest that overlaps enough, after stage 1"},
    {"switch", 0, OPT_CHOICE, AT(switch_by), "RULE", "recall", .choices = choices_switch,
     .help = "what makes layers of dsv sparse; the other kinds switch by step"},
    {"switch-step", 0, OPT_INT, AT(switch_step), "N", "300", .min = 1, .max = 1e9,
     .help = "dense steps before a switch by step"},
    {"switch-recall", 0, OPT_DOUBLE, AT(switch_recall), "X", "0.95", .min = 1e-6, .max = 1,
     .help = "recall of a layer on two checks in a row before a switch by recall"},
    {"switch-loss", 0, OPT_DOUBLE, AT(switch_loss), "X", "0.01", .min = 1e-9, .max = 1e6,
     .help = "mean loss of the predictors before a switch by loss"},
    {"back-recall", 0, OPT_DOUBLE, AT(back_recall), "X", "0.9", .min = 1e-6, .max = 1,
     .help = "a head or layer whose recall falls below it is dense again"},
    {"profile-every", 0, OPT_INT, AT(profile_every), "N", "0", .max = 1e9,
     .help = "steps between profiles; 0: 10 in stage 1, 25 in stage 2"},
    {"check-every", 0, OPT_INT, AT(check_every), "N", "25", .min = 1, .max = 1e9,
     .help = "steps between checks of recall"},
    {"index-memory", 0, OPT_SIZE, AT(index_memory), "SIZE", "0", .max = 4e15,
     .help = "for lists of keys; what does not fit is selected again; 0: 1/32 of activations"},
    {"dispatch", 0, OPT_PATH, AT(dispatch), "FILE|auto|sparse", "auto",
     .help = "who is sparse: heads that gain, all, or as decisions.json of a checkpoint says"},
    {"cache", 0, OPT_PATH, AT(cache), "DIR|none",
     .help = "folder that keeps what was measured to tell which heads gain; default: tessera in "
             "XDG_CACHE_HOME or ~/.cache"},

    {"data", 0, OPT_PATH, AT(data), "NAME|DIR", "shapes",
     .help = "shapes, recall, recall-aligned, a folder of clips, or latents"},
    {"text", 0, OPT_PATH, AT(text), "PATH", .help = "embeddings of the prompts made elsewhere"},
    {"frames", 0, OPT_INT, AT(frames), "N", "8", .min = 1, .max = 4096, .help = "of a clip"},
    {"height", 0, OPT_INT, AT(height), "N", "32", .min = 1, .max = 16384, .help = "in pixels"},
    {"width", 0, OPT_INT, AT(width), "N", "32", .min = 1, .max = 16384, .help = "in pixels"},
    {"pack", 0, OPT_INT, AT(pack), "N", "0", .max = 16,
     .help = "N x N pixels become channels of one; 0: as the model's channels ask for"},
    {"fps", 0, OPT_DOUBLE, AT(fps), "N", "0", .max = 1000,
     .help = "frames of a file taken per second; 0: all"},

    {"steps", 0, OPT_INT, AT(steps), "N", "1500", .min = 1, .max = 1e9, .help = "of the run"},
    {"batch", 0, OPT_INT, AT(batch), "N", "4", .min = 1, .max = 65536, .help = "clips in a pass"},
    {"accumulate", 0, OPT_INT, AT(accumulate), "N", "1", .min = 1, .max = 65536,
     .help = "passes in a step"},
    {"optimiser", 0, OPT_CHOICE, AT(optimiser), "NAME", "muon", .choices = optimisers,
     .help = "muon is for the matrices of blocks, and leaves the rest to AdamW"},
    {"lr", 0, OPT_DOUBLE, AT(lr), "X", "0.003", .min = 1e-12, .max = 1000, .help = "rate of AdamW"},
    {"lr-muon", 0, OPT_DOUBLE, AT(lr_muon), "X", "0.02", .min = 1e-12, .max = 1000,
     .help = "rate of Muon"},
    {"warmup", 0, OPT_INT, AT(warmup), "N", "50", .max = 1e9,
     .help = "steps over which the rates rise"},
    {"decay-from", 0, OPT_DOUBLE, AT(decay_from), "X", "0.5", .min = 1e-6, .max = 1,
     .help = "share of the steps after which the rates fall to 0; 1: never"},
    {"beta1", 0, OPT_DOUBLE, AT(beta1), "X", "0.9", .min = 1e-6, .max = 0.999999,
     .help = "of AdamW"},
    {"beta2", 0, OPT_DOUBLE, AT(beta2), "X", "0.99", .min = 1e-6, .max = 0.9999999,
     .help = "of AdamW"},
    {"momentum", 0, OPT_DOUBLE, AT(momentum), "X", "0.95", .min = 1e-6, .max = 0.999999,
     .help = "of Muon"},
    {"weight-decay", 0, OPT_DOUBLE, AT(weight_decay), "X", "0", .max = 1000,
     .help = "of matrices, per step and rate"},
    {"clip", 0, OPT_DOUBLE, AT(clip), "X", "1", .max = 1e30, .help = "longest gradient; 0: any"},
    {"ema", 0, OPT_DOUBLE, AT(ema), "X", "0.995", .max = 0.9999999,
     .help = "of the average of weights; 0: none is kept"},
    {"shift", 0, OPT_DOUBLE, AT(shift), "X", "2", .min = 0.001, .max = 1000,
     .help = "of noise levels: more than 1 trains more on much noise"},
    {"prompt-dropout", 0, OPT_DOUBLE, AT(prompt_dropout), "X", "0.12", .max = 1,
     .help = "share of clips shown without prompt, for guidance"},

    {"validate-every", 0, OPT_INT, AT(validate_every), "N", "250", .max = 1e9,
     .help = "steps between validations; 0: none"},
    {"validate-clips", 0, OPT_INT, AT(validate_clips), "N", "16", .min = 1, .max = 1e6,
     .help = "clips of the fixed validation set, each at four noise levels"},
    {"checkpoint-every", 0, OPT_INT, AT(checkpoint_every), "N", "500", .max = 1e9,
     .help = "steps between checkpoints; 0: none, also not at the end"},
    {"keep", 0, OPT_INT, AT(keep), "N", "3", .max = 1e6,
     .help = "checkpoints kept, the newest; 0: all"},
    {"sample-every", 0, OPT_INT, AT(sample_every), "N", "0", .max = 1e9,
     .help = "steps between sheets of samples; 0: none"},
    {"sample-steps", 0, OPT_INT, AT(sample_steps), "N", "25", .min = 1, .max = 10000,
     .help = "of Euler's method for these"},
    {"guidance", 0, OPT_DOUBLE, AT(guidance), "X", "2", .min = 0.001, .max = 1000,
     .help = "of these; kept in checkpoints for `tessera sample`"},

    {"ranks-context", 0, OPT_INT, AT(ranks_context), "N", "0", .max = 65536,
     .help = "ranks that share the tokens of each clip, while groups of so many share the clips; "
             "0: all"},
    {"strategy", 0, OPT_STRING, AT(strategy), "WORD", "auto",
     .help = "how these attend: contiguous, refined, fractional, ring, selective, degrees such as "
             "4x2r; auto: per layer, by predicted time"},
    {"cluster", 0, OPT_PATH, AT(cluster), "NAME|FILE",
     .help = "plan for this cluster instead of measured rates: the same plans in every run"},
    {"trace-out", 0, OPT_PATH, AT(trace_out), "FILE.json",
     .help = "train nothing: play one rank of many alone, and write what a step of it sends and "
             "computes, for `tessera simulate --trace`"},
    {"trace-ranks", 0, OPT_INT, AT(trace_ranks), "N", .max = 1024,
     .help = "with --trace-out: ranks of the job"},
    {"trace-rank", 0, OPT_INT, AT(trace_rank), "R", .max = 1023,
     .help = "with --trace-out: which of them; default: 0"},
};

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
        "Trains a Wan video transformer by flow matching and keeps everything in the folder of the "
        "run: settings.json, metrics.jsonl and metrics.csv, checkpoints, sheets of samples. A "
        "checkpoint opens in diffusers. A run that was stopped, killed or resumed with another "
        "number of threads ends with the same bits as one that was not.\n"
        "Ctrl-C and SIGTERM write a checkpoint and exit with 130; a second one ends at once. A "
        "loss that is not finite ends the run with a checkpoint of the state before it.\n"
        "With --attention dsv a run has two stages: dense while predictors learn which keys "
        "matter, then sparse, layer by layer. Each decision is printed and kept in events.jsonl; "
        "docs/dsv.md tells the rules.\n"
        "Under mpirun or srun all ranks train together, as docs/training.md tells: the losses are "
        "those of one rank, and a run may be resumed on any number of them.\n",
    TABLE(options),
    TABLE(examples),
    .size = sizeof(train_values),
    .everywhere = 1,
    .run = run,
};
