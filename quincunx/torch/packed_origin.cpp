#include "quincunx/torch/packed_origin.h"

#include <cstring>
#include <string>

#include "quincunx/torch/tensor_bridge.h"

namespace qx::torch_bridge {
namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;
using Packer = PackedOrigin::Packer;
using Words = std::array<int64_t, kPackedOriginBytes / 8>;

bool holds_bytes(Packer packer) { return packer == Packer::kLowPrecision; }

const char* operator_name(Packer packer) {
  switch (packer) {
    case Packer::kLinear: return "pack_linear_weight";
    case Packer::kGated: return "pack_gated_weight";
    case Packer::kGrouped: return "pack_grouped_weight";
    case Packer::kLowPrecision: return "pack_low_precision_weight";
  }
  return nullptr;
}

std::string description(const PackedOrigin& origin) {
  const char* name = operator_name(origin.packer);
  if (name == nullptr) return "what no operator packed";
  const auto [groups, rows, columns] = origin.shape;
  std::string text = std::string("what ") + name + " gives for [";
  if (origin.packer == Packer::kGrouped) text += std::to_string(groups) + ", ";
  text += std::to_string(rows) + ", " + std::to_string(columns) + "]";
  if (holds_bytes(origin.packer)) text += " in " + std::string(kernels::weight_format_name(origin.format));
  return text;
}

char* origin_of(const Tensor& packed) {
  const int64_t bytes = packed.numel() * (packed.scalar_type() == ScalarType::Byte ? 1 : 4);
  return static_cast<char*>(packed.mutable_data_ptr()) + bytes - kPackedOriginBytes;
}

}  // namespace

void write_origin(const Tensor& packed, const PackedOrigin& origin) {
  const auto [groups, rows, columns] = origin.shape;
  const Words words = {static_cast<int64_t>(origin.packer), groups, rows, columns, static_cast<int64_t>(origin.format)};
  std::memcpy(origin_of(packed), words.data(), sizeof(words));
}

const void* packed_data(const Tensor& packed, int64_t size, const PackedOrigin& expected) {
  const bool bytes = holds_bytes(expected.packer);
  if (!packed.is_cpu() || packed.scalar_type() != (bytes ? ScalarType::Byte : ScalarType::Float)) {
    throw_if_error(
        type_error(std::string("packed: expected a ") + (bytes ? "uint8" : "float32") + " tensor on the CPU"));
  }
  size += bytes ? kPackedOriginBytes : kPackedOriginFloats;
  if (packed.dim() != 1 || packed.size(0) != size || !packed.is_contiguous()) {
    throw_if_error(invalid_argument("packed: expected the " + std::to_string(size) + " contiguous " +
                                    (bytes ? "bytes" : "floats") + " of " + description(expected) + ", got " +
                                    std::to_string(packed.numel())));
  }
  Words words;
  std::memcpy(words.data(), origin_of(packed), sizeof(words));
  const PackedOrigin found{
      static_cast<Packer>(words[0]), {words[1], words[2], words[3]}, static_cast<kernels::WeightFormat>(words[4])};
  if (found != expected) {
    throw_if_error(invalid_argument("packed: expected " + description(expected) + ", got " + description(found)));
  }
  return packed.mutable_data_ptr();
}

}  // namespace qx::torch_bridge
