// A counter-based generator of random numbers: any number of a stream without those before it.
#pragma once

#include <array>
#include <cstdint>

namespace qx::kernels {

// Four words of Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3").
inline std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t first = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t second = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(second >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(second),
               static_cast<uint32_t>(first >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(first)};
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
  return counter;
}

// In [0, 1), in steps of 2^-53, from the first two words at counter (row, step): the number that sampling draws with.
inline double uniform_at(uint64_t seed, uint64_t row, uint64_t step) {
  const auto low = [](uint64_t x) { return static_cast<uint32_t>(x); };
  const auto high = [](uint64_t x) { return static_cast<uint32_t>(x >> 32); };
  const auto words = philox4x32({low(row), high(row), low(step), high(step)}, {low(seed), high(seed)});
  return static_cast<double>((uint64_t{words[0]} << 32 | words[1]) >> 11) * 0x1p-53;
}

}  // namespace qx::kernels
