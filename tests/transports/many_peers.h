// Traffic between all ranks over both lanes, for tests with more lanes than connections.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/support/ranks.h"

namespace dunlin::testing {

class ManyPeers {
 public:
  ManyPeers(transport::Fabric& fabric, const std::string& name)
      : fabric_(fabric),
        size_(static_cast<std::size_t>(fabric.size())),
        self_(fabric.rank().index()),
        memory_(fabric, name, (size_ + 1) * kBlock, 2 * size_),
        own_(fabric.allocate((size_ + 2) * kBlock).value()) {}

  Exposed& memory() { return memory_; }

  // Puts a block into the memory of every rank, adds to a word there, reads the block back, and
  // checks what the others have put here. Rounds are numbered from 1, and all ranks take part.
  void round(std::uint64_t number) {
    fill(block(*own_, size_), seed(self_, number));
    std::vector<transport::Completion> done(2 * size_);
    each_peer([&](int peer) {
      expect_posted([&] {
        return memory_.data(peer).put_notify(slice(*own_, size_), slice(memory_.at(peer), self_),
                                             notification(memory_.cell_at(peer, self_), number),
                                             nullptr);
      });
      const auto word = memory_.at(peer).slice(size_ * kBlock, 8).value();
      expect_posted([&] {
        return memory_.data(peer).atomics()->fetch_add(word, 1, nullptr,
                                                       &done[static_cast<std::size_t>(peer)]);
      });
    });
    for (std::size_t peer = 0; peer < size_; ++peer) {
      ASSERT_TRUE(await_cell(fabric_, memory_.cell(peer), number)) << "rank " << peer;
      EXPECT_TRUE(is_filled(block(memory_.local(), peer), seed(peer, number))) << "rank " << peer;
    }
    each_peer([&](int peer) {
      const auto index = static_cast<std::size_t>(peer);
      expect_posted([&] {
        return memory_.link(peer).control().reads()->get(slice(memory_.at(peer), self_),
                                                         slice(*own_, index), &done[size_ + index]);
      });
    });
    for (std::size_t i = 0; i < done.size(); ++i) {
      ASSERT_TRUE(progress_until(fabric_, [&] { return done[i].is_done(); })) << i;
      EXPECT_TRUE(done[i].status().is_ok()) << done[i].status().to_string();
    }
    for (std::size_t peer = 0; peer < size_; ++peer)
      EXPECT_TRUE(is_filled(block(*own_, peer), seed(self_, number))) << "read from rank " << peer;
    each_peer([&](int peer) {
      expect_posted([&] {
        return memory_.link(peer).control().notify(
            notification(memory_.cell_at(peer, size_ + self_), number), nullptr);
      });
    });
    for (std::size_t peer = 0; peer < size_; ++peer)
      ASSERT_TRUE(await_cell(fabric_, memory_.cell(size_ + peer), number)) << "rank " << peer;
  }

  // How often this rank's word was added to. All operations on it must be done.
  std::uint64_t additions() {
    std::uint64_t word = 0;
    std::memcpy(&word, memory_.local().data() + size_ * kBlock, sizeof word);
    return word;
  }

 private:
  static constexpr std::size_t kBlock = 512;

  static std::uint64_t seed(std::size_t rank, std::uint64_t number) { return 1000 * number + rank; }
  static std::span<std::byte> block(transport::LocalRegion& region, std::size_t index) {
    return {region.data() + index * kBlock, kBlock};
  }
  static transport::LocalSlice slice(transport::LocalRegion& region, std::size_t index) {
    return region.slice(index * kBlock, kBlock).value();
  }
  static transport::RemoteSlice slice(transport::RemoteRegion& region, std::size_t index) {
    return region.slice(index * kBlock, kBlock).value();
  }
  // Each rank begins with itself.
  template <typename Function>
  void each_peer(Function&& function) {
    for (std::size_t i = 0; i < size_; ++i) function(static_cast<int>((self_ + i) % size_));
  }
  void expect_posted(const std::function<Status()>& operation) {
    const Status status = post(fabric_, operation);
    EXPECT_TRUE(status.is_ok()) << status.to_string();
  }

  transport::Fabric& fabric_;
  const std::size_t size_;
  const std::size_t self_;
  Exposed memory_;
  std::unique_ptr<transport::LocalRegion> own_;
};

}  // namespace dunlin::testing
