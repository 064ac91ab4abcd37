/* SPDX-License-Identifier: Apache-2.0 */
/* state_gather.c - the sharded state of the optimiser gathered on rank 0, slot by slot.
 *
 * For checkpoints. It allocates nothing: a slot is sent from the owner's memory into the buffer of
 * the caller on rank 0. One message per slot.
 */
#include "process_group.h"

#include <assert.h>
#include <string.h>

static const float *at_owner(const tess__optim *optim, const tess__optim_slot *own,
                             tess__state_kind kind)
{
    switch (kind) {
    case TESS__STATE_FIRST: return optim->first + own->first;
    case TESS__STATE_SECOND: return optim->second + own->second;
    default: return optim->ema + own->first;
    }
}

/* From the owner to rank 0. */
static tess_status send_slot(const tess__process_group *pg, int owner, const float *from, float *to,
                             int64_t bytes)
{
    tess_request *request = NULL;
    const int sends = pg->rank == owner, takes = pg->rank == 0;
    if (sends && takes) {
        assert(to);
        memcpy(to, from, (size_t)bytes);
        return TESS_OK;
    }
    if (!sends && !takes)
        return TESS_OK;
    TESS_TRY(tess_comm_start_sendrecv(pg->world, TESS_TRAFFIC_PAYLOAD, from, sends ? bytes : 0,
                                      sends ? 0 : -1, to, takes ? bytes : 0, takes ? owner : -1,
                                      &request));
    return tess_comm_wait(pg->world, request);
}

tess_status tess__state_gather(const tess__process_group *pg, const tess__owners *owners,
                               const tess__optim *optim, tess__state_kind kind, float *to)
{
    const tess__optim_slot *own = optim->slots;
    for (int i = 0; i < owners->n_slots; i++) {
        const tess__optim_slot *slot = &owners->slots[i];
        const int mine = owners->owner[i] == pg->rank;
        const tess__optim_slot *mine_at = mine ? own++ : NULL;
        if (kind == TESS__STATE_SECOND && slot->rows != 0)
            continue;
        float *place = to ? to + (kind == TESS__STATE_SECOND ? slot->second : slot->first) : NULL;
        TESS_TRY(send_slot(pg, owners->owner[i], mine ? at_owner(optim, mine_at, kind) : NULL,
                           place, slot->count * (int64_t)sizeof *to));
    }
    return TESS_OK;
}
