#include "espalier/train/memory/step_tape.h"

#include <algorithm>
#include <ranges>

#include "espalier/train/memory/allowances.h"

namespace espalier::train {
namespace {

using allowance::kMiB;

// c10/cuda/CUDACachingAllocator.cpp: kSmallSize, kSmallBuffer, kMinLargeAlloc, kLargeBuffer, kRoundLarge.
constexpr int64_t kSmall = kMiB, kSmallSegment = 2 * kMiB, kLarge = 10 * kMiB, kLargeSegment = 20 * kMiB;
constexpr int64_t kSegmentRounding = 2 * kMiB;

int64_t segment_for(int64_t bytes) {
  if (bytes <= kSmall) return kSmallSegment;
  return bytes < kLarge ? kLargeSegment : allowance::rounded(bytes, kSegmentRounding);
}

void allocate_all(CachedBlocks& blocks, const std::vector<int64_t>& tensors, std::vector<int64_t>& ids) {
  for (const int64_t bytes : tensors) ids.push_back(blocks.allocate(bytes));
}

void free_all(CachedBlocks& blocks, std::vector<int64_t>& ids) {
  for (const int64_t id : ids) blocks.free(id);
  ids.clear();
}

}  // namespace

int64_t CachedBlocks::allocate(int64_t bytes) {
  if (bytes == 0) return 0;
  bytes = allowance::rounded(bytes, allowance::kBlockBytes);
  const bool is_small = bytes <= kSmall;
  Segment* best_segment = nullptr;
  std::list<Block>::iterator best;
  for (Segment& segment : segments_) {
    if (segment.is_small != is_small) continue;
    for (auto block = segment.blocks.begin(); block != segment.blocks.end(); ++block)
      if (block->id == 0 && block->bytes >= bytes && (!best_segment || block->bytes < best->bytes)) {
        best_segment = &segment;
        best = block;
      }
  }
  if (!best_segment) {
    const int64_t size = segment_for(bytes);
    reserved_ += size;
    best_segment = &segments_.emplace_back(Segment{.is_small = is_small, .blocks = {{.bytes = size}}});
    best = best_segment->blocks.begin();
  }
  const int64_t rest = best->bytes - bytes;
  if (rest >= (is_small ? allowance::kBlockBytes : kSmall + 1)) {
    best_segment->blocks.insert(std::next(best), Block{.bytes = rest});
    best->bytes = bytes;
  }
  best->id = next_id_++;
  used_ += best->bytes;
  peak_ = std::max(peak_, used_);
  return best->id;
}

void CachedBlocks::free(int64_t id) {
  if (id == 0) return;
  for (Segment& segment : segments_) {
    auto& blocks = segment.blocks;
    const auto found = std::ranges::find(blocks, id, &Block::id);
    if (found == blocks.end()) continue;
    used_ -= found->bytes;
    found->id = 0;
    const auto after = std::next(found);
    if (after != blocks.end() && after->id == 0) {
      found->bytes += after->bytes;
      blocks.erase(after);
    }
    if (found != blocks.begin()) {
      const auto before = std::prev(found);
      if (before->id == 0) {
        before->bytes += found->bytes;
        blocks.erase(found);
      }
    }
    return;
  }
}

void StepTape::train(CachedBlocks& blocks) const {
  std::vector<std::vector<int64_t>> held(nodes_.size());
  std::vector<int64_t> passing, parameters;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    allocate_all(blocks, nodes_[i].held, held[i]);
    allocate_all(blocks, nodes_[i].forward, passing);
    free_all(blocks, passing);
  }
  int64_t gradient = 0;  // the block for what the node gave
  for (size_t i = nodes_.size(); i-- > 0;) {
    const int64_t handed_on = blocks.allocate(nodes_[i].gradient);
    allocate_all(blocks, nodes_[i].backward, passing);
    allocate_all(blocks, nodes_[i].parameters, parameters);
    free_all(blocks, passing);
    free_all(blocks, held[i]);
    blocks.free(gradient);
    gradient = handed_on;
  }
  blocks.free(gradient);
  free_all(blocks, parameters);
}

void StepTape::evaluate(CachedBlocks& blocks) const {
  std::vector<int64_t> before, now, passing;
  for (const Node& node : nodes_) {
    allocate_all(blocks, node.held, now);
    allocate_all(blocks, node.forward, passing);
    free_all(blocks, passing);
    free_all(blocks, before);
    std::swap(before, now);
  }
  free_all(blocks, before);
}

}  // namespace espalier::train
