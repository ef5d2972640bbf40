// HMAC-SHA256, nonces and comparison, from OpenSSL's libcrypto and the kernel.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>

#include "quincunx/base/status.h"

namespace qx::collectives {

using Digest = std::array<std::byte, 32>;
using Bytes = std::span<const std::byte>;

// OpenSSL without its clean-up at exit: threads of this library may still use it while the process ends. Called before
// its first use by whatever uses it.
void initialise_openssl();

// Of the parts, one after the other. Parts whose sizes can vary need their sizes among them.
Result<Digest> hmac_sha256(Bytes key, std::initializer_list<Bytes> parts);

// Takes the same time wherever the first difference is.
bool equal_in_constant_time(Bytes a, Bytes b);

// From the kernel; kUnavailable where it has none.
Status fill_random(std::span<std::byte> bytes);

}  // namespace qx::collectives
