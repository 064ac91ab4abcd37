/* SPDX-License-Identifier: Apache-2.0 */
/* markup.c - text that grows: appending is amortised O(1); the first failure is stored. */
#include "report_internal.h"

#include <string.h>

/* Makes room for n more bytes and a NUL. Returns 0, or 1 when the text has failed. */
static int make_room(tess__markup *text, size_t n)
{
    const int64_t used = text->data ? (int64_t)text->size + 1 : 0;
    if (!text->status)
        text->status =
            tess__grow(text->ctx, &text->data, 1, used, (int64_t)(text->size + n) + 1, &text->room);
    return text->status != TESS_OK;
}

void tess__markup_add(tess__markup *text, const char *bytes, size_t n)
{
    if (make_room(text, n))
        return;
    memcpy(text->data + text->size, bytes, n);
    text->size += n;
    text->data[text->size] = '\0';
}

void tess__markup_print(tess__markup *text, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    const int n = vsnprintf(NULL, 0, format, args);
    if (n >= 0 && !make_room(text, (size_t)n)) {
        vsnprintf(text->data + text->size, (size_t)n + 1, format, again);
        text->size += (size_t)n;
    }
    va_end(again);
    va_end(args);
}

void tess__markup_html(tess__markup *text, const char *s)
{
    for (const char *at = s; *at; at++) {
        const char *entity = *at == '&'   ? "&amp;"
                             : *at == '<' ? "&lt;"
                             : *at == '>' ? "&gt;"
                             : *at == '"' ? "&quot;"
                                          : NULL;
        if (entity)
            tess__markup_add(text, entity, strlen(entity));
        else
            tess__markup_add(text, at, 1);
    }
}

void tess__markup_base64(tess__markup *text, const void *bytes, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *in = bytes;
    for (size_t i = 0; i < n; i += 3) {
        const uint32_t word = (uint32_t)in[i] << 16 | (i + 1 < n ? (uint32_t)in[i + 1] << 8 : 0) |
                              (i + 2 < n ? in[i + 2] : 0);
        const char four[4] = {digits[word >> 18], digits[word >> 12 & 63],
                              i + 1 < n ? digits[word >> 6 & 63] : '=',
                              i + 2 < n ? digits[word & 63] : '='};
        tess__markup_add(text, four, 4);
    }
}

static tess_status append(void *text, const char *bytes, size_t n)
{
    tess__markup_add(text, bytes, n);
    return ((tess__markup *)text)->status;
}

tess__jw tess__markup_json(tess__markup *text, int digits)
{
    return (tess__jw){.write = append,
                      .to = text,
                      .compact = 1,
                      .digits = digits,
                      .html = 1,
                      .members = text->size > 0};
}

void tess__markup_bytes(tess__jw *w, const char *key, const void *bytes, size_t n)
{
    tess__markup text = {.ctx = ((tess__markup *)w->to)->ctx};
    tess__markup_base64(&text, bytes, n);
    tess__jw_text(w, key, text.data ? text.data : "");
    w->status = w->status ? w->status : text.status;
    tess__markup_free(&text);
}

void tess__markup_free(tess__markup *text)
{
    tess__free(text->ctx, text->data);
    *text = (tess__markup){.ctx = text->ctx};
}
