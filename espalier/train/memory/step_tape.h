// What a step allocates, in its order, and what that comes to: at the peak, and in the blocks that torch's
// allocator takes for it.
//
// Kept true: blocks are found, cut, merged and rounded as torch's caching allocator does it (2.11): a block
// that was made for one tensor serves a larger one never, so captured graphs, which keep their blocks, take
// more than they have in use at once.
#pragma once

#include <cstdint>
#include <list>
#include <vector>

namespace espalier::train {

// Blocks of device memory, as the allocator cuts them out of what the driver gave.
class CachedBlocks {
 public:
  // Returns what free() takes. Nothing is made for 0 bytes.
  int64_t allocate(int64_t bytes);
  void free(int64_t id);

  int64_t peak_bytes() const { return peak_; }          // in use at once at most
  int64_t reserved_bytes() const { return reserved_; }  // taken from the driver

 private:
  struct Block {
    int64_t bytes = 0;
    int64_t id = 0;  // 0: free
  };
  struct Segment {
    bool is_small = false;
    std::list<Block> blocks;
  };

  std::list<Segment> segments_;
  int64_t next_id_ = 1;
  int64_t used_ = 0;
  int64_t peak_ = 0;
  int64_t reserved_ = 0;
};

// The nodes of a backward graph, in the order of the forward pass. Bytes, a number for every tensor.
class StepTape {
 public:
  struct Node {
    std::vector<int64_t> held = {};        // made in the forward pass, kept until the node's backward is done
    std::vector<int64_t> forward = {};     // besides, while the node's forward runs
    int64_t gradient = 0;                  // that it hands on: kept until the node before it is done
    std::vector<int64_t> backward = {};    // besides, while its backward runs
    std::vector<int64_t> parameters = {};  // gradients of its parameters, kept to the end of the pass
  };
  void add(Node node) { nodes_.push_back(std::move(node)); }

  // Forward and backward.
  void train(CachedBlocks& blocks) const;
  // The forward pass alone, where nothing is kept but what the next node reads.
  void evaluate(CachedBlocks& blocks) const;

 private:
  std::vector<Node> nodes_;
};

}  // namespace espalier::train
