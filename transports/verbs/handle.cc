#include "transports/verbs/handle.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "runtime/memory/lock_limit.h"
#include "transports/verbs/constants.h"

namespace dunlin::transport::verbs {
namespace {

// Registering reports a limit on locked memory as ENOMEM, which sends people looking for leaks (and
// as EPERM if it is 0).
std::string lock_remedy(std::size_t wanted, int error) {
  const auto limit = locked_memory_limit();
  if (!limit || (error != ENOMEM && error != EPERM)) return "";
  return fmt::format(" ({} bytes, and {} in all may be locked; {})", wanted, *limit,
                     locked_memory_remedy());
}

Status set_nonblocking(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0) return Status::ok();
  return Status::from_errno("fcntl", errno);
}

}  // namespace

bool is_refusal(const ibv_wc& completion) {
  switch (completion.status) {
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_LOC_LEN_ERR:
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_OP_ERR:
      return true;
    default:
      return false;
  }
}

Status to_status(std::string_view operation, const ibv_wc& completion) {
  if (completion.status == IBV_WC_SUCCESS) return Status::ok();
  const Code code = completion.status == IBV_WC_REM_ACCESS_ERR ? Code::kNotFound
                    : is_refusal(completion)                   ? Code::kInternal
                                                               : Code::kPeerDead;
  return {code, fmt::format("{}: {}", operation, ibv_wc_status_str(completion.status))};
}

Result<std::unique_ptr<ProtectionDomain>> ProtectionDomain::create(ibv_context* device) {
  ibv_pd* const made = ibv_alloc_pd(device);
  if (made == nullptr) return Status::from_errno("ibv_alloc_pd", errno);
  return std::unique_ptr<ProtectionDomain>(new ProtectionDomain(made));
}

Result<std::unique_ptr<MemoryKey>> MemoryKey::create(const ProtectionDomain& domain,
                                                     const MemoryRegion& memory) {
  constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  ibv_mr* const made = ibv_reg_mr(domain.handle(), memory.data(), memory.size(), kAccess);
  if (made != nullptr) return std::unique_ptr<MemoryKey>(new MemoryKey(made));
  const int error = errno;
  return Status::from_errno("ibv_reg_mr" + lock_remedy(memory.size(), error), error);
}

Result<std::unique_ptr<CompletionChannel>> CompletionChannel::create(ibv_context* device) {
  ibv_comp_channel* const made = ibv_create_comp_channel(device);
  if (made == nullptr) return Status::from_errno("ibv_create_comp_channel", errno);
  std::unique_ptr<CompletionChannel> channel(new CompletionChannel(made));
  DUNLIN_TRY(set_nonblocking(made->fd));
  return channel;
}

void CompletionChannel::drain() {
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  while (ibv_get_cq_event(handle_, &queue, &context) == 0) ibv_ack_cq_events(queue, 1);
}

Result<std::unique_ptr<CompletionQueue>> CompletionQueue::create(ibv_context* device,
                                                                 CompletionChannel& channel,
                                                                 int capacity) {
  ibv_cq* const made = ibv_create_cq(device, capacity, nullptr, channel.handle(), 0);
  if (made == nullptr) return Status::from_errno("ibv_create_cq", errno);
  return std::unique_ptr<CompletionQueue>(new CompletionQueue(made));
}

Status CompletionQueue::reserve(int more) {
  const int needed = reserved_ + more;
  if (needed > handle_->cqe) {
    // Doubled, so that many connections resize it a few times only.
    const int error = ibv_resize_cq(handle_, std::max(needed, 2 * handle_->cqe));
    if (error != 0 && ibv_resize_cq(handle_, needed) != 0) {
      return {Code::kResourceExhausted,
              fmt::format("ibv_resize_cq to {} completions: {}", needed, std::strerror(error))};
    }
  }
  reserved_ = needed;
  return Status::ok();
}

Result<std::unique_ptr<EventChannel>> EventChannel::create() {
  rdma_event_channel* const made = rdma_create_event_channel();
  if (made == nullptr) {
    const int error = errno;
    return Status::from_errno(
        "rdma_create_event_channel (module rdma_ucm, access to /dev/infiniband/rdma_cm)", error);
  }
  std::unique_ptr<EventChannel> channel(new EventChannel(made));
  DUNLIN_TRY(set_nonblocking(made->fd));
  return channel;
}

Result<std::unique_ptr<CmId>> CmId::create(const EventChannel& channel) {
  rdma_cm_id* made = nullptr;
  if (rdma_create_id(channel.handle(), &made, nullptr, RDMA_PS_TCP) != 0)
    return Status::from_errno("rdma_create_id", errno);
  return std::make_unique<CmId>(made);
}

CmId::~CmId() {
  if (handle_->qp != nullptr) rdma_destroy_qp(handle_);
  rdma_destroy_id(handle_);
}

Status CmId::create_queue_pair(const ProtectionDomain& domain, ibv_qp_init_attr attributes) {
  if (rdma_create_qp(handle_, domain.handle(), &attributes) == 0) return Status::ok();
  return Status::from_errno("rdma_create_qp", errno);
}

Status CmId::post_receive() {
  ibv_recv_wr request{};
  ibv_recv_wr* bad = nullptr;
  const int error = ibv_post_recv(handle_->qp, &request, &bad);
  return error == 0 ? Status::ok() : Status::from_errno("ibv_post_recv", error);
}

void CmId::set_ack_timeout(std::uint8_t exponent) {
  // Where it can't be set, the fabric's default of a second or more holds.
  (void)rdma_set_option(handle_, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &exponent,
                        sizeof exponent);
}

}  // namespace dunlin::transport::verbs
