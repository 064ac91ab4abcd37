/* SPDX-License-Identifier: Apache-2.0 */
/* search_internal.h - the best of many scenarios: axes, the combinations that keep the rules, and
 * what is kept of them.
 *
 * What lives here: the search over settings of a scenario. What comes in: a scenario, settings and
 * their values, parameters of the simulator. What goes out: the best combinations, fronts, and the
 * nearest ones that were refused. A combination is a number: its values' places in the axes, mixed
 * radix, the last axis fastest.
 */
#ifndef TESS_SEARCH_INTERNAL_H
#define TESS_SEARCH_INTERNAL_H

#include "sim/sim_internal.h"
#include "tessera/advanced/search.h"

/* ---- axes.c: settings and their values ------------------------------------------------------- */

enum { TESS__AXES_MAX = 32 };

/* A setting: n values of `size` bytes, each at `offset` of a scenario. */
typedef struct {
    const char *key; /* "layout.tp" */
    size_t offset, size;
    int64_t n;
    const char *values;
    const char *const *texts; /* as tess_scenario_set takes them */
    int checked; /* 1: rules can be checked here, with the axes after this one at their least */
} tess__axis;

/* The axes that the options name, or all that the rules allow; base is the scenario that the axes
 * change. */
typedef struct {
    tess_ctx *ctx;
    tess__arena arena;
    tess_scenario base;
    tess__axis axes[TESS__AXES_MAX];
    int n;
    int by_rules;   /* 1: no settings were named */
    int64_t *valid; /* combinations that keep the rules, ascending */
    int64_t n_valid, room, combinations;
    int64_t visited;   /* while they are listed: partial and whole combinations */
    char refusal[512]; /* why the first of the others is refused */
} tess__space;

tess_status tess__axes_make(const tess_scenario *scenario, const tess_search_opts *opts,
                            tess__space *space);

/* ---- space.c: combinations ------------------------------------------------------------------- */

/* Lists what keeps the rules. EINVAL: nothing does, or too many do. */
tess_status tess__space_list(tess__space *space);
int64_t tess__space_place(const tess__space *space, int axis, int64_t combination);
void tess__space_scenario(const tess__space *space, int64_t combination, tess_scenario *scenario);
int tess__space_has(const tess__space *space, int64_t combination); /* 1: it keeps the rules */
void tess__space_free(tess__space *space);

/* ---- judge_points.c: what is kept ------------------------------------------------------------ */

enum { TESS__TOP = 10 };

typedef struct {
    tess_search_by by;
    tess_search_point top[TESS__TOP];
    int n_top;
    tess_search_point *groups; /* the best of each number of GPUs, ascending */
    int64_t n_groups, room;
    tess_search_point nearest, late; /* combination -1: none */
    int64_t evaluated, feasible, refused;
    /* Made at the end: places in groups. */
    int *front_gpus, *front_cost;
    int n_front_gpus, n_front_cost;
} tess__ranking;

/* Whether a combination of so many GPUs whose step is not below `bound` can change the ranking. */
int tess__ranking_open(const tess__ranking *r, int gpus, double bound);
tess_status tess__ranking_add(tess_ctx *ctx, tess__ranking *r, const tess_search_point *point);
void tess__ranking_add_late(tess__ranking *r, const tess_search_point *point);
tess_status tess__ranking_fronts(tess_ctx *ctx, tess__ranking *r);
void tess__ranking_free(tess_ctx *ctx, tess__ranking *r);

/* ---- search_file.c: the checkpoint ----------------------------------------------------------- */

/* What a search has done: the first `next` of its valid combinations, and which of them it kept. */
typedef struct {
    char search[20]; /* which search this is: a hash of all that decides its answer */
    int64_t next, evaluated, feasible, refused, nearest, late;
    int64_t *kept; /* of top and groups, ascending */
    int64_t n_kept;
} tess__search_state;

tess_status tess__search_parse(tess_ctx *ctx, const char *name, const char *text, size_t bytes,
                               tess__search_state *state);
tess_status tess__search_save(tess_ctx *ctx, const char *path, const tess__search_state *state);
void tess__search_state_free(tess_ctx *ctx, tess__search_state *state);

/* ---- the search ------------------------------------------------------------------------------ */

enum { TESS__SEARCH_BLOCK = 2048, TESS__SEARCH_BATCH = 64 };

/* What the first half of a run says of a combination. */
typedef struct {
    int64_t number;
    int refused, gpus;
    double bound, key; /* seconds; what it is ranked by */
    double lacking;    /* bytes above the limit */
} tess__probe;

/* Of one thread: its simulator, and the scenario whose layers that holds. */
typedef struct {
    tess_sim *sim;
    tess_scenario last;
    int has_last;
} tess__search_worker;

struct tess_search {
    tess_ctx *ctx;
    tess_search_opts opts;
    tess__space space;
    tess__ranking ranking;
    tess_search_info info;
    tess_cluster **clusters;
    const char **cluster_names;
    int64_t n_clusters;
    tess__search_worker *workers;
    int n_workers;
    tess__probe *probes;
    tess__probe **sorted;
    tess_search_point *batch;
    int *batch_ok;
    int64_t next, saved_ns;
    char hash[20];
};

/* search_blocks.c: memory and time of the next n valid combinations, of which what matters is
 * ranked; n at most TESS__SEARCH_BLOCK. */
tess_status tess__search_block(tess_search *search, int64_t n);

/* Simulates one combination. */
tess_status tess__search_simulate(const tess_search *search, tess__search_worker *worker,
                                  int64_t number, tess_search_point *point);

/* Bytes that the memory of a GPU may take. */
double tess__search_limit(const tess_search *search, double capacity);

/* search_resume.c: goes on where a checkpoint of the same search ended; writes one. */
tess_status tess__search_resume(tess_search *search);
tess_status tess__search_keep(tess_search *search, int64_t now);

#endif
