# The image of the GPU's kernels: TESS_GPU_IMAGE makes it with nvcc, for the devices of TESS_GPU_ARCHS and as PTX
# for later ones; gpu_image.log beside it has what ptxas says of registers and spills. Without it libtessera_gpu
# builds, and its calls say that it has no kernels. No other part needs CUDA.
option(TESS_GPU_IMAGE "Compile the GPU kernels into libtessera_gpu (needs nvcc)" OFF)
set(TESS_GPU_ARCHS "80;90;100;120" CACHE STRING "Compute capabilities of the image, without the point")
find_program(TESS_NVCC nvcc PATHS /usr/local/cuda/bin DOC "CUDA compiler, for TESS_GPU_IMAGE")
set(TESS_HAVE_GPU_IMAGE OFF)
if(TESS_GPU_IMAGE)
  if(NOT TESS_NVCC)
    message(FATAL_ERROR "TESS_GPU_IMAGE needs nvcc, which is not found; TESS_NVCC=PATH says where it is")
  endif()
  execute_process(COMMAND ${TESS_NVCC} --version OUTPUT_VARIABLE version)
  if(NOT version MATCHES "release ([0-9]+)\\.([0-9]+)")
    message(FATAL_ERROR "${TESS_NVCC} --version does not say which release it is")
  endif()
  math(EXPR TESS_GPU_CUDA "1000 * ${CMAKE_MATCH_1} + 10 * ${CMAKE_MATCH_2}") # as the driver counts its own
  set(TESS_HAVE_GPU_IMAGE ON)
  set(TESS_GPU_FATBIN ${PROJECT_BINARY_DIR}/src/gpu.fatbin)
  set(TESS_GPU_LOG ${PROJECT_BINARY_DIR}/src/gpu_image.log)
  set(TESS_GPU_CODE "")
  set(generate)
  foreach(arch ${TESS_GPU_ARCHS})
    list(APPEND generate -gencode arch=compute_${arch},code=sm_${arch})
    string(APPEND TESS_GPU_CODE "sm_${arch} ")
  endforeach()
  list(GET TESS_GPU_ARCHS 0 first)
  list(APPEND generate -gencode arch=compute_${first},code=compute_${first})
  string(APPEND TESS_GPU_CODE "PTX")
  file(GLOB kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/gpu/kernels/*)
  # Rules are written in the folder of their users, src.
  set(TESS_GPU_COMMAND ${TESS_NVCC} -fatbin -O3 --threads 2 -Xptxas -v ${generate} -o ${TESS_GPU_FATBIN}
      ${PROJECT_SOURCE_DIR}/src/gpu/kernels/image.cu > ${TESS_GPU_LOG} 2>&1)
  set(TESS_GPU_DEPENDS ${kernels})
endif()
