/* SPDX-License-Identifier: Apache-2.0 */
/* component.c - what libtessera was built with, and what it lacks. */
#include "base_internal.h"

#include "tess_config.h"

#include <jansson.h>
#include <zlib.h>

#ifdef TESS_HAVE_HWLOC
#include <hwloc.h>
#endif

static tess_component compiler(void)
{
    return (tess_component){"compiler", TESS_COMPILER,
                            TESS_SANITIZERS[0] ? TESS_BUILD_TYPE
                                " build with sanitizers: " TESS_SANITIZERS
                                               : TESS_BUILD_TYPE " build",
                            1};
}

static tess_component openmp(void)
{
    /* _OPENMP is the date of the standard, the version that all runtimes report. */
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
    return (tess_component){"OpenMP", TEXT(_OPENMP), "threads", 1};
#undef TEXT
#undef TEXT_
}

static tess_component jansson(void)
{
    return (tess_component){"jansson", jansson_version_str(), "JSON files", 1};
}

static tess_component zlib(void)
{
    return (tess_component){"zlib", zlibVersion(), ".npz files, gzip", 1};
}

static tess_component isal(void)
{
#ifdef TESS_HAVE_ISAL
    return (tess_component){"ISA-L", TESS_ISAL_VERSION, "gzip traces", 1};
#else
    return (tess_component){"ISA-L", "", "gzip traces are unpacked by zlib, which takes longer", 0};
#endif
}

static tess_component hwloc(void)
{
#ifdef TESS_HAVE_HWLOC
    static _Thread_local char text[32];
    const unsigned v = hwloc_get_api_version();
    snprintf(text, sizeof text, "%u.%u.%u", v >> 16, v >> 8 & 0xff, v & 0xff);
    return (tess_component){"hwloc", text, "cores, caches and NUMA nodes", 1};
#else
    return (tess_component){"hwloc", "", "cores and caches are read from /sys instead", 0};
#endif
}

static tess_component (*const components[])(void) = {compiler, openmp, jansson, zlib, isal, hwloc};
enum { COUNT = sizeof components / sizeof components[0] };

int tess_component_count(void)
{
    return COUNT;
}

tess_status tess_component_query(int index, tess_component *component)
{
    TESS_REQUIRE(component);
    TESS_TRY(tess__check_range(__func__, "index", index, 0, COUNT - 1));
    *component = components[index]();
    return TESS_OK;
}
