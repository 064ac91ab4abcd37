/* SPDX-License-Identifier: Apache-2.0 */
/* overlap_internal.h - kernels that take longer while communication runs on their GPU.
 *
 * What lives here: the slowdown of a kernel by its name, its class, or one constant for all, how it
 * is read, fitted and scored. What comes in: parameters in JSON, rows of kernels measured alone and
 * beside a collective. What goes out: a slowdown s. A kernel of `alone` seconds that has
 * communication beside it for a share r of its time takes
 *
 *   alone / ((1 - r) + r / (1 + s))
 *
 * because it does 1 / (1 + s) seconds of its work in a second beside communication. This is what
 * the event engine does (timeline_run.c).
 */
#ifndef TESS_OVERLAP_INTERNAL_H
#define TESS_OVERLAP_INTERNAL_H

#include "base/base_internal.h"
#include "file/json.h"
#include "tessera/advanced/overlap.h"
#include "trace/activity_internal.h"

/* ---- overlap_params.c ------------------------------------------------------------------------ */

typedef enum {
    TESS__OVERLAP_KERNEL,
    TESS__OVERLAP_CLASS,
    TESS__OVERLAP_CONSTANT,
    TESS__OVERLAP_COMM, /* of communication beside compute */
} tess__overlap_kind;

static const double TESS__OVERLAP_MAX = 100.0;

typedef struct {
    int hardware; /* the number of its entry */
    tess__overlap_kind kind;
    int kernel_class;   /* of kind CLASS */
    const char *kernel; /* of kind KERNEL: name; others: "" */
    const char *name;   /* "overlap.kernels.reduce_kernel" */
    const char *origin;
    double value;
} tess__overlap_param;

/* {.ctx} is an empty list; texts lie in the caller's arena. */
typedef struct {
    tess_ctx *ctx;
    tess__overlap_param *items;
    int64_t n, room;
} tess__overlap_list;

/* Sets a value, or adds it. Texts are copied. */
tess_status tess__overlap_put(tess__overlap_list *list, tess__arena *arena,
                              const tess__overlap_param *param);
/* All that entry `from` has, for entry `to`. */
tess_status tess__overlap_inherit(tess__overlap_list *list, tess__arena *arena, int from, int to);

/* Whether a profiler's name of a kernel, "void at::native::reduce_kernel<512, 1>(..)", is that of
 * `kernel`: namespaces, return type and arguments left off. */
int tess__overlap_names(const char *full, const char *kernel);

/* The slowdown of a kernel: by its name, else its class, else the constant, else 0. */
double tess__overlap_find(const tess__overlap_list *list, int hardware, const char *kernel,
                          int kernel_class);
/* Of communication beside compute. */
double tess__overlap_comm(const tess__overlap_list *list, int hardware);

/* Time beside communication for a share of it over time alone. */
double tess__overlap_ratio(double share, double slowdown);

/* overlap_read.c: {"kernels": {name: [s, origin]}, "classes": {..}, "constant": [..],
 * "communication": [..]}; a node without a value: nothing. */
tess_status tess__overlap_read(tess__overlap_list *list, tess__arena *arena, int hardware,
                               tess__json_node node);
/* Puts a value where the entry of its hardware has it. */
void tess__overlap_write(json_t *hardware, const tess__overlap_param *param);

/* ---- rows ------------------------------------------------------------------------------------ */

typedef struct {
    const char *kernel;
    int kernel_class;
    double alone_ns, beside_ns; /* beside_ns: measured, with communication for `share` of it */
    double share;
    double ratio; /* predicted: beside_ns over alone_ns */
} tess__overlap_row;

/* overlap_fit.c: the values that make the totals of names, classes and all rows those measured;
 * `without`: a kernel whose rows do not count, NULL: none. Only rows with a share above 0 count. */
tess_status tess__overlap_fit(tess__overlap_list *list, tess__arena *arena, int hardware,
                              const tess__overlap_row *rows, int n, const char *without);
/* Fills the ratio of each row from values that were fitted without the rows of its kernel; *names:
 * kernels. */
tess_status tess__overlap_leave_out(tess_ctx *ctx, tess__overlap_row *rows, int n, int *names);

/* overlap_score.c: of the rows with a share above 0. leave_out: class means without the rows of the
 * kernel itself. */
tess_overlap_score tess__overlap_score(const tess__overlap_row *rows, int n,
                                       tess_overlap_model model, int leave_out);

#endif
