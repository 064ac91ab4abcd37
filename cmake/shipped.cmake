# The shipped JSON files of share/ as C tables in the build folder: a name works without a path, and
# the files are the only place where the numbers are written.
#
# tess_ship(folder): share/<folder>/*.json, ascending by name, becomes tess__shipped_<folder>[] and
# tess__n_shipped_<folder>; the source is appended to TESS_SHIPPED_SOURCES.
function(tess_ship folder)
  file(GLOB files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/share/${folder}/*.json)
  list(SORT files)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${files})
  set(texts "")
  set(rows "")
  foreach(path ${files})
    get_filename_component(name ${path} NAME_WLE)
    string(MAKE_C_IDENTIFIER text_${name} symbol)
    file(READ ${path} hex HEX)
    string(REGEX REPLACE "(................................)" "\\1\n   " hex "${hex}")
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" " 0x\\1," hex "${hex}")
    string(APPEND texts "static const unsigned char ${symbol}[] = {\n   ${hex}};\n\n")
    string(APPEND rows "    {\"${name}\", ${symbol}, sizeof ${symbol}},\n")
  endforeach()
  set(source ${PROJECT_BINARY_DIR}/generated/shipped_${folder}.c)
  file(CONFIGURE OUTPUT ${source} @ONLY CONTENT [[
/* shipped_@folder@.c - made by cmake/shipped.cmake from share/@folder@. */
#include "base/base_internal.h"

@texts@const tess__shipped tess__shipped_@folder@[] = {
@rows@};
const int tess__n_shipped_@folder@ =
    (int)(sizeof tess__shipped_@folder@ / sizeof tess__shipped_@folder@[0]);
]])
  set(TESS_SHIPPED_SOURCES ${TESS_SHIPPED_SOURCES} ${source} PARENT_SCOPE)
endfunction()

tess_ship(clusters)
tess_ship(simulator)
tess_ship(models)
tess_ship(scenarios)
tess_ship(tables)
