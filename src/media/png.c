/* SPDX-License-Identifier: Apache-2.0 */
/* png.c - pictures as PNG files. */
#include "media.h"
