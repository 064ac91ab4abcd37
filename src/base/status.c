/* SPDX-License-Identifier: Apache-2.0 */
/* status.c - status codes and the one sentence each thread keeps of its last failure. */
#include "base_internal.h"

#include "tess_abi.h"
#include "tess_config.h"

#include <string.h>

static _Thread_local char sentence[TESS_ERROR_MAX];

const char *tess_version(void)
{
    return TESS_VERSION;
}

const char *tess_abi(void)
{
    return TESS_ABI;
}

const char *tess_last_error(void)
{
    return sentence;
}

tess_status tess_error_set(tess_status status, const char *text)
{
    /* The text may be the stored sentence itself. */
    const size_t length = text ? strnlen(text, sizeof sentence - 1) : 0;
    memmove(sentence, text ? text : "", length);
    sentence[length] = '\0';
    return status;
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
