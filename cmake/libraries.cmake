# The small libraries. Those that end up inside our programs are linked statically, so that a program built here
# runs on another distribution that has the same torch.
find_package(Threads REQUIRED)

# VARIABLE_LINK: the same for whoever links it; a shared library takes the shared one, since distributions build archives for programs.
function(find_static_library variable name)
  find_library(${variable} NAMES lib${name}.a ${name} REQUIRED)
  find_library(${variable}_SHARED NAMES ${name} REQUIRED)
  set(${variable}_LINK "$<IF:$<STREQUAL:$<TARGET_PROPERTY:TYPE>,SHARED_LIBRARY>,${${variable}_SHARED},${${variable}}>" PARENT_SCOPE)
endfunction()

find_static_library(ESPALIER_JPEG jpeg)
find_static_library(ESPALIER_PNG png)
find_static_library(ESPALIER_ZLIB z)
set(ESPALIER_IMAGE_LIBRARIES ${ESPALIER_JPEG} ${ESPALIER_PNG} ${ESPALIER_ZLIB} m)
set(ESPALIER_IMAGE_LINKS ${ESPALIER_JPEG_LINK} ${ESPALIER_PNG_LINK} ${ESPALIER_ZLIB_LINK} m)

find_package(nlohmann_json REQUIRED)
find_path(CLI11_INCLUDE CLI/CLI.hpp REQUIRED)

# fmt is the copy that torch ships among its headers: a second one would clash with it. Its code is compiled once where the version
# is one that cmake/fmt.cpp knows; in every file that formats anything where it is another, which takes seconds a file.
list(GET TORCH_INCLUDE_DIRS 0 torch_include)
file(STRINGS "${torch_include}/fmt/base.h" fmt_version REGEX "define FMT_VERSION 12[0-9][0-9][0-9][0-9]$")
if(fmt_version)
  add_library(espalier_fmt STATIC "${CMAKE_CURRENT_LIST_DIR}/fmt.cpp")
  target_include_directories(espalier_fmt SYSTEM PUBLIC "${torch_include}")
else()
  add_library(espalier_fmt INTERFACE)
  target_compile_definitions(espalier_fmt INTERFACE FMT_HEADER_ONLY=1)
  target_include_directories(espalier_fmt SYSTEM INTERFACE "${torch_include}")
endif()

find_package(GTest REQUIRED)

# espalier_http_module(FOLDER): the server of `espalier watch`, libespalier_http.so, where cpp-httplib is there. Debian's
# has its code in a library, built with flags that its header must see too; elsewhere the header is all.
find_path(ESPALIER_HTTPLIB_INCLUDE httplib.h)
find_library(ESPALIER_HTTPLIB_LIBRARY cpp-httplib)
function(espalier_http_module folder)
  if(NOT ESPALIER_HTTPLIB_INCLUDE)
    message(STATUS "no cpp-httplib: everything but `espalier watch` is built")
    return()
  endif()
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/${folder}/*.cpp")
  add_library(espalier_http MODULE ${sources})
  espalier_flags(espalier_http)
  target_include_directories(espalier_http SYSTEM PRIVATE "${ESPALIER_HTTPLIB_INCLUDE}")
  if(ESPALIER_HTTPLIB_LIBRARY)
    get_filename_component(libraries "${ESPALIER_HTTPLIB_LIBRARY}" DIRECTORY)
    set(flags "")
    if(EXISTS "${libraries}/pkgconfig/cpp-httplib.pc")
      file(STRINGS "${libraries}/pkgconfig/cpp-httplib.pc" line REGEX "^Cflags:")
      string(REGEX MATCHALL "CPPHTTPLIB_[A-Z_]+" flags "${line}")
    endif()
    target_compile_definitions(espalier_http PRIVATE ${flags})
    target_link_libraries(espalier_http PRIVATE "${ESPALIER_HTTPLIB_LIBRARY}")
  endif()
endfunction()
