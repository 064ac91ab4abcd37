/* SPDX-License-Identifier: Apache-2.0 */
/* script.h - a shell script as it is read: variables, words and their expansion. */
#ifndef TESS_JOB_SCRIPT_H
#define TESS_JOB_SCRIPT_H

#include "job_internal.h"

enum {
    TESS__SCRIPT_WORD = 1 << 16,
    TESS__SCRIPT_NAME = 64,
    TESS__SCRIPT_VARIABLES = 1024,
    TESS__SCRIPT_STORED = 1 << 24
};

/* Between the words of an expansion, and between the elements of an array. */
#define TESS__SCRIPT_CUT '\x1f'

typedef struct {
    char name[TESS__SCRIPT_NAME];
    const char *text;
} tess__script_variable;

typedef struct {
    tess_job *job;
    const char *at, *end;
    int line;
    tess__script_variable *variables;
    int n_variables;
    int64_t variable_room;
    char *word; /* TESS__SCRIPT_WORD bytes: the word that was read last, expanded */
    size_t used;
    size_t stored; /* bytes of all values so far: a script may double one in every line */
} tess__script;

typedef enum {
    TESS__SCRIPT_TEXT,
    TESS__SCRIPT_END,
    TESS__SCRIPT_OPEN,
    TESS__SCRIPT_CLOSE
} tess__script_part;

/* ---- script_words.c -------------------------------------------------------------------------- */

/* The next word of the command in s->word, quotes removed and variables replaced; or the end of the
 * command (a line's end, ; & |), or a parenthesis. Comments are passed over; #SBATCH lines too. */
tess_status tess__script_next(tess__script *s, tess__script_part *part);

/* One byte behind the word. */
tess_status tess__script_put(tess__script *s, int c);

/* NULL: not assigned. */
const char *tess__script_value(const tess__script *s, const char *name, size_t length);
tess_status tess__script_assign(tess__script *s, const char *name, size_t length, const char *text);

__attribute__((format(printf, 2, 3))) tess_status tess__script_fail(const tess__script *s,
                                                                    const char *format, ...);

/* ---- script_number.c ------------------------------------------------------------------------- */

/* The value of the text of $(( )): whole numbers, variables, + - * / % and parentheses. 0: it has
 * none. */
int tess__script_number(const tess__script *s, const char *text, size_t length, int64_t *value);

#endif
