// Links over encrypted connections: bytes in order, in both directions, with a socket that is full at times.
#include "quincunx/collectives/security/secure_link.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <numeric>

#include "collectives/security/authority.h"
#include "collectives/security/channel_pair.h"

namespace qx::collectives::testing {
namespace {

class SecureLinkTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = ::testing::TempDir() + "qx-link-XXXXXX";
    ASSERT_NE(mkdtemp(directory_.data()), nullptr);
    const Authority authority(directory_, "job");
    const Credentials credentials{Secret("sixteen bytes ok"), *TlsContext::load(authority.member("a"))};
    auto a = channel(credentials, connecting(1, 0)), b = channel(credentials, accepting(0));
    converse(*a, *b);
    a->send(bytes_of("early"));
    b->receive(a->take_outgoing());
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sockets_), 0);
    a_ = std::make_unique<SecureLink>(sockets_[0], std::move(a));
    b_ = std::make_unique<SecureLink>(sockets_[1], std::move(b));
  }
  void TearDown() override {
    for (const int fd : sockets_) close(fd);
    std::filesystem::remove_all(directory_);
  }
  static std::string read_text(Link& link, size_t size) {
    std::string text(size, '\0');
    text.resize(link.read(reinterpret_cast<std::byte*>(text.data()), size));
    return text;
  }
  std::string directory_;
  int sockets_[2] = {-1, -1};
  std::unique_ptr<SecureLink> a_, b_;
};

TEST_F(SecureLinkTest, StartsWithWhatCameBehindTheHandshake) {
  EXPECT_EQ(read_text(*b_, 100), "early");
  EXPECT_EQ(b_->write(bytes_of("answer")), 6u);
  b_->flush();
  EXPECT_EQ(a_->peek(6).size(), 6u);
  EXPECT_EQ(read_text(*a_, 3), "ans");
  EXPECT_EQ(read_text(*a_, 100), "wer");
  EXPECT_EQ(a_->name(), "TLS");
}

TEST_F(SecureLinkTest, CarriesMoreThanTheSocketHolds) {
  read_text(*b_, 5);
  std::vector<std::byte> sent(3 << 20), got;
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<std::byte>(i * 131 >> 3);
  size_t written = 0;
  bool was_full = false;
  while (got.size() < sent.size()) {
    const size_t taken = a_->write(std::span(sent).subspan(written));
    written += taken;
    a_->flush();
    was_full = was_full || (taken == 0 && written < sent.size());
    if (taken > 0) continue;
    std::byte buffer[5000];
    for (size_t size = 0; (size = b_->read(buffer, sizeof(buffer))) > 0;) got.insert(got.end(), buffer, buffer + size);
    ASSERT_FALSE(b_->closed()) << b_->close_reason();
  }
  EXPECT_TRUE(was_full);
  EXPECT_EQ(got, sent);
  EXPECT_FALSE(a_->has_unsent());
}

TEST_F(SecureLinkTest, ForeignBytesCloseIt) {
  read_text(*b_, 5);
  const std::string foreign(100, 'x');
  ASSERT_EQ(::write(sockets_[0], foreign.data(), foreign.size()), 100);
  EXPECT_TRUE(b_->peek(1).empty());
  EXPECT_TRUE(b_->closed());
  EXPECT_NE(b_->close_reason().find("TLS: "), std::string::npos) << b_->close_reason();
}

}  // namespace
}  // namespace qx::collectives::testing
