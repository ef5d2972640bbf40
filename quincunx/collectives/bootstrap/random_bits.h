// Random bits for tokens and nonces.
#pragma once

#include <cstdint>
#include <string>

namespace qx::collectives {

uint64_t random_bits();
// 32 hexadecimal digits.
std::string random_token();

}  // namespace qx::collectives
