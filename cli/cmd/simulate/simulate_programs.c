/* SPDX-License-Identifier: Apache-2.0 */
/* simulate_programs.c - ranks of PyTorch programs on a cluster: where the time goes, and whether
 * the memory of a GPU is enough. */
#include "cmd/cmd_simulate.h"
#include "tessera/advanced/activity.h"

static const double GB = 1e9;

static const char *class_name(int i)
{
    return i == TESS_KERNEL_CLASSES ? "host" : tess_kernel_class_name((tess_kernel_class)i);
}

static void print_classes(const cli *c, const tess_replay_info *info, const tess_replay_rank *k)
{
    fprintf(c->out, "\n%-14s %12s %14s\n", "class", "ms", "critical ms");
    for (int i = 0; i <= TESS_KERNEL_CLASSES; i++) {
        const int64_t ns = i < TESS_KERNEL_CLASSES ? k->class_ns[i] : 0;
        if (ns > 0 || info->critical_ns[i] > 0)
            fprintf(c->out, "%-14s %12.3f %14.3f\n", class_name(i), 1e-6 * (double)ns,
                    1e-6 * (double)info->critical_ns[i]);
    }
}

static void print_memory(const cli *c, const tess_replay_rank *k, double room)
{
    fprintf(c->out, "\nmemory of rank %d: %.1f GB at its peak\n", k->rank,
            (double)k->peak_bytes / GB);
    for (int i = 0; i < 5; i++)
        fprintf(c->out, "  %-14s %10.1f\n", tess_replay_memory_name(i), (double)k->memory[i] / GB);
    if (room > 0.0 && (double)k->peak_bytes > room)
        fprintf(c->out, "does not fit: %.0f of %.0f GB, largest part: %s\n",
                (double)k->peak_bytes / GB, room / GB, tess_replay_memory_name(k->largest));
    else if (room > 0.0)
        fprintf(c->out, "fits: %.1f of %.0f GB\n", (double)k->peak_bytes / GB, room / GB);
}

static void set_members(cli *c, json_t *one, const tess_replay_rank *k, double room)
{
    json_t *classes = json_object(), *memory = json_object();
    for (int i = 0; i < TESS_KERNEL_CLASSES; i++)
        out_set(c, classes, class_name(i), out_number(1e-6 * (double)k->class_ns[i]));
    for (int i = 0; i < 5; i++)
        out_set(c, memory, tess_replay_memory_name(i), json_integer(k->memory[i]));
    out_set(c, one, "flop", json_integer(k->flop));
    out_set(c, one, "classes_ms", classes);
    out_set(c, one, "peak_bytes", json_integer(k->peak_bytes));
    out_set(c, one, "memory_bytes", memory);
    out_set(c, one, "fits", room > 0.0 ? json_boolean((double)k->peak_bytes <= room) : json_null());
    out_set(c, one, "largest_part", out_text(tess_replay_memory_name(k->largest)));
}

tess_status simulate_programs(cli *c, const tess_replay *replay, const tess_cluster *cluster)
{
    tess_replay_info info;
    tess_cluster_info on = {0};
    int found = 0;
    TRY(tess_replay_query(replay, &info));
    if (cluster)
        TRY(tess_cluster_query(cluster, &on));
    for (int i = 0; i < info.files; i++) {
        tess_replay_rank k;
        TRY(tess_replay_rank_query(replay, i, &k));
        if (!k.program)
            continue;
        if (c->json)
            set_members(c, json_array_get(json_object_get(c->json, "files"), (size_t)i), &k,
                        (double)on.memory);
        else if (!found++)
            print_classes(c, &info, &k);
        if (!c->json)
            print_memory(c, &k, (double)on.memory);
        found = 1;
    }
    if (!found || !c->json)
        return TESS_OK;
    json_t *critical = json_object();
    for (int i = 0; i <= TESS_KERNEL_CLASSES; i++)
        out_set(c, critical, class_name(i), out_number(1e-6 * (double)info.critical_ns[i]));
    out_set(c, c->json, "critical_ms", critical);
    out_set(c, c->json, "software", info.software ? out_text(info.software) : json_null());
    return TESS_OK;
}
