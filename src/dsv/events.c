/* SPDX-License-Identifier: Apache-2.0 */
/* events.c - a decision as a line of events.jsonl, and as a sentence for people.
 *
 *   {"step": 301, "layer": 2, "event": "switch", "why": {"rule": "recall", "recall": 0.962, ...}}
 *   step 301: layer 2 becomes sparse, by the rule of recall: recall 0.962, needed 0.95
 *
 * Numbers have a point whatever the host program's locale says, and nothing is allocated.
 */
#include "decide.h"

#include <assert.h>
#include <math.h>
#include <string.h>

void tess__event_add(tess__event_list *events, const tess__event *event)
{
    assert(events->n < events->capacity);
    events->at[events->n++] = *event;
}

/* Appends; what does not fit is cut, which the lengths of names and numbers rule out. */
static void put(char text[TESS__EVENT_BYTES], const char *more)
{
    const size_t used = strlen(text);
    snprintf(text + used, TESS__EVENT_BYTES - used, "%s", more);
}

static void put_int(char text[TESS__EVENT_BYTES], const char *before, long long value)
{
    char digits[64];
    snprintf(digits, sizeof digits, "%s%lld", before, value);
    put(text, digits);
}

/* ---- sentences ------------------------------------------------------------------------------- */

static double value_of(const tess__event *event, const char *name)
{
    for (int i = 0; i < event->n_why; i++)
        if (strcmp(event->why[i].name, name) == 0)
            return event->why[i].value;
    return (double)NAN;
}

/* "before 0.25", if the event has the value. */
static void put_value(const tess__event *event, char text[TESS__EVENT_BYTES], const char *before,
                      const char *name)
{
    char digits[TESS_REAL_TEXT];
    const double value = value_of(event, name);
    if (!isfinite(value))
        return;
    put(text, before);
    put(text, tess__real_text(value, 3, digits));
}

static void put_sizes(const tess__event *event, char text[TESS__EVENT_BYTES], const char *before)
{
    put_int(text, before, event->sizes[0]);
    put_int(text, "x", event->sizes[1]);
    put_int(text, "x", event->sizes[2]);
}

static void put_cube(const tess__event *event, char text[TESS__EVENT_BYTES])
{
    put_sizes(event, text, " queries share their keys in cubes of ");
    put_value(event, text, " tokens: overlap ", "overlap");
    put_value(event, text, ", needed ", "limit");
    put_value(event, text, ", next larger cube ", "overlap_of_larger");
}

static void put_window(const tess__event *event, char text[TESS__EVENT_BYTES])
{
    put_sizes(event, text, " queries attend to a window of ");
    put_value(event, text, " cubes: ", "share");
    put_value(event, text, " of the keys, wanted ", "density");
}

/* Where the heads need more keys than pay, also from which size on they would not. */
static void put_break_even(const tess__event *event, char text[TESS__EVENT_BYTES])
{
    const double from = value_of(event, "pays_from_tokens");
    if (value_of(event, "density") == 0.0)
        put(text, " sparse attention is never faster than dense");
    else
        put_value(event, text, " sparse attention is faster than dense below density ", "density");
    put(text, strcmp(event->rule, "cached") == 0  ? " (measured earlier)"
              : strcmp(event->rule, "given") == 0 ? " (given)"
                                                  : " (measured now)");
    if (isnan(value_of(event, "wanted")))
        return;
    put_value(event, text, "; at density ", "wanted");
    put_value(event, text, " it does not pay with ", "tokens");
    put(text, " tokens");
    if (isfinite(from))
        put_int(text, ", but from about ", (long long)from);
    else
        put(text, ", and would not with more");
}

static void put_lists(const tess__event *event, char text[TESS__EVENT_BYTES])
{
    put_value(event, text, " lists of keys: saved for the backward pass in ", "layers");
    put_value(event, text, " layers, selected again in ", "selected_again");
}

/* "layer 0 shares keys by content in 3 of 4 heads, in cubes in the others: overlap ..." */
static void put_group(const tess__event *event, char text[TESS__EVENT_BYTES])
{
    const double content = value_of(event, "content"), of = value_of(event, "of");
    if (content > 0.0 && content < of) {
        put_int(text, " shares keys by content in ", (long long)content);
        put_int(text, " of ", (long long)of);
        put(text, " heads, in cubes in the others");
    } else {
        put(text, content > 0.0 ? " shares keys by content" : " shares keys in cubes");
    }
    put_value(event, text, ": overlap in cubes ", "overlap_in_cubes");
    put_value(event, text, ", by content ", "overlap_by_content");
    put_value(event, text, ": density needed in cubes ", "density_in_cubes");
    put_value(event, text, ", by content ", "density_by_content");
}

/* What the rules of a switch go by, with their limits. */
static void put_reasons(const tess__event *event, char text[TESS__EVENT_BYTES])
{
    put_value(event, text, ": recall ", "recall");
    put_value(event, text, ", needed ", "recall_limit");
    put_value(event, text, ", density ", "density");
    put_value(event, text, " that moved by ", "density_change");
    if (isfinite(value_of(event, "error_limit"))) {
        put_value(event, text, " for a change of the output by ", "error_limit");
        put(text, " % of the loss");
    }
    put_value(event, text, ", loss of the predictors ", "loss");
    put_value(event, text, ", limit ", "loss_limit");
}

static void put_switch(const tess__event *event, char text[TESS__EVENT_BYTES])
{
    put(text, " becomes sparse, by the rule of ");
    put(text, strcmp(event->rule, "step") == 0 ? "steps" : event->rule);
    put_reasons(event, text);
}

/* "layer 0: 8 of 8 heads sparse, density 0.25, break-even 0.44", or by noise-level quartile. */
static void put_dispatch(const tess__event *event, char text[TESS__EVENT_BYTES])
{
    static const char *const quartiles[] = {"noise 0-25 %", "25-50 %", "50-75 %", "75-100 %"};
    const int *n = event->heads;
    const long long heads = (long long)(value_of(event, "of") / TESS_NOISE_BUCKETS);
    const int same = n[0] == n[1] && n[1] == n[2] && n[2] == n[3];
    for (int i = 0; i < (same ? 1 : TESS_NOISE_BUCKETS); i++) {
        put(text, i ? ", " : ": ");
        put(text, same ? "" : quartiles[i]);
        put_int(text, same ? "" : " ", n[i]);
    }
    put_int(text, " of ", heads);
    put(text, " heads sparse");
    put_value(event, text, ", density ", "density");
    put_value(event, text, ", break-even ", "break_even");
    put_value(event, text, ", room for density ", "room");
}

static void put_back(const tess__event *event, char text[TESS__EVENT_BYTES])
{
    put_value(event, text, " is dense again: recall ", "recall");
    put_value(event, text, ", needed ", "limit");
    put_value(event, text, ", heads that are dense again ", "heads_back");
}

static void put_again(const tess__event *event, char text[TESS__EVENT_BYTES])
{
    put_value(event, text, " is sparse again: recall ", "recall");
    put_value(event, text, ", needed ", "limit");
}

static void put_stayed(const tess__event *event, char text[TESS__EVENT_BYTES])
{
    put(text, " stayed dense to the end");
    put_value(event, text, ", since step ", "since");
    put_reasons(event, text);
    put_value(event, text, ", switch after step ", "switch_step");
}

static void put_skipped(const tess__event *event, char text[TESS__EVENT_BYTES])
{
    (void)event;
    put(text, " predictors were not updated: their gradients are not finite");
}

/* "sparse attention changes the output by 1.2 % of the loss, limit 2 %; ..." */
static void put_error(const tess__event *event, char text[TESS__EVENT_BYTES])
{
    put_value(event, text, " sparse attention changes the output by ", "output_change");
    put_value(event, text, " % of the loss, limit ", "error_limit");
    put_value(event, text, " %; estimates are multiplied by ", "calibration");
}

static const struct {
    const char *name;
    void (*sentence)(const tess__event *event, char text[TESS__EVENT_BYTES]);
} kinds[] = {
    [TESS__EVENT_CUBE] = {"cube", put_cube},
    [TESS__EVENT_WINDOW] = {"window", put_window},
    [TESS__EVENT_BREAK_EVEN] = {"break_even", put_break_even},
    [TESS__EVENT_LISTS] = {"lists", put_lists},
    [TESS__EVENT_GROUP] = {"group", put_group},
    [TESS__EVENT_SWITCH] = {"switch", put_switch},
    [TESS__EVENT_DISPATCH] = {"dispatch", put_dispatch},
    [TESS__EVENT_BACK] = {"back", put_back},
    [TESS__EVENT_AGAIN] = {"again", put_again},
    [TESS__EVENT_STAYED] = {"stayed", put_stayed},
    [TESS__EVENT_SKIPPED] = {"skipped", put_skipped},
    [TESS__EVENT_ERROR] = {"error", put_error},
};

void tess__event_json(const tess__event *event, char line[TESS__EVENT_BYTES])
{
    tess__jw_buffer buffer = {.text = line, .room = TESS__EVENT_BYTES};
    tess__jw w = {.write = tess__jw_to_buffer, .to = &buffer, .digits = 9};
    tess__jw_begin(&w, NULL, '{');
    tess__jw_int(&w, "step", event->step);
    if (event->layer >= 0)
        tess__jw_int(&w, "layer", event->layer);
    if (event->head >= 0)
        tess__jw_int(&w, "head", event->head);
    tess__jw_text(&w, "event", kinds[event->kind].name);
    tess__jw_begin(&w, "why", '{');
    if (event->rule)
        tess__jw_text(&w, "rule", event->rule);
    if (event->sizes[0])
        tess__jw_row_i32(&w, "size", event->sizes, 3);
    if (event->kind == TESS__EVENT_DISPATCH)
        tess__jw_row_i32(&w, "heads_by_noise", event->heads, TESS_NOISE_BUCKETS);
    for (int i = 0; i < event->n_why; i++)
        if (isfinite(event->why[i].value))
            tess__jw_real(&w, event->why[i].name, event->why[i].value);
    tess__jw_end(&w, '}');
    tess__jw_end(&w, '}');
    put(line, "\n");
}

/* "step 300: layer 2 head 1 is dense again: recall 0.88, needed 0.9" */
void tess__event_text(const tess__event *event, char text[TESS__EVENT_BYTES])
{
    text[0] = 0;
    put_int(text, "step ", (long long)event->step);
    put(text, ":");
    if (event->layer >= 0)
        put_int(text, " layer ", event->layer);
    if (event->head >= 0)
        put_int(text, " head ", event->head);
    kinds[event->kind].sentence(event, text);
}
