// What the tests of one-sided transfers share: a rank of a group, and windows with a slot for each
// rank.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/bindings/nccl/gpu_memory.h"
#include "tests/bindings/nccl/one_sided.h"

namespace dunlin::testing {

inline constexpr std::size_t kPiece = std::size_t{2} << 20;  // of memory that is mapped
inline constexpr std::size_t kWord = sizeof(std::uint64_t);

inline std::string one_sided_transport() {
  const char* const name = std::getenv("NCCL_TEST_TRANSPORT");
  return name == nullptr ? "shm" : name;
}

// The first words of the buffer. Another thread may change those of the host.
inline std::vector<std::uint64_t> words_of(Buffer& buffer, std::size_t count) {
  std::vector<std::uint64_t> words(count);
  if (buffer.is_on_gpu()) {
    std::memcpy(words.data(), buffer.read(count * kWord).data(), count * kWord);
    return words;
  }
  auto* const memory = reinterpret_cast<std::uint64_t*>(buffer.data);
  for (std::size_t i = 0; i < count; ++i)
    words[i] = std::atomic_ref(memory[i]).load(std::memory_order_acquire);
  return words;
}
inline std::uint64_t word_of(Buffer& buffer, std::size_t index = 0) {
  return words_of(buffer, index + 1)[index];
}

// Memory of this kind, filled with zeros.
inline Buffer& cleared(Buffer& buffer) {
  buffer.write(Block(buffer.size));
  return buffer;
}

// The parameters: the version of the interface, and whether NCCL's host code uses it.
class OneSidedTest : public ::testing::TestWithParam<std::pair<int, bool>> {
 protected:
  OneSidedTest() { setenv("FAKE_CUDA_DELAY_US", "100", 0); }
  ~OneSidedTest() override { dlclose(library_); }

  using Body = std::function<void(Member&, Cuda&)>;
  std::string run_here(int size, const Body& body, const std::vector<int>& killed = {}) {
    return run(
        size, 11, one_sided_transport(),
        [&](Rank& rank) {
          Cuda cuda;
          Member member(rank, GetParam().first, GetParam().second);
          body(member, cuda);
        },
        killed);
  }

 private:
  void* const library_ = load_cuda();  // so that the plugin finds it under its name
};

// A window with a slot for each rank, and a signal that counts what has arrived in them.
struct Slots {
  Slots(Member& of, Cuda& cuda, Kind kind, Kind signal_kind, std::size_t slot_bytes)
      : member(of),
        slot(slot_bytes),
        memory(cuda, kind, kPiece * (slot_bytes * kMostRanks / kPiece + 1)),
        from(cuda, kind, kPiece * (slot_bytes / kPiece + 1)),
        signals(cuda, signal_kind, kPiece),
        window{member.add(cleared(memory).data, memory.size, memory.type())},
        source{member.add(from.data, from.size, from.type())},
        signal{member.add(cleared(signals).data, signals.size, signals.type())} {}
  void remove() {
    member.rank.sync();
    for (const At& each : {window, source, signal})
      REQUIRE(member.calls.deregister(member.group, each.memory) == abi::kSuccess);
  }
  At slot_of(int rank) const { return {window.memory, slot * static_cast<std::size_t>(rank)}; }

  Member& member;
  std::size_t slot;
  Buffer memory, from, signals;
  At window, source, signal;
};

// The versions of the interface.
inline auto one_sided_versions() {
  return ::testing::Values(std::pair(11, false), std::pair(12, false), std::pair(13, false),
                           std::pair(13, true));
}
inline std::string one_sided_name(const ::testing::TestParamInfo<std::pair<int, bool>>& each) {
  return (each.param.second ? "rma_v" : "gin_v") + std::to_string(each.param.first);
}

}  // namespace dunlin::testing
