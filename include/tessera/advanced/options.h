/* SPDX-License-Identifier: Apache-2.0 */
/* options.h - the option structs as tables: name, type, range and help of each member.
 *
 * A table is the only description of its options. The library checks values and compares ranks by
 * it; the command makes its options, --help, docs/cli.md and settings files from it. The defaults
 * are those of the struct's initialiser, TESS_TRAIN_OPTS_INIT for tess_train_opts.
 *
 * Advanced: functions and structs may change in any version.
 */
#ifndef TESSERA_OPTIONS_H
#define TESSERA_OPTIONS_H

#include "../base.h"

TESS_BEGIN_DECLS

typedef enum {
    TESS_OPTION_INT,   /* int */
    TESS_OPTION_INT64, /* int64_t */
    TESS_OPTION_REAL,  /* double, not NaN */
    TESS_OPTION_FLAG,  /* int or an enum: 0 or 1 */
    TESS_OPTION_WORD,  /* int or an enum: the value of one of the words */
    TESS_OPTION_CUBE,  /* int[3]: sizes in tokens, or all 0: automatic */
    TESS_OPTION_TEXT,  /* const char *, may be NULL */
} tess_option_type;

typedef struct {
    const char *name; /* of the member */
    tess_option_type type;
    size_t offset;            /* of the member */
    double low, high;         /* of numbers, both included */
    const char *const *words; /* of a WORD, ended by NULL; of an INT: words for some numbers */
    const int *values;        /* of the words; NULL: 0, 1, 2, ... */
    const char *help;         /* a phrase */
    const char *unit;         /* of a number: "frames"; NULL: none */
} tess_option;

typedef struct {
    const char *prefix; /* of names in errors: "attention." */
    const tess_option *options;
    int n;
    const void *defaults; /* a struct with the initialiser's values */
} tess_option_table;

typedef enum {
    TESS_OPTIONS_TRAIN,     /* tess_train_opts */
    TESS_OPTIONS_ATTENTION, /* tess_attention_opts */
    TESS_OPTIONS_SAMPLE,    /* tess_sample_opts */
    TESS_OPTIONS_DATA,      /* tess_data_opts */
    TESS_OPTIONS_PLAN,      /* tess_plan_opts */
} tess_options;

/* The table of a struct. The members that are no options (callbacks, communicators, arrays) are not
 * in it. */
TESS_API const tess_option_table *tess_option_table_of(tess_options which);

/* The option of that name; NULL: none. */
TESS_API const tess_option *tess_option_find(tess_options which, const char *name);

TESS_END_DECLS

#endif
