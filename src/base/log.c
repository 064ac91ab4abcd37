/* SPDX-License-Identifier: Apache-2.0 */
/* log.c - messages and progress to the callbacks of a context. */
#include "base_internal.h"

void tess__log(const tess_ctx *ctx, tess_log_level level, const char *format, ...)
{
    if (!ctx->log || level > ctx->log_level)
        return;
    char message[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    ctx->log(ctx->log_user, level, message);
}

tess_status tess__progress(const tess_ctx *ctx, const char *what, int64_t done, int64_t total)
{
    if (ctx->progress && ctx->progress(ctx->progress_user, what, done, total) != 0)
        return tess__fail(TESS_ESTOPPED, "stopped by the caller while %s", what);
    return TESS_OK;
}
