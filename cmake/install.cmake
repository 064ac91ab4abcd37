# Installation: libraries, headers, the command, a CMake package and pkg-config files.
install(TARGETS ${TESS_LIBRARIES} EXPORT tesseraTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS tessera_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})

# Everything finds its libraries wherever the tree is moved to. The build tree has the same search path: where
# the two differ CMake ends the one of the build tree with an empty element, which is the current folder.
file(RELATIVE_PATH bin_to_lib ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
string(REGEX REPLACE "/$" "" bin_to_lib "${bin_to_lib}")
set(cli_rpath "$ORIGIN/../lib" "$ORIGIN/${bin_to_lib}")
list(REMOVE_DUPLICATES cli_rpath)
set_target_properties(tessera_cli PROPERTIES INSTALL_RPATH "${cli_rpath}")
set_target_properties(${TESS_LIBRARIES} PROPERTIES INSTALL_RPATH "$ORIGIN")
# Folders of libraries that lie outside the system's, an own MPI or oneDNN, are kept.
set_target_properties(tessera_cli ${TESS_LIBRARIES} PROPERTIES
                      BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH_USE_LINK_PATH ON)

# The headers of the libraries that were built; advanced/ is installed too.
set(left_out)
if(NOT TARGET tessera_train)
  list(APPEND left_out media.h clip.h data.h dataset.h model.h pass.h sparse.h train.h step.h)
endif()
if(NOT TARGET tessera_mpi)
  list(APPEND left_out mpi.h)
endif()
list(TRANSFORM left_out REPLACE "(.+)" "PATTERN;\\1;EXCLUDE")
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/tessera DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h" ${left_out})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tessera)
install(EXPORT tesseraTargets NAMESPACE tessera:: DESTINATION ${package_dir})
configure_package_config_file(cmake/tesseraConfig.cmake.in ${PROJECT_BINARY_DIR}/tesseraConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tesseraConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tesseraConfig.cmake ${PROJECT_BINARY_DIR}/tesseraConfigVersion.cmake
        DESTINATION ${package_dir})

# Relocatable: found relative to where the .pc file lies, which is one level deeper for each folder
# of a library path like lib/x86_64-linux-gnu.
file(RELATIVE_PATH pc_up ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" pc_up "${pc_up}")

# tess_pc(FILE LIBRARY DESCRIPTION REQUIRES STATIC_REQUIRES STATIC_LIBS): a shared library brings what
# it needs; for a static one the last two are added. They are not .private ones, because those would
# also ask for everything that a static hwloc or libpng needs.
function(tess_pc file library description requires static_requires static_libs)
  if(BUILD_SHARED_LIBS)
    set(static_requires "")
    set(static_libs "")
  endif()
  string(STRIP "${requires} ${static_requires}" requires)
  string(STRIP "-l${library} ${static_libs}" libs)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/${file}.pc @ONLY CONTENT [[
prefix=${pcfiledir}/@pc_up@
libdir=${prefix}/@CMAKE_INSTALL_LIBDIR@
includedir=${prefix}/@CMAKE_INSTALL_INCLUDEDIR@

Name: @file@
Description: @description@
Version: @PROJECT_VERSION@
Requires: @requires@
Libs: -L${libdir} @libs@
Cflags: -I${includedir}
]])
  install(FILES ${PROJECT_BINARY_DIR}/${file}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()

set(core_requires "jansson zlib")
if(TESS_HAVE_HWLOC)
  string(APPEND core_requires " hwloc")
endif()
if(TESS_HAVE_ISAL)
  string(APPEND core_requires " libisal")
endif()
tess_pc(tessera tessera "${PROJECT_DESCRIPTION}" "" "${core_requires}" "${OpenMP_C_FLAGS} -pthread -lm")
if(TARGET tessera_train)
  if(TESS_HAVE_PNG)
    set(media_requires libpng)
  endif()
  if(TESS_HAVE_FFMPEG)
    string(APPEND media_requires " libavformat libavcodec libavutil libswscale")
  endif()
  tess_pc(tessera-train tessera_train "Tessera's training stack" tessera
          "${media_requires}" "-ldnnl -lm")
endif()
if(TARGET tessera_mpi)
  tess_pc(tessera-mpi tessera_mpi "Tessera's communicator over MPI; compile with mpicc" tessera "" "")
endif()
tess_pc(tessera-gpu tessera_gpu "Tessera's sparse attention on GPUs" tessera "" "-ldl -lm")

# The shipped clusters, as models for a user's own; the library has them compiled in.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/share/clusters DESTINATION ${CMAKE_INSTALL_DATADIR}/tessera)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/share/simulator DESTINATION ${CMAKE_INSTALL_DATADIR}/tessera)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/share/models ${PROJECT_SOURCE_DIR}/share/scenarios
        ${PROJECT_SOURCE_DIR}/share/tables ${PROJECT_SOURCE_DIR}/share/measured DESTINATION ${CMAKE_INSTALL_DATADIR}/tessera)

# The manual page and the completions, made from the command's tables.
if(NOT CMAKE_CROSSCOMPILING)
  set(generated ${PROJECT_BINARY_DIR}/cli/generated)
  install(FILES ${generated}/tessera.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(FILES ${generated}/tessera DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES ${generated}/_tessera DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  install(FILES ${generated}/tessera.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()

# `cmake --build build/release --target uninstall` removes what the last installation wrote.
add_custom_target(uninstall COMMAND ${CMAKE_COMMAND} -DMANIFEST=${PROJECT_BINARY_DIR}/install_manifest.txt
                  -P ${PROJECT_SOURCE_DIR}/cmake/uninstall.cmake VERBATIM)
