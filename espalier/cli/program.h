// The program without its main(): parses, runs one job, and is the only place that catches. Exit codes: 0; 1
// a failed run; 2 usage; 130 and 143 after SIGINT and SIGTERM. An error is one line on standard error.
#pragma once

#include "espalier/cli/launch.h"

namespace espalier::cli {

int run_program(int argc, char** argv, const Launch& launch = {});

}  // namespace espalier::cli
