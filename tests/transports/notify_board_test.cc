#include "transports/notification.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

namespace dunlin::transport {
namespace {

std::uint32_t number(NotifyId id) {
  return static_cast<std::uint32_t>(id);
}

// A large board has a file of its own, so that its pages can be counted.
std::uint64_t pages_of(const NotifyBoard& board) {
  std::ifstream maps("/proc/self/smaps");
  const auto begin = fmt::format("{:x}-", reinterpret_cast<std::uintptr_t>(board.memory()->data()));
  bool is_here = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.find('-') != std::string::npos && line.find(" rw-s ") != std::string::npos)
      is_here = line.starts_with(begin);
    if (is_here && line.starts_with("Rss:")) return std::stoull(line.substr(4)) / 4;
  }
  ADD_FAILURE() << "the board is not mapped";
  return 0;
}

TEST(NotifyBoard, FreedCellsAreReusedAsLateAsPossible) {
  const auto board = NotifyBoard::create(8).value();
  const NotifyId first = board->allocate(4).value();
  board->free(first, 4);
  EXPECT_EQ(number(board->allocate(4).value()), 4U);
  EXPECT_EQ(number(board->allocate(4).value()), 0U);
  EXPECT_EQ(board->allocate(1).status().code(), Code::kResourceExhausted);
}

TEST(NotifyBoard, FreeBlocksJoinTheirNeighbors) {
  const auto board = NotifyBoard::create_private(12);
  std::vector<NotifyId> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(board->allocate(3).value());
  board->free(blocks[0], 3);
  board->free(blocks[2], 3);
  EXPECT_EQ(board->allocate(6).status().code(), Code::kResourceExhausted);
  board->free(blocks[1], 3);
  EXPECT_EQ(number(board->allocate(9).value()), 0U);
  board->free(blocks[3], 3);
  EXPECT_EQ(number(board->allocate(3).value()), 9U);
}

TEST(NotifyBoard, ReusedCellsBeginAtZero) {
  for (const std::size_t count : {std::size_t{3}, std::size_t{5000}}) {
    const auto board = NotifyBoard::create(count).value();
    const NotifyId first = board->allocate(count).value();
    for (std::uint32_t i = 0; i < count; ++i)
      board->cell(cell_at(first, i)).publish({.sequence = i + 1, .inline_data = {}});
    board->free(first, count);
    board->cell(first).publish({.sequence = 7, .inline_data = {}});  // a late one
    ASSERT_EQ(board->allocate(count).value(), first);
    for (std::uint32_t i = 0; i < count; ++i)
      ASSERT_EQ(board->sequence(cell_at(first, i)), 0U) << i;
  }
}

// The neighbors of a block share its first and its last page.
TEST(NotifyBoard, ClearingALargeBlockLeavesItsNeighborsAlone) {
  constexpr std::size_t kLarge = 5000;
  const auto board = NotifyBoard::create(kLarge + 2).value();
  const NotifyId before = board->allocate(1).value();
  const NotifyId block = board->allocate(kLarge).value();
  const NotifyId after = board->allocate(1).value();
  board->cell(before).publish({.sequence = 7, .inline_data = {}});
  board->cell(after).publish({.sequence = 8, .inline_data = {}});
  board->free(block, kLarge);
  EXPECT_EQ(board->allocate(kLarge).value(), block);
  EXPECT_EQ(board->sequence(before), 7U);
  EXPECT_EQ(board->sequence(after), 8U);
}

TEST(NotifyBoard, MemoryIsTakenByCellsInUseOnly) {
  constexpr std::size_t kCells = std::size_t{1} << 26;  // 4 GiB of address space
  const auto board = NotifyBoard::create(kCells).value();
  std::vector<NotifyId> communicators;
  for (int i = 0; i < 250; ++i) communicators.push_back(board->allocate(16 * 16384).value());
  EXPECT_EQ(pages_of(*board), 0U);
  for (const NotifyId each : communicators) {
    board->cell(cell_at(each, 16 * 5)).publish({.sequence = 1, .inline_data = {}});
    board->cell(cell_at(each, 16 * 9000)).publish({.sequence = 1, .inline_data = {}});
  }
  EXPECT_EQ(pages_of(*board), 500U);
  // Finding them takes no memory either.
  std::size_t used = 0;
  for (std::size_t at = board->next_used(0); at < kCells; at = board->next_used(at + 64)) ++used;
  EXPECT_EQ(used, 500U);
  EXPECT_EQ(pages_of(*board), 500U);
  for (const NotifyId each : communicators) board->free(each, 16 * 16384);
  EXPECT_EQ(pages_of(*board), 0U) << "what was freed takes no memory";
  EXPECT_EQ(board->next_used(0), kCells);
}

// The cells are the parent's.
TEST(NotifyBoard, AForkedChildClearsNothing) {
  constexpr std::size_t kMany = 5000;
  const auto board = NotifyBoard::create(kMany).value();
  const NotifyId first = board->allocate(kMany).value();
  for (std::uint32_t i = 0; i < kMany; ++i)
    board->cell(cell_at(first, i)).publish({.sequence = 3, .inline_data = {}});
  const pid_t child = fork();
  if (child == 0) {
    board->free(first, kMany);
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  for (std::uint32_t i = 0; i < kMany; ++i) ASSERT_EQ(board->sequence(cell_at(first, i)), 3U) << i;
}

}  // namespace
}  // namespace dunlin::transport
