#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "runtime/memory/allocator.h"
#include "runtime/memory/region.h"

namespace dunlin {
namespace {

TEST(MemoryRegion, IsZeroedPageAlignedAndRoundedUp) {
  const auto region = MemoryRegion::allocate(10'000).value();
  EXPECT_GE(region->size(), 10'000u);
  EXPECT_EQ(region->size() % region->page_size(), 0u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(region->data()) % region->page_size(), 0u);
  EXPECT_TRUE(std::all_of(region->bytes().begin(), region->bytes().end(),
                          [](std::byte b) { return b == std::byte{0}; }));
  EXPECT_EQ(region->kind(), MemoryKind::kHost);
}

TEST(MemoryRegion, ASecondMappingSeesTheSameBytes) {
  const auto region = MemoryRegion::allocate(4096).value();
  const auto again = MemoryRegion::map(Fd(dup(region->fd())), region->size()).value();
  EXPECT_NE(again->data(), region->data());
  EXPECT_EQ(again->fd(), -1) << "an imported region keeps no descriptor";
  region->data()[17] = std::byte{42};
  EXPECT_EQ(again->data()[17], std::byte{42});
}

TEST(MemoryRegion, CannotBeResizedUnderItsReaders) {
  const auto region = MemoryRegion::allocate(8192).value();
  EXPECT_NE(ftruncate(region->fd(), 4096), 0);
  EXPECT_NE(ftruncate(region->fd(), 1 << 20), 0);
}

TEST(MemoryRegion, RefusesWhatIsNotThere) {
  EXPECT_EQ(MemoryRegion::allocate(0).status().code(), Code::kInvalidArgument);
  EXPECT_FALSE(MemoryRegion::allocate(std::size_t{1} << 62).is_ok());
  EXPECT_EQ(MemoryRegion::wrap(nullptr, 8).status().code(), Code::kInvalidArgument);
  const auto region = MemoryRegion::allocate(4096).value();
  EXPECT_EQ(MemoryRegion::map(Fd(dup(region->fd())), region->size() + 1).status().code(),
            Code::kCorrupted);
  EXPECT_FALSE(MemoryRegion::map(Fd(), 4096).is_ok());
}

TEST(MemoryRegion, LargeOnesFallBackToOrdinaryPages) {
  const auto region = MemoryRegion::allocate(std::size_t{5} << 20).value();
  EXPECT_GE(region->size(), std::size_t{5} << 20);
  std::memset(region->data(), 1, region->size());
}

MemoryRegion::Options from(SharedFilePool& pool) {
  MemoryRegion::Options options;
  options.pool = &pool;
  options.huge_pages = false;
  return options;
}

std::int64_t pages_of(int fd) {
  struct stat info {};
  EXPECT_EQ(fstat(fd, &info), 0);
  return info.st_blocks * 512 / 4096;
}

TEST(MemoryRegion, PagesAreReservedOnlyWhereTheyAreWanted) {
  constexpr std::int64_t kPages = 1024;
  constexpr std::size_t kBytes = kPages * 4096;
  MemoryRegion::Options options;
  options.huge_pages = false;
  const auto reserved = MemoryRegion::allocate(kBytes, options).value();
  EXPECT_EQ(pages_of(reserved->fd()), kPages);
  for (const Pages pages : {Pages::kOnUse, Pages::kSparse}) {
    options.pages = pages;
    const auto region = MemoryRegion::allocate(kBytes, options).value();
    EXPECT_EQ(pages_of(region->fd()), 0);
    region->data()[kBytes / 2] = std::byte{1};
    EXPECT_GT(pages_of(region->fd()), 0);
    EXPECT_LT(pages_of(region->fd()), kPages);
  }
}

TEST(MemoryRegion, ManyOfAPoolShareADescriptorAndNoByte) {
  SharedFilePool pool;
  std::vector<std::shared_ptr<MemoryRegion>> regions;
  std::set<int> descriptors;
  for (int i = 0; i < 1000; ++i) {
    regions.push_back(MemoryRegion::allocate(4096, from(pool)).value());
    descriptors.insert(regions.back()->fd());
    ASSERT_EQ(regions.back()->data()[4095], std::byte{0});
    std::memset(regions.back()->data(), i % 251 + 1, 4096);
  }
  EXPECT_EQ(descriptors.size(), 1u);
  for (std::size_t i = 0; i < regions.size(); ++i) {
    const auto seen = MemoryRegion::map(Fd(dup(regions[i]->fd())), 4096, regions[i]->fd_offset());
    ASSERT_EQ((*seen)->data()[7], static_cast<std::byte>(i % 251 + 1));
  }
}

TEST(MemoryRegion, GivesItsPagesBackAndItsPlaceToNoOther) {
  SharedFilePool pool;
  const auto kept = MemoryRegion::allocate(4096, from(pool)).value();
  auto freed = MemoryRegion::allocate(1 << 20, from(pool)).value();
  ASSERT_EQ(freed->fd(), kept->fd());
  const std::size_t offset = freed->fd_offset();
  // A peer that writes late.
  const auto peer = MemoryRegion::map(Fd(dup(freed->fd())), freed->size(), offset).value();
  EXPECT_EQ(pages_of(kept->fd()), 257);
  freed.reset();
  EXPECT_EQ(pages_of(kept->fd()), 1);
  const auto next = MemoryRegion::allocate(1 << 20, from(pool)).value();
  std::memset(peer->data(), 1, peer->size());
  EXPECT_EQ(next->data()[0], std::byte{0});
  EXPECT_GE(next->fd_offset(), offset + (1 << 20));
}

TEST(MemoryRegion, LargeOnesAndFilesThatAreFullTakeAnotherFile) {
  SharedFilePool pool;
  const auto first = MemoryRegion::allocate(4096, from(pool)).value();
  const auto large = MemoryRegion::allocate(SharedFilePool::kFileBytes + 4096, from(pool));
  ASSERT_TRUE(large.is_ok());
  EXPECT_NE((*large)->fd(), first->fd());
  auto whole = MemoryRegion::allocate(SharedFilePool::kFileBytes, from(pool)).value();
  EXPECT_NE(whole->fd(), first->fd());
  const auto next = MemoryRegion::allocate(4096, from(pool)).value();
  EXPECT_NE(next->fd(), whole->fd());
}

// A process that forks goes on with its memory, whatever the other one does with its copy.
TEST(MemoryRegion, AForkedProcessNeitherFreesNorGivesAwayItsParentsMemory) {
  SharedFilePool pool;
  auto region = MemoryRegion::allocate(4096, from(pool)).value();
  std::memset(region->data(), 5, 4096);
  const pid_t child = fork();
  if (child == 0) {
    const auto own = MemoryRegion::allocate(4096, from(pool)).value();
    std::memset(own->data(), 6, 4096);
    region.reset();
    _exit(0);
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_EQ(region->data()[9], std::byte{5});
  const auto next = MemoryRegion::allocate(4096, from(pool)).value();
  EXPECT_EQ(next->data()[9], std::byte{0});
}

TEST(MemoryRegion, PrivateOnesTakeNoDescriptor) {
  MemoryRegion::Options options;
  options.is_private = true;
  const auto region = MemoryRegion::allocate(10'000, options).value();
  EXPECT_EQ(region->fd(), -1);
  EXPECT_TRUE(region->is_owned());
  EXPECT_GE(region->size(), 10'000u);
  EXPECT_EQ(region->data()[9'999], std::byte{0});
}

TEST(BufferAllocator, BlocksAreAlignedDistinctAndReused) {
  BufferAllocator allocator(MemoryRegion::allocate(1 << 16).value());
  const std::size_t a = allocator.allocate(1).value();
  const std::size_t b = allocator.allocate(0).value();
  const std::size_t c = allocator.allocate(100, 4096).value();
  EXPECT_NE(a, b);
  EXPECT_EQ(a % 64, 0u);
  EXPECT_EQ(c % 4096, 0u);
  EXPECT_EQ(allocator.allocate(8, 48).status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(allocator.free(b).is_ok());
  EXPECT_EQ(allocator.allocate(64).value(), b);
  EXPECT_EQ(allocator.free(12345).code(), Code::kInvalidArgument);
}

TEST(BufferAllocator, TellsWhatIsFreeWhenItIsFull) {
  BufferAllocator allocator(MemoryRegion::allocate(4096).value());
  const Status status = allocator.allocate(8192).status();
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_NE(status.message().find("largest block 4096"), std::string_view::npos)
      << status.to_string();
  EXPECT_EQ(allocator.allocate(SIZE_MAX).status().code(), Code::kResourceExhausted);
}

// After random allocations and frees, blocks never overlap. In the end, all memory is one free
// block.
TEST(BufferAllocator, NeverHandsOutTheSameByteTwice) {
  BufferAllocator allocator(MemoryRegion::allocate(1 << 20).value());
  std::mt19937 random(7);
  std::map<std::size_t, std::size_t> blocks;
  for (int round = 0; round < 5000; ++round) {
    if (blocks.empty() || random() % 2 == 0) {
      const std::size_t size = random() % 5000;
      const auto offset = allocator.allocate(size, std::size_t{64} << (random() % 5));
      if (!offset) continue;
      const auto next = blocks.lower_bound(*offset);
      EXPECT_TRUE(next == blocks.end() || *offset + size <= next->first);
      EXPECT_TRUE(next == blocks.begin() ||
                  std::prev(next)->first + std::prev(next)->second <= *offset);
      blocks.emplace(*offset, size);
    } else {
      const auto victim =
          std::next(blocks.begin(), static_cast<std::ptrdiff_t>(random() % blocks.size()));
      EXPECT_TRUE(allocator.free(victim->first).is_ok());
      blocks.erase(victim);
    }
  }
  for (const auto& [offset, size] : blocks) EXPECT_TRUE(allocator.free(offset).is_ok());
  EXPECT_EQ(allocator.free_bytes(), std::size_t{1} << 20);
  EXPECT_EQ(allocator.largest_free_block(), std::size_t{1} << 20);
}

}  // namespace
}  // namespace dunlin
