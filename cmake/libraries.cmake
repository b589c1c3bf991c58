# The small libraries. Those that end up inside our programs are linked statically, so that a program built here
# runs on another distribution that has the same torch.
find_package(Threads REQUIRED)

function(find_static_library variable name)
  find_library(${variable} NAMES lib${name}.a ${name} REQUIRED)
endfunction()

find_static_library(ESPALIER_JPEG jpeg)
find_static_library(ESPALIER_PNG png)
find_static_library(ESPALIER_ZLIB z)
set(ESPALIER_IMAGE_LIBRARIES ${ESPALIER_JPEG} ${ESPALIER_PNG} ${ESPALIER_ZLIB} m)

find_package(nlohmann_json REQUIRED)
find_path(CLI11_INCLUDE CLI/CLI.hpp REQUIRED)

# fmt is the copy that torch ships among its headers: a second one would clash with it.
list(GET TORCH_INCLUDE_DIRS 0 torch_include)
add_library(espalier_fmt INTERFACE)
target_include_directories(espalier_fmt SYSTEM INTERFACE "${torch_include}")

find_package(GTest REQUIRED)
