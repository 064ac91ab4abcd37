/* SPDX-License-Identifier: Apache-2.0 */
/* decide.h - what a run has measured of its attention, and what it decides from that.
 *
 * What lives here: numbers and rules, no tensors. What comes in: densities, recalls, overlaps and
 * losses as control.h measures them, and the number of the step. What goes out: which layers and
 * heads attend sparsely, with how many keys, in cubes of which size; an event for each change; and
 * all of it as decisions.json. docs/dsv.md explains the rules.
 *
 * Measurements are folded in after the step that made them, and all rules are applied before the
 * next one: a checkpoint between the two holds everything that the rules read, so that a resumed
 * run decides what the run that was not stopped would have decided, with the same event.
 */
#ifndef TESS_DECIDE_H
#define TESS_DECIDE_H

#include "file/json.h"
#include "tessera/advanced/step.h"
#include "tessera/train.h"

enum {
    TESS__HISTORY = 5, /* checks over which a layer's density must have settled */
};

/* ---- what was measured, in cubes of one size ------------------------------------------------- */

typedef struct {
    int cube[3];
    double overlap; /* running mean of cube's mass / queries' mass; NaN: not measured */
    int64_t overlaps;
    double *density;   /* (layers, buckets, heads): running mean of the profile; NaN: none yet */
    int64_t *profiles; /* (layers, buckets): how many it is the mean of */
    double *recall;    /* (layers, heads) of the last check; NaN: none yet */
    int *good;         /* (layers): checks in a row that reached the limit, at most 2 */
    int *good_heads;   /* (layers, heads) */
    double *history;   /* (layers, TESS__HISTORY): the layer's density at checks, newest first */
    double *shared;    /* (2, layers, heads): running mean in cubes and in groups by content: their
                          overlap, or with a limit of error the density they need; NaN: none yet */
    int64_t *compared; /* (layers): how many it is the mean of */
} tess__cube_stats;

/* ---- what was decided ------------------------------------------------------------------------ */

typedef struct {
    tess__arena arena;
    int layers, heads;
    tess__cube_stats cubes[TESS_CUBES]; /* those compared, small ones first; then the chosen one */
    int n_cubes, cube_chosen;
    int *sparse;        /* (layers): 1 in stage 2 */
    int64_t *since;     /* (layers): first step of the stage; 0: it never changed */
    uint8_t *back;      /* (layers, heads): 1: its recall fell, so it is dense in stage 2 */
    uint8_t *choice;    /* (layers, buckets, heads): 1: attends sparsely, in a sparse layer */
    uint8_t *content;   /* (layers, heads), where groups are decided: 1: by content in stage 2 */
    uint8_t *imposed;   /* as choice: of another run; NULL: none is */
    double break_even;  /* density at which sparse costs what dense does; NaN: not known */
    int window[3];      /* cubes; 0: not chosen */
    double loss;        /* running mean of the predictors' loss; NaN: none */
    double calibration; /* factor on estimated changes of the output (--error) */
    int64_t updates;    /* of the predictors, for their optimiser */
    tess_attention_opts attention; /* as read from a file, without its texts */
} tess__dsv_state;

tess_status tess__dsv_state_create(tess_ctx *ctx, int layers, int heads, const int (*cubes)[3],
                                   int n_cubes, tess__dsv_state *decisions);
void tess__dsv_state_destroy(tess__dsv_state *decisions); /* {0} accepted */

/* Both have the same layers and heads, and `to` was made for as many cubes or more. Imposed choices
 * are shared. */
void tess__cube_stats_copy(const tess__dsv_state *s, const tess__cube_stats *from,
                           tess__cube_stats *to);
void tess__dsv_state_copy(const tess__dsv_state *from, tess__dsv_state *to);

/* A run that branches off keeps what was measured, and decides anew. */
void tess__dsv_state_forget(tess__dsv_state *decisions);

/* ---- the rules ------------------------------------------------------------------------------- */

typedef enum { TESS__CHOOSE_TABLE, TESS__CHOOSE_SPARSE, TESS__CHOOSE_IMPOSED } tess__choosing;

typedef struct {
    int learns;            /* 1: there are predictors, so recall counts */
    tess_switch switch_by; /* STEP without predictors */
    int64_t switch_step;
    double switch_loss, switch_recall, back_recall;
    double error; /* that densities of the profile may cause; 0: they hold a mass */
    double density, min_density, max_density; /* density 0: from the profile */
    int round;                                /* budgets are multiples of so many units */
    int groups;         /* 1: cubes or content, decided for each head of a layer that switches */
    int32_t units_most; /* of a list that there is room for, by TABLE; 0: of any */
    tess__choosing choosing;
    const uint8_t *imposed; /* (layers, buckets, heads) */
} tess__rules;

/* decide_state.c: folds measurements in. density and recall are (heads); NaN: not measured. */
void tess__fold_density(const tess__dsv_state *d, int cube, int layer, int bucket,
                        const double *density);
void tess__fold_recall(const tess__dsv_state *d, const tess__rules *rules, int cube, int layer,
                       const double *recall);
void tess__fold_overlap(tess__dsv_state *d, int cube, double overlap);
void tess__fold_shared(const tess__dsv_state *d, int cube, int layer, const double *cubes,
                       const double *content); /* (heads) each */
void tess__fold_loss(tess__dsv_state *d, double loss);

/* The layer's mean over quarters and heads, and a head's over quarters; NaN: not measured. */
double tess__layer_density(const tess__dsv_state *d, int cube, int layer);
double tess__head_density(const tess__dsv_state *d, int cube, int layer, int head);

/* How far above the break-even density a head stays sparse that is. */
#define TESS__SLACK 1.1

/* Units of n that a head gets; 0: its density is not known. */
int32_t tess__budget(const tess__dsv_state *d, const tess__rules *rules, int cube, int layer,
                     int bucket, int head, int32_t n);

/* ---- events: the decisions that are reported ------------------------------------------------- */

typedef enum {
    TESS__EVENT_CUBE,
    TESS__EVENT_WINDOW,
    TESS__EVENT_BREAK_EVEN,
    TESS__EVENT_LISTS,
    TESS__EVENT_GROUP,
    TESS__EVENT_SWITCH,
    TESS__EVENT_DISPATCH,
    TESS__EVENT_BACK,
    TESS__EVENT_AGAIN,
    TESS__EVENT_STAYED,
    TESS__EVENT_SKIPPED,
    TESS__EVENT_ERROR,
} tess__event_kind;

typedef struct tess__event {
    tess__event_kind kind;
    int64_t step;                  /* the first one that it is in force in */
    int layer, head;               /* -1: of all */
    const char *rule;              /* NULL: none */
    int sizes[3];                  /* of a cube or window; [0] 0: none */
    int heads[TESS_NOISE_BUCKETS]; /* of a dispatch: sparse ones, by noise-level quartile */
    struct {
        const char *name;
        double value; /* NaN: left out */
    } why[8];
    int n_why;
} tess__event;

/* With room for all events of a decision: tess__events_most. */
typedef struct {
    tess__event *at;
    int n, capacity;
} tess__event_list;

static inline int tess__events_most(int layers, int heads)
{
    return 3 + layers * (heads + 3);
}

void tess__event_add(tess__event_list *events, const tess__event *event); /* events.c */

/* Who gets an event when it is in force. */
typedef struct {
    tess_status (*fn)(void *user, const tess__event *event);
    void *user;
} tess__listener;

/* ---- decide_rules.c: everything that is due before step number `step`, from 1 ---------------- */

/* The cube that would be chosen now, or the one that was. */
int tess__best_cube(const tess__dsv_state *s);

/* Cubes, stages, layers and heads that go back. 1 if a layer is in stage 2. */
int tess__decide_stages(tess__dsv_state *s, const tess__rules *rules, int64_t step,
                        tess__event_list *events);

/* Which heads of sparse layers are worth it, n being the units. */
void tess__decide_heads(tess__dsv_state *s, const tess__rules *rules, int64_t step, int32_t n,
                        tess__event_list *events);

/* An event for each layer that never left stage 1. */
void tess__decide_end(const tess__dsv_state *s, const tess__rules *rules, int64_t step,
                      tess__event_list *events);

/* window_size.c: the window of cubes that sees the least share of the grid of `cubes` that is not
 * below density; among several the one most alike in all axes. Returns its share. */
double tess__window(const int cubes[3], double density, int window[3]);

/* ---- events.c: an event as a line of events.jsonl, and as a sentence ------------------------- */

enum { TESS__EVENT_BYTES = 640 };
void tess__event_json(const tess__event *event, char line[TESS__EVENT_BYTES]); /* ends in \n */
void tess__event_text(const tess__event *event, char text[TESS__EVENT_BYTES]);

/* ---- decide_file.c: decisions.json ----------------------------------------------------------- */

/* n: units, to write budgets beside the densities for those who read it. */
tess_status tess__dsv_state_write(tess_ctx *ctx, const char *path, const tess__dsv_state *d,
                                  const tess_attention_opts *attention, int32_t n);
tess_status tess__dsv_state_read(tess_ctx *ctx, const char *name, const char *text, size_t bytes,
                                 tess__dsv_state *d); /* text NULL: that of the file `name` */

/* attention_file.c: its member "attention"; the name of a kind. */
const char *tess__attention_name(tess_attention kind);
json_t *tess__attention_out(const tess_attention_opts *opts);
tess_status tess__attention_in(tess__json_node node, tess_attention_opts *opts);

/* attention_options.c: the rules that follow from options; imposed choices are not read here. */
void tess__attention_rules(const tess_attention_opts *opts, tess__rules *rules);

#endif
