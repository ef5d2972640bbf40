// What stands where in a .qxm file. All numbers are little-endian.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>

#include "quincunx/base/dtype.h"

namespace qx::graph::qxm {

static_assert(std::endian::native == std::endian::little, "the file is read and written in the memory's byte order");

// As PNG's: a byte that is no text, and line ends that a transfer as text would change.
inline constexpr std::array<unsigned char, 8> kMagic = {0x89, 'Q', 'X', 'M', '\r', '\n', 0x1a, '\n'};
inline constexpr uint32_t kMajor = 1;
inline constexpr uint32_t kMinor = 0;
inline constexpr int64_t kAlignment = 64;

enum SectionKind : uint32_t { kMethods = 1, kWeights = 2, kMetadata = 3, kTokenizer = 4 };

// A reader that does not know the section's kind refuses the file. Other unknown sections are skipped.
inline constexpr uint32_t kRequired = 1;

// At the start of the file; the section table follows it.
struct Header {
  std::array<unsigned char, 8> magic = kMagic;
  uint32_t major = kMajor;
  uint32_t minor = kMinor;
  uint64_t file_bytes = 0;
  uint32_t num_sections = 0;
  uint32_t checksum = 0;  // of the header, with this field zero, and the table
  std::array<unsigned char, 32> reserved = {};
};
static_assert(sizeof(Header) == 64);

struct Section {
  uint32_t kind = 0;
  uint32_t flags = 0;
  uint64_t offset = 0;  // a multiple of kAlignment
  uint64_t size = 0;
  uint32_t checksum = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(Section) == 32);

// More are a sign of damage, not of a model.
inline constexpr uint32_t kMaxSections = 1024;

// The file holds DType's numbers, so they never change.
static_assert(static_cast<int>(DType::kBool) == 0 && static_cast<int>(DType::kInt64) == 7 &&
              static_cast<int>(DType::kFloat8E4M3FN) == 9 && static_cast<int>(DType::kFloat16) == 14 &&
              static_cast<int>(DType::kBFloat16) == 15 && static_cast<int>(DType::kFloat32) == 16 &&
              static_cast<int>(DType::kComplex128) == 19);

// Graphs take a few megabytes at most; a hostile file could make a reader allocate forty times its size.
inline constexpr uint64_t kMaxMethodsBytes = uint64_t{64} << 20;

// CRC-32 as in zlib and PNG.
uint32_t checksum(std::span<const std::byte> bytes, uint32_t before = 0);

}  // namespace qx::graph::qxm
