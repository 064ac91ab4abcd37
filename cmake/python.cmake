# The Python package: python/tessera in the build folder, which PYTHONPATH names, and in a wheel (pyproject.toml).
# Sources are linked into the build folder; beside them lie _decl.py, made from the public headers, and the library.
set(TESS_HAVE_PYTHON OFF)
if(TESS_PYTHON AND BUILD_SHARED_LIBS AND NOT CMAKE_CROSSCOMPILING)
  find_package(Python3 COMPONENTS Interpreter)
  # The first Python that has NumPy and cffi, else the first that has cffi, which is enough to make the package.
  if(NOT TESS_PYTHON_EXECUTABLE)
    foreach(modules "cffi, numpy" "cffi")
      foreach(candidate ${Python3_EXECUTABLE} /usr/bin/python3)
        if(NOT TESS_PYTHON_EXECUTABLE AND EXISTS ${candidate})
          execute_process(COMMAND ${candidate} -c "import ${modules}" RESULT_VARIABLE missing OUTPUT_QUIET ERROR_QUIET)
          if(missing EQUAL 0)
            set(TESS_PYTHON_EXECUTABLE ${candidate} CACHE FILEPATH "Python with cffi that makes and tests the package")
          endif()
        endif()
      endforeach()
    endforeach()
  endif()
  if(TESS_PYTHON_EXECUTABLE)
    set(TESS_HAVE_PYTHON ON)
  endif()
endif()
if(NOT TESS_HAVE_PYTHON)
  return()
endif()

set(python_source ${PROJECT_SOURCE_DIR}/python/tessera)
set(python_build ${PROJECT_BINARY_DIR}/python/tessera)
file(MAKE_DIRECTORY ${python_build})
file(GLOB python_files CONFIGURE_DEPENDS LIST_DIRECTORIES true RELATIVE ${python_source} ${python_source}/*)
list(REMOVE_ITEM python_files __pycache__)
foreach(name ${python_files})
  file(CREATE_LINK ${python_source}/${name} ${python_build}/${name} SYMBOLIC)
endforeach()

# What the package declares; the headers that these include come with them.
set(TESS_PYTHON_HEADERS select.h strategy.h report.h advanced/exchange.h advanced/explain.h advanced/gpu.h advanced/machine.h
    advanced/options.h advanced/predict.h advanced/selection.h)
file(GLOB_RECURSE public_headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/tessera/*.h)
add_custom_command(OUTPUT ${python_build}/_decl.py
                   COMMAND ${TESS_PYTHON_EXECUTABLE} -B ${PROJECT_SOURCE_DIR}/tools/python_decl.py
                           --out ${python_build}/_decl.py ${TESS_PYTHON_HEADERS}
                   DEPENDS ${PROJECT_SOURCE_DIR}/tools/python_decl.py ${public_headers} VERBATIM)
foreach(name tessera tessera_gpu)
  add_custom_command(OUTPUT ${python_build}/lib${name}.so
                     COMMAND ${CMAKE_COMMAND} -E create_symlink $<TARGET_FILE:${name}> ${python_build}/lib${name}.so
                     DEPENDS ${name} VERBATIM)
endforeach()
add_custom_target(tessera_python ALL DEPENDS ${python_build}/_decl.py ${python_build}/libtessera.so ${python_build}/libtessera_gpu.so)

# A wheel holds one copy of each library and no links; `cmake --install` installs none of this.
install(FILES $<TARGET_FILE:tessera> DESTINATION tessera RENAME libtessera.so COMPONENT python EXCLUDE_FROM_ALL)
install(FILES $<TARGET_FILE:tessera_gpu> DESTINATION tessera RENAME libtessera_gpu.so COMPONENT python EXCLUDE_FROM_ALL)
install(FILES ${python_build}/_decl.py DESTINATION tessera COMPONENT python EXCLUDE_FROM_ALL)
