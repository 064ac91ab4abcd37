/* SPDX-License-Identifier: Apache-2.0 */
/* status.c - status codes and the one sentence each thread keeps of its last failure. */
#include "base_internal.h"

#include "tess_config.h"

#include <string.h>

static _Thread_local char sentence[1024];

const char *tess_version(void)
{
    return TESS_VERSION;
}

const char *tess_last_error(void)
{
    return sentence;
}

const char *tess_status_name(tess_status status)
{
    switch (status) {
    case TESS_OK: return "OK";
    case TESS_EINVAL: return "EINVAL";
    case TESS_ENOMEM: return "ENOMEM";
    case TESS_ENOTSUP: return "ENOTSUP";
    case TESS_EIO: return "EIO";
    case TESS_EFORMAT: return "EFORMAT";
    case TESS_ESTOPPED: return "ESTOPPED";
    }
    return "unknown";
}

tess_status tess__vfail(tess_status status, const char *format, va_list args)
{
    /* Formatted aside first: an argument may be the sentence itself. */
    char text[sizeof sentence];
    vsnprintf(text, sizeof text, format, args);
    memcpy(sentence, text, sizeof sentence);
    return status;
}

tess_status tess__fail(tess_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    tess__vfail(status, format, args);
    va_end(args);
    return status;
}

tess_status tess__require(const char *who, const char *names, const void *const *pointers)
{
    for (;; pointers++) {
        const size_t length = strcspn(names, ",");
        if (!*pointers)
            return tess__fail(TESS_EINVAL, "%s: %.*s is NULL", who, (int)length, names);
        if (!names[length])
            return TESS_OK;
        names += length + strspn(names + length, ", ");
    }
}
