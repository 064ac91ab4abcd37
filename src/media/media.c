/* SPDX-License-Identifier: Apache-2.0 */
/* media.c - what libtessera_train was built with. */
#include "media.h"

#include "tess_config.h"

#include <oneapi/dnnl/dnnl.h>
#ifdef TESS_HAVE_PNG
#include <png.h>
#endif

int tess_train_component_count(void)
{
    return 2;
}

tess_status tess_train_component_query(int index, tess_component *component)
{
    static _Thread_local char dnnl_text[32];
    if (!component)
        return tess__fail(TESS_EINVAL, "tess_train_component_query: component is NULL");
    if (index < 0 || index >= tess_train_component_count())
        return tess__fail(TESS_EINVAL, "tess_train_component_query: index is %d, must be 0..%d",
                          index, tess_train_component_count() - 1);
    if (index == 0) {
        const dnnl_version_t *v = dnnl_version();
        snprintf(dnnl_text, sizeof dnnl_text, "%d.%d.%d", v->major, v->minor, v->patch);
        *component = (tess_component){"oneDNN", dnnl_text, "linear layers of the model", 1};
        return TESS_OK;
    }
#ifdef TESS_HAVE_PNG
    *component =
        (tess_component){"libpng", png_get_libpng_ver(NULL), "pictures are written as PNG", 1};
#else
    *component = (tess_component){"libpng", "", "no pictures are written", 0};
#endif
    return TESS_OK;
}
