/* SPDX-License-Identifier: Apache-2.0 */
/* topology.c - sockets, cores, hardware threads, NUMA nodes and caches, by hwloc or from /sys.
 *
 * hwloc knows more machines; /sys is what is left when it was not found at configure time. Both
 * fill the same fields, and a test compares them on the machine it runs on.
 */
#define _GNU_SOURCE
#include "base_internal.h"

#include "tess_config.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef TESS_HAVE_HWLOC
#include <hwloc.h>

static int64_t cache_bytes(hwloc_topology_t topology, hwloc_obj_type_t type)
{
    const hwloc_obj_t cache = hwloc_get_obj_by_type(topology, type, 0);
    return cache ? (int64_t)cache->attr->cache.size : 0;
}

static int count(hwloc_topology_t topology, hwloc_obj_type_t type)
{
    const int n = hwloc_get_nbobjs_by_type(topology, type);
    return n > 0 ? n : 1;
}

void tess__topology_hwloc(tess_machine *machine)
{
    /* Without /sys hwloc complains on stderr, where a library has no business. */
    hwloc_topology_t topology;
    if (access("/sys/devices/system/cpu", R_OK) != 0 || hwloc_topology_init(&topology) != 0)
        return;
    if (hwloc_topology_load(topology) == 0) {
        strcpy(machine->topology, "hwloc");
        machine->sockets = count(topology, HWLOC_OBJ_PACKAGE);
        machine->cores = count(topology, HWLOC_OBJ_CORE);
        machine->hardware_threads = count(topology, HWLOC_OBJ_PU);
        machine->numa_nodes = count(topology, HWLOC_OBJ_NUMANODE);
        machine->cache_l1d = cache_bytes(topology, HWLOC_OBJ_L1CACHE);
        machine->cache_l2 = cache_bytes(topology, HWLOC_OBJ_L2CACHE);
        machine->cache_l3 = cache_bytes(topology, HWLOC_OBJ_L3CACHE);
    }
    hwloc_topology_destroy(topology);
}
#else
void tess__topology_hwloc(tess_machine *machine)
{
    (void)machine;
}
#endif

/* ---- /sys -------------------------------------------------------------------------------- */

enum { CPUS_MAX = CPU_SETSIZE };

/* Adds the numbers of a kernel list, "0-3,8,10-11", to set. */
static void parse_list(const char *text, cpu_set_t *set)
{
    CPU_ZERO(set);
    while (*text >= '0' && *text <= '9') {
        char *end;
        const long first = strtol(text, &end, 10);
        const long last = *end == '-' ? strtol(end + 1, &end, 10) : first;
        for (long i = first; i <= last && i < CPUS_MAX; i++)
            CPU_SET(i, set);
        text = *end == ',' ? end + 1 : end;
    }
}

/* How many different values the file /sys/devices/system/cpu/cpuN/topology/NAME has over the cpus
 * of the set, taken together with the socket's number. A cpu without the file counts alone. */
static int distinct(const char *root, const cpu_set_t *set, const char *name)
{
    int64_t found[CPUS_MAX];
    int n = 0;
    for (int cpu = 0; cpu < CPUS_MAX; cpu++) {
        if (!CPU_ISSET(cpu, set))
            continue;
        char path[128];
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", cpu, name);
        const int64_t id = tess__sys_number(root, path, 1000000 + cpu);
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/physical_package_id",
                 cpu);
        const int64_t key = id * 65536 + tess__sys_number(root, path, 0);
        int i = 0;
        while (i < n && found[i] != key)
            i++;
        if (i == n)
            found[n++] = key;
    }
    return n;
}

/* Bytes of cpu 0's data or unified cache of a level. */
static int64_t sysfs_cache(const char *root, int level)
{
    for (int i = 0; i < 8; i++) {
        char path[128], type[32];
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/level", i);
        if (tess__sys_number(root, path, 0) != level)
            continue;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/type", i);
        if (tess__sys_text(root, path, type, sizeof type) < 0 ||
            strncmp(type, "Instruction", 11) == 0)
            continue;
        char size[32];
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
        if (tess__sys_text(root, path, size, sizeof size) < 0)
            return 0;
        char *unit;
        const int64_t value = strtoll(size, &unit, 10);
        return *unit == 'K' ? value << 10 : *unit == 'M' ? value << 20 : value;
    }
    return 0;
}

/* The set named by a file of /sys, or empty. */
static void sysfs_set(const char *root, const char *path, cpu_set_t *set)
{
    char text[1024];
    CPU_ZERO(set);
    if (tess__sys_text(root, path, text, sizeof text) > 0)
        parse_list(text, set);
}

void tess__topology_sysfs(const char *root, tess_machine *machine)
{
    cpu_set_t online, nodes;
    sysfs_set(root, "/sys/devices/system/cpu/online", &online);
    sysfs_set(root, "/sys/devices/system/node/online", &nodes);
    if (CPU_COUNT(&online) == 0)
        CPU_SET(0, &online);
    strcpy(machine->topology, "sysfs");
    machine->hardware_threads = CPU_COUNT(&online);
    machine->cores = distinct(root, &online, "core_id");
    machine->sockets = distinct(root, &online, "physical_package_id");
    machine->numa_nodes = CPU_COUNT(&nodes) > 0 ? CPU_COUNT(&nodes) : 1;
    machine->cache_l1d = sysfs_cache(root, 1);
    machine->cache_l2 = sysfs_cache(root, 2);
    machine->cache_l3 = sysfs_cache(root, 3);
}

/* ---- what this process may use ----------------------------------------------------------- */

/* CPUs' worth of time the container grants, rounded up; 0 if it sets no limit. cgroup v2's cpu.max
 * is "QUOTA PERIOD" or "max PERIOD"; v1 has the two numbers in two files. */
static int64_t quota(const char *root)
{
    char text[64];
    int64_t time = -1, period = 0;
    if (tess__sys_text(root, "/sys/fs/cgroup/cpu.max", text, sizeof text) > 0) {
        char *end;
        time = strtoll(text, &end, 10);
        if (end == text)
            return 0;
        period = strtoll(end, NULL, 10);
    } else {
        time = tess__sys_number(root, "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", -1);
        period = tess__sys_number(root, "/sys/fs/cgroup/cpu/cpu.cfs_period_us", 0);
    }
    return time > 0 && period > 0 ? (time + period - 1) / period : 0;
}

int tess__cores_usable(const char *root)
{
    cpu_set_t mask;
    if (sched_getaffinity(0, sizeof mask, &mask) != 0)
        return 1;
    const int cores = distinct(root, &mask, "core_id");
    const int64_t granted = quota(root);
    return granted > 0 && granted < cores ? (int)granted : cores;
}
