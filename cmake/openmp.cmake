# Threads on the CPU. One file, espalier/tensor/parallel.cpp, is compiled with OpenMP, and links espalier_openmp (cmake/torch.cmake):
# the runtime whose threads torch's own operators use. ESPALIER_WITH_OPENMP says whether it is; where not, its loop is a plain one.
option(ESPALIER_OPENMP "Share work on the CPU out among torch's threads" ON)
set(ESPALIER_WITH_OPENMP 0)
if(NOT ESPALIER_OPENMP)
  message(STATUS "OpenMP: off, by ESPALIER_OPENMP: what is ours on the CPU runs on one thread")
elseif(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  message(STATUS "OpenMP: left out, since torch's runtime is g++'s and the compiler is ${CMAKE_CXX_COMPILER_ID}: what is ours on the CPU runs on one thread")
else()
  find_package(OpenMP QUIET COMPONENTS CXX)
  if(OpenMP_CXX_FOUND)
    set(ESPALIER_WITH_OPENMP 1)
    message(STATUS "OpenMP: ${ESPALIER_OPENMP_RUNTIME}")
  else()
    message(WARNING "OpenMP was not found (g++ brings it, as libgomp): what is ours on the CPU runs on one thread")
  endif()
endif()

# espalier_compile_with_openmp(SOURCE): by itself, since neither a neighbour nor the precompiled header is.
function(espalier_compile_with_openmp source)
  if(ESPALIER_WITH_OPENMP)
    set_source_files_properties("${CMAKE_SOURCE_DIR}/${source}" PROPERTIES COMPILE_OPTIONS "${OpenMP_CXX_FLAGS}"
                                SKIP_UNITY_BUILD_INCLUSION ON SKIP_PRECOMPILE_HEADERS ON)
  endif()
endfunction()
