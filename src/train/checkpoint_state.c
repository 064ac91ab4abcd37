/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_state.c - state.json of a checkpoint, out and in.
 *
 *   {"format": 1, "version": "0.1.0", "step": 500,
 *    "data": {"kind": "shapes", "position": 2000, "batch": 4},
 *    "random": {"generator": "philox4x32-10", "seed": 0, "step": 500},
 *    "optimiser": "muon", "average": true,
 *    "loss_mean": 0.14, "val_loss": null, "val_buckets": null,
 *    "sample": {"channels": 12, "frames": 8, "height": 16, "width": 16, "pack": 2,
 *               "text_len": 16, "text_dim": 64, "fps": 8, "words": true,
 *               "shift": 2, "guidance": 2}}
 *
 * Random numbers are keyed by seed and step, so these two are the state of the generator. Decisions
 * of sparse attention are in a file of their own, decisions.json.
 */
#include "train_internal.h"

#include "file/json.h"
#include "options/option_check.h"

#include <math.h>

/* ---- out ------------------------------------------------------------------------------------- */

static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *sample_out(const tess_checkpoint *c)
{
    return json_pack("{s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:f,s:b,s:f,s:f}", "channels", c->data.channels,
                     "frames", c->data.frames, "height", c->data.height, "width", c->data.width,
                     "pack", c->data.pack, "text_len", c->data.text_len, "text_dim",
                     c->data.text_dim, "fps", c->data.fps, "words", !c->external, "shift", c->shift,
                     "guidance", c->guidance);
}

static json_t *buckets_out(const tess__state *s)
{
    return isnan(s->val_loss) ? json_null()
                              : json_pack("[f,f,f,f]", s->val_buckets[0], s->val_buckets[1],
                                          s->val_buckets[2], s->val_buckets[3]);
}

tess_status tess__state_write(tess_ctx *ctx, const char *path, const tess__state *state)
{
    const json_int_t step = state->checkpoint.step, position = state->batches * state->batch;
    json_t *value =
        json_pack("{s:i,s:s,s:I,s:{s:s,s:I,s:I},s:{s:s,s:I,s:I},s:s,s:b,s:o,s:o,s:o,s:o}", "format",
                  1, "version", tess_version(), "step", step, "data", "kind",
                  state->checkpoint.kind, "position", position, "batch", (json_int_t)state->batch,
                  "random", "generator", "philox4x32-10", "seed", (json_int_t)state->seed, "step",
                  step, "optimiser", tess__option_words(TESS_OPTIONS_TRAIN, "optim")[state->optim],
                  "average", state->checkpoint.ema, "loss_mean", number(state->loss_mean),
                  "val_loss", number(state->val_loss), "val_buckets", buckets_out(state), "sample",
                  sample_out(&state->checkpoint));
    const tess_status status = tess__json_write(ctx, path, value);
    json_decref(value);
    return status;
}

/* ---- in -------------------------------------------------------------------------------------- */

/* A number, or null for NaN. */
static tess_status number_in(tess__json_node node, double *value)
{
    *value = (double)NAN;
    if (node.value && json_is_null(node.value))
        return TESS_OK;
    return tess__json_double(node, -INFINITY, INFINITY, value);
}

static tess_status buckets_in(tess__json_node node, double *buckets)
{
    tess__json_node array;
    size_t count;
    for (int i = 0; i < TESS_NOISE_BUCKETS; i++)
        buckets[i] = (double)NAN;
    if (node.value && json_is_null(node.value))
        return TESS_OK;
    TESS_TRY(tess__json_array(node, TESS_NOISE_BUCKETS, TESS_NOISE_BUCKETS, &array, &count));
    for (size_t i = 0; i < count; i++)
        TESS_TRY(number_in(tess__json_element(&array, i), &buckets[i]));
    return TESS_OK;
}

static tess_status sample_in(tess__json_node node, tess_checkpoint *c)
{
    tess__json_node o;
    int words;
    TESS_TRY(tess__json_object(node, NULL, 0, &o));
    const struct {
        const char *name;
        int *place, max;
    } sizes[] = {
        {"channels", &c->data.channels, 65536}, {"frames", &c->data.frames, 1 << 20},
        {"height", &c->data.height, 1 << 20},   {"width", &c->data.width, 1 << 20},
        {"pack", &c->data.pack, 256},           {"text_len", &c->data.text_len, 65536},
        {"text_dim", &c->data.text_dim, 65536},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        TESS_TRY(
            tess__json_int(tess__json_member(&o, sizes[i].name), 1, sizes[i].max, sizes[i].place));
    TESS_TRY(tess__json_double(tess__json_member(&o, "fps"), 0, 1e6, &c->data.fps));
    TESS_TRY(tess__json_double(tess__json_member(&o, "shift"), 1e-3, 1e3, &c->shift));
    TESS_TRY(tess__json_double(tess__json_member(&o, "guidance"), -1e3, 1e3, &c->guidance));
    TESS_TRY(tess__json_bool(tess__json_member(&o, "words"), &words));
    c->external = !words;
    return TESS_OK;
}

static tess_status data_in(tess__json_node node, tess__state *s)
{
    tess__json_node o;
    const char *kind;
    int64_t position;
    TESS_TRY(tess__json_object(node, NULL, 0, &o));
    TESS_TRY(tess__json_string(tess__json_member(&o, "kind"), &kind));
    TESS_TRY(tess__json_int64(tess__json_member(&o, "batch"), 1, 65536, &s->batch));
    TESS_TRY(tess__json_int64(tess__json_member(&o, "position"), 0, (int64_t)1 << 52, &position));
    snprintf(s->checkpoint.kind, sizeof s->checkpoint.kind, "%.31s", kind);
    s->batches = position / s->batch;
    return TESS_OK;
}

static tess_status read_root(const tess__json *doc, tess__state *s)
{
    tess__json_node root = tess__json_root(doc), o, random;
    int format;
    TESS_TRY(tess__json_object(root, NULL, 0, &o));
    TESS_TRY(tess__json_int(tess__json_member(&o, "format"), 1, 1, &format));
    TESS_TRY(tess__json_int64(tess__json_member(&o, "step"), 0, 1000000000, &s->checkpoint.step));
    TESS_TRY(data_in(tess__json_member(&o, "data"), s));
    TESS_TRY(tess__json_object(tess__json_member(&o, "random"), NULL, 0, &random));
    TESS_TRY(tess__json_int64(tess__json_member(&random, "seed"), INT64_MIN, INT64_MAX, &s->seed));
    TESS_TRY(tess__json_enum(tess__json_member(&o, "optimiser"),
                             tess__option_words(TESS_OPTIONS_TRAIN, "optim"), 2, &s->optim));
    TESS_TRY(tess__json_bool(tess__json_member(&o, "average"), &s->checkpoint.ema));
    TESS_TRY(number_in(tess__json_member(&o, "loss_mean"), &s->loss_mean));
    TESS_TRY(number_in(tess__json_member(&o, "val_loss"), &s->val_loss));
    TESS_TRY(buckets_in(tess__json_member(&o, "val_buckets"), s->val_buckets));
    return sample_in(tess__json_member(&o, "sample"), &s->checkpoint);
}

tess_status tess__state_read(tess_ctx *ctx, const char *name, const char *text, size_t bytes,
                             tess__state *state)
{
    tess__json doc;
    tess__state read = {.checkpoint = {.step = 0}};
    TESS_TRY(tess__json_open(ctx, name, text, bytes, &doc));
    const tess_status status = read_root(&doc, &read);
    tess__json_close(&doc);
    if (status == TESS_OK)
        *state = read;
    return status;
}
