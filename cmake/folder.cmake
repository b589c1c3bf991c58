# One target per folder of espalier/, linked in the direction that docs/architecture.md gives, and one test program
# a folder of tests/. Files are found by glob, so that none is forgotten.

# The same flags everywhere, since one precompiled header serves many targets.
add_compile_definitions(ESPALIER_WITH_CUDA=${ESPALIER_WITH_CUDA})
set(ESPALIER_UNITY_BY_DEFAULT ON)
if(CMAKE_BUILD_TYPE STREQUAL "Debug")
  add_compile_definitions(ESPALIER_CHECK_LAYOUT=1)
  set(ESPALIER_UNITY_BY_DEFAULT OFF)
endif()
# Designated initialisers leave out what keeps its default: not a mistake.
set(ESPALIER_WARNINGS -Wall -Wextra -Wpedantic -Wconversion -Wno-sign-conversion -Wno-missing-field-initializers -Werror)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  list(APPEND ESPALIER_WARNINGS -Wno-array-bounds -Wno-stringop-overflow) # g++ 13 sees both in a vector<bool> of torch's autograd functions
endif()
if(ESPALIER_SANITIZE)
  list(APPEND ESPALIER_WARNINGS -Wno-maybe-uninitialized) # instrumented code misleads it, in torch's headers even
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${ESPALIER_SANITIZE}>
                      $<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer> $<$<COMPILE_LANGUAGE:CXX>:-O1>)
  add_link_options(-fsanitize=${ESPALIER_SANITIZE})
endif()

function(espalier_flags target)
  target_include_directories(${target} PUBLIC "${CMAKE_SOURCE_DIR}")
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${ESPALIER_WARNINGS}>
                                           $<$<COMPILE_LANGUAGE:CUDA>:--Werror=all-warnings>)
  target_link_libraries(${target} PUBLIC espalier_fmt nlohmann_json::nlohmann_json Threads::Threads)
endfunction()

# Code that runs once (flags, commands, tests) costs more to optimise than it gives back: a fifth of its compile time.
function(espalier_runs_once)
  foreach(target ${ARGN})
    target_compile_options(${target} PRIVATE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>)
  endforeach()
endfunction()

# libtorch.so exports a std::filesystem of its own, linked in from an older runtime, and parts of it crash in our
# programs (remove_all calls address 0): naming libstdc++ before torch makes the system's the one that is found.
add_link_options("LINKER:--push-state,--no-as-needed" -lstdc++ "LINKER:--pop-state")

# espalier_torch_flags(TARGET [PCH]): torch, and the precompiled header espalier_pch unless another is named.
function(espalier_torch_flags target)
  target_link_libraries(${target} PUBLIC ${TORCH_LIBRARIES})
  if(ARGC GREATER 1)
    target_precompile_headers(${target} REUSE_FROM ${ARGV1})
  else()
    target_precompile_headers(${target} REUSE_FROM espalier_pch)
  endif()
endfunction()

# Two precompiled headers: whatever uses torch/torch.h instantiates its templates anew, precompiled or not, which takes seconds a
# file. Tests compare with its modules; the library includes what it uses.
file(WRITE "${CMAKE_BINARY_DIR}/pch.cpp.in" "// Carries the precompiled header.\n")
configure_file("${CMAKE_BINARY_DIR}/pch.cpp.in" "${CMAKE_BINARY_DIR}/pch.cpp" COPYONLY)
function(espalier_precompile target)
  add_library(${target} OBJECT "${CMAKE_BINARY_DIR}/pch.cpp")
  espalier_flags(${target})
  target_link_libraries(${target} PUBLIC ${TORCH_LIBRARIES})
  target_precompile_headers(${target} PRIVATE ${ARGN})
endfunction()
espalier_precompile(espalier_pch <ATen/ATen.h> <fmt/format.h>)
espalier_precompile(espalier_tests_pch <torch/torch.h> <fmt/format.h>)

# Files of a library are compiled eight at a time: what costs time is the templates of json, fmt and ATen, which each of eight files
# would instantiate and optimise again (docs/decisions.md). Names of a file's own must then differ within a folder. The Debug build
# compiles every file by itself, so that none lives on its neighbour's includes. CUDA files share too little to gain by it.
option(ESPALIER_UNITY "Compile the library's files eight at a time" ${ESPALIER_UNITY_BY_DEFAULT})
function(espalier_unity target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${ESPALIER_UNITY} UNITY_BUILD_MODE BATCH UNITY_BUILD_BATCH_SIZE 8
                        UNITY_BUILD_RELOCATABLE ON) # so that a second checkout finds them in the compiler cache
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "\\.cu$")
  set_source_files_properties(${sources} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# espalier_sources(VARIABLE GLOB PATH [ROOMS...]): what matches in PATH and in those of its folders.
function(espalier_sources variable pattern path)
  set(all "")
  foreach(room "." ${ARGN})
    file(GLOB found CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/${path}/${room}/${pattern}")
    list(APPEND all ${found})
  endforeach()
  set(${variable} ${all} PARENT_SCOPE)
endfunction()

# espalier_folder(PATH NAME name [TORCH] [ROOMS folders] [DEPENDS names] [LIBRARIES libs] [OPS stems]); PATH from the
# checkout's top, ROOMS those of its folders that belong to the same target.
# OPS names the files (stem.cpp, stem.cu) that hold operators, and what these call: they also go into libespalier_ops.so for Python.
function(espalier_folder path)
  cmake_parse_arguments(arg "TORCH" "NAME" "ROOMS;DEPENDS;LIBRARIES;OPS" ${ARGN})
  espalier_sources(sources "*.cpp" ${path} ${arg_ROOMS})
  if(ESPALIER_WITH_CUDA)
    espalier_sources(cuda_sources "*.cu" ${path} ${arg_ROOMS})
    list(APPEND sources ${cuda_sources})
  endif()
  set(target espalier_${arg_NAME})

  if(arg_OPS)
    list(JOIN arg_OPS "|" stems)
    set(op_sources ${sources})
    list(FILTER op_sources INCLUDE REGEX "/(${stems})\\.(cpp|cu)$")
    list(FILTER sources EXCLUDE REGEX "/(${stems})\\.(cpp|cu)$")
    add_library(${target}_ops OBJECT ${op_sources})
    espalier_flags(${target}_ops)
    espalier_torch_flags(${target}_ops)
    espalier_unity(${target}_ops)
    set_property(GLOBAL APPEND PROPERTY ESPALIER_OPS $<TARGET_OBJECTS:${target}_ops>)
    list(APPEND sources $<TARGET_OBJECTS:${target}_ops>)
  endif()

  add_library(${target} STATIC ${sources})
  espalier_flags(${target})
  espalier_unity(${target})
  if(arg_TORCH)
    espalier_torch_flags(${target})
  endif()
  list(TRANSFORM arg_DEPENDS PREPEND espalier_)
  target_link_libraries(${target} PUBLIC ${arg_DEPENDS} ${arg_LIBRARIES})
  if(ESPALIER_WITH_CUDA)
    target_link_libraries(${target} PUBLIC CUDA::cudart)
  endif()
endfunction()

# The program, at the top of the build directory.
function(espalier_program path name)
  cmake_parse_arguments(arg "" "" "ROOMS;DEPENDS" ${ARGN})
  espalier_sources(sources "*.cpp" espalier/${path} ${arg_ROOMS})
  list(FILTER sources EXCLUDE REGEX "/(main|library)\\.cpp$")
  add_library(espalier_${path} STATIC ${sources})
  espalier_flags(espalier_${path})
  espalier_torch_flags(espalier_${path})
  espalier_unity(espalier_${path})
  target_include_directories(espalier_${path} SYSTEM PUBLIC "${CLI11_INCLUDE}")
  list(TRANSFORM arg_DEPENDS PREPEND espalier_)
  target_link_libraries(espalier_${path} PUBLIC ${arg_DEPENDS})
  execute_process(COMMAND git -C "${CMAKE_SOURCE_DIR}" rev-parse --short=12 HEAD OUTPUT_VARIABLE commit
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  set_source_files_properties(
    "${CMAKE_SOURCE_DIR}/espalier/${path}/version.cpp"
    PROPERTIES COMPILE_DEFINITIONS "ESPALIER_VERSION=\"${PROJECT_VERSION}\";ESPALIER_GIT_COMMIT=\"${commit}\""
               SKIP_PRECOMPILE_HEADERS ON)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/.git/logs/HEAD")

  add_executable(${name} "${CMAKE_SOURCE_DIR}/espalier/${path}/main.cpp")
  espalier_flags(${name})
  espalier_torch_flags(${name})
  # Without this the linker drops torch_cuda, of which no symbol is named.
  target_link_options(${name} PRIVATE -Wl,--no-as-needed)
  target_link_libraries(${name} PRIVATE espalier_${path})
  espalier_runs_once(espalier_${path} ${name})
endfunction()

# libespalier_program.so: the same program, entered by `python -m espalier`, which has made a process group.
function(espalier_program_library path)
  add_library(espalier_program SHARED "${CMAKE_SOURCE_DIR}/espalier/${path}/library.cpp")
  espalier_flags(espalier_program)
  espalier_torch_flags(espalier_program)
  # Its entries are all that it shows: nothing of ours may stand in for a symbol of Python's or torch's.
  target_link_options(espalier_program PRIVATE -Wl,--no-as-needed -Wl,--exclude-libs,ALL)
  target_link_libraries(espalier_program PRIVATE espalier_${path})
endfunction()

# libespalier_ops.so: torch.ops.load_library() of it gives Python the operators.
function(espalier_operators)
  get_property(objects GLOBAL PROPERTY ESPALIER_OPS)
  add_library(espalier_ops SHARED ${objects})
  set_target_properties(espalier_ops PROPERTIES LINKER_LANGUAGE CXX)
  target_link_libraries(espalier_ops PRIVATE espalier_fmt ${TORCH_LIBRARIES})
  if(ESPALIER_WITH_CUDA)
    target_link_libraries(espalier_ops PRIVATE CUDA::cudart)
  endif()
  if(ESPALIER_WITH_OPENMP)
    target_link_libraries(espalier_ops PRIVATE espalier_openmp)
  endif()
endfunction()

# espalier_tests(PATH NAME name [TORCH] [ROOMS folders]): tests/PATH/*_test.cpp as one program and up to three CTest entries. A
# suite whose name ends in Cuda needs a GPU, one that ends in Slow a minute or more.
function(espalier_tests path)
  cmake_parse_arguments(arg "TORCH" "NAME" "ROOMS" ${ARGN})
  espalier_sources(sources "*_test.cpp" tests/${path} ${arg_ROOMS})
  set(target ${arg_NAME}_tests)
  add_executable(${target} ${sources})
  espalier_flags(${target})
  espalier_runs_once(${target})
  if(arg_TORCH)
    espalier_torch_flags(${target} espalier_tests_pch)
    target_link_options(${target} PRIVATE -Wl,--no-as-needed)
    target_link_libraries(${target} PRIVATE espalier_test_main GTest::gtest)
  else()
    target_link_libraries(${target} PRIVATE GTest::gtest_main)
  endif()
  target_link_libraries(${target} PRIVATE espalier_${arg_NAME})

  set(text "")
  foreach(source ${sources})
    file(STRINGS "${source}" lines REGEX "^TEST(_F|_P)?\\(")
    string(APPEND text "${lines}")
  endforeach()
  add_test(NAME unit.${arg_NAME} COMMAND ${target} --gtest_filter=-*Cuda.*:*Slow.* --gtest_brief=1)
  # Threads that spin while they wait take the cores from the tests beside them.
  set_tests_properties(unit.${arg_NAME} PROPERTIES LABELS unit ENVIRONMENT OMP_WAIT_POLICY=passive)
  if(text MATCHES "Cuda,")
    add_test(NAME gpu.${arg_NAME} COMMAND ${target} --gtest_filter=*Cuda.* --gtest_brief=1)
    set_tests_properties(gpu.${arg_NAME} PROPERTIES LABELS gpu SKIP_REGULAR_EXPRESSION "no GPU on this machine")
  endif()
  if(text MATCHES "Slow,")
    add_test(NAME slow.${arg_NAME} COMMAND ${target} --gtest_filter=*Slow.* --gtest_brief=1)
    set_tests_properties(slow.${arg_NAME} PROPERTIES LABELS slow ENVIRONMENT OMP_WAIT_POLICY=passive)
  endif()
endfunction()
