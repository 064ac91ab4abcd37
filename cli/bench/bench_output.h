/* SPDX-License-Identifier: Apache-2.0 */
/* bench_output.h - reports of tessera bench: as text, as JSON, beside a baseline. */
#ifndef TESS_CLI_BENCH_OUTPUT_H
#define TESS_CLI_BENCH_OUTPUT_H

#include "baseline.h"

void bench_print(const cli *c, const report *report);
void bench_print_all(const cli *c, const report *reports, int n); /* what several say together */
void bench_json(cli *c, const report *reports, int n);

/* Prints the rows that are slower than the baseline or missing in it; exit code 3 if any. */
void bench_compare(cli *c, const json_t *baseline, const report *reports, int n);

#endif
