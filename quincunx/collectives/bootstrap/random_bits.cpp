#include "quincunx/collectives/bootstrap/random_bits.h"

#include <sys/random.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

namespace qx::collectives {

uint64_t random_bits() {
  uint64_t bits = 0;
  if (getrandom(&bits, sizeof(bits), 0) != static_cast<ssize_t>(sizeof(bits))) {
    // Without the system's source the token keeps strangers out less well, but ranks still tell each other apart.
    bits = static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()) ^
           (static_cast<uint64_t>(getpid()) << 40);
  }
  return bits;
}

std::string random_token() {
  char text[33];
  std::snprintf(text, sizeof(text), "%016llx%016llx", static_cast<unsigned long long>(random_bits()),
                static_cast<unsigned long long>(random_bits()));
  return text;
}

}  // namespace qx::collectives
