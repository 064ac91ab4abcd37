/* SPDX-License-Identifier: Apache-2.0 */
/* listing.h - the names that a scenario may use: software, models, clusters, scenarios.
 *
 * Software comes from the parameters of the simulator, the others from the shipped files: a
 * listing has no names of its own.
 *
 * Advanced: functions and structs may change in any version.
 */
#ifndef TESSERA_LISTING_H
#define TESSERA_LISTING_H

#include "../sim.h"

TESS_BEGIN_DECLS

typedef enum {
    TESS_LISTING_SOFTWARE,
    TESS_LISTING_MODELS,
    TESS_LISTING_CLUSTERS,
    TESS_LISTING_SCENARIOS,
    TESS_LISTINGS
} tess_listing_kind;

/* Strings live as long as the listing. */
typedef struct {
    const char *name;
    const char *about;  /* what it is; of a model where its sizes are published */
    const char *family; /* of a model: its file; "" of others */
    int is_default;     /* 1: taken where a scenario names none */
} tess_listing_entry;

typedef struct tess_listing tess_listing;

/* params: those whose software is listed; NULL: the shipped ones. Names are in the order of their
 * file, files ascending. */
TESS_API tess_status tess_listing_create(tess_ctx *ctx, tess_listing_kind kind,
                                         const tess_sim_params *params, tess_listing **listing);
TESS_API void tess_listing_destroy(tess_listing *listing);
TESS_API int tess_listing_count(const tess_listing *listing); /* 0 of NULL */
TESS_API tess_status tess_listing_query(const tess_listing *listing, int index,
                                        tess_listing_entry *entry);

TESS_END_DECLS

#endif
