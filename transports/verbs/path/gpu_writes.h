// GpuWrites: the peer's GPU that a lane has written to since its last flush.
//
// A flush has to show that the bytes before it are in memory. A READ does that for the memory it
// reads, because it cannot overtake writes on its way there. Host memory and each GPU have ways of
// their own through the PCIe tree, so that a READ of host memory says nothing about a GPU's. A lane
// therefore reads a byte of the GPU memory that it has written, before the flush's own READ. If it
// turns to another GPU, it reads at once what it has written to the former one, so that one place
// is enough to remember. Knows no device. Owner thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

namespace dunlin::transport::verbs {

class GpuWrites {
 public:
  struct Place {
    std::uint64_t address;  // at the peer
    std::uint32_t key;
  };

  // `gpu`: the peer's number of it. A write there needs a READ of take() before it.
  bool is_at_another(std::uint32_t gpu) const { return place_ && gpu_ != gpu; }
  void note(std::uint32_t gpu, const Place& place) {
    gpu_ = gpu;
    place_ = place;
  }
  // Returns where to read if there was a write, and forgets that place.
  std::optional<Place> take() { return std::exchange(place_, std::nullopt); }

 private:
  std::uint32_t gpu_ = 0;
  std::optional<Place> place_;
};

}  // namespace dunlin::transport::verbs
