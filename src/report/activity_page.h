/* SPDX-License-Identifier: Apache-2.0 */
/* activity_page.h - what the files of the page of traces share. */
#ifndef TESS_ACTIVITY_PAGE_H
#define TESS_ACTIVITY_PAGE_H

#include "report_internal.h"
#include "tessera/advanced/activity_report.h"

/* call_table.c: the member "calls": collectives of all files by operation, ranks of the process
 * group and bytes, most time first: [op, ranks, bytes, calls, total, shortest, median, longest],
 * times in ms; -1: not known. */
tess_status tess__page_calls(tess_ctx *ctx, const tess_activity *const *files, int n, tess__jw *w);

#endif
