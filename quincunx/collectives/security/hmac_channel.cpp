#include "quincunx/collectives/security/hmac_channel.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace qx::collectives {
namespace {

constexpr uint32_t kMagic = 0x31415851;  // "QXA1"
enum class Kind : uint8_t { kHello = 1, kChallenge, kProof, kRefusal };

// Every message starts with magic (4 bytes), kind, code (purpose or reason) and two zeros.
constexpr size_t kHeadBytes = 8;
constexpr size_t kNonceBytes = sizeof(Digest);
constexpr size_t kTagBytes = sizeof(Digest);
// job (8), own rank (4), wanted rank (4), nonce
constexpr size_t kHelloBytes = kHeadBytes + 8 + 4 + 4 + kNonceBytes;
// own rank (4), zeros (4), nonce; then the tag
constexpr size_t kChallengeBytes = kHeadBytes + 4 + 4 + kNonceBytes;
constexpr size_t kProofBytes = kHeadBytes + kTagBytes;

enum Reason : uint8_t { kNotTheProtocol = 1, kOtherPurpose, kOtherJob, kOtherRank, kWrongProof, kNoDigest };

const char* reason_text(uint8_t reason) {
  switch (reason) {
    case kNotTheProtocol: return "it does not speak the protocol of authentication";
    case kOtherPurpose: return "it wants another service than this port's";
    case kOtherJob:
      return "it belongs to another job, generation or world size (where ranks start again, all are to, or to be given "
             "the same generation)";
    case kOtherRank: return "it is not, or does not want, the rank that was expected";
    case kWrongProof:
      return "it does not hold the same secret (QX_MCCL_SECRET_FILE, QX_MCCL_SECRET or the job's token)";
    case kNoDigest: return "OpenSSL computes no HMAC-SHA256";
    default: return "it gave an unknown reason";
  }
}

template <typename T>
void put(std::vector<std::byte>& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    out.push_back(static_cast<std::byte>(static_cast<uint64_t>(value) >> (8 * i)));
  }
}

template <typename T>
T take(Bytes& bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value |= uint64_t{std::to_integer<uint8_t>(bytes[i])} << (8 * i);
  bytes = bytes.subspan(sizeof(T));
  return static_cast<T>(value);
}

void put_head(std::vector<std::byte>& out, Kind kind, uint8_t code) {
  put(out, kMagic);
  put(out, static_cast<uint8_t>(kind));
  put(out, code);
  put(out, uint16_t{0});
}

struct Head {
  uint32_t magic;
  uint8_t kind, code;
  uint16_t zero;
  bool is(Kind wanted) const { return magic == kMagic && kind == static_cast<uint8_t>(wanted) && zero == 0; }
};

Head take_head(Bytes& bytes) {
  Head head{};
  head.magic = take<uint32_t>(bytes);
  head.kind = take<uint8_t>(bytes);
  head.code = take<uint8_t>(bytes);
  head.zero = take<uint16_t>(bytes);
  return head;
}

// Other protocols are told apart by their first byte: their messages may be shorter than ours.
bool starts_like_magic(Bytes bytes) {
  for (size_t i = 0; i < std::min(bytes.size(), sizeof(kMagic)); ++i) {
    if (bytes[i] != static_cast<std::byte>(kMagic >> (8 * i))) return false;
  }
  return true;
}

Bytes text_bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

}  // namespace

HmacChannel::HmacChannel(const Identity& identity, Clock::time_point deadline)
    : SecureChannel(deadline), identity_(identity), wanted_(identity.connects ? Wanted::kChallenge : Wanted::kHello) {}

Result<std::unique_ptr<HmacChannel>> HmacChannel::create(const Secret& secret, const Identity& identity,
                                                         Clock::time_point deadline, Bytes binding) {
  std::unique_ptr<HmacChannel> channel(new HmacChannel(identity, deadline));
  const Bytes shared = secret.empty() ? text_bytes(identity.token) : secret.bytes();
  QX_ASSIGN_OR_RETURN(channel->key_, hmac_sha256(shared, {text_bytes("quincunx mccl authentication 1"), binding}));
  QX_RETURN_IF_ERROR(fill_random(channel->nonce_));
  if (!identity.connects) return channel;
  put_head(channel->said_, Kind::kHello, static_cast<uint8_t>(identity.purpose));
  put(channel->said_, identity.job_id);
  put(channel->said_, identity.rank);
  put(channel->said_, identity.peer_rank);
  channel->said_.insert(channel->said_.end(), channel->nonce_.begin(), channel->nonce_.end());
  channel->push(channel->said_);
  return channel;
}

size_t HmacChannel::wanted_bytes() const {
  switch (wanted_) {
    case Wanted::kHello: return kHelloBytes;
    case Wanted::kChallenge: return kChallengeBytes + kTagBytes;
    case Wanted::kProof: return kProofBytes;
  }
  return 0;
}

void HmacChannel::receive(std::span<const std::byte> bytes) {
  while (state() == State::kPending && !bytes.empty()) {
    // The head is judged as soon as it is there: a refusal is shorter than what was wanted.
    const size_t wanted = received_.size() < kHeadBytes ? kHeadBytes : wanted_bytes();
    const size_t taken = std::min(wanted - received_.size(), bytes.size());
    received_.insert(received_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(taken));
    bytes = bytes.subspan(taken);
    if (!starts_like_magic(received_)) return refuse_and_tell(kNotTheProtocol);
    if (received_.size() < wanted) return;
    const std::vector<std::byte> message = received_;
    if (wanted == wanted_bytes()) received_.clear();
    on_message(message);
  }
  if (state() == State::kAuthenticated) received_.insert(received_.end(), bytes.begin(), bytes.end());
}

void HmacChannel::on_message(Bytes message) {
  Bytes rest = message;
  const Head head = take_head(rest);
  if (head.is(Kind::kRefusal)) {
    return refuse(unavailable("the peer refused this rank, because " + std::string(reason_text(head.code)) + claim()));
  }
  const Kind expected = static_cast<Kind>(static_cast<uint8_t>(wanted_) + 1);
  if (!head.is(expected)) return refuse_and_tell(kNotTheProtocol);
  if (message.size() < wanted_bytes()) return;
  switch (wanted_) {
    case Wanted::kHello: return on_hello(message);
    case Wanted::kChallenge: return on_challenge(message);
    case Wanted::kProof: return on_proof(message);
  }
}

void HmacChannel::on_hello(Bytes message) {
  Bytes rest = message;
  if (take_head(rest).code != static_cast<uint8_t>(identity_.purpose)) return refuse_and_tell(kOtherPurpose);
  if (take<uint64_t>(rest) != identity_.job_id) return refuse_and_tell(kOtherJob);
  peer_rank_ = take<int32_t>(rest);
  const auto wanted_rank = take<int32_t>(rest);
  if (wanted_rank != -1 && wanted_rank != identity_.rank) return refuse_and_tell(kOtherRank);
  if (identity_.peer_rank != -1 && peer_rank_ != identity_.peer_rank) return refuse_and_tell(kOtherRank);
  said_.assign(message.begin(), message.end());
  std::vector<std::byte> challenge;
  put_head(challenge, Kind::kChallenge, static_cast<uint8_t>(identity_.purpose));
  put(challenge, identity_.rank);
  put(challenge, int32_t{0});
  challenge.insert(challenge.end(), nonce_.begin(), nonce_.end());
  said_.insert(said_.end(), challenge.begin(), challenge.end());
  const Result<Digest> own = tag(false);
  if (!own.ok()) return refuse_and_tell(kNoDigest);
  push(challenge);
  push(*own);
  wanted_ = Wanted::kProof;
}

void HmacChannel::on_challenge(Bytes message) {
  Bytes rest = message;
  take_head(rest);
  peer_rank_ = take<int32_t>(rest);
  if (identity_.peer_rank != -1 && peer_rank_ != identity_.peer_rank) return refuse_and_tell(kOtherRank);
  const Bytes stated = message.first(kChallengeBytes);
  said_.insert(said_.end(), stated.begin(), stated.end());
  const Result<Digest> expected = tag(false);
  const Result<Digest> own = tag(true);
  if (!expected.ok() || !own.ok()) return refuse_and_tell(kNoDigest);
  if (!equal_in_constant_time(*expected, message.subspan(kChallengeBytes))) return refuse_and_tell(kWrongProof);
  std::vector<std::byte> proof;
  put_head(proof, Kind::kProof, 0);
  push(proof);
  push(*own);
  set_authenticated();
}

void HmacChannel::on_proof(Bytes message) {
  Bytes rest = message;
  if (take_head(rest).code != 0) return refuse_and_tell(kNotTheProtocol);
  const Result<Digest> expected = tag(true);
  if (!expected.ok()) return refuse_and_tell(kNoDigest);
  if (!equal_in_constant_time(*expected, rest)) return refuse_and_tell(kWrongProof);
  set_authenticated();
}

Result<Digest> HmacChannel::tag(bool connects) const {
  return hmac_sha256(key_, {text_bytes(connects ? "connecting end." : "accepting end.."), said_});
}

void HmacChannel::refuse_and_tell(uint8_t reason) {
  put_head(outgoing_, Kind::kRefusal, reason);
  refuse(unavailable("the peer was refused, because " + std::string(reason_text(reason)) + claim()));
}

std::string HmacChannel::claim() const {
  return peer_rank_ < 0 ? "" : " (it claims to be rank " + std::to_string(peer_rank_) + ")";
}

std::vector<std::byte> HmacChannel::take_outgoing() { return std::exchange(outgoing_, {}); }

void HmacChannel::send(std::span<const std::byte> bytes) { push(bytes); }

std::vector<std::byte> HmacChannel::take_received() {
  return state() == State::kAuthenticated ? std::exchange(received_, {}) : std::vector<std::byte>();
}

}  // namespace qx::collectives
