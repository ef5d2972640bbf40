// Whatever a stranger says, a channel neither accepts it nor holds many bytes of it; and whatever a rank's own
// handshake becomes on the way, the two ends never both accept something that was changed.
#include <cstdint>
#include <span>

#include "collectives/security/channel_pair.h"
#include "quincunx/base/check.h"

namespace qx::collectives::testing {
namespace {

using State = SecureChannel::State;
const Credentials kCredentials{Secret("a secret that no fuzzer knows"), nullptr};

void talk_to_a_stranger(std::span<const std::byte> bytes, bool connects, size_t piece) {
  const auto end = channel(kCredentials, connects ? connecting(2, -1) : accepting(2));
  feed(*end, bytes, piece);
  QX_CHECK(end->state() != State::kAuthenticated);
  QX_CHECK(end->take_received().empty());
  QX_CHECK(end->take_outgoing().size() < 200);
}

// Flips the bits of `mask` in what one end says, at `at`.
void change_one_message(std::span<const std::byte> mask, size_t message, size_t at) {
  const auto a = channel(kCredentials, connecting(2, 1)), b = channel(kCredentials, accepting(1));
  bool changed = false;
  for (size_t round = 0; round < 4; ++round) {
    SecureChannel& from = round % 2 == 0 ? *a : *b;
    SecureChannel& to = round % 2 == 0 ? *b : *a;
    std::vector<std::byte> said = from.take_outgoing();
    for (size_t i = 0; round == message && i < mask.size() && at + i < said.size(); ++i) {
      said[at + i] ^= mask[i];
      changed = changed || mask[i] != std::byte{0};
    }
    to.receive(said);
  }
  const bool both = a->state() == State::kAuthenticated && b->state() == State::kAuthenticated;
  QX_CHECK(both != changed);
}

}  // namespace
}  // namespace qx::collectives::testing

// The first bytes choose who listens, into what pieces the rest is cut, and what of a good handshake it changes.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace qx::collectives::testing;
  if (size < 3) return 0;
  const auto bytes = std::as_bytes(std::span(data + 3, size - 3));
  talk_to_a_stranger(bytes, data[0] % 2 == 0, size_t{data[1]} + 1);
  change_one_message(bytes.first(std::min<size_t>(bytes.size(), 8)), data[0] % 3, data[2] % 88);
  return 0;
}
