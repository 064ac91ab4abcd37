# The hash that tess_abi() returns: SHA-256 over the public headers in the order of their paths, comments removed
# and white space joined, so that a change of a comment changes nothing. tools/python_decl.py --abi computes the same.
# mpi.h, whose types are MPI's, is not taken.
file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/include/tessera
     ${PROJECT_SOURCE_DIR}/include/tessera/*.h)
list(SORT headers)
list(REMOVE_ITEM headers mpi.h)
set(declarations "")
foreach(header ${headers})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/tessera/${header})
  file(READ ${PROJECT_SOURCE_DIR}/include/tessera/${header} text)
  string(REGEX REPLACE "/\\*[^*]*\\*+([^/*][^*]*\\*+)*/" " " text "${text}")
  string(REGEX REPLACE "[ \t\r\n]+" " " text "${text}")
  string(APPEND declarations "${header}:${text}\n")
endforeach()
string(SHA256 TESS_ABI "${declarations}")
string(SUBSTRING ${TESS_ABI} 0 16 TESS_ABI)
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/src/tess_abi.h @ONLY CONTENT
     "/* tess_abi.h - the hash of the public headers; written by CMake. */\n#define TESS_ABI \"@TESS_ABI@\"\n")
