// Graphs as bytes: the "methods" section of a .qxm file.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "quincunx/base/status.h"
#include "quincunx/graph/graph.h"

namespace qx::graph::qxm {

// A constant of the file: where it comes from when it is written, where it lies in the weights section.
struct Weight {
  std::shared_ptr<const Storage> storage;
  int64_t source_offset = 0;
  int64_t offset = 0;
  int64_t size = 0;
};

// The constants of all methods, each once, at aligned places one after the other.
class WeightTable {
 public:
  // Places every constant that a value of the graphs is.
  explicit WeightTable(std::span<const Graph> methods);

  const std::vector<Weight>& weights() const { return weights_; }
  int64_t size_bytes() const { return size_bytes_; }
  uint32_t index(const Constant& constant) const;

 private:
  std::map<const void*, uint32_t> known_;  // by address
  std::vector<Weight> weights_;
  int64_t size_bytes_ = 0;
};

std::string encode_methods(std::span<const Graph> methods, const WeightTable& weights);

// Weights lie at `weights_offset` of `file` and take `weights_size` bytes. DATA_LOSS if the bytes make no graphs;
// what the graphs say is verified by the caller.
Result<std::vector<Graph>> decode_methods(std::span<const std::byte> bytes, const std::shared_ptr<const Storage>& file,
                                          int64_t weights_offset, int64_t weights_size);

}  // namespace qx::graph::qxm
