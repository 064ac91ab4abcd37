/* SPDX-License-Identifier: Apache-2.0 */
/* interval_read.c - "interval" of the file of parameters.
 *
 *   {"step": {"loss": spread, "residual": spread, "experts": spread, input: spread, ...},
 *    "memory": {"residual": spread, part: spread, ...},
 *    "other": {"layer", "collective", "product", "overlap": spread}}
 *
 * A spread is [of software that was measured, of other software, origin].
 */
#include "interval_internal.h"

const tess__input_def tess__input_defs[TESS__INPUTS] = {
    [TESS__IN_PRODUCTS] = {"products", "rate of matrix products"},
    [TESS__IN_ATTENTION] = {"attention", "rate of attention's kernels"},
    [TESS__IN_MEMORY] = {"elementwise", "share of the memory bandwidth"},
    [TESS__IN_HOST] = {"host", "host time of layers and micro-batches"},
    [TESS__IN_TP] = {"tp_overlap", "share of tensor-parallel communication that is waited for"},
    [TESS__IN_DP] = {"dp_overlap", "share of a pass that gradients and weights hide behind"},
    [TESS__IN_EP] = {"ep_overlap", "share of the exchange of experts that is waited for"},
    [TESS__IN_PP] = {"pp_overlap", "share of sends between stages that is waited for"},
    [TESS__IN_NETWORK] = {"network", "rate of collectives for gradients"},
    [TESS__IN_OPTIMISER] = {"optimiser", "memory traffic of the optimiser"},
    [TESS__IN_LOSS] = {"loss_traffic", "memory traffic of logits and loss"},
    [TESS__IN_CASTS] = {"casts", "casts to 8 bits, permutation of tokens"},
    [TESS__IN_NODES] = {"nodes", "spread of nodes, jitter of hosts, loss of the network"},
    [TESS__IN_POWER] = {"power", "power limit of the GPU, where the cluster states none"},
};

const tess__input_def tess__room_defs[TESS__ROOMS] = {
    [TESS__ROOM_STATE] = {"state", "weights, gradients, optimiser"},
    [TESS__ROOM_ACTIVATIONS] = {"activations", "what operations keep for the backward pass"},
    [TESS__ROOM_WORKING] = {"working", "of the layer or LM head that is computed"},
    [TESS__ROOM_BUFFERS] = {"buffers", "communication, gathered weights"},
    [TESS__ROOM_RESERVED] = {"reserved", "context, libraries, fragments of the allocator"},
};

const tess__input_def tess__residual_def = {"residual", "what no input explains"};
const tess__input_def tess__experts_def = {"experts", "dispatch and products of experts"};

static tess_status read_spread(const tess__json_node *object, const char *name, tess__arena *arena,
                               tess__spread *spread)
{
    tess__json_node list;
    size_t n = 0;
    TESS_TRY(tess__json_array(tess__json_member(object, name), 3, 3, &list, &n));
    TESS_TRY(tess__json_double(tess__json_element(&list, 0), -1.0, 2.0, &spread->value[1]));
    TESS_TRY(tess__json_double(tess__json_element(&list, 1), -1.0, 2.0, &spread->value[0]));
    return tess__json_text(tess__json_element(&list, 2), arena, &spread->origin);
}

/* An object with these members, all of which must be there. */
static tess_status read_spreads(tess__json_node node, const char *const *names,
                                tess__spread *const *spreads, int n, tess__arena *arena)
{
    tess__json_node object;
    TESS_TRY(tess__json_object(node, names, n, &object));
    for (int i = 0; i < n; i++)
        TESS_TRY(read_spread(&object, names[i], arena, spreads[i]));
    return TESS_OK;
}

tess_status tess__interval_read(tess__interval_params *params, tess__arena *arena,
                                tess__json_node node)
{
    static const char *const members[] = {"step", "memory", "other"};
    static const char *const others[] = {"layer", "collective", "product", "overlap"};
    const char *steps[TESS__INPUTS + 3] = {"loss", "residual", "experts"};
    const char *rooms[TESS__ROOMS + 1] = {"residual"};
    tess__spread *of_step[TESS__INPUTS + 3] = {&params->loss, &params->residual, &params->experts};
    tess__spread *of_memory[TESS__ROOMS + 1] = {&params->memory_residual};
    tess__spread *of_others[TESS__OTHERS];
    tess__json_node all;
    if (!node.value)
        return TESS_OK;
    for (int i = 0; i < TESS__INPUTS; i++) {
        steps[i + 3] = tess__input_defs[i].name;
        of_step[i + 3] = &params->inputs[i];
    }
    for (int i = 0; i < TESS__ROOMS; i++) {
        rooms[i + 1] = tess__room_defs[i].name;
        of_memory[i + 1] = &params->rooms[i];
    }
    for (int i = 0; i < TESS__OTHERS; i++)
        of_others[i] = &params->others[i];
    TESS_TRY(tess__json_object(node, members, 3, &all));
    TESS_TRY(
        read_spreads(tess__json_member(&all, "step"), steps, of_step, TESS__INPUTS + 3, arena));
    TESS_TRY(
        read_spreads(tess__json_member(&all, "memory"), rooms, of_memory, TESS__ROOMS + 1, arena));
    TESS_TRY(
        read_spreads(tess__json_member(&all, "other"), others, of_others, TESS__OTHERS, arena));
    params->given = 1;
    return TESS_OK;
}
