#include "quincunx/lite/generation/tokenizers/byte_alphabet.h"

#include <array>

#include "quincunx/lite/generation/tokenizers/unicode.h"

namespace qx::lite {
namespace {

constexpr int kNumBytes = 256;
constexpr char32_t kFirstSubstitute = 0x100;
constexpr int kNumSubstitutes = 68;

constexpr bool stands_for_itself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

constexpr std::array<char32_t, kNumBytes> make_alphabet() {
  std::array<char32_t, kNumBytes> alphabet = {};
  char32_t substitute = kFirstSubstitute;
  for (int byte = 0; byte < kNumBytes; ++byte) {
    alphabet[static_cast<size_t>(byte)] = stands_for_itself(byte) ? static_cast<char32_t>(byte) : substitute++;
  }
  return alphabet;
}

constexpr std::array<char32_t, kNumBytes> kAlphabet = make_alphabet();

constexpr std::array<int, kFirstSubstitute + kNumSubstitutes> make_bytes() {
  std::array<int, kFirstSubstitute + kNumSubstitutes> bytes = {};
  for (int& byte : bytes) byte = -1;
  for (int byte = 0; byte < kNumBytes; ++byte) bytes[kAlphabet[static_cast<size_t>(byte)]] = byte;
  return bytes;
}

constexpr auto kBytes = make_bytes();

}  // namespace

std::string to_byte_alphabet(std::string_view text) {
  std::string result;
  result.reserve(text.size() * 2);
  for (const char byte : text) unicode::append_utf8(kAlphabet[static_cast<unsigned char>(byte)], result);
  return result;
}

std::string from_byte_alphabet(std::string_view text) {
  std::string bytes;
  for (const char32_t c : unicode::code_points(text)) {
    if (c >= kBytes.size() || kBytes[c] < 0) return std::string(text);
    bytes.push_back(static_cast<char>(kBytes[c]));
  }
  return bytes;
}

}  // namespace qx::lite
