/* SPDX-License-Identifier: Apache-2.0 */
/* video.c - FFmpeg's log and error codes as log lines and statuses of Tessera. */
#include "video.h"

#ifdef TESS_HAVE_FFMPEG
#include <pthread.h>
#include <string.h>

static _Thread_local tess_ctx *listener;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* FFmpeg's lines may come in pieces; each is handed on as it is, without its line end. Other users
 * of FFmpeg in the process keep its default. */
static void on_log(void *object, int level, const char *format, va_list args)
{
    if (!listener) {
        av_log_default_callback(object, level, format, args);
        return;
    }
    char line[512];
    int prefix = 1;
    if (level > AV_LOG_INFO)
        return;
    av_log_format_line2(object, level, format, args, line, sizeof line, &prefix);
    line[strcspn(line, "\n")] = '\0';
    if (line[0])
        tess__log(listener, TESS_LOG_DEBUG, "FFmpeg: %s", line);
}

static void install(void)
{
    av_log_set_callback(on_log);
}

tess_ctx *tess__video_log(tess_ctx *ctx)
{
    tess_ctx *before = listener;
    pthread_once(&once, install);
    listener = ctx;
    return before;
}

tess_status tess__video_failed(const char *path, const char *what, int error, tess_status otherwise)
{
    char text[AV_ERROR_MAX_STRING_SIZE] = "unknown error";
    (void)av_strerror(error, text, sizeof text);
    return tess__fail(error == AVERROR(ENOMEM) ? TESS_ENOMEM : otherwise, "%s: %s: %s", path, what,
                      text);
}
#else
typedef int tess__no_video; /* a source must not be empty */
#endif
