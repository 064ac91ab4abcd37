/* SPDX-License-Identifier: Apache-2.0 */
/* machine.c - what machine this is. */
#define _GNU_SOURCE
#include "base.h"

#include <sched.h>

int tess__cores_usable(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 1;
    return CPU_COUNT(&set);
}
