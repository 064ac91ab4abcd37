/* SPDX-License-Identifier: Apache-2.0 */
/* json_place.c - on which line of its text a JSON value begins.
 *
 * jansson keeps no positions, and positions are needed only when something is wrong. So nothing is
 * stored: the text, already known to be valid, is walked once more from the root along the node's
 * path, passing over every value beside it. Cost: one pass over the text up to the value, no memory
 * but a stack frame per level of the path.
 */
#include "json.h"

#include <string.h>

typedef struct {
    const char *at, *end; /* at == NULL: the place was not found */
} cursor;

static const cursor nowhere = {NULL, NULL};

static void skip_space(cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\t' || *c->at == '\n' || *c->at == '\r'))
        c->at++;
}

/* Passes over c, or stays and says 0. */
static int skip_char(cursor *c, char wanted)
{
    skip_space(c);
    if (c->at == c->end || *c->at != wanted)
        return 0;
    c->at++;
    return 1;
}

static void skip_string(cursor *c)
{
    for (c->at++; c->at < c->end && *c->at != '"'; c->at++)
        c->at += *c->at == '\\' && c->at + 1 < c->end;
    c->at += c->at < c->end;
}

static void skip_value(cursor *c)
{
    skip_space(c);
    size_t depth = 0;
    do {
        if (c->at == c->end)
            return;
        if (*c->at == '"') {
            skip_string(c);
        } else if (*c->at == '{' || *c->at == '[') {
            depth++;
            c->at++;
        } else if (*c->at == '}' || *c->at == ']') {
            depth -= depth > 0;
            c->at++;
        } else {
            c->at++; /* of a number, a word, a comma, a colon or space */
            while (depth == 0 && c->at < c->end && !strchr(",]} \t\r\n", *c->at))
                c->at++;
        }
    } while (depth > 0);
}

/* ---- keys ------------------------------------------------------------------------------------ */

/* Whether the string at c, passed over in any case, is key. */
static int is_key(cursor *c, const char *key)
{
    const char *p = c->at + 1;
    skip_string(c);
    const char *end = c->at - 1;
    while (p < end) {
        char piece[4] = {*p};
        size_t bytes = 1, used = 1;
        if (*p == '\\')
            bytes = tess__json_unescape(p, (size_t)(end - p), piece, &used);
        if (bytes == 0 || strncmp(key, piece, bytes) != 0)
            return 0;
        key += bytes;
        p += used;
    }
    return *key == '\0';
}

/* ---- the walk -------------------------------------------------------------------------------- */

static cursor find_member(cursor c, const char *key, tess__json_part part)
{
    if (!skip_char(&c, '{'))
        return nowhere;
    do {
        skip_space(&c);
        if (c.at == c.end || *c.at != '"')
            return nowhere;
        const cursor start = c;
        const int found = is_key(&c, key);
        if (!skip_char(&c, ':'))
            return nowhere;
        skip_space(&c);
        if (found)
            return part == TESS_JSON_AT_KEY ? start : c;
        skip_value(&c);
    } while (skip_char(&c, ','));
    return nowhere;
}

static cursor find_element(cursor c, size_t index)
{
    if (!skip_char(&c, '['))
        return nowhere;
    for (size_t i = 0; i < index; i++) {
        skip_value(&c);
        if (!skip_char(&c, ','))
            return nowhere;
    }
    skip_space(&c);
    return c;
}

static cursor find(const tess__json_node *node, tess__json_part part)
{
    if (!node->parent) {
        cursor c = {node->doc->text, node->doc->text + node->doc->bytes};
        skip_space(&c);
        return c;
    }
    const cursor c = find(node->parent, TESS_JSON_AT_VALUE);
    if (!c.at)
        return nowhere;
    return node->key ? find_member(c, node->key, part) : find_element(c, node->index);
}

size_t tess__json_line_at(const char *text, size_t offset)
{
    size_t line = 1;
    const char *end = text + offset;
    for (const char *p = text; (p = memchr(p, '\n', (size_t)(end - p))); p++)
        line++;
    return line;
}

size_t tess__json_line(const tess__json_node *node, tess__json_part part)
{
    const cursor c = find(node, part);
    if (!c.at || c.at == c.end)
        return 0;
    return tess__json_line_at(node->doc->text, (size_t)(c.at - node->doc->text));
}
