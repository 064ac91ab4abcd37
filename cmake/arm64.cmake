# Toolchain for arm64 on another machine; the libraries lie in TESS_SYSROOT (scripts/arm64-sysroot).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES TESS_SYSROOT)
set(CMAKE_FIND_ROOT_PATH ${TESS_SYSROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${TESS_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${TESS_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig)

# Headers that differ between architectures have a folder of their own.
set(CMAKE_C_FLAGS_INIT "-isystem ${TESS_SYSROOT}/usr/include/aarch64-linux-gnu")
# Libraries of libraries, at link time and under the emulator; the C library is the compiler's.
set(folders ${TESS_SYSROOT}/usr/lib/aarch64-linux-gnu ${TESS_SYSROOT}/lib/aarch64-linux-gnu)
foreach(kind EXE SHARED)
  list(JOIN folders ",-rpath-link," links)
  set(CMAKE_${kind}_LINKER_FLAGS_INIT "-Wl,-rpath-link,${links}")
endforeach()
find_program(qemu qemu-aarch64)
if(qemu)
  list(JOIN folders ":" path)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${qemu} -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH=${path})
endif()
