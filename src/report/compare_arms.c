/* SPDX-License-Identifier: Apache-2.0 */
/* compare_arms.c - which runs belong together, and what their arm is called.
 *
 * Runs with a label given are in the arm of that label. Of the others those are in one arm whose
 * settings are the same but for the seed and for what does not touch training (how often it is
 * validated, kept or shown); of a dense run settings of sparse attention do not count. An arm is
 * named by the settings in which arms differ: "dsv, density
 * 0.125"; what kind of attention is first and without its key.
 */
#include "compare_internal.h"

#include <stdlib.h>
#include <string.h>

static const char *const silent[] = {"seed",     "validate-every", "checkpoint-every",
                                     "keep",     "sample-every",   "sample-steps",
                                     "guidance", "cache",          "tensorboard"};
static const char kind[] = "attention";

static int is_silent(const char *key)
{
    for (size_t i = 0; i < sizeof silent / sizeof *silent; i++)
        if (strcmp(key, silent[i]) == 0)
            return 1;
    return 0;
}

/* Whether a setting counts: nothing of sparse attention does where attention is dense. */
static int counts(const json_t *settings, const char *key)
{
    static const char *const sparse[] = {
        "density",     "mass",        "min-density",   "max-density",    "compensate",
        "predictor",   "rank",        "predictor-lr",  "predictor-loss", "proxy",
        "cube",        "switch",      "switch-step",   "switch-recall",  "switch-loss",
        "back-recall", "check-every", "profile-every", "index-memory",   "dispatch"};
    const json_t *attention = json_object_get(settings, kind);
    const int dense =
        json_is_string(attention) && strcmp(json_string_value(attention), "dense") == 0;
    for (size_t i = 0; dense && i < sizeof sparse / sizeof *sparse; i++)
        if (strcmp(key, sparse[i]) == 0)
            return 0;
    return !is_silent(key);
}

/* Whether every setting of a that counts has the same value in b. */
static int covers(const json_t *a, const json_t *b)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)a, key,
                        value) if (counts(a, key) &&
                                   !json_equal(value, json_object_get(b, key))) return 0;
    return 1;
}

static int same_arm(const tess__recorded *a, const tess__recorded *b)
{
    if (a->label || b->label)
        return a->label && b->label && strcmp(a->label, b->label) == 0;
    return a->settings && b->settings && covers(a->settings, b->settings) &&
           covers(b->settings, a->settings);
}

/* ---- names -------------------------------------------------------------------------------- */

/* Whether two arms that are named by their settings have different values of key. Where one lacks
 * it, as runs of an earlier version may, that is no name for the others. */
static int differs(const tess_compare *c, const char *key)
{
    const json_t *first = NULL;
    for (int i = 0; i < c->info.arms; i++) {
        const json_t *settings = c->arms[i].settings;
        const json_t *value = counts(settings, key) ? json_object_get(settings, key) : NULL;
        if (value && first && !json_equal(value, first))
            return 1;
        first = first ? first : value;
    }
    return 0;
}

static void add_setting(tess__markup *text, const char *key, const json_t *value)
{
    tess__markup_print(text, "%s", text->size ? ", " : "");
    if (json_is_boolean(value))
        tess__markup_print(text, "%s%s", json_is_true(value) ? "" : "no ", key);
    else if (json_is_number(value))
        tess__markup_print(text, "%s %.6g", key, json_number_value(value));
    else if (strcmp(key, kind) == 0)
        tess__markup_print(text, "%s", json_string_value(value));
    else
        tess__markup_print(text, "%s %s", key, json_string_value(value));
}

static void print_label(const tess_compare *c, const tess__arm *arm, tess__markup *text)
{
    const json_t *attention = json_object_get(arm->settings, kind);
    const char *key;
    json_t *value;
    if (json_is_string(attention) && (differs(c, kind) || c->info.arms == 1))
        add_setting(text, kind, attention);
    json_object_foreach(
        (json_t *)arm->settings, key,
        value) if (counts(arm->settings, key) && strcmp(key, kind) != 0 && differs(c, key) &&
                   (json_is_boolean(value) || json_is_number(value) || json_is_string(value)))
        add_setting(text, key, value);
    if (text->size == 0)
        tess__markup_print(text, "%s", c->runs[arm->first].path);
}

static tess_status name_arm(tess_compare *c, tess__arm *arm)
{
    const tess__recorded *run = &c->runs[arm->first];
    tess__markup text = {.ctx = c->ctx};
    if (run->label)
        tess__markup_print(&text, "%s", run->label);
    else
        print_label(c, arm, &text);
    for (const tess__arm *other = c->arms; other < arm && text.size; other++)
        if (strcmp(other->label, text.data) == 0)
            tess__markup_print(&text, " (%s)", run->path);
    tess_status status = text.status;
    if (!status) {
        arm->label = tess__arena_string(&c->arena, text.data, text.size);
        status = arm->label ? TESS_OK : TESS_ENOMEM;
    }
    tess__markup_free(&text);
    return status;
}

/* ---- arms --------------------------------------------------------------------------------- */

/* A pair needs one run of each seed. */
static tess_status check_seeds(tess_compare *c)
{
    for (int i = 0; i < c->info.runs; i++) {
        const tess__recorded *run = &c->runs[i];
        if (run->seed < 0)
            TESS_TRY(TESS_NOTE(c, "%s has no recorded seed: it is in no pair", run->path));
        for (int k = 0; k < i; k++)
            if (run->seed >= 0 && c->runs[k].arm == run->arm && c->runs[k].seed == run->seed) {
                TESS_TRY(TESS_NOTE(c, "%s and %s have the same seed: the first is paired",
                                   c->runs[k].path, run->path));
                break;
            }
    }
    return TESS_OK;
}

tess_status tess__arms_find(tess_compare *c)
{
    c->arms = TESS_TAKE(&c->arena, (size_t)c->info.runs * sizeof *c->arms);
    for (int i = 0; i < c->info.runs; i++) {
        tess__recorded *run = &c->runs[i];
        int arm = 0;
        while (arm < c->info.arms && !same_arm(&c->runs[c->arms[arm].first], run))
            arm++;
        if (arm == c->info.arms)
            c->arms[c->info.arms++] =
                (tess__arm){.settings = run->label ? NULL : run->settings, .first = i};
        c->arms[arm].runs++;
        run->arm = arm;
    }
    for (int i = 0; i < c->info.arms; i++)
        TESS_TRY(name_arm(c, &c->arms[i]));
    return check_seeds(c);
}
