/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_sweep.c - tessera sweep: its options; sweep_main.c makes the runs. */
#include "cmd_sweep.h"
#include "commands.h"

static tess_status run(cli *c, const void *given)
{
#ifdef CLI_TRAIN
    return sweep_main(c, given);
#else
    (void)given;
    return out_fail(c, TESS_ENOTSUP, "this build has no training stack, needs oneDNN");
#endif
}

static const sweep_values defaults = {
    .train.opts = TESS_TRAIN_OPTS_INIT, .train.data = TESS_DATA_OPTS_INIT, .trunk = -1};

#define AT(member) offsetof(sweep_values, member)

static const opt options[] = {
    {"out", 'o', OPT_PATH, AT(out), "DIR",
     .help = "folder of the sweep: a folder for each run, compare.html"},
    {"attention", 0, OPT_STRING, AT(attention), "KIND,...",
     .help = "kinds of attention to compare, as of `tessera train`, with commas between them"},
    {"seeds", 0, OPT_INT, AT(seeds), "N", "3", .min = 1, .max = 1000, .unit = "seeds",
     .help = "runs of each kind, with the seeds from --seed on"},
    {"trunk", 0, OPT_INT, AT(trunk), "N", .max = 1e9, .unit = "steps",
     .help = "dense steps that the runs of a seed have in common; 0: none; default: half of "
             "--steps"},
    {"init", 0, OPT_PATH, AT(init), "DIR",
     .help = "run, checkpoint or model whose weights begin every run"},
    {"baseline", 0, OPT_STRING, AT(baseline), "NAME",
     .help = "arm that the others are compared with; default: dense, else the first kind"},
    {"margin", 0, OPT_DOUBLE, AT(margin), "PERCENT", "1", .min = 1e-6, .max = 1000,
     .unit = "percent", .help = "difference within which losses count as the same"},
    {"confidence", 0, OPT_DOUBLE, AT(confidence), "PERCENT", "95", .min = 1, .max = 99.9999,
     .unit = "percent", .help = "confidence of the intervals"},
    {"dry-run", 0, OPT_FLAG, AT(dry_run), .help = "commands of the runs, without running them"},
};

static const example examples[] = {
    {"tessera sweep --attention dense,dsv,window --seeds 3 --density 0.125 --data recall --out "
     "arms",
     "three dense trunks, and from each of them three arms"},
    {"tessera sweep --attention dense,dsv --steps 3000 --trunk 0 --out whole",
     "every run from its first step on"},
};

const command command_sweep = {
    .name = "sweep",
    .summary = "train several kinds of attention over seeds, and compare",
    .description =
        "For each seed a dense trunk is trained, and from its checkpoint every arm goes on to "
        "--steps with the same weights, clips and noise; arms differ in their attention alone. "
        "Ends "
        "with the tables of `tessera compare` and its page, compare.html.\n"
        "All other options of `tessera train` are accepted and hold for every run, as --steps, "
        "--data or --density. Each run is a `tessera train` in a process of its own, and its "
        "output "
        "is beside its folder: dsv-0.log of dsv-0. The same command again skips runs that are "
        "complete and resumes the others. Ctrl-C stops the run with a checkpoint and exits with "
        "130.\n",
    TABLE(options),
    TABLE(examples),
    .of = &command_train,
    .size = sizeof(sweep_values),
    .defaults = &defaults,
    .run = run,
};
