// What users would write instead, timed beside ours: scripts that print one JSON line per case.
//
// Kept true: a peer that could not be timed has left a sentence that says why; what a script prints is
// checked before it counts; a script does not outlive a program that is told to stop
// (core/machine/child_process.h).
#pragma once

#include <string>
#include <vector>

#include "bench/harness.h"

namespace espalier::bench {

struct PeerCall {
  std::string workload;                // "population"
  std::vector<std::string> scripts;    // in bench/peers
  std::vector<std::string> arguments;  // for each of them: bench/README.md has them
  std::string folder;                  // --peer-dir: more scripts; empty: none
};

struct PeerResults {
  std::vector<Case> cases;
  std::vector<std::string> problems;  // one sentence each, beginning with the script's name
};

// Runs bench/peers/<script> for each script with the Python that has torch, then every script of the folder,
// in the order of their names, with `--workload NAME` before the same arguments.
PeerResults run_peers(const PeerCall& call);

// What a script printed, line by line: a case {"name": ..., "shapes": ..., "median_us": ..., "best_us": ...,
// "host_us": ..., "note": ..., "checked": ...} where the last two may be missing, or a {"problem": ...}.
// Other lines are passed over; a case that is not one becomes a problem.
PeerResults read_peer_lines(const std::string& script, const std::string& output);

}  // namespace espalier::bench
