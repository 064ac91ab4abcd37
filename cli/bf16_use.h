/* SPDX-License-Identifier: Apache-2.0 */
/* bf16_use.h - what products in bf16 come to on this machine, as a sentence of reports. */
#ifndef TESS_CLI_BF16_USE_H
#define TESS_CLI_BF16_USE_H

#include "cli.h"
#include "tessera/advanced/machine.h"

enum { PRECISION_TEXT = 320 };

/* "products in bf16 by avx512-bf16", or that and why they are in fp32. */
tess_status precision_text(cli *c, tess_bf16_use *use, char text[PRECISION_TEXT]);

/* Adds the members precision, and of bf16 products and products_isa, to a report. */
tess_status precision_json(cli *c, json_t *object, tess_precision precision);

#endif
