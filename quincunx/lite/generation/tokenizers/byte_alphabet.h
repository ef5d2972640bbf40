// Byte-level BPE writes each byte as one printable character: those of ASCII and Latin-1 that print stand for
// themselves, the 68 others for U+0100 onwards in order (Radford et al. 2019, section 2.2).
#pragma once

#include <string>
#include <string_view>

namespace qx::lite {

// The characters of all bytes of `text`, in UTF-8.
std::string to_byte_alphabet(std::string_view text);

// The bytes that the characters of `text` stand for; `text` itself where one of them stands for none.
std::string from_byte_alphabet(std::string_view text);

}  // namespace qx::lite
