/* SPDX-License-Identifier: Apache-2.0 */
/* range.c - numbers that callers give, against the rules that many calls share. */
#include "base_internal.h"

tess_status tess__check_range(const char *who, const char *name, int64_t value, int64_t low,
                              int64_t high)
{
    if (value >= low && value <= high)
        return TESS_OK;
    return tess__invalid(who, "%s is %lld, must be %lld..%lld", name, (long long)value,
                         (long long)low, (long long)high);
}

tess_status tess__check_least(const char *who, const char *name, int64_t value, int64_t least)
{
    return value >= least ? TESS_OK
                          : tess__invalid(who, "%s is %lld, must be %lld or more", name,
                                          (long long)value, (long long)least);
}

tess_status tess__check_each(const char *who, const char *name, const int *values, int n, int least)
{
    for (int i = 0; i < n; i++)
        if (values[i] < least)
            return tess__invalid(who, "%s[%d] is %d, must be %d or more", name, i, values[i],
                                 least);
    return TESS_OK;
}

tess_status tess__check_flag(const char *who, const char *name, int value)
{
    return value == 0 || value == 1 ? TESS_OK
                                    : tess__invalid(who, "%s is %d, must be 0 or 1", name, value);
}

tess_status tess__check_enum(const char *who, const char *name, int value, int count,
                             const char *type)
{
    return value >= 0 && value < count
               ? TESS_OK
               : tess__invalid(who, "%s is %d, must be a %s", name, value, type);
}

tess_status tess__check_eights(const char *who, const char *name, int64_t value, int64_t high)
{
    if (value >= 8 && value <= high && value % 8 == 0)
        return TESS_OK;
    return tess__invalid(who, "%s is %lld, must be a multiple of 8 up to %lld", name,
                         (long long)value, (long long)high);
}

tess_status tess__check_number(const char *who, const char *name, double value, double low,
                               double high)
{
    return value >= low && value <= high
               ? TESS_OK
               : tess__invalid(who, "%s is %g, must be %g..%g", name, value, low, high);
}

tess_status tess__check_number_or_0(const char *who, const char *name, double value, double low,
                                    double high)
{
    return value == 0.0 || (value >= low && value <= high)
               ? TESS_OK
               : tess__invalid(who, "%s is %g, must be 0 or %g..%g", name, value, low, high);
}
