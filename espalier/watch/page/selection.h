// Which lines and points of a run the page takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "espalier/watch/lines/record.h"

namespace espalier::watch {

using Lines = std::vector<const LaneLine*>;

// `most` of the places 0 .. count-1, evenly, the last among them.
std::vector<size_t> some_of(size_t count, size_t most);

// The last line of each lane.
std::map<int64_t, const LaneLine*> last_lines(const Lines& lines);
// The last of a step that was validated, which --validate-every leaves most out of; where none was, the last.
std::map<int64_t, const LaneLine*> last_scored_lines(const Lines& lines);

}  // namespace espalier::watch
