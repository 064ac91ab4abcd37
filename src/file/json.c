/* SPDX-License-Identifier: Apache-2.0 */
/* json.c - JSON documents: read from a file or memory, written to a file; errors with a line.
 *
 * jansson allocates through its own global hooks, which belong to the program and are left alone;
 * the text of a file is ours. Memory: the text, and about 8 times as much for jansson's values.
 */
#include "json.h"
#include "out.h"
#include "tessera/advanced/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- reading --------------------------------------------------------------------------------- */

/* The start of the string that ends at text[end - 1], and so its length with both quotes. */
static size_t string_start(const char *text, size_t end)
{
    size_t start = end > 0 ? end - 1 : 0;
    while (start > 0) {
        start--;
        size_t slashes = 0;
        while (slashes < start && text[start - 1 - slashes] == '\\')
            slashes++;
        if (text[start] == '"' && slashes % 2 == 0)
            break;
    }
    return start;
}

/* Whether jansson refused a text for want of memory. It says so for few of its allocations, fails
 * without a word for others, and blames the text for the rest: then one more value is asked for. */
static int is_short(const json_error_t *error)
{
    if (json_error_code(error) == json_error_out_of_memory || !*error->text)
        return 1;
    json_t *probe = json_integer(1);
    json_decref(probe);
    return !probe;
}

/* The sentence for what jansson refused. */
static tess_status fail_parse(const tess__json *doc, const json_error_t *error)
{
    const int line = error->line > 0 ? error->line : 1;
    char text[sizeof error->text];
    snprintf(text, sizeof text, "%s", error->text);
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = ' '; /* the near text may hold control characters */

    if (is_short(error))
        return tess__nomem(doc->bytes);
    switch ((int)json_error_code(error)) {
    case json_error_duplicate_key: {
        const size_t end = (size_t)error->position;
        if (error->position <= 0 || end > doc->bytes)
            break;
        const size_t start = string_start(doc->text, end);
        return tess__fail(TESS_EFORMAT, "%s: line %d: the member %.*s is there twice", doc->name,
                          line, (int)(end - start > 80 ? 80 : end - start), doc->text + start);
    }
    case json_error_null_character:
    case json_error_null_byte_in_key:
        return tess__fail(TESS_EFORMAT, "%s: line %d: a string holds \\u0000", doc->name, line);
    default: break;
    }
    return tess__fail(TESS_EFORMAT, "%s: line %d: %s", doc->name, line, text);
}

/* Parses doc->text. */
static tess_status parse(tess__json *doc)
{
    if (doc->bytes > TESS_JSON_BYTES_MAX)
        return tess__fail(TESS_EFORMAT, "%s: more than %d bytes, the limit of a JSON file",
                          doc->name, TESS_JSON_BYTES_MAX);
    const char *nul = memchr(doc->text, '\0', doc->bytes);
    if (nul)
        return tess__fail(TESS_EFORMAT, "%s: line %zu: a NUL byte", doc->name,
                          tess__json_line_at(doc->text, (size_t)(nul - doc->text)));
    json_error_t error = {.line = 0};
    doc->root = json_loadb(doc->text, doc->bytes, JSON_REJECT_DUPLICATES, &error);
    return doc->root ? TESS_OK : fail_parse(doc, &error);
}

/* After a read without bytes. A pipe whose writer has none yet is waited for, and one without a
 * writer until the deadline: a process that opens it to write waits for our open. */
static tess_status wait_to_read(const tess_ctx *ctx, int file, const char *path, ssize_t got,
                                int64_t deadline)
{
    struct pollfd poller = {.fd = file, .events = POLLIN};
    if (got < 0 && errno != EINTR && errno != EAGAIN)
        return tess__fail(TESS_EIO, "%s: cannot read: %s", path, strerror(errno));
    if (got == 0 && tess_clock_ns() > deadline)
        return tess__fail(TESS_EIO, "%s: cannot read: is a pipe that no process writes to", path);
    /* Without a writer poll may return at once. */
    poll(got < 0 ? &poller : NULL, got < 0, got < 0 ? 100 : 10);
    return tess__progress(ctx, path, 0, 0);
}

/* All bytes of a file, pipes included, into a buffer that grows; at most one more than the limit,
 * which parse then refuses. */
static tess_status read_all(tess_ctx *ctx, int file, const char *path, char **text, size_t *bytes)
{
    const int64_t deadline = tess_clock_ns() + (int64_t)5e9;
    struct stat info = {0};
    size_t size = 64 * 1024, used = 0;
    if (fstat(file, &info) == 0 && S_ISREG(info.st_mode) && info.st_size < TESS_JSON_BYTES_MAX)
        size = (size_t)info.st_size + 1; /* and one to see the end */
    char *buffer = tess__alloc(ctx, size);
    while (buffer) {
        const ssize_t got = read(file, buffer + used, size - used);
        if (got < 0 || (got == 0 && used == 0 && S_ISFIFO(info.st_mode))) {
            const tess_status status = wait_to_read(ctx, file, path, got, deadline);
            if (status == TESS_OK)
                continue;
            tess__free(ctx, buffer);
            return status;
        }
        used += (size_t)got;
        if (got == 0 || used > TESS_JSON_BYTES_MAX)
            break;
        if (used == size) {
            size = size < TESS_JSON_BYTES_MAX / 2 ? 2 * size : TESS_JSON_BYTES_MAX + 1;
            char *larger = tess__alloc(ctx, size);
            if (larger)
                memcpy(larger, buffer, used);
            tess__free(ctx, buffer);
            buffer = larger;
        }
    }
    if (!buffer)
        return TESS_ENOMEM;
    *text = buffer;
    *bytes = used;
    return TESS_OK;
}

tess_status tess__json_open(tess_ctx *ctx, const char *name, const char *text, size_t bytes,
                            tess__json *doc)
{
    tess__json made = {.ctx = ctx, .name = name, .bytes = bytes};
    if (!text) {
        /* Without O_NONBLOCK the open of a pipe would wait without end for a writer. */
        const int file = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        if (file < 0)
            return tess__fail(TESS_EIO, "%s: cannot open: %s", name, strerror(errno));
        const tess_status status = read_all(ctx, file, name, &made.owned, &made.bytes);
        close(file);
        TESS_TRY(status);
        text = made.owned;
    }
    made.text = made.bytes ? text : "";
    const tess_status status = parse(&made);
    if (status == TESS_OK)
        *doc = made;
    else
        tess__json_close(&made);
    return status;
}

void tess__json_close(tess__json *doc)
{
    json_decref(doc->root);
    if (doc->owned)
        tess__free(doc->ctx, doc->owned);
    *doc = (tess__json){0};
}

/* ---- places ---------------------------------------------------------------------------------- */

tess__json_node tess__json_root(const tess__json *doc)
{
    return (tess__json_node){.doc = doc, .value = doc->root};
}

tess__json_node tess__json_member(const tess__json_node *object, const char *key)
{
    return (tess__json_node){
        .doc = object->doc,
        .value = json_object_get(object->value, key), /* NULL for a value that is no object */
        .parent = object,
        .key = key,
    };
}

tess__json_node tess__json_optional(const tess__json_node *object, const char *key)
{
    tess__json_node node = tess__json_member(object, key);
    node.optional = 1;
    return node;
}

tess__json_node tess__json_element(const tess__json_node *array, size_t index)
{
    return (tess__json_node){
        .doc = array->doc,
        .value = json_array_get(array->value, index),
        .parent = array,
        .index = index,
    };
}

tess_status tess__json_fail(tess__json_node node, const char *format, ...)
{
    char text[768];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);

    const tess__json_node *at = &node;
    while (!at->value && at->parent)
        at = at->parent;
    const size_t line = tess__json_line(at, TESS_JSON_AT_VALUE);
    return tess__fail(TESS_EFORMAT, "%s: line %zu: %s", node.doc->name, line, text);
}

/* ---- writing --------------------------------------------------------------------------------- */

tess_status tess__jw_to_file(void *out, const char *bytes, size_t n)
{
    return tess__out_write(out, bytes, n);
}

tess_status tess__json_save(tess_ctx *ctx, const char *path,
                            void (*add)(tess__jw *w, const void *user), const void *user)
{
    tess__out *out;
    TESS_TRY(tess__out_open(ctx, path, &out));
    tess__jw w = {.write = tess__jw_to_file, .to = out, .indent = 2};
    add(&w, user);
    const tess_status status = tess__jw_finish(&w);
    if (status == TESS_OK)
        return tess__out_commit(out);
    tess__out_abort(out);
    return status;
}

static void add_value(tess__jw *w, const void *value)
{
    tess__jw_value(w, NULL, value);
}

tess_status tess__json_write(tess_ctx *ctx, const char *path, const json_t *value)
{
    if (!value)
        return tess__fail(TESS_ENOMEM, "%s: cannot write: out of memory", path);
    return tess__json_save(ctx, path, add_value, value);
}
