/* SPDX-License-Identifier: Apache-2.0 */
/* events.c - a decision as a line of events.jsonl, and as a sentence for people.
 *
 *   {"step": 301, "layer": 2, "event": "switch", "why": {"rule": "recall", "recall": 0.962, ...}}
 *   step 301: layer 2 begins to attend sparsely (recall: recall 0.962, density 0.31)
 *
 * Numbers have a point whatever the host program's locale says, and nothing is allocated.
 */
#include "decide.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static const struct {
    const char *name, *sentence;
} kinds[] = {
    [TESS__EVENT_CUBE] = {"cube", "queries are grouped in cubes"},
    [TESS__EVENT_WINDOW] = {"window", "the window in cubes is"},
    [TESS__EVENT_BREAK_EVEN] = {"break_even", "sparse attention pays below its break-even density"},
    [TESS__EVENT_LISTS] = {"lists", "lists of keys are saved for the backward pass"},
    [TESS__EVENT_SWITCH] = {"switch", "begins to attend sparsely"},
    [TESS__EVENT_DISPATCH] = {"dispatch", "selects its sparse heads per noise-level quartile"},
    [TESS__EVENT_BACK] = {"back", "goes back to dense"},
    [TESS__EVENT_AGAIN] = {"again", "attends sparsely again"},
    [TESS__EVENT_STAYED] = {"stayed", "stayed dense to the end"},
    [TESS__EVENT_SKIPPED] = {"skipped", "the predictors were not updated"},
};

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
    for (int i = 0; i < event->n_why; i++)
        if (isfinite(event->why[i].value))
            tess__jw_real(&w, event->why[i].name, event->why[i].value);
    tess__jw_end(&w, '}');
    tess__jw_end(&w, '}');
    put(line, "\n");
}

/* "step 300: layer 2 head 1 goes back to dense (recall 0.88, limit 0.9)" */
void tess__event_text(const tess__event *event, char text[TESS__EVENT_BYTES])
{
    char digits[TESS_REAL_TEXT];
    const char *between = " (";
    text[0] = 0;
    put_int(text, "step ", (long long)event->step);
    put(text, ":");
    if (event->layer >= 0)
        put_int(text, " layer ", event->layer);
    if (event->head >= 0)
        put_int(text, " head ", event->head);
    put(text, " ");
    put(text, kinds[event->kind].sentence);
    if (event->sizes[0]) {
        put_int(text, " ", event->sizes[0]);
        put_int(text, "x", event->sizes[1]);
        put_int(text, "x", event->sizes[2]);
    }
    if (event->rule) {
        put(text, between);
        put(text, "by ");
        put(text, event->rule);
        between = ", ";
    }
    for (int i = 0; i < event->n_why; i++) {
        if (!isfinite(event->why[i].value))
            continue;
        put(text, between);
        for (const char *p = event->why[i].name; *p; p++)
            put(text, *p == '_' ? " " : (char[]){*p, 0});
        put(text, " ");
        put(text, tess__real_text(event->why[i].value, 3, digits));
        between = ", ";
    }
    if (between[0] == ',')
        put(text, ")");
}
