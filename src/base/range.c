/* SPDX-License-Identifier: Apache-2.0 */
/* range.c - whole numbers that callers give, against the rules that many calls share. */
#include "base_internal.h"

tess_status tess__check_range(const char *who, const char *name, int64_t value, int64_t low,
                              int64_t high)
{
    if (value >= low && value <= high)
        return TESS_OK;
    return tess__fail(TESS_EINVAL, "%s: %s is %lld, must be %lld..%lld", who, name,
                      (long long)value, (long long)low, (long long)high);
}

tess_status tess__check_eights(const char *who, const char *name, int64_t value, int64_t high)
{
    if (value >= 8 && value <= high && value % 8 == 0)
        return TESS_OK;
    return tess__fail(TESS_EINVAL, "%s: %s is %lld, must be a multiple of 8 up to %lld", who, name,
                      (long long)value, (long long)high);
}
