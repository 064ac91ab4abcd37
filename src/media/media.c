/* SPDX-License-Identifier: Apache-2.0 */
/* media.c - what libtessera_train was built with. */
#include "media_internal.h"

#include "tess_config.h"

#include <oneapi/dnnl/dnnl.h>
#include <string.h>
#ifdef TESS_HAVE_PNG
#include <png.h>
#endif
#ifdef TESS_HAVE_FFMPEG
#include <libavutil/avutil.h>
#endif

static _Thread_local char version[32];

static tess_component dnnl(void)
{
    const dnnl_version_t *v = dnnl_version();
    snprintf(version, sizeof version, "%d.%d.%d", v->major, v->minor, v->patch);
    return (tess_component){"oneDNN", version, "linear layers of the model", 1};
}

static tess_component png(void)
{
#ifdef TESS_HAVE_PNG
    return (tess_component){"libpng", png_get_libpng_ver(NULL), "pictures as PNG", 1};
#else
    return (tess_component){"libpng", "", "no pictures are read or written", 0};
#endif
}

static tess_component ffmpeg(void)
{
#ifdef TESS_HAVE_FFMPEG
    const char *text = av_version_info(); /* "5.1.9-0+deb12u1", or a word for a development one */
    const size_t digits = strspn(text, "0123456789.");
    snprintf(version, sizeof version, "%.*s", digits ? (int)digits : 31, text);
    return (tess_component){"FFmpeg", version, "video files are read, and written as MP4", 1};
#else
    return (tess_component){"FFmpeg", "", "no video files but .y4m, and .gif written", 0};
#endif
}

static tess_component (*const components[])(void) = {dnnl, png, ffmpeg};

int tess_train_component_count(void)
{
    return sizeof components / sizeof components[0];
}

tess_status tess_train_component_query(int index, tess_component *component)
{
    TESS_REQUIRE(component);
    TESS_TRY(tess__check_range(__func__, "index", index, 0, tess_train_component_count() - 1));
    *component = components[index]();
    return TESS_OK;
}
