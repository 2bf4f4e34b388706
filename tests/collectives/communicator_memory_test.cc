// How much of a communicator's memory small calls make pages of.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "collectives/communicator/communicator.h"
#include "tests/support/ranks.h"

namespace dunlin::collective {
namespace {

// The bytes with pages of all memory files that this process has open.
std::size_t bytes_with_pages() {
  std::size_t bytes = 0;
  std::set<std::uint64_t> seen;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    struct stat info {};
    if (!target.starts_with("/memfd:") || stat(entry.path().c_str(), &info) != 0) continue;
    if (seen.insert(info.st_ino).second) bytes += static_cast<std::size_t>(info.st_blocks) * 512;
  }
  return bytes;
}

// Whether the first use of shared memory makes a huge page.
bool has_huge_pages_always() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  std::string text;
  std::getline(file, text);
  return text.find("[always]") != std::string::npos || text.find("[force]") != std::string::npos;
}

TEST(CommunicatorMemory, SmallCallsMakeFewPages) {
  if (has_huge_pages_always()) GTEST_SKIP() << "shared memory has huge pages here";
  constexpr int kRanks = 4;
  const auto configure = [](Config& config) {
    config.transports = {"shm"};
    config.huge_pages = false;
  };
  const std::size_t before = bytes_with_pages();
  testing::run_ranks(
      {.size = kRanks, .killed = {}, .configure = configure}, [&](transport::Fabric& fabric) {
        const auto communicator = Communicator::create(fabric, {}).value();
        // Memory that nobody registered: it passes through the communicator's.
        std::array<float, 16> data;
        data.fill(1);
        const Status status = communicator->all_reduce(data.data(), data.data(), data.size(),
                                                       {DataType::kFloat32, ReduceOp::kSum});
        EXPECT_TRUE(status.is_ok()) << status.to_string();
        EXPECT_EQ(data.back(), kRanks);
        const Duration timeout = fabric.config().deadline;
        EXPECT_TRUE(fabric.bootstrap().barrier("reduced", timeout).is_ok());
        EXPECT_LT(bytes_with_pages() - before, kRanks * (std::size_t{1} << 20));
        EXPECT_TRUE(fabric.bootstrap().barrier("measured", timeout).is_ok());
      });
}

}  // namespace
}  // namespace dunlin::collective
