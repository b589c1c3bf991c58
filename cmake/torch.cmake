# LibTorch, looked for in this order: CMAKE_PREFIX_PATH; the Python that scripts/env names (ESPALIER_PYTHON), or
# python3. Refuses one older than 2.11.
#
# torch's own CMake ignores CMAKE_CUDA_ARCHITECTURES and, where it sees no GPU, asks nvcc for architectures that
# CUDA 13 no longer knows: the list has to be set before find_package.
set(ESPALIER_TORCH_WANTED 2.11)

# Unless the user says which, one architecture: that of the GPUs here, else Hopper's. The preset `package` has all of them.
if(NOT DEFINED TORCH_CUDA_ARCH_LIST AND NOT DEFINED ENV{TORCH_CUDA_ARCH_LIST})
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
                  OUTPUT_VARIABLE found ERROR_QUIET RESULT_VARIABLE failed)
  string(REGEX MATCHALL "[0-9]+\\.[0-9]+" found "${found}")
  list(REMOVE_DUPLICATES found)
  list(FILTER found EXCLUDE REGEX "^[1-7]\\.") # older than Ampere: no bf16
  if(failed OR NOT found)
    set(found 9.0+PTX)
  endif()
  set(TORCH_CUDA_ARCH_LIST "${found}" CACHE STRING "GPU architectures to build for, such as 8.0;9.0+PTX")
endif()
if(DEFINED TORCH_CUDA_ARCH_LIST)
  set(ENV{TORCH_CUDA_ARCH_LIST} "${TORCH_CUDA_ARCH_LIST}")
endif()

# torch's CMake also asks the old FindCUDA module, which looks in PATH and /usr/local/cuda but not in CUDA_HOME.
if(DEFINED ENV{CUDA_HOME} AND NOT DEFINED CUDA_TOOLKIT_ROOT_DIR)
  set(CUDA_TOOLKIT_ROOT_DIR "$ENV{CUDA_HOME}" CACHE PATH "The CUDA toolkit that scripts/with-env chose")
endif()

find_package(Torch QUIET CONFIG)
if(NOT Torch_FOUND AND NOT DEFINED ESPALIER_TORCH_PREFIX)
  if(DEFINED ENV{ESPALIER_PYTHON})
    set(python "$ENV{ESPALIER_PYTHON}")
  else()
    find_program(python python3 REQUIRED)
  endif()
  execute_process(COMMAND "${python}" -c "import torch; print(torch.utils.cmake_prefix_path)"
                  OUTPUT_VARIABLE prefix OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "No LibTorch: neither CMAKE_PREFIX_PATH nor '${python}' has one. "
                        "Run 'make build', which installs it, or point CMAKE_PREFIX_PATH at one.")
  endif()
  set(ESPALIER_TORCH_PREFIX "${prefix}" CACHE PATH "CMake files of the torch that is used")
endif()
if(NOT Torch_FOUND)
  find_package(Torch REQUIRED CONFIG PATHS "${ESPALIER_TORCH_PREFIX}" NO_DEFAULT_PATH)
endif()
if(Torch_VERSION VERSION_LESS ESPALIER_TORCH_WANTED)
  message(FATAL_ERROR "torch ${Torch_VERSION} was found in ${Torch_DIR}; ${ESPALIER_TORCH_WANTED} or newer is wanted. "
                      "Upgrade it, or leave it out of sight and run 'make build', which installs one.")
endif()

set(CMAKE_CUDA_RUNTIME_LIBRARY Shared) # the one torch itself uses
if(TARGET torch_cuda)
  set(ESPALIER_WITH_CUDA 1)
  enable_language(CUDA)
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  # cuDNN, the one that torch itself loads: PyPI's wheel lies beside torch's.
  get_filename_component(site "${TORCH_INSTALL_PREFIX}/.." ABSOLUTE)
  find_path(ESPALIER_CUDNN_INCLUDE cudnn.h HINTS "${site}/nvidia/cudnn/include")
  find_library(ESPALIER_CUDNN_LIBRARY NAMES cudnn libcudnn.so.9 HINTS "${site}/nvidia/cudnn/lib")
  if(NOT ESPALIER_CUDNN_INCLUDE OR NOT ESPALIER_CUDNN_LIBRARY)
    message(FATAL_ERROR "cuDNN 9, which this torch was built with, was not found with its headers. Python's torch brings it; "
                        "for another LibTorch install it, and set ESPALIER_CUDNN_INCLUDE and ESPALIER_CUDNN_LIBRARY.")
  endif()
  add_library(espalier_cudnn INTERFACE)
  target_include_directories(espalier_cudnn SYSTEM INTERFACE "${ESPALIER_CUDNN_INCLUDE}")
  target_link_libraries(espalier_cudnn INTERFACE "${ESPALIER_CUDNN_LIBRARY}")
else()
  set(ESPALIER_WITH_CUDA 0)
endif()
# OpenMP's runtime, the one that torch itself loads: a second one would have threads of its own. torch's wheels bring it along.
file(GLOB ESPALIER_OPENMP_RUNTIME LIST_DIRECTORIES false "${TORCH_INSTALL_PREFIX}/lib/libgomp*.so*")
list(APPEND ESPALIER_OPENMP_RUNTIME gomp) # else the system's
list(GET ESPALIER_OPENMP_RUNTIME 0 ESPALIER_OPENMP_RUNTIME)
add_library(espalier_openmp INTERFACE)
target_link_libraries(espalier_openmp INTERFACE "${ESPALIER_OPENMP_RUNTIME}")
message(STATUS "torch ${Torch_VERSION} in ${Torch_DIR}, CUDA: ${ESPALIER_WITH_CUDA}")
