// TLS 1.3 around the proof of the secret: who is let in, and that nothing can be read or changed on the way.
#include "quincunx/collectives/security/tls_channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "collectives/security/authority.h"
#include "collectives/security/channel_pair.h"

namespace qx::collectives::testing {
namespace {

using ::testing::HasSubstr;
using State = SecureChannel::State;

class Tls : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = ::testing::TempDir() + "qx-tls-XXXXXX";
    ASSERT_NE(mkdtemp(directory_.data()), nullptr);
  }
  void TearDown() override {
    for (const char* name : {"QX_MCCL_TLS_CERT", "QX_MCCL_TLS_KEY", "QX_MCCL_TLS_CA"}) unsetenv(name);
    std::filesystem::remove_all(directory_);
  }
  static Credentials with(const TlsContext::Files& files, const std::string& secret = "sixteen bytes ok") {
    auto context = TlsContext::load(files);
    QX_CHECK_MESSAGE(context.ok(), context.status().message());
    return {Secret(secret), *context};
  }
  std::string directory_;
};

bool contains(const std::vector<std::byte>& bytes, const std::string& text) {
  const std::vector<std::byte> wanted = bytes_of(text);
  return std::search(bytes.begin(), bytes.end(), wanted.begin(), wanted.end()) != bytes.end();
}

TEST_F(Tls, MembersOfOneAuthorityTalkInSecret) {
  const Authority authority(directory_, "job");
  for (const size_t piece : {size_t{1}, size_t{100}, size_t{1 << 20}}) {
    const auto a = channel(with(authority.member("a")), connecting(3, 1));
    const auto b = channel(with(authority.member("b")), accepting(1));
    converse(*a, *b, piece);
    ASSERT_EQ(a->state(), State::kAuthenticated) << a->refusal();
    ASSERT_EQ(b->state(), State::kAuthenticated) << b->refusal();
    EXPECT_EQ(a->peer_rank(), 1);
    EXPECT_EQ(b->peer_rank(), 3);
    EXPECT_FALSE(a->is_transparent());
    std::string text;
    for (int i = 0; text.size() < 100000; ++i) text += "gradients " + std::to_string(i);
    a->send(bytes_of(text));
    const std::vector<std::byte> wire = a->take_outgoing();
    EXPECT_FALSE(contains(wire, "gradients"));
    feed(*b, wire, piece);
    EXPECT_EQ(b->take_received(), bytes_of(text));
    b->send(bytes_of("x"));
    converse(*a, *b, piece);
    EXPECT_EQ(a->take_received(), bytes_of("x"));
  }
}

TEST_F(Tls, BytesBehindTheProofAreKept) {
  const Authority authority(directory_, "job");
  const auto a = channel(with(authority.member("a")), connecting(3, 1));
  const auto b = channel(with(authority.member("b")), accepting(1));
  while (a->state() == State::kPending) {
    b->receive(a->take_outgoing());
    a->receive(b->take_outgoing());
  }
  a->send(bytes_of("at once"));
  b->receive(a->take_outgoing());
  ASSERT_EQ(b->state(), State::kAuthenticated) << b->refusal();
  EXPECT_EQ(b->take_received(), bytes_of("at once"));
}

TEST_F(Tls, AChangedByteEndsTheChannel) {
  const Authority authority(directory_, "job");
  const auto a = channel(with(authority.member("a")), connecting(3, 1));
  const auto b = channel(with(authority.member("b")), accepting(1));
  converse(*a, *b);
  a->send(bytes_of("four"));
  std::vector<std::byte> wire = a->take_outgoing();
  wire[wire.size() / 2] ^= std::byte{1};
  b->receive(wire);
  EXPECT_EQ(b->state(), State::kRefused);
  EXPECT_THAT(b->refusal().message(), HasSubstr("TLS: "));
  EXPECT_TRUE(b->take_received().empty());
}

TEST_F(Tls, AnotherAuthorityOrAnEndedCertificateIsRefused) {
  const Authority authority(directory_, "job"), other(directory_, "other");
  const auto refusals = [&](const TlsContext::Files& a_has, const TlsContext::Files& b_has) {
    const auto a = channel(with(a_has), connecting(3, 1)), b = channel(with(b_has), accepting(1));
    converse(*a, *b);
    EXPECT_NE(b->state(), State::kAuthenticated);
    EXPECT_EQ(b->state(), State::kRefused);
    EXPECT_TRUE(a->state() == State::kRefused || a->peer_rank() == -1);
    return a->refusal().message() + b->refusal().message();
  };
  EXPECT_THAT(refusals(other.member("a"), authority.member("b")), HasSubstr("certificate verify failed"));
  TlsContext::Files trusting = other.member("a");  // accepts the other end, and is not accepted
  trusting.authority = directory_ + "/job.crt";
  EXPECT_THAT(refusals(trusting, authority.member("b")), HasSubstr("unable to get local issuer certificate"));
  EXPECT_THAT(refusals(authority.member("a", -60), authority.member("b")), HasSubstr("certificate has expired"));
}

TEST_F(Tls, TheSecretIsProvenInsideTooBoundToTheSession) {
  const Authority authority(directory_, "job");
  const auto a = channel(with(authority.member("a"), "sixteen bytes no"), connecting(3, 1));
  const auto b = channel(with(authority.member("b")), accepting(1));
  converse(*a, *b);
  EXPECT_EQ(a->state(), State::kRefused);
  EXPECT_EQ(b->state(), State::kRefused);
  EXPECT_THAT(b->refusal().message(), HasSubstr("does not hold the same secret"));
}

TEST_F(Tls, PeersWithoutTlsAreRefused) {
  const Authority authority(directory_, "job");
  const Credentials plain{Secret("sixteen bytes ok"), nullptr};
  const auto a = channel(plain, connecting(3, 1)), b = channel(with(authority.member("b")), accepting(1));
  converse(*a, *b);
  EXPECT_EQ(b->state(), State::kRefused);
  EXPECT_NE(a->state(), State::kAuthenticated);  // it sees that the connection is closed
  const auto c = channel(with(authority.member("c")), connecting(3, 1)), d = channel(plain, accepting(1));
  converse(*c, *d);
  EXPECT_EQ(c->state(), State::kRefused);
  EXPECT_EQ(d->state(), State::kRefused);
}

TEST_F(Tls, AnUnauthenticatedPeerCannotSendWithoutEnd) {
  const Authority authority(directory_, "job");
  const auto b = channel(with(authority.member("b")), accepting(1));
  // The start of a record that is never completed, over and over.
  const std::vector<std::byte> part = bytes_of(std::string("\x16\x03\x01\x40\x00", 5) + std::string(1000, 'x'));
  for (int i = 0; i < 70 && b->state() == State::kPending; ++i) b->receive(part);
  EXPECT_EQ(b->state(), State::kRefused);
}

TEST_F(Tls, FilesThatCannotBeUsedAreNamed) {
  const Authority authority(directory_, "job");
  const TlsContext::Files good = authority.member("a");
  const auto message = [](const TlsContext::Files& files) { return TlsContext::load(files).status().message(); };
  TlsContext::Files files = good;
  files.certificate = directory_ + "/none";
  EXPECT_THAT(message(files), HasSubstr("QX_MCCL_TLS_CERT: cannot use \"" + directory_ + "/none\""));
  files = good;
  files.key = authority.member("b").key;
  EXPECT_THAT(message(files), HasSubstr("QX_MCCL_TLS_KEY"));
  files = good;
  files.authority = good.key;
  EXPECT_THAT(message(files), HasSubstr("QX_MCCL_TLS_CA"));
  chmod(good.key.c_str(), 0640);
  EXPECT_THAT(message(good), HasSubstr("chmod 600"));
}

TEST_F(Tls, IsReadFromTheEnvironment) {
  const Authority authority(directory_, "job");
  const TlsContext::Files files = authority.member("a");
  EXPECT_EQ(Credentials::from_environment()->tls, nullptr);
  setenv("QX_MCCL_TLS_CERT", files.certificate.c_str(), 1);
  setenv("QX_MCCL_TLS_KEY", files.key.c_str(), 1);
  EXPECT_THAT(Credentials::from_environment().status().message(), HasSubstr("not set: QX_MCCL_TLS_CA"));
  setenv("QX_MCCL_TLS_CA", files.authority.c_str(), 1);
  EXPECT_NE(Credentials::from_environment()->tls, nullptr);
}

}  // namespace
}  // namespace qx::collectives::testing
