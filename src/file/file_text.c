/* SPDX-License-Identifier: Apache-2.0 */
/* file_text.c - JSON text on its way to a file, or only counted. */
#include "file.h"

#include <string.h>

tess_status tess__text_bytes(tess__text *t, const char *s, size_t n)
{
    t->count += n;
    return t->out ? tess__out_write(t->out, s, n) : TESS_OK;
}

tess_status tess__text_put(tess__text *t, const char *format, ...)
{
    char s[TESS_SHAPE_TEXT + 128];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(s, sizeof s, format, args);
    va_end(args);
    return tess__text_bytes(t, s, (size_t)n);
}

tess_status tess__text_string(tess__text *t, const char *s)
{
    TESS_TRY(tess__text_bytes(t, "\"", 1));
    for (; *s; s++) {
        const size_t plain =
            strcspn(s, "\"\\\x01\x02\x03\x04\x05\x06\x07\b\t\n\v\f\r\x0e\x0f\x10"
                       "\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f");
        TESS_TRY(tess__text_bytes(t, s, plain));
        s += plain;
        if (!*s)
            break;
        if (*s == '"' || *s == '\\')
            TESS_TRY(tess__text_put(t, "\\%c", *s));
        else
            TESS_TRY(tess__text_put(t, "\\u%04x", (unsigned)*s));
    }
    return tess__text_bytes(t, "\"", 1);
}
