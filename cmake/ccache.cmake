# ccache where present, in a way that a second clone of the sources hits what the first one compiled: paths below the
# checkout are made relative (CCACHE_BASEDIR), and the directory is not part of a debug build's key (CCACHE_NOHASHDIR).
# A precompiled header comes from the cache too, byte for byte, so that what includes it hits as well; the sloppiness
# settings are what ccache asks for before it caches one at all.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(launcher "${CMAKE_COMMAND}" -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      "CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}" CCACHE_NOHASHDIR=true "${CCACHE_PROGRAM}")
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${launcher})
endif()
