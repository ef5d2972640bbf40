// Numbers and texts of the messages of the bootstrap and of the store. Every take_ takes from the front of `bytes`;
// false means that they are cut off or out of range, and that nothing was promised about `bytes`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qx::collectives {

inline void put_byte(std::vector<std::byte>& out, uint8_t value) { out.push_back(std::byte{value}); }

// Seven bits a byte, lowest first.
inline void put_varint(std::vector<std::byte>& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) put_byte(out, static_cast<uint8_t>(value | 0x80));
  put_byte(out, static_cast<uint8_t>(value));
}

inline void put_u64(std::vector<std::byte>& out, uint64_t value) {
  for (int shift = 0; shift < 64; shift += 8) put_byte(out, static_cast<uint8_t>(value >> shift));
}

// Length, then bytes.
inline void put_blob(std::vector<std::byte>& out, std::span<const std::byte> blob) {
  put_varint(out, blob.size());
  out.insert(out.end(), blob.begin(), blob.end());
}

inline void put_text(std::vector<std::byte>& out, std::string_view text) {
  put_blob(out, std::as_bytes(std::span(text.data(), text.size())));
}

inline bool take_byte(std::span<const std::byte>& bytes, uint8_t& value) {
  if (bytes.empty()) return false;
  value = static_cast<uint8_t>(bytes.front());
  bytes = bytes.subspan(1);
  return true;
}

inline bool take_varint(std::span<const std::byte>& bytes, uint64_t& value) {
  value = 0;
  for (int shift = 0; shift < 63; shift += 7) {
    uint8_t part = 0;
    if (!take_byte(bytes, part)) return false;
    value |= static_cast<uint64_t>(part & 0x7f) << shift;
    if (part < 0x80) return true;
  }
  return false;
}

// A number in [0, limit].
template <typename T>
bool take_number(std::span<const std::byte>& bytes, uint64_t limit, T& value) {
  uint64_t number = 0;
  if (!take_varint(bytes, number) || number > limit) return false;
  value = static_cast<T>(number);
  return true;
}

inline bool take_u64(std::span<const std::byte>& bytes, uint64_t& value) {
  if (bytes.size() < 8) return false;
  value = 0;
  for (int i = 0; i < 8; ++i) value |= static_cast<uint64_t>(bytes[static_cast<size_t>(i)]) << (8 * i);
  bytes = bytes.subspan(8);
  return true;
}

inline bool take_blob(std::span<const std::byte>& bytes, size_t max_size, std::vector<std::byte>& blob) {
  size_t size = 0;
  if (!take_number(bytes, max_size, size) || size > bytes.size()) return false;
  blob.assign(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
  bytes = bytes.subspan(size);
  return true;
}

inline bool take_text(std::span<const std::byte>& bytes, size_t max_size, std::string& text) {
  size_t size = 0;
  if (!take_number(bytes, max_size, size) || size > bytes.size()) return false;
  text.assign(reinterpret_cast<const char*>(bytes.data()), size);
  bytes = bytes.subspan(size);
  return true;
}

}  // namespace qx::collectives
