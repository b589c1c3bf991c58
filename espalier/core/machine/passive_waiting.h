// Threads of OpenMP that have nothing to do: by default libgomp lets them spin, which takes the cores from
// whatever else runs (a small population took ten times as long on a busy machine). It reads its environment
// when it is loaded, before main(): so a program that wants its threads to sleep starts itself once more.
#pragma once

namespace espalier {

// First thing in main(). With neither OMP_WAIT_POLICY nor GOMP_SPINCOUNT in the environment, sets
// OMP_WAIT_POLICY=passive and starts the program again with the same arguments, in the same process; the
// variable itself keeps it from happening twice. Otherwise, and where that cannot be done, returns.
void wait_passively(char** argv);

}  // namespace espalier
