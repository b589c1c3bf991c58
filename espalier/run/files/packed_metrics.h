// metrics.jsonl of a finished run, compressed: metrics.jsonl.gz, which gunzip, Python and pandas read too.
//
// Kept true: there is one of the two files, never half of one: the new one is written whole, flushed and
// renamed before the old one goes. Where a crash left both, the plain one counts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>

namespace espalier::run {

inline constexpr const char* kPackedMetrics = "metrics.jsonl.gz";

// Whether the run there has compressed metrics only.
bool is_packed(const std::filesystem::path& run);

// Compresses; returns how many bytes that saved. The run must not be worked in.
int64_t pack_metrics(const std::filesystem::path& run);
// The opposite; nothing where they are not packed. Fails, naming the file, where it is damaged.
void unpack_metrics(const std::filesystem::path& run);

// What the compressed file holds, piece by piece; a damaged one ends early.
void read_packed(const std::filesystem::path& run, const std::function<void(std::string_view)>& piece);

}  // namespace espalier::run
