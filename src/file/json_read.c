/* SPDX-License-Identifier: Apache-2.0 */
/* json_read.c - typed reads of JSON values: the rule in, the value or a sentence with its line out.
 *
 * Every sentence says what is there and what must be: `"heads" is 0, must be 1..65536`. A value of
 * the wrong type also hears which type is wanted: `is "twelve", must be an integer 1..65536`.
 */
#include "json.h"

#include "tessera/advanced/nearest.h"

#include <math.h>
#include <string.h>

/* ---- words of the sentences ------------------------------------------------------------------ */

enum { SHOWN_BYTES = 48, LABEL_BYTES = 160, VALUE_BYTES = 96, RULE_BYTES = 320 };

/* "text" in quotes on one line: control characters become '?', a long text ends in "...". */
static void show_string(const char *text, char out[VALUE_BYTES])
{
    size_t n = strlen(text);
    const int cut = n > SHOWN_BYTES;
    if (cut)
        for (n = SHOWN_BYTES; n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80; n--)
            ; /* not within a character */
    char *p = out;
    *p++ = '"';
    for (size_t i = 0; i < n; i++)
        *p++ = (unsigned char)text[i] < ' ' || text[i] == 0x7f ? '?' : text[i];
    strcpy(p, cut ? "...\"" : "\"");
}

static void show_value(const json_t *value, char out[VALUE_BYTES])
{
    switch (json_typeof(value)) {
    case JSON_OBJECT: strcpy(out, "an object"); break;
    case JSON_ARRAY: strcpy(out, "an array"); break;
    case JSON_STRING: show_string(json_string_value(value), out); break;
    case JSON_INTEGER:
        snprintf(out, VALUE_BYTES, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        break;
    case JSON_REAL: tess__real_text(json_real_value(value), 0, out); break;
    case JSON_TRUE: strcpy(out, "true"); break;
    case JSON_FALSE: strcpy(out, "false"); break;
    case JSON_NULL: strcpy(out, "null"); break;
    }
}

/* What the sentence calls a node: "heads", "shape"[3], or the document. */
static void show_node(const tess__json_node *node, char out[LABEL_BYTES])
{
    if (!node->parent) {
        strcpy(out, "the document");
    } else if (node->key) {
        char key[VALUE_BYTES];
        show_string(node->key, key);
        strcpy(out, key);
    } else {
        show_node(node->parent, out);
        const size_t used = strlen(out);
        if (used + 24 < LABEL_BYTES) /* an array nested deeper than that is named by its outside */
            snprintf(out + used, LABEL_BYTES - used, "[%zu]", node->index);
    }
}

/* Counts and limits: "1..65536", "at least 1", "at most 3", or "3" when there is no choice; low and
 * high NULL: no limit on that side. */
static void show_range(const char *low, const char *high, char out[RULE_BYTES])
{
    if (low && high && strcmp(low, high) == 0)
        snprintf(out, RULE_BYTES, "%s", low);
    else if (low && high)
        snprintf(out, RULE_BYTES, "%s..%s", low, high);
    else
        snprintf(out, RULE_BYTES, "%s %s", low ? "at least" : "at most", low ? low : high);
}

/* ---- what is not there, or is of another type ------------------------------------------------ */

/* `"heads" is "twelve", must be <rule>`. */
static tess_status fail_rule(tess__json_node node, const char *rule)
{
    char label[LABEL_BYTES], value[VALUE_BYTES];
    show_node(&node, label);
    show_value(node.value, value);
    return tess__json_fail(node, "%s is %s, must be %s", label, value, rule);
}

/* The same with a range behind the name of the type; a limit that is open on both sides leaves the
 * type alone. */
static tess_status fail_range(tess__json_node node, const char *type, const char *low,
                              const char *high)
{
    char range[RULE_BYTES] = "", rule[2 * RULE_BYTES];
    if (low || high)
        show_range(low, high, range);
    const char *between = !*type || !*range ? "" : low && high ? " " : " of ";
    snprintf(rule, sizeof rule, "%s%s%s", type, between, range);
    return fail_rule(node, rule);
}

/* Says whether there is a value to read. An absent one is fine if it is optional, or if something
 * around it is; otherwise the sentence names what lacks it. */
static tess_status require(tess__json_node node, int *present)
{
    *present = node.value != NULL;
    if (*present)
        return TESS_OK;
    int optional = 0;
    const tess__json_node *absent = &node;
    for (;; absent = absent->parent) {
        optional |= absent->optional;
        if (!absent->parent || absent->parent->value)
            break;
    }
    const tess__json_node *around = absent->parent;
    if (!around || !(absent->key ? json_is_object(around->value) : json_is_array(around->value)))
        return fail_rule(around ? *around : node, absent->key ? "an object" : "an array");
    if (optional)
        return TESS_OK;

    char label[LABEL_BYTES], key[VALUE_BYTES];
    show_node(around, label);
    if (!absent->key)
        return tess__json_fail(*around, "%s has %zu elements, lacks element %zu", label,
                               json_array_size(around->value), absent->index);
    show_string(absent->key, key);
    return tess__json_fail(*around, "%s lacks %s", label, key);
}

/* ---- containers ------------------------------------------------------------------------------ */

static tess_status fail_member(const tess__json_node *object, const char *key,
                               const char *const *members, int n)
{
    const tess__json_node member = tess__json_member(object, key);
    const size_t line = tess__json_line(&member, TESS_JSON_AT_KEY);
    const char *near = tess_nearest(key, members, n);
    char shown[VALUE_BYTES];
    show_string(key, shown);
    return tess__fail(TESS_EFORMAT, "%s: line %zu: unknown member %s%s%s%s", object->doc->name,
                      line, shown, near ? "; did you mean \"" : "", near ? near : "",
                      near ? "\"?" : "");
}

tess_status tess__json_object(tess__json_node node, const char *const *members, int n,
                              tess__json_node *object)
{
    int present;
    TESS_TRY(require(node, &present));
    if (present && !json_is_object(node.value))
        return fail_rule(node, "an object");
    const char *key;
    json_t *value;
    if (present && members) {
        json_object_foreach(node.value, key, value)
        {
            int known = 0;
            for (int i = 0; i < n && !known; i++)
                known = strcmp(key, members[i]) == 0;
            if (!known)
                return fail_member(&node, key, members, n);
        }
    }
    *object = node;
    return TESS_OK;
}

tess_status tess__json_array(tess__json_node node, size_t min, size_t max, tess__json_node *array,
                             size_t *count)
{
    int present;
    TESS_TRY(require(node, &present));
    if (present && !json_is_array(node.value))
        return fail_rule(node, "an array");
    const size_t size = json_array_size(node.value);
    if (present && (size < min || size > max)) {
        char label[LABEL_BYTES], low[32], high[32], range[RULE_BYTES];
        show_node(&node, label);
        snprintf(low, sizeof low, "%zu", min);
        snprintf(high, sizeof high, "%zu", max);
        show_range(low, max == SIZE_MAX ? NULL : high, range);
        return tess__json_fail(node, "%s has %zu element%s, must have %s", label, size,
                               size == 1 ? "" : "s", range);
    }
    *array = node;
    *count = size;
    return TESS_OK;
}

/* ---- scalars --------------------------------------------------------------------------------- */

/* Whether value is an integer, also one written as 1e9: a real without a fraction that a double
 * holds exactly. */
static int get_integer(const json_t *value, int64_t *out)
{
    const double exact = 9007199254740992.0; /* 2^53 */
    if (json_is_integer(value)) {
        *out = json_integer_value(value);
        return 1;
    }
    const double x = json_real_value(value); /* 0.0 for what is no real */
    if (!json_is_real(value) || x < -exact || x > exact || x != (double)(int64_t)x)
        return 0;
    *out = (int64_t)x;
    return 1;
}

tess_status tess__json_int64(tess__json_node node, int64_t min, int64_t max, int64_t *out)
{
    int present;
    TESS_TRY(require(node, &present));
    if (!present)
        return TESS_OK;
    int64_t x = 0;
    const int right = get_integer(node.value, &x);
    if (!right || x < min || x > max) {
        char low[32], high[32];
        snprintf(low, sizeof low, "%lld", (long long)min);
        snprintf(high, sizeof high, "%lld", (long long)max);
        return fail_range(node, right ? "" : "an integer", min == INT64_MIN ? NULL : low,
                          max == INT64_MAX ? NULL : high);
    }
    *out = x;
    return TESS_OK;
}

tess_status tess__json_int(tess__json_node node, int min, int max, int *out)
{
    int present;
    TESS_TRY(require(node, &present));
    if (!present)
        return TESS_OK;
    int64_t x = 0;
    TESS_TRY(tess__json_int64(node, min, max, &x));
    *out = (int)x;
    return TESS_OK;
}

tess_status tess__json_double(tess__json_node node, double min, double max, double *out)
{
    int present;
    TESS_TRY(require(node, &present));
    if (!present)
        return TESS_OK;
    const double x = json_number_value(node.value);
    const int right = json_is_number(node.value);
    if (!right || !(x >= min && x <= max)) {
        char low[VALUE_BYTES], high[VALUE_BYTES];
        tess__real_text(min, 0, low);
        tess__real_text(max, 0, high);
        return fail_range(node, right ? "" : "a number", isinf(min) ? NULL : low,
                          isinf(max) ? NULL : high);
    }
    *out = x;
    return TESS_OK;
}

tess_status tess__json_bool(tess__json_node node, int *out)
{
    int present;
    TESS_TRY(require(node, &present));
    if (!present)
        return TESS_OK;
    if (!json_is_boolean(node.value))
        return fail_rule(node, "true or false");
    *out = json_is_true(node.value);
    return TESS_OK;
}

tess_status tess__json_string(tess__json_node node, const char **out)
{
    int present;
    TESS_TRY(require(node, &present));
    if (!present)
        return TESS_OK;
    if (!json_is_string(node.value))
        return fail_rule(node, "a string");
    *out = json_string_value(node.value);
    return TESS_OK;
}

tess_status tess__json_text(tess__json_node node, tess__arena *arena, const char **out)
{
    const char *text = NULL;
    TESS_TRY(tess__json_string(node, &text));
    char *copy = text ? tess__arena_string(arena, text, strlen(text)) : NULL;
    if (copy)
        *out = copy;
    return copy || !text ? TESS_OK : TESS_ENOMEM;
}

/* `must be ring, ulysses or hybrid; did you mean "ring"?` */
static tess_status fail_enum(tess__json_node node, const char *const *names, int n)
{
    char rule[RULE_BYTES] = "";
    size_t used = 0;
    for (int i = 0; i < n; i++) {
        const char *between = i == 0 ? "" : i < n - 1 ? ", " : " or ";
        if (used + strlen(between) + strlen(names[i]) + 64 > sizeof rule) {
            used += (size_t)snprintf(rule + used, sizeof rule - used, ", ...");
            break;
        }
        used += (size_t)snprintf(rule + used, sizeof rule - used, "%s%s", between, names[i]);
    }
    const char *near =
        json_is_string(node.value) ? tess_nearest(json_string_value(node.value), names, n) : NULL;
    if (near)
        snprintf(rule + used, sizeof rule - used, "; did you mean \"%s\"?", near);
    return fail_rule(node, rule);
}

tess_status tess__json_enum(tess__json_node node, const char *const *names, int n, int *out)
{
    int present;
    TESS_TRY(require(node, &present));
    if (!present)
        return TESS_OK;
    const char *text = json_string_value(node.value); /* NULL for what is no string */
    for (int i = 0; i < n && text; i++) {
        if (strcmp(text, names[i]) == 0) {
            *out = i;
            return TESS_OK;
        }
    }
    return fail_enum(node, names, n);
}
