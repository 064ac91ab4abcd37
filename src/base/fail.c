/* SPDX-License-Identifier: Apache-2.0 */
/* fail.c - failures as a status and a formatted sentence, which status.c stores for the thread. */
#include "base_internal.h"

#include <string.h>

tess_status tess__vfail(tess_status status, const char *format, va_list args)
{
    char text[TESS_ERROR_MAX]; /* not the stored sentence, which may be an argument */
    vsnprintf(text, sizeof text, format, args);
    return tess_error_set(status, text);
}

tess_status tess__fail(tess_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    tess__vfail(status, format, args);
    va_end(args);
    return status;
}

tess_status tess__invalid(const char *who, const char *format, ...)
{
    char text[TESS_ERROR_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return tess__fail(TESS_EINVAL, "%s: %s", who, text);
}

tess_status tess__require(const char *who, const char *names, const void *const *pointers)
{
    for (;; pointers++) {
        const size_t length = strcspn(names, ",");
        if (!*pointers)
            return tess__invalid(who, "%.*s is NULL", (int)length, names);
        if (!names[length])
            return TESS_OK;
        names += length + strspn(names + length, ", ");
    }
}
