/* SPDX-License-Identifier: Apache-2.0 */
/* json.h - JSON documents read with rules, so that every error names its line.
 *
 * A document is parsed by jansson. A node is a place in it: the value, and the way back to the
 * root. Nodes live on the caller's stack and cost nothing; a parent must outlive its children.
 * Reading a value states its rule, and a value that breaks it becomes a sentence (EFORMAT):
 *
 *   tess__json doc;
 *   TESS_TRY(tess__json_open(ctx, "scenario.json", NULL, 0, &doc));
 *   tess__json_node root = tess__json_root(&doc), model;
 *   int heads, group = 64;                                     // the default of an optional member
 *   tess_status status = tess__json_object(tess__json_member(&root, "model"), names, 2, &model);
 *   if (!status) status = tess__json_int(tess__json_member(&model, "heads"), 1, 65536, &heads);
 *   if (!status) status = tess__json_int(tess__json_optional(&model, "group"), 1, 256, &group);
 *   tess__json_close(&doc);
 *
 *   scenario.json: line 12: "heads" is 0, must be 1..65536
 *   scenario.json: line 12: "heads" is "twelve", must be an integer 1..65536
 *   scenario.json: line 4: "model" lacks "heads"
 *   scenario.json: line 7: unknown member "haeds"; did you mean "heads"?
 *
 * Required or optional is a property of the node: reading an optional one that is absent succeeds
 * and keeps the output as it was. null is a value like any other: it is not absence.
 */
#ifndef TESS_JSON_H
#define TESS_JSON_H

#include "base/base_internal.h"
#include "json_write.h"

enum { TESS_JSON_BYTES_MAX = 256 * 1024 * 1024 };

typedef struct {
    tess_ctx *ctx;
    const char *name; /* what errors call it */
    const char *text; /* kept to find lines in */
    size_t bytes;
    json_t *root;
    char *owned; /* the text, when it was read here */
} tess__json;

typedef struct tess__json_node {
    const tess__json *doc;
    json_t *value;                        /* NULL: absent */
    const struct tess__json_node *parent; /* NULL: the root */
    const char *key;                      /* NULL: an element of an array, or the root */
    size_t index;
    int optional;
} tess__json_node;

/* ---- json.c: documents and places ---------------------------------------------------------- */

/* Parses a text; NULL: that of the file `name`. Both must live until the close. A key given twice,
 * a NUL byte and more than TESS_JSON_BYTES_MAX bytes are errors. */
tess_status tess__json_open(tess_ctx *ctx, const char *name, const char *text, size_t bytes,
                            tess__json *doc);
void tess__json_close(tess__json *doc); /* {0} and a closed one accepted */

tess__json_node tess__json_root(const tess__json *doc);
tess__json_node tess__json_member(const tess__json_node *object, const char *key);
tess__json_node tess__json_optional(const tess__json_node *object, const char *key);
tess__json_node tess__json_element(const tess__json_node *array, size_t index);

/* EFORMAT and "<name>: line <n>: <text>", for rules beyond those below; the line is the value's,
 * or where it is absent, that of the nearest value around it. */
tess_status tess__json_fail(tess__json_node node, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Writes the document that `add` produces to a file, complete or not at all, with two spaces of
 * indent. */
tess_status tess__json_save(tess_ctx *ctx, const char *path,
                            void (*add)(tess__jw *w, const void *user), const void *user);

/* The same for a value, its members in the order they were set. value NULL: what jansson returns
 * when it is out of memory, so ENOMEM. Does not consume the reference. */
tess_status tess__json_write(tess_ctx *ctx, const char *path, const json_t *value);

/* A `write` of tess__jw for a tess__out. */
tess_status tess__jw_to_file(void *out, const char *bytes, size_t n);

/* ---- json_read.c: values with their rules. Ranges include both ends -------------------------- */

/* Enters an object that may have the members listed and no others (members NULL: any; walk them
 * with json_object_foreach(object->value, ...)). When an optional one is absent, object->value is
 * NULL, and so are all of its members. */
tess_status tess__json_object(tess__json_node node, const char *const *members, int n,
                              tess__json_node *object);

/* Enters an array of min..max elements. An optional one that is absent has *count 0. */
tess_status tess__json_array(tess__json_node node, size_t min, size_t max, tess__json_node *array,
                             size_t *count);

/* 1e9 is an integer as well as 1000000000. INT64_MIN or INT64_MAX: no limit on that side. */
tess_status tess__json_int64(tess__json_node node, int64_t min, int64_t max, int64_t *out);
tess_status tess__json_int(tess__json_node node, int min, int max, int *out);

/* -INFINITY or INFINITY: no limit on that side (the value is finite all the same). */
tess_status tess__json_double(tess__json_node node, double min, double max, double *out);
tess_status tess__json_bool(tess__json_node node, int *out);

/* The string lives as long as the document. */
tess_status tess__json_string(tess__json_node node, const char **out);

/* The same, copied to the arena. */
tess_status tess__json_text(tess__json_node node, tess__arena *arena, const char **out);

/* One of n names; *out is its number. */
tess_status tess__json_enum(tess__json_node node, const char *const *names, int n, int *out);

/* ---- json_escape.c --------------------------------------------------------------------------- */

/* Decodes the escape at p, whose first byte is its backslash, to UTF-8 and returns the bytes of
 * that; *used are those at p. 0 if the `left` bytes at p begin with no escape, half a surrogate
 * pair, or the character 0. */
size_t tess__json_unescape(const char *p, size_t left, char utf8[4], size_t *used);

/* ---- json_place.c ---------------------------------------------------------------------------- */

typedef enum { TESS_JSON_AT_VALUE, TESS_JSON_AT_KEY } tess__json_part;

/* The line, from 1, on which the node's value or its key begins; 0 if the text does not have it. */
size_t tess__json_line(const tess__json_node *node, tess__json_part part);

/* The line of a byte. */
size_t tess__json_line_at(const char *text, size_t offset);

#endif
