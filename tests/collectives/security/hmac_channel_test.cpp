// Who is let in, and who is not: the proofs, without a socket.
#include "quincunx/collectives/security/hmac_channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "collectives/security/channel_pair.h"

namespace qx::collectives::testing {
namespace {

using ::testing::HasSubstr;
using State = SecureChannel::State;

const Credentials kSecret{Secret("correct horse battery staple"), nullptr};
const Credentials kOtherSecret{Secret("correct horse battery stapler"), nullptr};

std::string hex(Bytes bytes) {
  std::string text;
  for (const std::byte b : bytes) {
    char two[3];
    std::snprintf(two, sizeof(two), "%02x", std::to_integer<unsigned>(b));
    text += two;
  }
  return text;
}

// RFC 4231, test cases 2 and 6.
TEST(Hmac, HasThePublishedValues) {
  const auto text = [](const char* characters) {
    return std::as_bytes(std::span(characters, std::strlen(characters)));
  };
  EXPECT_EQ(hex(*hmac_sha256(text("Jefe"), {text("what do ya want "), text("for nothing?")})),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  const std::vector<std::byte> key(131, std::byte{0xaa});
  EXPECT_EQ(hex(*hmac_sha256(key, {text("Test Using Larger Than Block-Size Key - Hash Key First")})),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  EXPECT_EQ(hex(*hmac_sha256({}, {})), "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

TEST(Hmac, ComparesWholeDigests) {
  Digest a{}, b{};
  EXPECT_TRUE(equal_in_constant_time(a, b));
  b.back() = std::byte{1};
  EXPECT_FALSE(equal_in_constant_time(a, b));
  EXPECT_FALSE(equal_in_constant_time(a, Bytes(a).first(31)));
}

class HmacPieces : public ::testing::TestWithParam<size_t> {};
INSTANTIATE_TEST_SUITE_P(Sizes, HmacPieces, ::testing::Values(1, 7, 8, 9, 56, 4096));

TEST_P(HmacPieces, BothEndsAreAuthenticatedAndKnowEachOther) {
  const auto a = channel(kSecret, connecting(3, 1)), b = channel(kSecret, accepting(1));
  EXPECT_EQ(b->peer_rank(), -1);
  converse(*a, *b, GetParam());
  EXPECT_EQ(a->state(), State::kAuthenticated) << a->refusal();
  EXPECT_EQ(b->state(), State::kAuthenticated) << b->refusal();
  EXPECT_EQ(a->peer_rank(), 1);
  EXPECT_EQ(b->peer_rank(), 3);
  a->send(bytes_of("from a"));
  b->send(bytes_of("from b"));
  converse(*a, *b, GetParam());
  EXPECT_EQ(a->take_received(), bytes_of("from b"));
  EXPECT_EQ(b->take_received(), bytes_of("from a"));
  EXPECT_TRUE(a->take_received().empty());
}

TEST(HmacChannel, BytesBehindTheProofAreKept) {
  const auto a = channel(kSecret, connecting(3, 1)), b = channel(kSecret, accepting(1));
  b->receive(a->take_outgoing());
  a->receive(b->take_outgoing());
  a->send(bytes_of("at once"));
  b->receive(a->take_outgoing());  // proof and bytes in one piece
  EXPECT_EQ(b->take_received(), bytes_of("at once"));
}

void expect_refused(const Credentials& a_has, const Identity& a_is, const Credentials& b_has, const Identity& b_is,
                    const std::string& reason) {
  const auto a = channel(a_has, a_is), b = channel(b_has, b_is);
  converse(*a, *b);
  EXPECT_EQ(a->state(), State::kRefused);
  EXPECT_EQ(b->state(), State::kRefused);
  EXPECT_THAT(a->refusal().message(), HasSubstr(reason));
  EXPECT_THAT(b->refusal().message(), HasSubstr(reason));
  EXPECT_THAT(a->refusal().message() + b->refusal().message(), ::testing::Not(HasSubstr("staple")));
  b->receive(bytes_of("too late"));
  EXPECT_TRUE(b->take_received().empty());
}

TEST(HmacChannel, AnotherSecretIsRefusedOnBothEnds) {
  expect_refused(kSecret, connecting(3, 1), kOtherSecret, accepting(1), "does not hold the same secret");
  expect_refused(kSecret, connecting(3, 1), {}, accepting(1), "does not hold the same secret");
  expect_refused({}, connecting(3, 1, "token"), {}, accepting(1, "nekot"), "does not hold the same secret");
}

TEST(HmacChannel, TheTokenCountsOnlyWhereThereIsNoSecret) {
  const auto a = channel(kSecret, connecting(3, 1, "one")), b = channel(kSecret, accepting(1, "two"));
  converse(*a, *b);
  EXPECT_EQ(b->state(), State::kAuthenticated);
  const auto c = channel({}, connecting(3, 1, "one")), d = channel({}, accepting(1, "one"));
  converse(*c, *d);
  EXPECT_EQ(d->state(), State::kAuthenticated);
}

TEST(HmacChannel, AnotherJobRankOrPurposeIsRefused) {
  Identity other_job = accepting(1), store = accepting(1), expects_four = accepting(1);
  other_job.job_id = 78;
  store.purpose = Purpose::kStore;
  expects_four.peer_rank = 4;
  expect_refused(kSecret, connecting(3, 1), kSecret, other_job, "belongs to another job");
  expect_refused(kSecret, connecting(3, 1), kSecret, store, "wants another service");
  expect_refused(kSecret, connecting(3, 1), kSecret, expects_four, "is not, or does not want, the rank");
  expect_refused(kSecret, connecting(3, 2), kSecret, accepting(1), "is not, or does not want, the rank");
}

// Both ends would have to agree to what an attacker changed on the way.
TEST(HmacChannel, EveryChangedByteOfAHandshakeIsNoticed) {
  const size_t hello_bytes = channel(kSecret, connecting(3, -1))->take_outgoing().size();
  for (size_t at = 0; at < hello_bytes; ++at) {
    const auto a = channel(kSecret, connecting(3, -1)), b = channel(kSecret, accepting(1));
    std::vector<std::byte> hello = a->take_outgoing();
    hello[at] ^= std::byte{0x10};
    b->receive(hello);
    converse(*a, *b);
    EXPECT_NE(a->state(), State::kAuthenticated) << at;
    EXPECT_NE(b->state(), State::kAuthenticated) << at;
  }
  for (size_t at = 0; at < 80; ++at) {
    const auto a = channel(kSecret, connecting(3, -1)), b = channel(kSecret, accepting(1));
    b->receive(a->take_outgoing());
    std::vector<std::byte> challenge = b->take_outgoing();
    ASSERT_EQ(challenge.size(), 80u);
    challenge[at] ^= std::byte{0x10};
    a->receive(challenge);
    converse(*a, *b);
    EXPECT_NE(b->state(), State::kAuthenticated) << at;
  }
  for (size_t at = 0; at < 40; ++at) {
    const auto a = channel(kSecret, connecting(3, -1)), b = channel(kSecret, accepting(1));
    b->receive(a->take_outgoing());
    a->receive(b->take_outgoing());
    std::vector<std::byte> proof = a->take_outgoing();
    ASSERT_EQ(proof.size(), 40u);
    proof[at] ^= std::byte{0x10};
    b->receive(proof);
    EXPECT_EQ(b->state(), State::kRefused) << at;
  }
}

TEST(HmacChannel, WhatWasRecordedProvesNothingLater) {
  const auto a = channel(kSecret, connecting(3, 1)), b = channel(kSecret, accepting(1));
  const std::vector<std::byte> hello = a->take_outgoing();
  b->receive(hello);
  a->receive(b->take_outgoing());
  const std::vector<std::byte> proof = a->take_outgoing();
  const auto again = channel(kSecret, accepting(1));
  again->receive(hello);
  again->receive(proof);
  EXPECT_EQ(again->state(), State::kRefused);
}

// A stranger without the secret lets the victim answer its own questions.
TEST(HmacChannel, AReflectedHandshakeIsRefused) {
  const auto a = channel(kSecret, connecting(1, -1));
  a->receive(a->take_outgoing());
  EXPECT_EQ(a->state(), State::kRefused);

  const auto victim = channel(kSecret, connecting(1, -1)), oracle = channel(kSecret, accepting(1));
  oracle->receive(victim->take_outgoing());
  std::vector<std::byte> answer = oracle->take_outgoing();
  std::vector<std::byte> proof(answer.begin(), answer.begin() + 8);  // its own tag, sent back as a proof
  proof[4] = std::byte{3};
  proof[5] = std::byte{0};
  proof.insert(proof.end(), answer.end() - 32, answer.end());
  oracle->receive(proof);
  EXPECT_EQ(oracle->state(), State::kRefused);
}

TEST(HmacChannel, StrangersAreRefusedAtTheFirstByteThatIsWrong) {
  for (const char* text : {"GET / HTTP/1.1\r\n\r\n", "QXA2....", "\x16\x03\x01", "QXA1\x02...", "QXA1\x01..."}) {
    const auto b = channel(kSecret, accepting(1));
    b->receive(bytes_of(text));
    EXPECT_EQ(b->state(), State::kRefused) << text;
    EXPECT_THAT(b->refusal().message(), HasSubstr("does not speak the protocol"));
  }
  const auto b = channel(kSecret, accepting(1));
  b->receive(bytes_of("QXA"));
  EXPECT_EQ(b->state(), State::kPending);
}

TEST(HmacChannel, ASilentPeerIsRefusedAtTheDeadline) {
  const auto b = channel(kSecret, accepting(1));
  b->expire(b->deadline() - std::chrono::milliseconds(1));
  EXPECT_EQ(b->state(), State::kPending);
  b->expire(b->deadline());
  EXPECT_EQ(b->refusal().code(), StatusCode::kDeadlineExceeded);

  const auto a = channel(kSecret, connecting(3, 1)), c = channel(kSecret, accepting(1));
  converse(*a, *c);
  c->expire(c->deadline());
  EXPECT_EQ(c->state(), State::kAuthenticated);
}

}  // namespace
}  // namespace qx::collectives::testing
