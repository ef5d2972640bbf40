// The three messages by which two ranks prove to each other that they hold the same secret:
//   connecting end   hello: who it is, whom it wants, a nonce
//   accepting end    challenge: who it is, a nonce, HMAC of all that was said, under the key, as the accepting end
//   connecting end   proof: HMAC of all that was said, under the key, as the connecting end
// Each tag covers both nonces, ranks, the job and the purpose, so that no proof of another connection fits; the two
// ends compute theirs over different labels, so that none can be sent back. A peer whose proof is wrong is told why.
// Before it is authenticated a peer can make this end hold less than 100 bytes.
#pragma once

#include <vector>

#include "quincunx/collectives/security/hmac.h"
#include "quincunx/collectives/security/secure_channel.h"

namespace qx::collectives {

class HmacChannel final : public SecureChannel {
 public:
  // `binding` is mixed into the key: what both ends know of the connection below, where that is encrypted.
  static Result<std::unique_ptr<HmacChannel>> create(const Secret& secret, const Identity& identity,
                                                     Clock::time_point deadline, Bytes binding = {});

  int peer_rank() const override { return peer_rank_; }
  void receive(std::span<const std::byte> bytes) override;
  std::vector<std::byte> take_outgoing() override;
  void send(std::span<const std::byte> bytes) override;
  std::vector<std::byte> take_received() override;
  bool is_transparent() const override { return true; }

 private:
  enum class Wanted { kHello, kChallenge, kProof };

  HmacChannel(const Identity& identity, Clock::time_point deadline);
  size_t wanted_bytes() const;
  void on_message(Bytes message);
  void on_hello(Bytes message);
  void on_challenge(Bytes message);
  void on_proof(Bytes message);
  // Of everything said so far; `connects` tells whose tag it is.
  Result<Digest> tag(bool connects) const;
  void refuse_and_tell(uint8_t reason);
  // Which rank the peer says that it is, for a text.
  std::string claim() const;
  void push(Bytes bytes) { outgoing_.insert(outgoing_.end(), bytes.begin(), bytes.end()); }

  const Identity identity_;
  Digest key_{};
  Digest nonce_{};
  int peer_rank_ = -1;
  Wanted wanted_;
  std::vector<std::byte> said_;      // hello and challenge, as on the wire and without tags
  std::vector<std::byte> received_;  // a part of a message; after authentication what the peer has sent
  std::vector<std::byte> outgoing_;
};

}  // namespace qx::collectives
