/* SPDX-License-Identifier: Apache-2.0 */
/* bf16_use.c - what products in bf16 come to on this machine, as a sentence of reports. */
#include "bf16_use.h"

tess_status precision_text(cli *c, tess_bf16_use *use, char text[PRECISION_TEXT])
{
    TRY(tess_bf16_query(c->ctx, use));
    if (use->precision == TESS_PRECISION_BF16)
        snprintf(text, PRECISION_TEXT, "products in bf16 by %s", use->isa);
    else
        snprintf(text, PRECISION_TEXT, "products in fp32 by %s, bf16 is storage alone: %s",
                 use->isa, use->why);
    return TESS_OK;
}

tess_status precision_json(cli *c, json_t *object, tess_precision precision)
{
    tess_bf16_use use;
    char text[PRECISION_TEXT];
    out_set(c, object, "precision",
            json_string(precision == TESS_PRECISION_BF16 ? "bf16" : "fp32"));
    if (precision != TESS_PRECISION_BF16)
        return TESS_OK;
    TRY(precision_text(c, &use, text));
    out_set(c, object, "products", json_string(text));
    out_set(c, object, "products_isa", json_string(use.isa));
    return TESS_OK;
}
