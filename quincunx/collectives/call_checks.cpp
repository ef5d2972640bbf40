#include "quincunx/collectives/call_checks.h"

#include <cmath>
#include <limits>
#include <string>

#include "quincunx/collectives/transport/tcp.h"
#include "quincunx/kernels/reduce/reduce.h"

namespace qx::collectives {
namespace {

Status bad(const std::string& name, const std::string& expected, const std::string& got) {
  return invalid_argument(name + ": expected " + expected + ", got " + got);
}

}  // namespace

Status check_options(const Options& options) {
  if (options.world_size < 1 || options.world_size > kMaxRanks) {
    return bad("world_size", "1 to " + std::to_string(kMaxRanks), std::to_string(options.world_size));
  }
  QX_RETURN_IF_ERROR(check_rank("rank", options.rank, options.world_size));
  if (options.timeout.count() <= 0) {
    return bad("timeout", "a positive time", std::to_string(options.timeout.count()) + " ms");
  }
  if (options.interface_address.empty()) return ok_status();
  const auto endpoint = make_endpoint(options.interface_address, 0);
  return endpoint.ok() ? ok_status() : invalid_argument("interface_address: " + endpoint.status().message());
}

Status check_buffer(const char* name, const Buffer& buffer) {
  const std::string label = std::string(name) + ".";
  if (static_cast<uint8_t>(buffer.dtype) > static_cast<uint8_t>(DType::kComplex128)) {
    return bad(label + "dtype", "a dtype", std::to_string(static_cast<int>(buffer.dtype)));
  }
  if (buffer.count < 0) return bad(label + "count", "0 or more", std::to_string(buffer.count));
  if (buffer.count > std::numeric_limits<int64_t>::max() / 64) {
    return bad(label + "count", "a size that memory can have", std::to_string(buffer.count));
  }
  if (buffer.count > 0 && buffer.data == nullptr) {
    return bad(label + "data", "memory for " + std::to_string(buffer.count) + " elements", "null");
  }
  return ok_status();
}

Status check_buffers(const char* name, std::span<const Buffer> buffers, int world_size, DType dtype) {
  if (buffers.size() != static_cast<size_t>(world_size)) {
    return bad(name, "one buffer for each of " + std::to_string(world_size) + " ranks", std::to_string(buffers.size()));
  }
  for (size_t r = 0; r < buffers.size(); ++r) {
    const std::string label = std::string(name) + "[" + std::to_string(r) + "]";
    QX_RETURN_IF_ERROR(check_buffer(label.c_str(), buffers[r]));
    if (buffers[r].dtype != dtype) {
      return type_error(label + ".dtype: expected " + std::string(dtype_name(dtype)) + ", got " +
                        std::string(dtype_name(buffers[r].dtype)));
    }
  }
  return ok_status();
}

Status check_same(const char* name, const Buffer& buffer, const char* other_name, const Buffer& other) {
  if (buffer.dtype != other.dtype) {
    return type_error(std::string(name) + ".dtype: expected that of " + other_name + ", " +
                      std::string(dtype_name(other.dtype)) + ", got " + std::string(dtype_name(buffer.dtype)));
  }
  if (buffer.count != other.count) {
    return bad(std::string(name) + ".count", "that of " + std::string(other_name) + ", " + std::to_string(other.count),
               std::to_string(buffer.count));
  }
  return ok_status();
}

Status check_apart(const char* output_name, std::span<const Buffer> outputs, size_t own_output, const char* input_name,
                   std::span<const Buffer> inputs, size_t own_input) {
  const auto begin = [](const Buffer& buffer) { return reinterpret_cast<uintptr_t>(buffer.data); };
  const auto end = [&](const Buffer& buffer) { return begin(buffer) + static_cast<uintptr_t>(buffer.size_bytes()); };
  const auto label = [](const char* name, std::span<const Buffer> buffers, size_t index) {
    return buffers.size() == 1 ? std::string(name) : std::string(name) + "[" + std::to_string(index) + "]";
  };
  for (size_t o = 0; o < outputs.size(); ++o) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Buffer& output = outputs[o];
      const Buffer& input = inputs[i];
      if (output.count == 0 || input.count == 0) continue;
      if (begin(output) >= end(input) || begin(input) >= end(output)) continue;
      if (o == own_output && i == own_input && output.data == input.data) continue;
      return bad(label(output_name, outputs, o), "memory apart from " + label(input_name, inputs, i), "an overlap");
    }
  }
  return ok_status();
}

Status check_rank(const char* name, int rank, int world_size) {
  if (rank >= 0 && rank < world_size) return ok_status();
  return bad(name, "a rank from 0 to " + std::to_string(world_size - 1), std::to_string(rank));
}

Status check_reduction(const Reduction& reduction, DType dtype) {
  if (static_cast<int>(reduction.op) < 0 || reduction.op > ReduceOp::kPreMulSum) {
    return bad("reduction.op", "a ReduceOp", std::to_string(static_cast<int>(reduction.op)));
  }
  if (reduction.op == ReduceOp::kPreMulSum && !std::isfinite(reduction.pre_multiplier)) {
    return bad("reduction.pre_multiplier", "a finite number", std::to_string(reduction.pre_multiplier));
  }
  return kernels::check_reduce(dtype, static_cast<kernels::ReduceKind>(reduction.op));
}

}  // namespace qx::collectives
