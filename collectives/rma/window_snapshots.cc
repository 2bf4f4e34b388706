#include "collectives/rma/window_snapshots.h"

#include <utility>

#include "collectives/rma/snapshot.h"
#include "runtime/bootstrap/neighbor_values.h"

namespace dunlin::collective {
namespace {

template <typename T>
class HostSnapshots final : public WindowSnapshots<T> {
 public:
  HostSnapshots(transport::Fabric& fabric, std::string topic, const Neighborhood& around,
                std::span<const T> self, std::unique_ptr<SnapshotWriter> writer,
                std::unique_ptr<SnapshotReader> reader)
      : fabric_(fabric),
        descriptors_(fabric.bootstrap(), std::move(topic), around.in, around.out),
        in_(around.in),
        self_(self),
        writer_(std::move(writer)),
        reader_(std::move(reader)) {}
  // A lane may still write to the reader's memory.
  ~HostSnapshots() override {
    if (!reader_->is_done()) fabric_.keep_until_done(std::move(reader_));
  }

  Status announce() { return descriptors_.publish(writer_->descriptor()); }
  Status connect() override {
    for (const Rank from : in_) {
      auto descriptor = descriptors_.lookup(from, fabric_.config().deadline);
      if (!descriptor) {
        return std::move(descriptor)
            .status()
            .with_context("waiting for a neighbor's snapshot")
            .with_peer(from);
      }
      DUNLIN_TRY(reader_->add(fabric_, from, *descriptor));
    }
    return Status::ok();
  }
  Status publish(double p) override {
    writer_->publish(std::as_bytes(self_), p);
    return Status::ok();
  }
  Status check(std::size_t in) const override { return reader_->check(in); }
  void start(std::size_t in) override { reader_->start(in); }
  Status progress() override { return reader_->progress(); }
  std::span<const T> tensor() const override {
    const std::span<const std::byte> bytes = reader_->tensor();
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
  double p() const override { return reader_->p(); }

 private:
  transport::Fabric& fabric_;
  bootstrap::NeighborValues descriptors_;
  std::vector<Rank> in_;
  std::span<const T> self_;
  std::unique_ptr<SnapshotWriter> writer_;
  std::unique_ptr<SnapshotReader> reader_;
};

template <typename T>
class GpuSnapshots final : public WindowSnapshots<T> {
 public:
  GpuSnapshots(GpuWindow& window, TensorPasses<T>& passes) : window_(window), passes_(passes) {}

  Status connect() override { return Status::ok(); }  // the window does it
  Status publish(double p) override { return window_.publish(passes_, p); }
  Status check(std::size_t in) const override { return window_.check_readable(in); }
  void start(std::size_t in) override { in_ = in; }
  Status progress() override {
    DUNLIN_ASSIGN(read_, window_.read(passes_, in_));
    return Status::ok();
  }
  std::span<const T> tensor() const override {
    return {reinterpret_cast<const T*>(read_.tensor), window_.tensor_bytes() / sizeof(T)};
  }
  double p() const override { return read_.p; }

 private:
  GpuWindow& window_;
  TensorPasses<T>& passes_;
  std::size_t in_ = 0;
  GpuWindow::Read read_;
};

}  // namespace

template <typename T>
Result<std::unique_ptr<WindowSnapshots<T>>> make_host_snapshots(transport::Fabric& fabric,
                                                                std::string topic,
                                                                const Neighborhood& around,
                                                                std::span<const T> self) {
  DUNLIN_ASSIGN(auto writer, SnapshotWriter::create(fabric, self.size_bytes()));
  DUNLIN_ASSIGN(auto reader, SnapshotReader::create(fabric, self.size_bytes()));
  auto made = std::make_unique<HostSnapshots<T>>(fabric, std::move(topic), around, self,
                                                 std::move(writer), std::move(reader));
  DUNLIN_TRY(made->announce());
  return std::unique_ptr<WindowSnapshots<T>>(std::move(made));
}

template <typename T>
std::unique_ptr<WindowSnapshots<T>> make_gpu_snapshots(GpuWindow& window, TensorPasses<T>& passes) {
  return std::make_unique<GpuSnapshots<T>>(window, passes);
}

template Result<std::unique_ptr<WindowSnapshots<float>>> make_host_snapshots(
    transport::Fabric& fabric, std::string topic, const Neighborhood& around,
    std::span<const float> self);
template Result<std::unique_ptr<WindowSnapshots<double>>> make_host_snapshots(
    transport::Fabric& fabric, std::string topic, const Neighborhood& around,
    std::span<const double> self);
template std::unique_ptr<WindowSnapshots<float>> make_gpu_snapshots(GpuWindow& window,
                                                                    TensorPasses<float>& passes);
template std::unique_ptr<WindowSnapshots<double>> make_gpu_snapshots(GpuWindow& window,
                                                                     TensorPasses<double>& passes);

}  // namespace dunlin::collective
