// The 64-bit FNV-1a hash: the same on every machine, for names that ranks must agree on. No defence against someone who
// chooses the bytes.
#pragma once

#include <cstdint>
#include <string_view>

namespace qx {

inline constexpr uint64_t kEmptyFnv1a = 0xcbf29ce484222325;

// The hash of `bytes`, or of what hashed to `before` followed by `bytes`: fnv1a("ab") == fnv1a("b", fnv1a("a")).
constexpr uint64_t fnv1a(std::string_view bytes, uint64_t before = kEmptyFnv1a) {
  uint64_t hash = before;
  for (const char byte : bytes) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3;
  return hash;
}

}  // namespace qx
