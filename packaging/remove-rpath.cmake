# cmake -DFILE=program -P remove-rpath.cmake: forgets where the libraries were on the machine that built it.
file(RPATH_REMOVE FILE "${FILE}")
