# The shipped clusters, share/clusters/*.json, as a C table in the build folder: a name works without
# a path, and the files are the only place where the numbers are written.
file(GLOB cluster_files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/share/clusters/*.json)
list(SORT cluster_files)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${cluster_files})
set(cluster_texts "")
set(cluster_rows "")
foreach(path ${cluster_files})
  get_filename_component(name ${path} NAME_WLE)
  string(MAKE_C_IDENTIFIER text_${name} symbol)
  file(READ ${path} hex HEX)
  string(REGEX REPLACE "(................................)" "\\1\n   " hex "${hex}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" " 0x\\1," hex "${hex}")
  string(APPEND cluster_texts "static const unsigned char ${symbol}[] = {\n   ${hex}};\n\n")
  string(APPEND cluster_rows "    {\"${name}\", ${symbol}, sizeof ${symbol}},\n")
endforeach()
set(TESS_CLUSTERS_SOURCE ${PROJECT_BINARY_DIR}/generated/clusters_shipped.c)
file(CONFIGURE OUTPUT ${TESS_CLUSTERS_SOURCE} @ONLY CONTENT [[
/* clusters_shipped.c - made by cmake/clusters.cmake from share/clusters. */
#include "cost/cost.h"

@cluster_texts@const tess__shipped_cluster tess__shipped_clusters[] = {
@cluster_rows@};
const int tess__n_shipped_clusters =
    (int)(sizeof tess__shipped_clusters / sizeof tess__shipped_clusters[0]);
]])
