// GpuWindow: the memory of a window on a GPU, and that of its neighbors as far as this process has
// it open. Part of NeighborWindow (neighbor_window.h).
//
// One allocation holds all tensors of a rank: its own, a buffer per in-neighbor, three buffers per
// edge into it (mapped_edge.h), and what get() needs. Neighbors on the same GPU open it (CUDA IPC)
// and access it by kernels of their own. Words and headers are in host memory.
//
// get() reads a published copy of the tensor: the owner rank writes two slots of GPU memory in
// turn, and changes a slot's version, in host memory, before and after it writes there. A reader
// copies a slot between two looks at the version, and again if they differ.
//
// Owner thread only. Destroy it before the fabric, and when the neighbors are done with theirs.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/rma/mapped_edge.h"
#include "collectives/rma/tensor_passes.h"
#include "runtime/bootstrap/neighbor_values.h"
#include "transports/fabric.h"

namespace dunlin::collective {

class GpuWindow {
 public:
  struct Options {
    std::string topic;  // of what the ranks publish; the same on all of them
    std::vector<Rank> in;
    std::vector<Rank> out;
    std::size_t tensor_bytes = 0;
    bool is_readable = false;
  };
  // The tensors of one edge.
  using Edge = std::array<std::byte*, EdgeMemory::kBuffers>;

  // Allocates the memory and publishes where it is. The tensors are undefined.
  static Result<std::unique_ptr<GpuWindow>> prepare(transport::Fabric& fabric,
                                                    std::shared_ptr<GpuDriver> driver, int device,
                                                    Options options);
  // Opens what the neighbors have published. Waits for that for at most config.deadline per
  // neighbor.
  Status connect();

  std::size_t tensor_bytes() const { return options_.tensor_bytes; }
  std::byte* self() const { return at(0); }
  // The buffer of the in-neighbor with this index, and the tensors of the edge from it.
  std::byte* buffer(std::size_t in) const { return at(1 + in); }
  Edge edge_from(std::size_t in) const;
  // The tensors of the edge to the out-neighbor with this index; nullopt: they are not open here.
  std::optional<Edge> edge_to(std::size_t out) const { return edges_to_[out]; }
  std::shared_ptr<MemoryRegion> owner() const { return memory_; }

  // Copies self to where neighbors read it, and finishes the passes.
  template <typename T>
  Status publish(TensorPasses<T>& passes, double p);
  // kUnavailable: the memory of the in-neighbor with this index is not open here.
  Status check_readable(std::size_t in) const;
  // What an in-neighbor has published.
  struct Read {
    const std::byte* tensor = nullptr;  // in memory of this GPU, until the next read()
    double p = 0;
  };
  // Reads it. kBusy: the neighbor has written over it several times meanwhile. Finishes the passes.
  template <typename T>
  Result<Read> read(TensorPasses<T>& passes, std::size_t in);

 private:
  static constexpr std::size_t kSlots = 2;
  // The words of a rank's snapshots. The version of a slot that holds the n-th copy is 2n, and
  // 2n - 1 while that is being written.
  struct Words {
    std::atomic<std::uint64_t> newest;
    std::atomic<std::uint64_t> versions[kSlots];
    std::atomic<double> p[kSlots];
  };
  static_assert(std::atomic<double>::is_always_lock_free);

  // Memory of an in-neighbor that is open here.
  struct Published {
    const Words* words = nullptr;
    std::array<const std::byte*, kSlots> slots{};
  };

  GpuWindow(transport::Fabric& fabric, int device, Options options)
      : fabric_(fabric),
        device_(device),
        options_(std::move(options)),
        offers_(fabric.bootstrap(), options_.topic, options_.in, options_.out) {}
  Status allocate(std::shared_ptr<GpuDriver> driver);
  Status connect_to(Rank peer, std::optional<std::size_t> in, std::optional<std::size_t> out);
  // The tensors of a rank with so many in-neighbors, by number: self, the buffers, the edges, the
  // snapshots, and what read() returns.
  static std::size_t edge_tensor(std::size_t in_neighbors, std::size_t in) {
    return 1 + in_neighbors + in * EdgeMemory::kBuffers;
  }
  static std::size_t snapshot_tensor(std::size_t in_neighbors) {
    return edge_tensor(in_neighbors, in_neighbors);
  }
  std::size_t tensors_of(std::size_t in_neighbors) const {
    return snapshot_tensor(in_neighbors) + (options_.is_readable ? kSlots + 1 : 0);
  }
  std::byte* at(std::size_t tensor) const { return memory_->data() + tensor * stride(); }
  std::size_t stride() const { return transport::whole_cache_lines(options_.tensor_bytes); }
  Words& words() const { return *reinterpret_cast<Words*>(words_->data()); }

  transport::Fabric& fabric_;
  int device_;
  Options options_;
  bootstrap::NeighborValues offers_;
  std::string gpu_;  // its PCI bus id
  std::shared_ptr<MemoryRegion> memory_;
  std::unique_ptr<transport::LocalRegion> shared_;  // the same; null: peers can't open it
  std::unique_ptr<transport::LocalRegion> words_;   // in host memory
  std::uint64_t published_ = 0;
  std::vector<std::unique_ptr<transport::RemoteRegion>> opened_;
  std::vector<std::optional<Edge>> edges_to_;       // by out-neighbor
  std::vector<std::optional<Published>> readable_;  // by in-neighbor
};

}  // namespace dunlin::collective
