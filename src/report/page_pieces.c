/* SPDX-License-Identifier: Apache-2.0 */
/* page_pieces.c - the steps and layers that the page of a plan draws: as many as fit into it.
 *
 * Steps are added one by one, and how many there will be is not known. When there are too many
 * bytes, every second step that is there goes, and of a single step every second layer. So what
 * stays is spread evenly, and at least half as much as fits.
 */
#include "plan_page.h"

int tess__pieces_wants(const tess__page_pieces *d, int64_t step, int layer)
{
    return step % d->each_step == 0 && (layer < 0 || layer % d->each_layer == 0);
}

tess_status tess__pieces_add(tess__page_pieces *d, int64_t step, int layer, tess__markup *text)
{
    TESS_TRY(text->status);
    TESS_GROW(d->ctx, d->pieces, d->n, d->n + 1, d->room);
    d->pieces[d->n++] = (tess__page_piece){step, layer, *text};
    d->bytes += (int64_t)text->size;
    *text = (tess__markup){.ctx = d->ctx};
    return TESS_OK;
}

void tess__pieces_cut(tess__page_pieces *d, int64_t n)
{
    while (d->n > n) {
        d->bytes -= (int64_t)d->pieces[--d->n].text.size;
        tess__markup_free(&d->pieces[d->n].text);
    }
}

static void drop_unwanted(tess__page_pieces *d)
{
    int64_t n = 0;
    for (int64_t i = 0; i < d->n; i++) {
        tess__page_piece *piece = &d->pieces[i];
        if (tess__pieces_wants(d, piece->step, piece->layer)) {
            d->pieces[n++] = *piece;
            continue;
        }
        d->bytes -= (int64_t)piece->text.size;
        tess__markup_free(&piece->text);
    }
    d->n = n;
}

void tess__pieces_thin(tess__page_pieces *d, int64_t bytes)
{
    while (d->bytes > bytes) {
        const tess__page_piece *last = &d->pieces[d->n - 1];
        if (last->step > 0)
            d->each_step *= 2;
        else if (last->layer > 0)
            d->each_layer *= 2;
        else
            return;
        drop_unwanted(d);
    }
}

static void add_list(const tess__page_pieces *d, int steps, const char *key, tess__jw *w)
{
    tess__markup list = {.ctx = d->ctx};
    for (int64_t i = 0; i < d->n; i++) {
        const tess__markup *text = &d->pieces[i].text;
        if ((d->pieces[i].layer < 0) != steps)
            continue;
        if (list.size)
            tess__markup_add(&list, ",", 1);
        tess__markup_add(&list, text->data, text->size);
    }
    tess__jw_elements(w, key, list.data ? list.data : "", list.size);
    w->status = w->status ? w->status : list.status;
    tess__markup_free(&list);
}

void tess__pieces_write(const tess__page_pieces *d, tess__jw *w)
{
    add_list(d, 1, "shown", w);
    add_list(d, 0, "details", w);
}

void tess__pieces_free(tess__page_pieces *d)
{
    tess__pieces_cut(d, 0);
    tess__free(d->ctx, d->pieces);
}
