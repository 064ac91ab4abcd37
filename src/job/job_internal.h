/* SPDX-License-Identifier: Apache-2.0 */
/* job_internal.h - the files of other frameworks, from text to the settings of a scenario.
 *
 * What lives here: two readers of text (toml_read.c, script_read.c), and what the keys of each
 * framework mean (torchtitan.c, megatron.c). What comes in: a file. What goes out: a list of
 * entries, each a setting or the reason why a key is none.
 *
 *   text -> pairs (key, value, line) -> entries (setting, value, why) -> scenario
 */
#ifndef TESS_JOB_INTERNAL_H
#define TESS_JOB_INTERNAL_H

#include "base/base_internal.h"
#include "tessera/advanced/job.h"

/* ---- pairs ----------------------------------------------------------------------------------- */

enum { TESS__JOB_TEXT = 1 << 20, TESS__JOB_PAIRS = 4096, TESS__JOB_VALUE = 4096 };

typedef struct {
    const char *key, *value; /* of an array its elements with commas between them */
    int line;
    int used; /* 1: an entry says what became of it */
} tess__job_pair;

struct tess_job {
    tess_ctx *ctx;
    tess__arena arena;
    const char *name;      /* of the file */
    const char *framework; /* "torchtitan" */
    tess__job_pair *pairs;
    int n_pairs;
    int64_t pair_room;
    tess_job_entry *entries;
    int n;
    int64_t room;
    double steps;
    int64_t local_batch; /* samples of a data-parallel rank; 0: the file gives the global batch */
};

tess_status tess__job_pair_add(tess_job *job, const char *key, const char *value, int line);

/* The last pair of this key, NULL: none; it counts as used. */
const tess__job_pair *tess__job_find(tess_job *job, const char *key);

/* The same of two spellings of a key, the first first. */
const tess__job_pair *tess__job_either(tess_job *job, const char *key, const char *other);

/* The whole number of a pair, or `otherwise` of NULL and of what is no such number. */
int64_t tess__job_int(const tess__job_pair *pair, int64_t otherwise);

/* Sets the steps of the run from the pair, NULL: none; a number below 1 is noted and not taken. */
tess_status tess__job_steps(tess_job *job, const tess__job_pair *pair);

/* ---- entries --------------------------------------------------------------------------------- */

tess_status tess__job_read(tess_job *job, const tess__job_pair *pair, const char *setting,
                           const char *value);
tess_status tess__job_assume(tess_job *job, const char *setting, const char *value,
                             const char *why);
tess_status tess__job_assume_int(tess_job *job, const char *setting, int64_t value,
                                 const char *why);
tess_status tess__job_note(tess_job *job, tess_job_kind kind, const tess__job_pair *pair,
                           const char *why);

/* What a key means that needs no other key. */
typedef struct {
    const char *key;     /* a final * stands for any text */
    const char *setting; /* NULL: none, see kind */
    const char *words;   /* "1F1B=1f1b,GPipe=gpipe": values by name; NULL: the value as it is */
    tess_job_kind kind;  /* without a setting: IGNORED or UNMODELLED */
} tess__job_rule;

/* The entry of one pair by its rule. */
tess_status tess__job_use(tess_job *job, const tess__job_pair *pair, const tess__job_rule *rule);

/* Entries of all pairs that are not used yet, by the first rule that fits; UNKNOWN of others. */
tess_status tess__job_rules(tess_job *job, const tess__job_rule *rules, int n);

/* The setting that names the software, of the newest profile whose name begins so; where there is
 * none the default stays, and the entry says so. */
tess_status tess__job_software(tess_job *job, const char *beginning);

/* ---- readers --------------------------------------------------------------------------------- */

tess_status tess__toml_read(tess_job *job, const char *text, size_t bytes);
tess_status tess__script_read(tess_job *job, const char *text, size_t bytes);

/* ---- frameworks ------------------------------------------------------------------------------ */

tess_status tess__torchtitan_map(tess_job *job);
tess_status tess__megatron_map(tess_job *job);

extern const tess__job_rule tess__megatron_flags[];
extern const int tess__n_megatron_flags;

/* text NULL: that of the file `name`. */
tess_status tess__job_parse(tess_ctx *ctx, const char *name, const char *text, size_t bytes,
                            tess_job **job);

#endif
