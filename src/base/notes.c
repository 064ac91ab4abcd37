/* SPDX-License-Identifier: Apache-2.0 */
/* notes.c - sentences about a result, one after the other in the arena of its object. */
#include "base_internal.h"

#include <string.h>

tess_status tess__note(tess__arena *arena, const char ***notes, int64_t *room, int *n,
                       const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    TESS_GROW(arena->ctx, *notes, *n, *n + 1, *room);
    (*notes)[*n] = TESS_TAKE_STRING(arena, text, strlen(text));
    ++*n;
    return TESS_OK;
}
