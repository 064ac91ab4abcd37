/* SPDX-License-Identifier: Apache-2.0 */
/* profile_mask.c - what one group of queries attends to, as the page of a profile draws it.
 *
 *   {"layer":..,"head":..,"why":"..","step":..,"noise":..,"grid":[f,y,x],"frames":[token frames],
 *    "height":..,"width":..,"pixels":"base64 rgb" or null,"query":"base64","mass":"base64",
 *    "oracle":"base64","predicted":"base64" or null,"keys":..,"found":..}
 *
 * Arrays are bytes over the tokens of the frames shown, which are at most FRAMES_MAX, spread over
 * the clip, that of the queries among them. Pictures are shrunk to at most SIDE_MAX on a side by
 * leaving pixels out. Mass is shown as its square root, for a few keys hold most of it. found is
 * the fraction of the oracle's mass that the predictor's keys hold.
 */
#include "profile_page.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FRAMES_MAX = 10, SIDE_MAX = 160, TOKENS_MAX = 1 << 22 };

typedef struct {
    const tess_profile_mask *m;
    int frames[FRAMES_MAX]; /* token frames shown, ascending */
    int n;
    size_t side; /* tokens of a frame */
} shown;

static tess_status check(const tess_profile_report *r, const tess_profile_mask *m)
{
    static const char who[] = "tess_profile_report_mask";
    if (!m->query || !m->mass || !m->oracle)
        return tess__invalid(who, "%s is NULL", !m->query ? "query" : !m->mass ? "mass" : "oracle");
    if (m->layer < 0 || m->layer >= r->opts.layers || m->head < 0 || m->head >= r->opts.heads)
        return tess__invalid(who, "layer %d, head %d, must be below %d and %d", m->layer, m->head,
                             r->opts.layers, r->opts.heads);
    int64_t tokens = 1;
    for (int i = 0; i < 3; i++) {
        if (m->grid[i] < 1 || m->grid[i] > TOKENS_MAX / tokens)
            return tess__invalid(who, "the grid is %d x %d x %d, must have 1..%d tokens",
                                 m->grid[0], m->grid[1], m->grid[2], TOKENS_MAX);
        tokens *= m->grid[i];
    }
    if (m->pixels && (m->frames < 1 || m->height < 1 || m->width < 1))
        return tess__invalid(who, "the clip is %d x %d x %d, must be 1 or more", m->frames,
                             m->height, m->width);
    return TESS_OK;
}

/* The frame that holds most of the queries. */
static int query_frame(const tess_profile_mask *m, size_t side)
{
    int best = 0, most = -1;
    for (int f = 0; f < m->grid[0]; f++) {
        int count = 0;
        for (size_t i = 0; i < side; i++)
            count += m->query[(size_t)f * side + i] != 0;
        if (count > most) {
            most = count;
            best = f;
        }
    }
    return best;
}

static void choose_frames(shown *s)
{
    const int all = s->m->grid[0], query = query_frame(s->m, s->side);
    s->n = TESS_MIN(all, FRAMES_MAX);
    int nearest = 0;
    for (int i = 0; i < s->n; i++) {
        s->frames[i] = s->n > 1 ? (int)((int64_t)i * (all - 1) / (s->n - 1)) : 0;
        if (abs(s->frames[i] - query) < abs(s->frames[nearest] - query))
            nearest = i;
    }
    s->frames[nearest] = query;
}

static void add_bytes(tess__jw *w, const char *key, const shown *s, const uint8_t *bytes)
{
    tess__markup all = {.ctx = ((tess__markup *)w->to)->ctx};
    for (int i = 0; i < s->n; i++)
        tess__markup_add(&all, (const char *)bytes + (size_t)s->frames[i] * s->side, s->side);
    tess__markup_bytes(w, key, all.data, all.status ? 0 : all.size);
    w->status = w->status ? w->status : all.status;
    tess__markup_free(&all);
}

static void add_mass(tess__jw *w, const shown *s)
{
    tess_ctx *ctx = ((tess__markup *)w->to)->ctx;
    const size_t tokens = s->side * (size_t)s->m->grid[0];
    uint8_t *bytes = tess__alloc(ctx, tokens);
    if (!bytes) {
        w->status = w->status ? w->status : TESS_ENOMEM;
        return;
    }
    float most = 0;
    for (size_t i = 0; i < tokens; i++)
        most = TESS_MAX(s->m->mass[i], most);
    for (size_t i = 0; i < tokens; i++)
        bytes[i] = s->m->mass[i] > 0 ? (uint8_t)lrintf(255 * sqrtf(s->m->mass[i] / most)) : 0;
    add_bytes(w, "mass", s, bytes);
    tess__free(ctx, bytes);
}

static void add_pixels(tess__jw *w, const shown *s)
{
    const tess_profile_mask *m = s->m;
    if (!m->pixels) {
        tess__jw_null(w, "pixels");
        return;
    }
    const int stride = (TESS_MAX(m->height, m->width) + SIDE_MAX - 1) / SIDE_MAX;
    tess__markup all = {.ctx = ((tess__markup *)w->to)->ctx};
    for (int i = 0; i < s->n; i++) {
        const int64_t frame = (int64_t)s->frames[i] * m->frames / m->grid[0];
        for (int y = 0; y < m->height; y += stride)
            for (int x = 0; x < m->width; x += stride)
                tess__markup_add(
                    &all, (const char *)m->pixels + 3 * ((frame * m->height + y) * m->width + x),
                    3);
    }
    tess__jw_int(w, "height", (m->height + stride - 1) / stride);
    tess__jw_int(w, "width", (m->width + stride - 1) / stride);
    tess__markup_bytes(w, "pixels", all.data, all.status ? 0 : all.size);
    w->status = w->status ? w->status : all.status;
    tess__markup_free(&all);
}

static void add_mask(tess__jw *w, const shown *s)
{
    const tess_profile_mask *m = s->m;
    double oracle = 0, found = 0;
    int64_t keys = 0;
    for (size_t i = 0; i < s->side * (size_t)m->grid[0]; i++) {
        keys += m->oracle[i] != 0;
        oracle += m->oracle[i] ? m->mass[i] : 0;
        found += m->predicted && m->predicted[i] ? m->mass[i] : 0;
    }
    tess__jw_begin(w, NULL, '{');
    tess__jw_int(w, "layer", m->layer);
    tess__jw_int(w, "head", m->head);
    tess__jw_text(w, "why", m->why ? m->why : "");
    tess__jw_int(w, "step", m->step);
    w->digits = 4;
    tess__jw_real(w, "noise", m->noise);
    w->digits = 5;
    tess__jw_row_i32(w, "grid", m->grid, 3);
    tess__jw_int(w, "keys", keys);
    tess__jw_real(w, "oracle_mass", oracle);
    tess__jw_row_i32(w, "frames", s->frames, (size_t)s->n);
    add_pixels(w, s);
    add_bytes(w, "query", s, m->query);
    add_mass(w, s);
    add_bytes(w, "oracle", s, m->oracle);
    if (m->predicted) {
        add_bytes(w, "predicted", s, m->predicted);
        tess__jw_real(w, "found", oracle > 0 ? found / oracle : 0);
    }
    tess__jw_end(w, '}');
}

tess_status tess_profile_report_mask(tess_profile_report *report, const tess_profile_mask *mask)
{
    TESS_REQUIRE(report, mask);
    TESS_TRY(check(report, mask));
    shown s = {.m = mask, .side = (size_t)mask->grid[1] * (size_t)mask->grid[2]};
    choose_frames(&s);
    tess__jw w = tess__markup_json(&report->masks, 5);
    add_mask(&w, &s);
    report->masks.status = tess__jw_finish(&w);
    TESS_TRY(report->masks.status);
    report->n_masks++;
    return TESS_OK;
}
