# Hardening of every library and program: full RELRO, no lazy binding, no executable stack, programs at random
# addresses, stack protector, checked library calls. tests/install/hardening.py checks the binaries.
include(CheckPIESupported)
include(CheckCSourceCompiles)
check_pie_supported(OUTPUT_VARIABLE pie_output LANGUAGES C)
if(NOT CMAKE_C_LINK_PIE_SUPPORTED)
  message(STATUS "programs are not position-independent: ${pie_output}")
endif()
target_link_options(tess_flags INTERFACE LINKER:-z,relro LINKER:-z,now LINKER:-z,noexecstack)
# A sanitizer checks more than these, and its interceptors do not know the checked calls.
if(NOT TESS_SANITIZE)
  target_compile_options(tess_flags INTERFACE -fstack-protector-strong)
  # Ubuntu's compiler defines it by itself, and distributions give it among CFLAGS.
  set(CMAKE_REQUIRED_FLAGS -O2)
  check_c_source_compiles("#ifndef _FORTIFY_SOURCE\n#error\n#endif\nint main(void) { return 0; }" TESS_FORTIFIED)
  unset(CMAKE_REQUIRED_FLAGS)
  if(NOT TESS_FORTIFIED)
    target_compile_definitions(tess_flags INTERFACE $<$<NOT:$<CONFIG:Debug>>:_FORTIFY_SOURCE=2>)
  endif()
endif()
