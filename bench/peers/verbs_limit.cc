// Measures what libibverbs allows a ping-pong over one RC queue pair, for bench/peers/rdma, with
// loops that post and poll and do nothing else. There are two processes, each with one of the two
// ports. Prints "us VALUE": the median of the halves of single round trips.
//
//   verbs_limit notified|polled SIZE ITERATIONS DEVICE GID_INDEX DEVICE GID_INDEX
//
// notified: an RDMA WRITE_WITH_IMM; the receiver polls for its completion. polled: an RDMA WRITE;
// the receiver polls the last byte, as ib_write_lat does.
#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>

#include "bench/peers/ranks.h"
#include "transports/verbs/device/handle.h"

namespace {

using dunlin::MemoryRegion;
using dunlin::Result;
using dunlin::Status;
namespace verbs = dunlin::transport::verbs;

constexpr std::uint32_t kDepth = 64;
constexpr std::uint32_t kSignalEvery = 16;
constexpr std::uint32_t kInline = 128;
constexpr std::uint8_t kPort = 1;
// A run that stalls ends with SIGALRM.
constexpr unsigned kLongestSeconds = 50;

struct Arguments {
  bool is_notified;
  std::size_t size;
  long iterations;
  std::array<std::string, 2> devices;
  std::array<int, 2> gid_indices;
};

// The address of one end, for the other.
struct Place {
  ibv_gid gid;
  std::uint64_t address;
  std::uint32_t key;
  std::uint32_t queue_pair;
  std::uint16_t lid;  // InfiniBand
};

struct Shared {
  std::atomic<int> arrived;
  Place places[2];
  double us;
};

Status check(int error, const char* what) {
  return error == 0 ? Status::ok() : Status::from_errno(what, error);
}

class End {
 public:
  End(const Arguments& arguments, int rank)
      : arguments_(arguments), gid_index_(arguments.gid_indices[rank]), rank_(rank) {}
  ~End() {
    if (queue_pair_ != nullptr) ibv_destroy_qp(queue_pair_);
  }
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  Status create() {
    DUNLIN_ASSIGN(device_, verbs::Device::open(arguments_.devices[rank_]));
    DUNLIN_TRY(check(ibv_query_port(device_->handle(), kPort, &port_), "ibv_query_port"));
    DUNLIN_ASSIGN(domain_, verbs::ProtectionDomain::create(device_->handle(), false, false));
    DUNLIN_ASSIGN(memory_, MemoryRegion::allocate(2 * arguments_.size));
    std::fill_n(memory_->data(), 2 * arguments_.size, std::byte{0});
    DUNLIN_ASSIGN(key_, verbs::MemoryKey::create(*domain_, *memory_));
    DUNLIN_ASSIGN(channel_, verbs::CompletionChannel::create(device_->handle()));
    DUNLIN_ASSIGN(completions_, verbs::CompletionQueue::create(device_->handle(), *channel_,
                                                               2 * kDepth, 2 * kDepth));
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = completions_->handle();
    attributes.qp_type = IBV_QPT_RC;
    attributes.cap = {kDepth, kDepth, 1, 1, kInline};
    queue_pair_ = ibv_create_qp(domain_->handle(), &attributes);
    if (queue_pair_ == nullptr) return Status::from_errno("ibv_create_qp", errno);
    ibv_qp_attr change{};
    change.qp_state = IBV_QPS_INIT;
    change.port_num = kPort;
    change.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    DUNLIN_TRY(
        check(ibv_modify_qp(queue_pair_, &change,
                            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
              "ibv_modify_qp to INIT"));
    for (std::uint32_t i = 0; i < kDepth; ++i) post_receive();
    return Status::ok();
  }

  Result<Place> place() const {
    Place place{};
    if (ibv_query_gid(device_->handle(), kPort, gid_index_, &place.gid) != 0)
      return Status::from_errno("ibv_query_gid", errno);
    place.address = reinterpret_cast<std::uint64_t>(memory_->data());
    place.key = key_->remote();
    place.queue_pair = queue_pair_->qp_num;
    place.lid = port_.lid;
    return place;
  }

  Status connect(const Place& peer) {
    peer_ = peer;
    ibv_qp_attr change{};
    change.qp_state = IBV_QPS_RTR;
    change.path_mtu = port_.active_mtu;
    change.dest_qp_num = peer.queue_pair;
    change.min_rnr_timer = 12;
    change.ah_attr.dlid = peer.lid;
    change.ah_attr.is_global = 1;
    change.ah_attr.grh.dgid = peer.gid;
    change.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(gid_index_);
    change.ah_attr.grh.hop_limit = 64;
    change.ah_attr.port_num = kPort;
    DUNLIN_TRY(
        check(ibv_modify_qp(queue_pair_, &change,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
              "ibv_modify_qp to RTR"));
    change = {};
    change.qp_state = IBV_QPS_RTS;
    change.timeout = 14;
    change.retry_cnt = change.rnr_retry = 7;
    return check(ibv_modify_qp(queue_pair_, &change,
                               IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                   IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
                 "ibv_modify_qp to RTS");
  }

  // Writes from the first half of this end's memory to the second half of the peer's.
  void send() {
    std::byte* const data = memory_->data();
    data[arguments_.size - 1] = static_cast<std::byte>(++sent_);
    ibv_sge piece{reinterpret_cast<std::uint64_t>(data),
                  static_cast<std::uint32_t>(arguments_.size), key_->local()};
    ibv_send_wr request{};
    request.sg_list = &piece;
    request.num_sge = 1;
    request.opcode = arguments_.is_notified ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
    request.wr.rdma = {peer_.address + arguments_.size, peer_.key};
    if (arguments_.size <= kInline) request.send_flags |= IBV_SEND_INLINE;
    if (sent_ % kSignalEvery == 0) request.send_flags |= IBV_SEND_SIGNALED;
    ibv_send_wr* bad = nullptr;
    must(ibv_post_send(queue_pair_, &request, &bad), "ibv_post_send");
  }

  // Polls at least once, because completions of sends free places of the send queue.
  void receive() {
    ++awaited_;
    const std::atomic_ref last(
        reinterpret_cast<unsigned char&>(memory_->data()[2 * arguments_.size - 1]));
    do {
      poll();
    } while (arguments_.is_notified
                 ? notified_ != awaited_
                 : last.load(std::memory_order_acquire) != static_cast<unsigned char>(awaited_));
  }

 private:
  static void must(int error, const char* what) {
    if (error == 0) return;
    std::fprintf(stderr, "error: %s: %s\n", what, std::strerror(error));
    _exit(1);
  }

  void post_receive() {
    ibv_recv_wr request{};
    ibv_recv_wr* bad = nullptr;
    must(ibv_post_recv(queue_pair_, &request, &bad), "ibv_post_recv");
  }

  void poll() {
    ibv_wc completion;
    if (ibv_poll_cq(completions_->handle(), 1, &completion) == 0) return;
    if (completion.status != IBV_WC_SUCCESS) {
      std::fprintf(stderr, "error: a write: %s\n", ibv_wc_status_str(completion.status));
      _exit(1);
    }
    if ((completion.opcode & IBV_WC_RECV) == 0) return;
    ++notified_;
    post_receive();
  }

  const Arguments& arguments_;
  const int gid_index_;
  const int rank_;
  std::unique_ptr<verbs::Device> device_;
  std::unique_ptr<verbs::ProtectionDomain> domain_;
  std::shared_ptr<MemoryRegion> memory_;
  std::unique_ptr<verbs::MemoryKey> key_;
  std::unique_ptr<verbs::CompletionChannel> channel_;
  std::unique_ptr<verbs::CompletionQueue> completions_;
  ibv_port_attr port_{};
  ibv_qp* queue_pair_ = nullptr;
  Place peer_{};
  std::uint32_t sent_ = 0;
  std::uint32_t awaited_ = 0;
  std::uint32_t notified_ = 0;
};

Status run(const Arguments& arguments, int rank, Shared& shared) {
  alarm(kLongestSeconds);
  End end(arguments, rank);
  DUNLIN_TRY(end.create());
  DUNLIN_ASSIGN(shared.places[rank], end.place());
  peers::align(shared.arrived, 2);
  DUNLIN_TRY(end.connect(shared.places[1 - rank]));
  peers::align(shared.arrived, 2);
  const long warmup = arguments.iterations / 10;
  std::vector<double> halves;
  halves.reserve(static_cast<std::size_t>(arguments.iterations));
  for (long i = -warmup; i < arguments.iterations; ++i) {
    const auto began = std::chrono::steady_clock::now();
    if (rank == 0) end.send();
    end.receive();
    if (rank == 1) end.send();
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - began;
    if (i >= 0) halves.push_back(took.count() / 2);
  }
  peers::align(shared.arrived, 2);  // keeps the queue pairs alive until both are done
  const auto middle = halves.begin() + arguments.iterations / 2;
  std::nth_element(halves.begin(), middle, halves.end());
  if (rank == 0) shared.us = *middle;
  return Status::ok();
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments{};
  const std::string how = argc == 8 ? argv[1] : "";
  if (argc == 8) {
    arguments = {how == "notified",
                 std::strtoul(argv[2], nullptr, 10),
                 std::atol(argv[3]),
                 {argv[4], argv[6]},
                 {std::atoi(argv[5]), std::atoi(argv[7])}};
  }
  if ((how != "notified" && how != "polled") || arguments.size < 1 || arguments.iterations < 1) {
    std::fprintf(stderr,
                 "usage: verbs_limit notified|polled SIZE ITERATIONS DEVICE GID_INDEX DEVICE "
                 "GID_INDEX\n");
    return 2;
  }
  auto* const shared = static_cast<Shared*>(peers::share(sizeof(Shared)));
  const bool is_ok = peers::run_ranks(2, [&](int rank) {
    const Status status = run(arguments, rank, *shared);
    if (status.is_ok()) return;
    std::fprintf(stderr, "error: %s\n", status.to_string().c_str());
    _exit(1);
  });
  if (!is_ok) return 1;
  std::printf("us %.3f\n", shared->us);
  return 0;
}
