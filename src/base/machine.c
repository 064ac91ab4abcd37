/* SPDX-License-Identifier: Apache-2.0 */
/* machine.c - what machine this is: processor, memory, pages; topology.c adds cores and caches.
 *
 * Everything is read from small files of /proc and /sys below a root, so that a test can show it
 * another machine. What cannot be read stays 0 or "unknown": a query does not fail for that.
 */
#include "base_internal.h"

#include "tess_config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

int tess__sys_text(const char *root, const char *path, char *text, size_t size)
{
    char full[512];
    if (snprintf(full, sizeof full, "%s%s", root, path) >= (int)sizeof full)
        return -1;
    const int fd = open(full, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    size_t used = 0;
    while (used < size - 1) {
        const ssize_t n = read(fd, text + used, size - 1 - used);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        used += (size_t)n;
    }
    close(fd);
    text[used] = '\0';
    return (int)used;
}

int64_t tess__sys_number(const char *root, const char *path, int64_t otherwise)
{
    char text[64], *end;
    if (tess__sys_text(root, path, text, sizeof text) <= 0)
        return otherwise;
    const int64_t value = strtoll(text, &end, 10);
    return end == text ? otherwise : value;
}

/* Copies the rest of the line of text that starts with key, without blanks and the colon. */
static int find_line(const char *text, const char *key, char *value, size_t size)
{
    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, strlen(key)) != 0)
            continue;
        line += strlen(key);
        line += strspn(line, " \t:");
        snprintf(value, size, "%.*s", (int)strcspn(line, "\n"), line);
        return 1;
    }
    return 0;
}

static void read_processor(const char *root, tess_machine *machine)
{
    struct utsname host;
    snprintf(machine->arch, sizeof machine->arch, "%.15s",
             uname(&host) == 0 ? host.machine : "unknown");
    char text[4096], model[64];
    /* "model name" on x86; arm64 has the board's name elsewhere, if at all. */
    if (tess__sys_text(root, "/proc/cpuinfo", text, sizeof text) > 0 &&
        find_line(text, "model name", model, sizeof model))
        snprintf(machine->cpu, sizeof machine->cpu, "%s", model);
    else if (tess__sys_text(root, "/proc/device-tree/model", text, sizeof text) > 0)
        snprintf(machine->cpu, sizeof machine->cpu, "%.63s", text);
    else
        snprintf(machine->cpu, sizeof machine->cpu, "unknown");
}

static void read_memory(const char *root, tess_machine *machine)
{
    char text[4096], value[64];
    if (tess__sys_text(root, "/proc/meminfo", text, sizeof text) > 0) {
        if (find_line(text, "MemTotal", value, sizeof value))
            machine->memory_total = strtoll(value, NULL, 10) << 10;
        if (find_line(text, "MemAvailable", value, sizeof value))
            machine->memory_available = strtoll(value, NULL, 10) << 10;
    }
    /* A container may grant less: cgroup v2 first, then v1, whose "no limit" is a huge number. */
    int64_t limit = tess__sys_number(root, "/sys/fs/cgroup/memory.max", 0);
    int64_t used = tess__sys_number(root, "/sys/fs/cgroup/memory.current", 0);
    if (limit <= 0) {
        limit = tess__sys_number(root, "/sys/fs/cgroup/memory/memory.limit_in_bytes", 0);
        used = tess__sys_number(root, "/sys/fs/cgroup/memory/memory.usage_in_bytes", 0);
    }
    if (limit > 0 && limit < machine->memory_total) {
        const int64_t left = limit > used ? limit - used : 0;
        machine->memory_total = limit;
        if (left < machine->memory_available)
            machine->memory_available = left;
    }
}

/* The file reads "always [madvise] never": the brackets mark the choice. */
static void read_huge_pages(const char *root, tess_machine *machine)
{
    char text[128];
    snprintf(machine->huge_pages, sizeof machine->huge_pages, "unknown");
    if (tess__sys_text(root, "/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text) <= 0)
        return;
    const char *open_bracket = strchr(text, '[');
    const size_t length = open_bracket ? strcspn(open_bracket + 1, "]") : 0;
    if (length > 0 && length < sizeof machine->huge_pages)
        snprintf(machine->huge_pages, sizeof machine->huge_pages, "%.*s", (int)length,
                 open_bracket + 1);
}

void tess__machine_read(const char *root, tess_machine *machine)
{
    read_processor(root, machine);
    read_memory(root, machine);
    read_huge_pages(root, machine);
}

tess_status tess_machine_query(const tess_ctx *ctx, tess_machine *machine)
{
    TESS_REQUIRE(ctx, machine);
    tess_machine found = {0};
    tess__topology_hwloc(&found);
    if (!found.topology[0])
        tess__topology_sysfs("", &found);
    tess__machine_read("", &found);
    found.cores_usable = tess__cores_usable("");
    /* Where /sys is hidden, the cores of the affinity mask are the ones known of. */
    if (found.cores < found.cores_usable)
        found.cores = found.cores_usable;
    if (found.hardware_threads < found.cores)
        found.hardware_threads = found.cores;
    tess__cpu_features(found.features, sizeof found.features);
    found.amx = tess__amx_state();
    *machine = found;
    return TESS_OK;
}
