/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_json.c - any bytes as a JSON document: it is refused with a sentence, or it is walked.
 *
 * The bytes behind the first zero byte choose the way: which member or element to enter at each
 * level, and which rule to read it by. Whatever is there, the place of its value and of its key is
 * found in the text. What the writer makes of the document reads back as the same document.
 */
#include "file/json.h"

#include <stdlib.h>
#include <string.h>

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition))                                                                          \
            abort();                                                                               \
    } while (0)

enum { LEVELS = 16 };

static const char *const words[] = {"heads", "layers", "ring"};

/* Reads the node by every rule; a failure carries the document's name and a line. */
static void read_all_ways(tess__json_node node)
{
    int64_t whole = 0;
    double real = 0.0;
    int number = 0;
    size_t count = 0;
    const char *text = NULL;
    tess__json_node inner;
    const tess_status results[] = {
        tess__json_int64(node, -5, 5, &whole),
        tess__json_double(node, 0.0, 1.0, &real),
        tess__json_bool(node, &number),
        tess__json_string(node, &text),
        tess__json_enum(node, words, 3, &number),
        tess__json_array(node, 1, 3, &inner, &count),
        tess__json_object(node, words, 3, &inner),
    };
    int failed = 0;
    for (size_t i = 0; i < sizeof results / sizeof results[0]; i++) {
        MUST(results[i] == TESS_OK || results[i] == TESS_EFORMAT);
        failed += results[i] != TESS_OK;
    }
    MUST(failed >= 5); /* a value has one type; a name is a string as well */
    MUST(strncmp(tess_last_error(), "fuzz.json: line ", 16) == 0);
    MUST(tess_last_error()[16] >= '1' && tess_last_error()[16] <= '9');
}

/* The child of node that way chooses. */
static tess__json_node enter(const tess__json_node *node, unsigned way)
{
    if (json_is_array(node->value))
        return tess__json_element(node, way % (json_array_size(node->value) + 1));
    unsigned left = way % ((unsigned)json_object_size(node->value) + 1);
    const char *key;
    json_t *value;
    json_object_foreach(node->value, key, value)
    {
        if (left-- == 0)
            return tess__json_member(node, key);
    }
    return tess__json_member(node, "absent");
}

static void write_and_read(tess_ctx *ctx, const json_t *value, int indent)
{
    tess__jw count = {.indent = indent, .html = 1};
    tess__jw_value(&count, NULL, value);
    tess__jw_buffer buffer = {.text = malloc(count.bytes + 1), .room = count.bytes + 1};
    MUST(buffer.text);
    tess__jw w = {.write = tess__jw_to_buffer, .to = &buffer, .indent = indent, .html = 1};
    tess__jw_value(&w, NULL, value);
    MUST(w.status == TESS_OK && buffer.used == count.bytes);
    tess__json doc;
    MUST(tess__json_open(ctx, "written.json", buffer.text, buffer.used, &doc) == TESS_OK);
    MUST(json_equal(doc.root, value));
    tess__json_close(&doc);
    free(buffer.text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    const size_t bytes = zero ? (size_t)(zero - data) : size;
    tess_ctx *ctx = NULL;
    MUST(tess_ctx_create(&(tess_ctx_opts){.isa = "base", .threads = 1}, &ctx) == TESS_OK);
    tess__json doc;
    const tess_status status = tess__json_open(ctx, "fuzz.json", (const char *)data, bytes, &doc);
    if (status == TESS_OK) {
        write_and_read(ctx, doc.root, 0);
        write_and_read(ctx, doc.root, 2);
        tess__json_node nodes[LEVELS];
        nodes[0] = tess__json_root(&doc);
        for (int i = 0; i < LEVELS; i++) {
            read_all_ways(nodes[i]);
            if (!nodes[i].value || i + 1 == LEVELS)
                break;
            MUST(tess__json_line(&nodes[i], TESS_JSON_AT_VALUE) >= 1);
            MUST(tess__json_line(&nodes[i], TESS_JSON_AT_KEY) >= 1);
            const size_t at = bytes + 1 + (size_t)i;
            nodes[i + 1] = enter(&nodes[i], at < size ? data[at] : 0);
        }
        tess__json_close(&doc);
    } else {
        MUST(status == TESS_EFORMAT);
        MUST(strncmp(tess_last_error(), "fuzz.json: ", 11) == 0);
    }
    tess_ctx_destroy(ctx);
    return 0;
}
