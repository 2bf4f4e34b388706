#include "runtime/bootstrap/secret.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace dunlin::bootstrap {
namespace {

using ::testing::HasSubstr;

class SecretFile : public ::testing::Test {
 protected:
  void write(const std::string& text, mode_t mode) {
    std::ofstream(path_) << text;
    chmod(path_.c_str(), mode);
  }
  ~SecretFile() override { std::filesystem::remove(path_); }
  std::string path_ = ::testing::TempDir() + "dunlin-secret-" + std::to_string(getpid());
};

TEST_F(SecretFile, GivesItsFirstLine) {
  write("correct horse\nbattery\n", 0600);
  EXPECT_EQ(read_secret_file(path_).value(), "correct horse");
}

TEST_F(SecretFile, ReadableByOthersIsRefused) {
  write("correct horse\n", 0640);
  const Status status = read_secret_file(path_).status();
  EXPECT_EQ(status.code(), Code::kPermissionDenied);
  EXPECT_THAT(status.to_string(), HasSubstr("mode 640"));
  EXPECT_THAT(status.to_string(), HasSubstr("chmod 600 " + path_));
}

TEST_F(SecretFile, EmptyMissingAndFoldersAreErrors) {
  EXPECT_EQ(read_secret_file(path_).status().code(), Code::kNotFound);
  write("\n", 0600);
  EXPECT_THAT(read_secret_file(path_).status().to_string(), HasSubstr("is empty"));
  EXPECT_THAT(read_secret_file(::testing::TempDir()).status().to_string(),
              HasSubstr("is not a regular file"));
}

Claims sample() {
  return {.role = Role::kMember,
          .member_nonce = random_nonce(),
          .coordinator_nonce = random_nonce(),
          .job_id = "job",
          .rank = Rank(3),
          .size = 8};
}

TEST(Proof, HoldsForTheSameClaimsAndSecretOnly) {
  const Claims claims = sample();
  const Proof proof = prove("secret", claims);
  EXPECT_TRUE(proves(proof, "secret", claims));
  EXPECT_FALSE(proves(proof, "secre", claims));
  EXPECT_FALSE(proves({}, "secret", claims));

  // A proof cannot be reflected, replayed or used for another rank or job.
  std::vector<Claims> others(6, claims);
  others[0].role = Role::kCoordinator;
  others[1].member_nonce = random_nonce();
  others[2].coordinator_nonce = random_nonce();
  others[3].job_id = "other";
  others[4].rank = Rank(4);
  others[5].size = 9;
  for (const Claims& other : others) EXPECT_FALSE(proves(proof, "secret", other));
}

TEST(Proof, OfARejectionHoldsForItsReasonOnly) {
  const Claims claims = sample();
  const Proof proof = prove_rejection("secret", claims, Code::kAlreadyExists, "taken");
  EXPECT_TRUE(proves_rejection(proof, "secret", claims, Code::kAlreadyExists, "taken"));
  EXPECT_FALSE(proves_rejection(proof, "secre", claims, Code::kAlreadyExists, "taken"));
  EXPECT_FALSE(proves_rejection(proof, "secret", claims, Code::kUnavailable, "taken"));
  EXPECT_FALSE(proves_rejection(proof, "secret", claims, Code::kAlreadyExists, "taken too"));
  EXPECT_FALSE(proves_rejection({}, "secret", claims, Code::kAlreadyExists, "taken"));
  EXPECT_FALSE(proves(proof, "secret", claims));
  Claims later = claims;
  later.member_nonce = random_nonce();
  EXPECT_FALSE(proves_rejection(proof, "secret", later, Code::kAlreadyExists, "taken"));
}

TEST(Random, TextIsHexadecimalAndDiffers) {
  const std::string text = random_hex(32);
  EXPECT_EQ(text.size(), 64U);
  EXPECT_EQ(text.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_NE(text, random_hex(32));
}

}  // namespace
}  // namespace dunlin::bootstrap
