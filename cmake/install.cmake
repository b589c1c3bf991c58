# `cmake --install build/release --prefix DIR`: the program with its manual pages and completions (component `program`), and the
# library with its headers and the CMake files by which find_package(espalier) finds them (component `development`). torch is not
# installed: whoever uses the library has one, found as ours was.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(ESPALIER_LIBRARIES
    espalier_jobs espalier_train espalier_run espalier_ranks espalier_linet espalier_grow espalier_policy espalier_lanes espalier_data
    espalier_sources espalier_tensor espalier_watch espalier_run_files espalier_core)
get_target_property(fmt_type espalier_fmt TYPE)
if(fmt_type STREQUAL "STATIC_LIBRARY")
  list(APPEND ESPALIER_LIBRARIES espalier_fmt)
endif()

install(TARGETS espalier RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT program)
install(TARGETS espalier_ops espalier_program LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT program)
if(TARGET espalier_http)
  install(TARGETS espalier_http LIBRARY DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT program) # looked for beside the program
endif()

# Made by the program itself, from its own flags.
set(manual "${CMAKE_BINARY_DIR}/manual")
set(completions "${CMAKE_INSTALL_DATADIR}/bash-completion/completions/espalier" "${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions/_espalier"
                "${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d/espalier.fish")
install(CODE "
  file(REMOVE_RECURSE \"${manual}\")
  file(MAKE_DIRECTORY \"${manual}\")
  execute_process(COMMAND \"$<TARGET_FILE:espalier>\" man --out \"${manual}/man1\" OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
  foreach(shell bash zsh fish)
    execute_process(COMMAND \"$<TARGET_FILE:espalier>\" completion \${shell} OUTPUT_FILE \"${manual}/\${shell}\" COMMAND_ERROR_IS_FATAL ANY)
  endforeach()" COMPONENT program)
install(DIRECTORY "${manual}/man1" DESTINATION "${CMAKE_INSTALL_MANDIR}" COMPONENT program)
set(shells bash zsh fish)
foreach(shell file IN ZIP_LISTS shells completions)
  cmake_path(GET file PARENT_PATH folder)
  cmake_path(GET file FILENAME name)
  install(FILES "${manual}/${shell}" DESTINATION "${folder}" RENAME "${name}" COMPONENT program)
endforeach()

install(TARGETS ${ESPALIER_LIBRARIES} ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}/espalier" COMPONENT development)
install(DIRECTORY "${CMAKE_SOURCE_DIR}/espalier" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT development
        FILES_MATCHING PATTERN "*.h" PATTERN "cli" EXCLUDE PATTERN "audit" EXCLUDE PATTERN "serve" EXCLUDE)

set(package "${CMAKE_INSTALL_LIBDIR}/cmake/espalier")
configure_package_config_file("${CMAKE_SOURCE_DIR}/cmake/espalierConfig.cmake.in"
                              "${CMAKE_BINARY_DIR}/espalierConfig.cmake" INSTALL_DESTINATION "${package}"
                              PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file("${CMAKE_BINARY_DIR}/espalierConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_BINARY_DIR}/espalierConfig.cmake" "${CMAKE_BINARY_DIR}/espalierConfigVersion.cmake"
              "${CMAKE_SOURCE_DIR}/cmake/torch.cmake"
        DESTINATION "${package}" COMPONENT development)
install(FILES "${CMAKE_SOURCE_DIR}/python/espalier_linet.py" DESTINATION "${CMAKE_INSTALL_DATADIR}/espalier/python" COMPONENT program)
# For ranks: PYTHONPATH=DIR/share/espalier/python torchrun -m espalier ...; the package finds the library by this line.
install(DIRECTORY "${CMAKE_SOURCE_DIR}/python/espalier" DESTINATION "${CMAKE_INSTALL_DATADIR}/espalier/python" COMPONENT program
        FILES_MATCHING PATTERN "*.py")
