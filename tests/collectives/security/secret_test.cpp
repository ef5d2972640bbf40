// Where a secret may come from.
#include "quincunx/collectives/security/secret.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "quincunx/collectives/security/secure_channel.h"

namespace qx::collectives {
namespace {

using ::testing::HasSubstr;

class SecretFile : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = ::testing::TempDir() + "qx-secret-XXXXXX";
    ASSERT_NE(mkdtemp(directory_.data()), nullptr);
    path_ = directory_ + "/secret";
  }
  void TearDown() override {
    for (const char* name : {"QX_MCCL_SECRET_FILE", "QX_MCCL_SECRET", "QX_MCCL_TLS_CERT"}) unsetenv(name);
    std::filesystem::remove_all(directory_);
  }
  void write(const std::string& text, mode_t mode = 0600) const {
    std::ofstream(path_, std::ios::binary) << text;
    chmod(path_.c_str(), mode);
  }
  Status refusal() const { return read_secret_file(path_).status(); }

  std::string directory_, path_;
};

std::string text_of(const Secret& secret) {
  return {reinterpret_cast<const char*>(secret.bytes().data()), secret.bytes().size()};
}

TEST_F(SecretFile, IsReadWithoutTheWhiteSpaceAtItsEnd) {
  write("0123456789abcdef \r\n\n");
  EXPECT_EQ(text_of(*read_secret_file(path_)), "0123456789abcdef");
  write(std::string("0123\0 456789abcdef", 18), 0400);
  EXPECT_EQ(read_secret_file(path_)->bytes().size(), 18u);
}

TEST_F(SecretFile, IsRefusedWhereOthersCanReadOrWriteIt) {
  for (const mode_t mode : {0640, 0604, 0620, 0602, 0610, 0601}) {
    write("0123456789abcdef", mode);
    EXPECT_EQ(refusal().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(refusal().message(), HasSubstr("chmod 600")) << mode;
  }
}

TEST_F(SecretFile, IsRefusedWhereItIsShortLongOrNoFile) {
  EXPECT_THAT(refusal().message(), HasSubstr("No such file"));
  write("0123456789abcde\n");
  EXPECT_THAT(refusal().message(), HasSubstr("16 to 4096 bytes, got 15"));
  write("");
  EXPECT_THAT(refusal().message(), HasSubstr("got 0"));
  write(std::string(4097, 'x'));
  EXPECT_THAT(refusal().message(), HasSubstr("got 4097"));
  EXPECT_THAT(read_secret_file(directory_).status().message(), HasSubstr("no regular file"));
  ASSERT_EQ(mkfifo((path_ + ".fifo").c_str(), 0600), 0);
  EXPECT_THAT(read_secret_file(path_ + ".fifo").status().message(), HasSubstr("no regular file"));
}

TEST_F(SecretFile, OfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make a file of another user";
  write("0123456789abcdef");
  ASSERT_EQ(chown(path_.c_str(), 12345, 12345), 0);
  EXPECT_THAT(refusal().message(), HasSubstr("belongs to user 12345, expected 0 or root"));
}

TEST_F(SecretFile, OfTheEnvironmentComesBeforeTheVariable) {
  EXPECT_TRUE(secret_from_environment()->empty());
  setenv("QX_MCCL_SECRET", "from the variable", 1);
  EXPECT_EQ(text_of(*secret_from_environment()), "from the variable");
  write("from the secret file");
  setenv("QX_MCCL_SECRET_FILE", path_.c_str(), 1);
  EXPECT_EQ(text_of(*secret_from_environment()), "from the secret file");
  setenv("QX_MCCL_SECRET_FILE", "", 1);
  setenv("QX_MCCL_SECRET", "short", 1);
  EXPECT_THAT(secret_from_environment().status().message(), HasSubstr("QX_MCCL_SECRET: expected a secret of 16"));
  EXPECT_THAT(Credentials::from_environment().status().message(), HasSubstr("QX_MCCL_SECRET"));
}

TEST_F(SecretFile, OnePartOfTlsAloneIsRefused) {
  setenv("QX_MCCL_TLS_CERT", "/nowhere", 1);
  EXPECT_THAT(Credentials::from_environment().status().message(),
              HasSubstr("not set: QX_MCCL_TLS_KEY, QX_MCCL_TLS_CA"));
}

TEST_F(SecretFile, MayBeNamedByTheProgram) {
  write("from the secret file");
  setenv("QX_MCCL_SECRET", "not even looked at", 1);
  EXPECT_EQ(*Credentials::from_named({}), nullptr);
  EXPECT_EQ(text_of((*Credentials::from_named({.secret = "given as a text..."}))->secret), "given as a text...");
  EXPECT_EQ(text_of((*Credentials::from_named({.secret_file = path_}))->secret), "from the secret file");
  const auto message = [](const NamedCredentials& named) {
    return Credentials::from_named(named, "options.").status().message();
  };
  EXPECT_THAT(message({.secret = ""}), HasSubstr("options.secret: expected a secret of 16"));
  EXPECT_THAT(message({.secret_file = ""}), HasSubstr("options.secret_file: cannot open"));
  EXPECT_THAT(message({.secret = "both", .secret_file = path_}), HasSubstr("options.secret: expected none where"));
  EXPECT_THAT(message({.tls_key_file = path_}), HasSubstr("options.tls_*_file: expected certificate, key"));
  EXPECT_THAT(message({.tls_certificate_file = "/a", .tls_key_file = path_ + ".none", .tls_authority_file = "/c"}),
              HasSubstr("options.tls_key_file: cannot use"));
}

TEST(Secret, IsGoneFromWhereItWasMoved) {
  Secret a("0123456789abcdef");
  const Secret b = std::move(a);
  EXPECT_TRUE(a.empty());
  EXPECT_EQ(b.bytes().size(), 16u);
  Secret c("another secret..");
  c = b;
  EXPECT_EQ(text_of(c), "0123456789abcdef");
}

}  // namespace
}  // namespace qx::collectives
