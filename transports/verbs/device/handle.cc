#include "transports/verbs/device/handle.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "runtime/memory/lock_limit.h"
#include "transports/verbs/constants.h"

namespace dunlin::transport::verbs {
namespace {

constexpr const char* kFewerCompletions =
    "DUNLIN_VERBS_QUEUE_DEPTH and DUNLIN_VERBS_MAX_CONNECTIONS limit how many are needed";

// Explains a limit on locked memory, which registering reports as ENOMEM, or as EPERM if it is 0.
std::string lock_remedy(std::size_t wanted, int error) {
  const auto limit = locked_memory_limit();
  if (!limit || (error != ENOMEM && error != EPERM)) return "";
  return fmt::format(" ({} bytes, and at most {} in all may be locked; {})", wanted, *limit,
                     locked_memory_remedy());
}

// Whether the device supports on-demand paging for what peers do with memory over reliable
// connections.
bool has_paging(ibv_context* device, bool has_atomics) {
  std::uint32_t needed = IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ;
  if (has_atomics) needed |= IBV_ODP_SUPPORT_ATOMIC;
  ibv_device_attr_ex attributes{};
  return ibv_query_device_ex(device, nullptr, &attributes) == 0 &&
         (attributes.odp_caps.general_caps & IBV_ODP_SUPPORT) != 0 &&
         (attributes.odp_caps.per_transport_caps.rc_odp_caps & needed) == needed;
}

// Returns 0 if the queue has room for `needed` completions afterwards. Some providers report
// success without any effect.
int resize(ibv_cq* queue, int size, int needed) {
  const int error = ibv_resize_cq(queue, size);
  return error == 0 && queue->cqe < needed ? EOPNOTSUPP : error;
}

}  // namespace

Status set_nonblocking(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0) return Status::ok();
  return Status::from_errno("fcntl", errno);
}

Result<std::unique_ptr<Device>> Device::open(const std::string& name) {
  int count = 0;
  const std::unique_ptr<ibv_device*, decltype(&ibv_free_device_list)> list(
      ibv_get_device_list(&count), ibv_free_device_list);
  if (!list) return Status::from_errno("ibv_get_device_list", errno);
  for (int i = 0; i < count; ++i) {
    if (name != ibv_get_device_name(list.get()[i])) continue;
    ibv_context* const made = ibv_open_device(list.get()[i]);
    if (made == nullptr) return Status::from_errno("ibv_open_device " + name, errno);
    return std::unique_ptr<Device>(new Device(made));
  }
  return Status(Code::kUnavailable, fmt::format("the RDMA device {} no longer exists", name));
}

bool is_refusal(const ibv_wc& completion) {
  switch (completion.status) {
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_LOC_LEN_ERR:
    case IBV_WC_LOC_PROT_ERR:
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

Result<std::unique_ptr<ProtectionDomain>> ProtectionDomain::create(ibv_context* device,
                                                                   bool has_atomics,
                                                                   bool can_relax) {
  ibv_pd* const made = ibv_alloc_pd(device);
  if (made == nullptr) return Status::from_errno("ibv_alloc_pd", errno);
  int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  if (has_atomics) access |= IBV_ACCESS_REMOTE_ATOMIC;
  return std::unique_ptr<ProtectionDomain>(
      new ProtectionDomain(made, access, can_relax, has_paging(device, has_atomics)));
}

Result<std::unique_ptr<MemoryKey>> MemoryKey::create(const ProtectionDomain& domain,
                                                     const MemoryRegion& memory) {
  const auto registered = [&](int access) {
    return ibv_reg_mr(domain.handle(), memory.data(), memory.size(), access);
  };
  const int access = domain.access_to(memory);
  ibv_mr* made = registered(access);
  const int error = errno;
  // On-demand paging does not work for the addresses of a GPU.
  const bool can_page = domain.can_page() && memory.kind() == MemoryKind::kHost;
  if (made == nullptr && can_page && (error == ENOMEM || error == EPERM))
    made = registered(access | IBV_ACCESS_ON_DEMAND);
  if (made != nullptr) return std::unique_ptr<MemoryKey>(new MemoryKey(made));
  return Status::from_errno("ibv_reg_mr" + lock_remedy(memory.size(), error), error);
}

Result<std::unique_ptr<MemoryKey>> MemoryKey::create(const ProtectionDomain& domain,
                                                     const DmaBuf& exported,
                                                     const MemoryRegion& memory) {
  ibv_mr* const made = ibv_reg_dmabuf_mr(domain.handle(), exported.offset, memory.size(),
                                         reinterpret_cast<std::uint64_t>(memory.data()),
                                         exported.fd.get(), domain.access());
  if (made == nullptr) return Status::from_errno("ibv_reg_dmabuf_mr", errno);
  return std::unique_ptr<MemoryKey>(new MemoryKey(made));
}

// Tries an invalid descriptor: the error tells whether dma-bufs are supported.
Status check_dma_buf(const ProtectionDomain& domain) {
  constexpr std::size_t kAnySize = 4096;
  ibv_mr* const made = ibv_reg_dmabuf_mr(domain.handle(), 0, kAnySize, 0, -1, domain.access());
  const int error = errno;
  if (made != nullptr) {
    (void)ibv_dereg_mr(made);
    return {Code::kInternal, "ibv_reg_dmabuf_mr accepts an invalid descriptor"};
  }
  if (error != EOPNOTSUPP && error != EPROTONOSUPPORT) return Status::ok();
  return Status(Code::kUnavailable,
                fmt::format("the kernel or the RDMA device's driver does not support dma-bufs: {}",
                            std::strerror(error)));
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
                                                                 int capacity, int most) {
  const auto make = [&](int size) {
    return ibv_create_cq(device, size, nullptr, channel.handle(), 0);
  };
  // Whether a provider can resize a queue shows only when it is asked to.
  const bool is_small = capacity < most;
  ibv_cq* made = make(is_small ? std::max(1, capacity / 2) : most);
  if (made != nullptr && is_small && resize(made, capacity, capacity) != 0) {
    ibv_destroy_cq(made);
    made = make(most);
  }
  if (made == nullptr) {
    const int error = errno;
    return Status::from_errno(
        fmt::format("ibv_create_cq for up to {} completions ({})", most, kFewerCompletions), error);
  }
  return std::unique_ptr<CompletionQueue>(new CompletionQueue(made));
}

Status CompletionQueue::reserve(int more) {
  const int needed = reserved_ + more;
  if (needed > handle_->cqe) {
    // Doubling the size keeps the number of resizes small.
    const int error = resize(handle_, std::max(needed, 2 * handle_->cqe), needed);
    if (error != 0 && resize(handle_, needed, needed) != 0) {
      return {Code::kResourceExhausted,
              fmt::format("a completion queue of {} cannot grow to {} completions: {} ({})",
                          handle_->cqe, needed, std::strerror(error), kFewerCompletions)};
    }
  }
  reserved_ = needed;
  return Status::ok();
}

}  // namespace dunlin::transport::verbs
