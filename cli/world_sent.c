/* SPDX-License-Identifier: Apache-2.0 */
/* world_sent.c - bytes and messages that the ranks of a command sent to each other, by kind. */
#include "cli.h"

#include "tessera/advanced/collectives.h"

static void sent_json(cli *c, const int64_t *bytes, const int64_t *messages)
{
    json_t *all = json_object();
    for (int kind = 0; kind < TESS_TRAFFIC_COUNT; kind++) {
        json_t *one = json_object();
        out_set(c, one, "bytes", json_integer(bytes[kind]));
        out_set(c, one, "messages", json_integer(messages[kind]));
        out_set(c, all, tess_traffic_name((tess_traffic_kind)kind), one);
    }
    out_set(c, c->json, "sent", all);
}

tess_status world_sent(cli *c, const char *label, const tess_comm_counts *mine)
{
    int64_t all[2 * TESS_TRAFFIC_COUNT], *const messages = all + TESS_TRAFFIC_COUNT, sum = 0;
    if (!c->comm || c->ranks < 2)
        return TESS_OK;
    for (int kind = 0; kind < TESS_TRAFFIC_COUNT; kind++) {
        all[kind] = mine->bytes[kind];
        messages[kind] = mine->messages[kind];
    }
    TRY(tess_comm_allreduce(c->comm, TESS_TRAFFIC_CONTROL, all, 2 * TESS_TRAFFIC_COUNT,
                            TESS_DTYPE_I64, TESS_REDUCE_SUM));
    if (c->json) {
        sent_json(c, all, messages);
        return TESS_OK;
    }
    for (int kind = 0; kind < TESS_TRAFFIC_COUNT; kind++) {
        char text[32];
        fprintf(c->out, "%s%s %s", kind ? ", " : label, out_bytes(all[kind], text),
                tess_traffic_name((tess_traffic_kind)kind));
        sum += messages[kind];
    }
    fprintf(c->out, " in %lld messages\n", (long long)sum);
    return TESS_OK;
}
