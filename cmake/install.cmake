# Installation: libraries, headers, the command, a CMake package and pkg-config files.
install(TARGETS ${TESS_LIBRARIES} EXPORT tesseraTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS tessera_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})

set(headers base.h dist.h tessera.h)
if(TARGET tessera_train)
  list(APPEND headers train.h)
endif()
if(TARGET tessera_mpi)
  list(APPEND headers mpi.h)
endif()
list(TRANSFORM headers PREPEND ${PROJECT_SOURCE_DIR}/include/tessera/)
install(FILES ${headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tessera)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tessera)
install(EXPORT tesseraTargets NAMESPACE tessera:: DESTINATION ${package_dir})
configure_package_config_file(cmake/tesseraConfig.cmake.in ${PROJECT_BINARY_DIR}/tesseraConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tesseraConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tesseraConfig.cmake ${PROJECT_BINARY_DIR}/tesseraConfigVersion.cmake
        DESTINATION ${package_dir})

# tess_pc(FILE LIBRARY DESCRIPTION REQUIRES): relocatable, found relative to where the file lies.
function(tess_pc file library description requires)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/${file}.pc @ONLY CONTENT [[
prefix=${pcfiledir}/../..
libdir=${prefix}/@CMAKE_INSTALL_LIBDIR@
includedir=${prefix}/@CMAKE_INSTALL_INCLUDEDIR@

Name: @file@
Description: @description@
Version: @PROJECT_VERSION@
Requires: @requires@
Libs: -L${libdir} -l@library@
Cflags: -I${includedir}
]])
  install(FILES ${PROJECT_BINARY_DIR}/${file}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()
tess_pc(tessera tessera "${PROJECT_DESCRIPTION}" "")
if(TARGET tessera_train)
  tess_pc(tessera-train tessera_train "Tessera's training stack" tessera)
endif()
if(TARGET tessera_mpi)
  tess_pc(tessera-mpi tessera_mpi "Tessera's communicator over MPI" tessera)
endif()
