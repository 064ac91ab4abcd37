/* SPDX-License-Identifier: Apache-2.0 */
/* view.c - checks of the views that come in through the public calls. */
#include "attn_internal.h"

tess_status tess__view_check(const char *who, const char *name, const tess_view *view,
                             tess_dtype first, tess_dtype second, int64_t tokens)
{
    if (!view)
        return tess__invalid(who, "%s is NULL", name);
    if (view->dtype != first && view->dtype != second)
        return tess__invalid(who, "%s.dtype is %s, must be %s%s%s", name,
                             tess_dtype_name(view->dtype), tess_dtype_name(first),
                             first == second ? "" : " or ",
                             first == second ? "" : tess_dtype_name(second));
    if (!view->data && tokens > 0)
        return tess__invalid(who, "%s.data is NULL", name);
    const size_t size = tess_dtype_size(view->dtype);
    if ((uintptr_t)view->data % size != 0)
        return tess__invalid(who, "%s.data is %p, must be aligned to its %zu-byte elements", name,
                             view->data, size);
    return TESS_OK;
}
