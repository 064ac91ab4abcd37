/* SPDX-License-Identifier: Apache-2.0 */
/* tessera.h - every stable header of libtessera at once (those of libtessera_train and
 * libtessera_mpi belong to their libraries). */
#ifndef TESSERA_TESSERA_H
#define TESSERA_TESSERA_H

#include "attn.h"
#include "base.h"
#include "cluster.h"
#include "comm.h"
#include "cp.h"
#include "dist_attn.h"
#include "file.h"
#include "plan.h"
#include "report.h"
#include "scenario.h"
#include "select.h"
#include "selector.h"
#include "sim.h"
#include "strategy.h"

#endif
