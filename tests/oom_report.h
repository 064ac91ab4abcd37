/* SPDX-License-Identifier: Apache-2.0 */
/* oom_report.h - out of memory in the calls that read runs and write pages. */
#ifndef TESS_OOM_REPORT_H
#define TESS_OOM_REPORT_H

#include "oom.h"

#include "tessera/advanced/compare.h"
#include "tessera/advanced/profile_report.h"
#include "tessera/report.h"

static tess_status s_compare(world *w)
{
    char path[2][512];
    snprintf(path[0], sizeof path[0], "%s", in_folder("run"));
    snprintf(path[1], sizeof path[1], "%s", in_folder("compare.html"));
    const tess_compare_run runs[] = {{path[0], NULL}, {path[0], "again"}};
    tess_compare *compare = NULL;
    tess_status status = tess_compare_create(w->ctx, runs, 2, NULL, &compare);
    if (status == TESS_OK)
        status = tess_compare_write(compare, path[1]);
    tess_compare_destroy(compare);
    return status;
}

static tess_status s_report_run(world *w)
{
    char path[2][512];
    snprintf(path[0], sizeof path[0], "%s", in_folder("run"));
    snprintf(path[1], sizeof path[1], "%s", in_folder("run.html"));
    return tess_report_run(w->ctx, path[0], path[1]);
}

static tess_status s_profile_page(world *w)
{
    static const double density[] = {0.25};
    static const uint8_t some[] = {1, 0}, pixels[2 * 3] = {255};
    static const float mass[] = {0.75f, 0.25f};
    const tess_profile_map map = {.noise_high = 1, .density = density, .recall = density};
    const tess_profile_mask mask = {.grid = {1, 1, 2},
                                    .frames = 1,
                                    .height = 1,
                                    .width = 2,
                                    .pixels = pixels,
                                    .query = some,
                                    .mass = mass,
                                    .oracle = some,
                                    .predicted = some};
    tess_profile_report *report = NULL;
    tess_status status = tess_profile_report_create(
        w->ctx,
        &(tess_profile_report_opts){.layers = 1, .heads = 1, .input = "a run", .command = "c"},
        &report);
    if (status == TESS_OK)
        status = tess_profile_report_add(report, &map);
    if (status == TESS_OK)
        status = tess_profile_report_cube(report, &(tess_profile_cube){{1, 1, 1}, 1, 1});
    if (status == TESS_OK)
        status = tess_profile_report_mask(report, &mask);
    if (status == TESS_OK)
        status = tess_profile_report_write(report, in_folder("profile.html"));
    tess_profile_report_destroy(report);
    return status;
}

/* The folder of a run, as small as there are. */
static void write_run(void)
{
    static const char *const files[][2] = {
        {"run/metrics.jsonl", "{\"step\": 1, \"loss\": 1, \"step_ms\": 5, \"val_loss\": 2}\n"},
        {"run/settings.json", "{\"seed\": 1, \"attention\": \"dsv\"}"},
        {"run/events.jsonl", "{\"step\": 1, \"event\": \"switch\"}\n"}};
    assert_int_equal(mkdir(in_folder("run"), 0777), 0);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        FILE *f = fopen(in_folder(files[i][0]), "w");
        assert_non_null(f);
        fputs(files[i][1], f);
        fclose(f);
    }
}

#endif
