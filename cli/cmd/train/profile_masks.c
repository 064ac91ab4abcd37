/* SPDX-License-Identifier: Apache-2.0 */
/* profile_masks.c - maps of the keys that a few heads attend to on a clip.
 *
 * Heads are chosen by their mean density over noise levels: the sparsest, the median, the densest.
 * The queries are the group whose pixels differ most from the clip's mean colour, among the middle
 * frames: an object, where there is one. Mass is the mean of the group's softmaxes in double
 * precision; the selections are the selectors' own.
 */
#include "cmd_profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- which heads ----------------------------------------------------------------------------- */

typedef struct {
    int layer, head;
    double density;
} candidate;

static int by_density(const void *a, const void *b)
{
    const double x = ((const candidate *)a)->density, y = ((const candidate *)b)->density;
    return (x > y) - (x < y);
}

static void add_head(profile_job *j, const candidate *chosen, const char *why)
{
    for (int i = 0; i < j->n_heads; i++)
        if (j->heads[i].layer == chosen->layer && j->heads[i].head == chosen->head)
            return;
    j->heads[j->n_heads++] =
        (profile_head){.layer = chosen->layer, .head = chosen->head, .why = why};
}

static tess_status choose_heads(profile_job *j)
{
    const int layers = j->config.layers, heads = j->config.heads;
    const double *density = j->points[j->n_points - 1].density;
    if (j->v->layer >= layers || j->v->head >= heads)
        return out_usage(j->c, "--layer is %lld, --head is %lld, the model has %d layers of %d",
                         (long long)j->v->layer, (long long)j->v->head, layers, heads);
    candidate *list = malloc((size_t)layers * (size_t)heads * sizeof *list);
    if (!list)
        return out_fail(j->c, TESS_ENOMEM, "no memory for %d heads", layers * heads);
    int n = 0;
    for (int i = 0; i < layers * heads; i++) {
        double sum = 0;
        for (int level = 0; level < PROFILE_LEVELS; level++)
            sum += density[level * layers * heads + i];
        if ((j->v->layer < 0 || i / heads == j->v->layer) &&
            (j->v->head < 0 || i % heads == j->v->head))
            list[n++] = (candidate){i / heads, i % heads, sum};
    }
    qsort(list, (size_t)n, sizeof *list, by_density);
    add_head(j, &list[0], n == 1 ? "the one asked for" : "the sparsest");
    add_head(j, &list[n / 2], "the median");
    add_head(j, &list[n - 1], "the densest");
    free(list);
    return TESS_OK;
}

/* ---- which queries --------------------------------------------------------------------------- */

static tess_status make_pixels(profile_job *j)
{
    const tess_data_info *d = &j->info;
    if (d->channels != 3 * d->pack * d->pack)
        return TESS_OK;
    j->pixels =
        malloc((size_t)d->channels * (size_t)d->frames * (size_t)d->height * (size_t)d->width);
    if (!j->pixels)
        return out_fail(j->c, TESS_ENOMEM, "no memory for the clip");
    return tess_data_pixels(d, j->clip, j->pixels);
}

/* How far the pixels of a token lie from a colour. */
static double token_contrast(const profile_job *j, int64_t raster, const double colour[3])
{
    const int *grid = j->probe.grid, height = j->info.height * j->info.pack,
              width = j->info.width * j->info.pack;
    const int f = (int)(raster / (grid[1] * grid[2])), y = (int)(raster / grid[2] % grid[1]),
              x = (int)(raster % grid[2]);
    const int rows = height / grid[1], columns = width / grid[2];
    const int frame = (int)((int64_t)f * j->info.frames / grid[0]);
    double sum = 0;
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++)
            for (int i = 0; i < 3; i++) {
                const int64_t row = (int64_t)frame * height + y * rows + r;
                sum += fabs(j->pixels[3 * (row * width + x * columns + c) + i] - colour[i]);
            }
    return sum / (rows * columns);
}

static int32_t choose_group(const profile_job *j)
{
    const profile_order *o = &j->probe.orders[0];
    if (!j->pixels)
        return o->groups / 2;
    const int64_t n =
        (int64_t)j->info.frames * j->info.height * j->info.width * j->info.pack * j->info.pack;
    double colour[3] = {0, 0, 0}, most = -1;
    for (int64_t i = 0; i < 3 * n; i++)
        colour[i % 3] += j->pixels[i] / (double)n;
    int32_t best = 0;
    for (int32_t g = o->groups / 3; g < (2 * o->groups + 2) / 3; g++) {
        double sum = 0;
        for (int64_t i = o->bounds[g]; i < o->bounds[g + 1]; i++)
            sum += token_contrast(j, j->probe.raster[i], colour);
        sum /= (double)(o->bounds[g + 1] - o->bounds[g]);
        if (sum > most) {
            most = sum;
            best = g;
        }
    }
    return best;
}

/* ---- which keys ------------------------------------------------------------------------------ */

typedef struct {
    profile_job *j;
    int32_t group;
} viewer;

/* Rows of one head of the first sample. */
static tess_view head_of(const tess_view *all, int head)
{
    tess_view one = *all;
    one.data = (float *)all->data + head * all->stride_h;
    return one;
}

static double dot(const float *a, const float *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (double)a[i] * b[i];
    return sum;
}

/* Adds the softmax of one query, times share, to mass in raster order. */
static void add_softmax(const profile_probe *p, const tess_view *q, const tess_view *k, int64_t row,
                        double share, float *mass)
{
    const float *query = (const float *)q->data + row * q->stride_s, *keys = k->data;
    const double scale = 1 / sqrt(p->head_dim);
    double high = -INFINITY, sum = 0;
    for (int64_t i = 0; i < p->tokens; i++)
        high = fmax(high, scale * dot(query, keys + i * k->stride_s, p->head_dim));
    for (int64_t i = 0; i < p->tokens; i++)
        sum += exp(scale * dot(query, keys + i * k->stride_s, p->head_dim) - high);
    for (int64_t i = 0; i < p->tokens; i++)
        mass[p->raster[i]] +=
            (float)(share / sum *
                    exp(scale * dot(query, keys + i * k->stride_s, p->head_dim) - high));
}

/* Marks the keys that a selector chooses for the group, in raster order; *keys is their number. */
static tess_status mark(const viewer *w, tess_select_kind kind, const tess_select_in *in,
                        uint8_t *marks, int32_t *keys)
{
    const profile_probe *p = &w->j->probe;
    const tess_sel_shape groups = profile_groups(p, &p->orders[0], 1, 1);
    tess_selector *selector = NULL;
    tess_selection *sel = NULL;
    tess_selection_lists lists;
    int64_t capacity;
    tess_status status = tess_selector_create(
        p->ctx, &(tess_selector_opts){.kind = kind, .proxy = p->proxy}, &selector);
    if (status == TESS_OK)
        status = tess_selector_capacity(selector, &groups, in, &capacity);
    if (status == TESS_OK)
        status = tess_selection_create(p->ctx, &groups, capacity, &sel);
    if (status == TESS_OK)
        status = tess_selector_run(selector, in, sel);
    if (status == TESS_OK)
        status = tess_selection_view(sel, &lists);
    if (status == TESS_OK) {
        const int64_t begin = lists.offsets[w->group], end = lists.offsets[w->group + 1];
        for (int64_t i = begin; i < end; i++)
            marks[p->raster[lists.indices[i]]] = 1;
        *keys = (int32_t)(end - begin);
    }
    tess_selection_destroy(sel);
    tess_selector_destroy(selector);
    return status;
}

static tess_status measure_head(const viewer *w, const tess_hook_in *hook, profile_head *head)
{
    const profile_probe *p = &w->j->probe;
    const profile_order *o = &p->orders[0];
    const tess_view q = head_of(hook->q, head->head), k = head_of(hook->k, head->head);
    const int64_t begin = o->bounds[w->group], end = o->bounds[w->group + 1];
    const size_t n = (size_t)p->tokens;
    head->mass = calloc(n, sizeof *head->mass);
    head->query = calloc(n, 1);
    head->oracle = calloc(n, 1);
    head->predicted = calloc(n, 1);
    if (!head->mass || !head->query || !head->oracle || !head->predicted)
        return out_fail(w->j->c, TESS_ENOMEM, "no memory for %zu tokens", n);
    for (int64_t i = begin; i < end; i++) {
        head->query[p->raster[i]] = 1;
        add_softmax(p, &q, &k, i, 1 / (double)(end - begin), head->mass);
    }
    tess_select_in in = {.q = &q, .k = &k, .head_dim = p->head_dim, .budget = {.mass = p->mass}};
    int32_t keys;
    TRY(mark(w, TESS_SELECT_ORACLE, &in, head->oracle, &keys));
    if (!hook->q_low)
        return TESS_OK;
    const tess_view low_q = head_of(hook->q_low, head->head),
                    low_k = head_of(hook->k_low, head->head);
    in = (tess_select_in){
        .q = &low_q, .k = &low_k, .head_dim = hook->proj_dim, .budget = {.keys = keys}};
    head->has_predicted = 1;
    return mark(w, TESS_SELECT_PREDICTOR, &in, head->predicted, &keys);
}

static tess_status hook(void *user, const tess_hook_in *hook)
{
    const viewer *w = user;
    for (int i = 0; i < w->j->n_heads; i++)
        if (w->j->heads[i].layer == hook->layer)
            TRY(measure_head(w, hook, &w->j->heads[i]));
    return TESS_OK;
}

tess_status profile_masks(profile_job *j, profile_engine *e)
{
    viewer w = {.j = j};
    TRY(choose_heads(j));
    j->mask_noise = isnan(j->v->noise) ? profile_level(j, 1.5 / PROFILE_LEVELS) : j->v->noise;
    for (int i = 0; i < j->probe.batch; i++)
        j->levels[i] = j->mask_noise;
    TRY(profile_batch(j, 0, j->probe.batch, j->levels));
    TRY(make_pixels(j));
    w.group = choose_group(j);
    for (int i = 0; i < j->config.layers; i++) {
        e->layers[i].hook = 0;
        for (int h = 0; h < j->n_heads; h++)
            e->layers[i].hook |= j->heads[h].layer == i;
    }
    TRY(tess_pass_attend(
        e->pass,
        &(tess_attend){.layers = e->layers, .predictor = e->predictor, .hook = hook, .user = &w}));
    return tess_pass_forward(e->pass, &(tess_model_in){j->x, j->timestep, j->text}, j->out);
}
