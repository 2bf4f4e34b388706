#include "collectives/rma/gpu_window.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "collectives/rma/offers.h"

namespace dunlin::collective {

namespace {

// How often a snapshot is read before read() returns kBusy.
constexpr int kAttempts = 4;

std::optional<std::size_t> index_of(std::span<const Rank> ranks, Rank rank) {
  const auto found = std::find(ranks.begin(), ranks.end(), rank);
  if (found == ranks.end()) return std::nullopt;
  return static_cast<std::size_t>(found - ranks.begin());
}

}  // namespace

Result<std::unique_ptr<GpuWindow>> GpuWindow::prepare(transport::Fabric& fabric,
                                                      std::shared_ptr<GpuDriver> driver, int device,
                                                      Options options) {
  std::unique_ptr<GpuWindow> window(new GpuWindow(fabric, device, std::move(options)));
  DUNLIN_TRY(window->allocate(std::move(driver)));
  return window;
}

Status GpuWindow::allocate(std::shared_ptr<GpuDriver> driver) {
  // At least a line, because an empty tensor has an address, too.
  const std::size_t bytes =
      std::max(tensors_of(options_.in.size()) * stride(), transport::whole_cache_lines(1));
  gpu_ = driver->devices()[static_cast<std::size_t>(device_)].pci_bus_id;
  if (auto shared = fabric_.allocate_on_gpu(driver, device_, bytes); shared.is_ok()) {
    shared_ = std::move(*shared);
    memory_ = shared_->memory();
  } else if (shared.status().code() == Code::kUnavailable ||
             shared.status().code() == Code::kResourceExhausted) {
    DUNLIN_ASSIGN(memory_, MemoryRegion::allocate_on_gpu(std::move(driver), device_, bytes));
  } else {
    return std::move(shared).status();
  }
  DUNLIN_ASSIGN(words_, fabric_.allocate(sizeof(Words)));
  new (words_->data()) Words{};
  GpuWindowOffer offer;
  offer.tensor_bytes = options_.tensor_bytes;
  offer.is_readable = options_.is_readable;
  offer.gpu = gpu_;
  if (shared_) offer.memory = shared_->descriptor();
  offer.words = words_->descriptor();
  offer.in = options_.in;
  return offers_.publish(offer.encode());
}

Status GpuWindow::connect() {
  const std::vector<Rank>& out = options_.out;
  edges_to_.resize(out.size());
  readable_.resize(options_.in.size());
  for (const Rank peer : offers_.neighbors()) {
    Status status = connect_to(peer, index_of(options_.in, peer), index_of(out, peer));
    if (!status.is_ok())
      return std::move(status).with_context("opening a neighbor's GPU memory").with_peer(peer);
  }
  return Status::ok();
}

Status GpuWindow::connect_to(Rank peer, std::optional<std::size_t> in,
                             std::optional<std::size_t> out) {
  DUNLIN_ASSIGN(const Bytes value, offers_.lookup(peer, fabric_.config().deadline));
  const auto offer = GpuWindowOffer::decode(value);
  DUNLIN_TRY(offer.status());
  if (offer->tensor_bytes != options_.tensor_bytes || offer->is_readable != options_.is_readable) {
    return {Code::kInvalidArgument,
            fmt::format("it has tensors of {} bytes{}; here, they have {} bytes{}",
                        offer->tensor_bytes, offer->is_readable ? ", readable" : "",
                        options_.tensor_bytes, options_.is_readable ? ", readable" : "")};
  }
  // Otherwise, deposits travel in messages.
  const bool is_reachable = !offer->memory.empty() && offer->gpu == gpu_;
  if (!is_reachable || (!out && !options_.is_readable)) return Status::ok();
  auto opened = fabric_.import_region(peer, offer->memory);
  if (opened.status().code() == Code::kUnavailable) return Status::ok();
  DUNLIN_ASSIGN(auto memory, std::move(opened));
  std::byte* const tensors = memory->gpu_mapped(device_);
  if (tensors == nullptr) return Status::ok();
  const std::size_t there = offer->in.size();
  if (memory->size() < tensors_of(there) * stride()) {
    return {Code::kInvalidArgument, fmt::format("its memory has {} bytes, not those of {} tensors",
                                                memory->size(), tensors_of(there))};
  }
  opened_.push_back(std::move(memory));
  if (out) {
    const auto place = index_of(offer->in, fabric_.rank());
    if (!place) {
      return {Code::kInvalidArgument,
              fmt::format("rank {} is no in-neighbor there", fabric_.rank().value())};
    }
    Edge& edge = edges_to_[*out].emplace();
    for (std::size_t i = 0; i < edge.size(); ++i)
      edge[i] = tensors + (edge_tensor(there, *place) + i) * stride();
  }
  if (!in || !options_.is_readable) return Status::ok();
  DUNLIN_ASSIGN(auto words, fabric_.import_region(peer, offer->words));
  if (words->mapped() == nullptr || words->size() < sizeof(Words)) return Status::ok();
  Published& published = readable_[*in].emplace();
  published.words = reinterpret_cast<const Words*>(words->mapped());
  for (std::size_t i = 0; i < kSlots; ++i)
    published.slots[i] = tensors + (snapshot_tensor(there) + i) * stride();
  opened_.push_back(std::move(words));
  return Status::ok();
}

GpuWindow::Edge GpuWindow::edge_from(std::size_t in) const {
  Edge edge{};
  for (std::size_t i = 0; i < edge.size(); ++i)
    edge[i] = at(edge_tensor(options_.in.size(), in) + i);
  return edge;
}

template <typename T>
Status GpuWindow::publish(TensorPasses<T>& passes, double p) {
  DUNLIN_TRY(passes.failure());  // what was published last stays readable
  const std::uint64_t number = ++published_;
  const std::size_t slot = number % kSlots;
  words().versions[slot].store(2 * number - 1, std::memory_order_relaxed);
  // The version changes before the GPU writes, and the driver is called after this.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  words().p[slot].store(p, std::memory_order_relaxed);
  const std::span<T> target(reinterpret_cast<T*>(at(snapshot_tensor(options_.in.size()) + slot)),
                            options_.tensor_bytes / sizeof(T));
  passes.copy(target, reinterpret_cast<const T*>(self()));
  DUNLIN_TRY(passes.finish());
  words().versions[slot].store(2 * number, std::memory_order_release);
  words().newest.store(number, std::memory_order_release);
  return Status::ok();
}

Status GpuWindow::check_readable(std::size_t in) const {
  if (readable_[in]) return Status::ok();
  const Rank peer = options_.in[in];
  return Status(Code::kUnavailable,
                fmt::format("the memory of rank {} can't be read: get() of a window on a GPU needs "
                            "memory that this GPU's kernels can access, and that of rank {} is "
                            "not open here",
                            peer.value(), peer.value()))
      .with_peer(peer);
}

template <typename T>
Result<GpuWindow::Read> GpuWindow::read(TensorPasses<T>& passes, std::size_t in) {
  const Published& from = *readable_[in];
  std::byte* const here = at(snapshot_tensor(options_.in.size()) + kSlots);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    // Pairs with the release in publish().
    const std::uint64_t number = from.words->newest.load(std::memory_order_acquire);
    const std::size_t slot = number % kSlots;
    const std::uint64_t before = from.words->versions[slot].load(std::memory_order_acquire);
    if (number == 0) return Status::busy();  // nothing was published yet
    if (before != 2 * number) continue;
    const double p = from.words->p[slot].load(std::memory_order_relaxed);
    passes.copy({reinterpret_cast<T*>(here), options_.tensor_bytes / sizeof(T)},
                reinterpret_cast<const T*>(from.slots[slot]));
    DUNLIN_TRY(passes.finish());
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (from.words->versions[slot].load(std::memory_order_relaxed) == before) return Read{here, p};
  }
  return Status::busy();
}

template Status GpuWindow::publish(TensorPasses<float>& passes, double p);
template Status GpuWindow::publish(TensorPasses<double>& passes, double p);
template Result<GpuWindow::Read> GpuWindow::read(TensorPasses<float>& passes, std::size_t in);
template Result<GpuWindow::Read> GpuWindow::read(TensorPasses<double>& passes, std::size_t in);

}  // namespace dunlin::collective
