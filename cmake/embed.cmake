# Files inside a program: espalier_embed(TARGET FOLDER) puts FOLDER/*.{html,css,js} into the target as one generated
# source, which defines espalier::embedded_file() (espalier/watch/page/embedded_file.h). Made anew when a file changes.
#
# The same file is the script that makes the source: cmake -DOUT=x.cpp -DFILES=a;b -P embed.cmake
if(CMAKE_SCRIPT_MODE_FILE)
  set(arrays "")
  set(cases "")
  set(index 0)
  foreach(file ${FILES})
    get_filename_component(name "${file}" NAME)
    file(READ "${file}" bytes HEX)
    string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
    string(REGEX REPLACE "(0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,)" "\\1\n" bytes "${bytes}")
    string(APPEND arrays "constexpr unsigned char kFile${index}[] = {\n${bytes}0};\n")
    string(APPEND cases "  if (name == \"${name}\") return {reinterpret_cast<const char*>(kFile${index}), sizeof(kFile${index}) - 1};\n")
    math(EXPR index "${index} + 1")
  endforeach()
  file(WRITE "${OUT}" "// Made by cmake/embed.cmake.\n#include \"espalier/watch/page/embedded_file.h\"\n\nnamespace {\n${arrays}}\n\n"
       "std::string_view espalier::watch::embedded_file(std::string_view name) {\n${cases}  return {};\n}\n")
  return()
endif()

set(ESPALIER_EMBED_SCRIPT "${CMAKE_CURRENT_LIST_FILE}")
function(espalier_embed target folder)
  file(GLOB files CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/${folder}/*.html" "${CMAKE_SOURCE_DIR}/${folder}/*.css"
       "${CMAKE_SOURCE_DIR}/${folder}/*.js")
  set(out "${CMAKE_BINARY_DIR}/${target}_files.cpp")
  add_custom_command(
    OUTPUT "${out}"
    COMMAND "${CMAKE_COMMAND}" "-DOUT=${out}" "-DFILES=${files}" -P "${ESPALIER_EMBED_SCRIPT}"
    DEPENDS ${files} "${ESPALIER_EMBED_SCRIPT}"
    COMMENT "Embedding ${folder}"
    VERBATIM)
  target_sources(${target} PRIVATE "${out}")
endfunction()
