// Threads of OpenMP that have nothing to do. By default libgomp lets them spin for about a millisecond, which
// takes the cores from whatever else runs (a small population took ten times as long on a busy machine);
// asleep at once, they are woken too late for steps of many small operators (up to twice as long on idle
// cores). So: a short while. libgomp reads its environment when it is loaded, before main(): the program
// starts itself once more.
#pragma once

namespace espalier {

// With neither OMP_WAIT_POLICY nor GOMP_SPINCOUNT in the environment, starts the program again in the same
// process, with the same arguments and GOMP_SPINCOUNT=10000; the variable itself keeps it from happening
// twice. Otherwise, and where that cannot be done, returns. May be called before anything is set up, libc's
// own environment included.
void wait_briefly(char** argv, char** environment);

}  // namespace espalier
