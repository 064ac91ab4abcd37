/* SPDX-License-Identifier: Apache-2.0 */
/* fields.h - the settings of a scenario by name: one table for files, --set, models and tables.
 *
 * A setting is a member of tess_scenario with its name ("layout.tp"), its type and its rule. JSON
 * files, the command line, the catalogue of models and the rows of tables all come through here, so
 * that a value is checked in one place and named the same everywhere.
 */
#ifndef TESS_SIM_FIELDS_H
#define TESS_SIM_FIELDS_H

#include "file/json.h"
#include "tessera/scenario.h"

typedef enum {
    TESS__FIELD_INT,
    TESS__FIELD_INT64,
    TESS__FIELD_REAL,
    TESS__FIELD_FLAG,   /* int: false, true */
    TESS__FIELD_SWITCH, /* int: auto, on, off as TESS_SIM_AUTO, ON, OFF */
    TESS__FIELD_WORD,   /* int: the number of a word */
    TESS__FIELD_SET,    /* int: a bit for each word; "a+b" */
    TESS__FIELD_TEXT    /* char[] */
} tess__field_type;

typedef struct {
    const char *group, *name; /* "layout", "tp" */
    tess__field_type type;
    size_t offset, size; /* in tess_scenario; of a text its NUL included */
    double low, high;
    const char *const *words; /* ended by NULL */
    const char *help;         /* a phrase */
} tess__field;

extern const tess__field tess__fields[];
extern const int tess__n_fields;

const tess__field *tess__field_find(const char *group, const char *name); /* NULL: none */

/* EINVAL: "layout.tp is "3.5", must be an integer 1..65536". */
tess_status tess__field_set(tess_scenario *scenario, const tess__field *field, const char *value);

/* The value as a text that tess__field_set takes. */
const char *tess__field_text(const tess_scenario *scenario, const tess__field *field, char *text,
                             size_t bytes);

/* Whether both have the same value. */
int tess__field_equal(const tess_scenario *a, const tess_scenario *b, const tess__field *field);

/* Whether the member is 0 or "": its default. */
int tess__field_unset(const tess_scenario *scenario, const tess__field *field);

/* ---- clips.c: sizes of clips ----------------------------------------------------------------- */

enum { TESS__CLIPS_MAX = 4 };

typedef struct {
    int frames, height, width;
    int64_t tokens;
    double share; /* of all clips; they add up to 1 */
} tess__clip;

/* Tokens of one. name: what must be a multiple of a token's pixels; NULL: model.height, width. */
tess_status tess__clip_tokens(const tess_sim_model *model, const tess__clip *clip, const char *name,
                              int64_t *tokens);
/* The sizes in model.clips, strides and patch filled in. */
tess_status tess__clips_read(const tess_sim_model *model, tess__clip clips[TESS__CLIPS_MAX],
                             int *n);
/* ---- catalogue.c: models by name ------------------------------------------------------------- */

extern const tess__shipped tess__shipped_models[];
extern const int tess__n_shipped_models;

/* Gives scenario->model the values of a shipped model. EINVAL with the nearest name. */
tess_status tess__model_use(tess_ctx *ctx, const char *name, tess_scenario *scenario);

/* ---- import.c: models from the config.json that is published with their weights -------------- */

/* text NULL: that of the file `name`, as of the readers below. */
tess_status tess__model_import(tess_ctx *ctx, const char *name, const char *text, size_t bytes,
                               tess_scenario *scenario);

/* ---- scenario_read.c ------------------------------------------------------------------------- */

extern const tess__shipped tess__shipped_scenarios[];
extern const int tess__n_shipped_scenarios;

/* Reads the member `key` of an object as the setting of that name; EFORMAT with its line. */
tess_status tess__field_read(const tess__json_node *object, const char *group, const char *key,
                             tess_scenario *scenario);

tess_status tess__scenario_parse(tess_ctx *ctx, const char *name, const char *text, size_t bytes,
                                 tess_scenario *scenario);

#endif
