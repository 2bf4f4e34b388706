// Classes that own the objects of libibverbs, one class per kind, and the errors of work
// completions. The objects are neither copied nor moved. Owner thread only.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/gpu/driver.h"
#include "runtime/memory/region.h"
#include "runtime/status.h"

namespace dunlin::transport::verbs {

// The error of a work completion: kNotFound if the peer does not offer the memory (any more),
// kPeerDead if the peer cannot be reached, kInternal if the request was at fault in another way.
Status to_status(std::string_view operation, const ibv_wc& completion);
// Whether the work request itself was at fault, so that it would fail over any connection. A
// "remote invalid request" does not count: rdma_rxe also sends it when it loses track of a long
// write whose packets were sent again.
bool is_refusal(const ibv_wc& completion);

Status set_nonblocking(int fd);

class Device {
 public:
  static Result<std::unique_ptr<Device>> open(const std::string& name);
  ~Device() { ibv_close_device(handle_); }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ibv_context* handle() const { return handle_; }

 private:
  explicit Device(ibv_context* handle) : handle_(handle) {}
  ibv_context* handle_;
};

class ProtectionDomain {
 public:
  // `has_atomics`: the device has atomics, and memory is to be registered for them, too.
  // `can_relax`: memory that allows it is registered with relaxed ordering.
  static Result<std::unique_ptr<ProtectionDomain>> create(ibv_context* device, bool has_atomics,
                                                          bool can_relax);
  ~ProtectionDomain() { ibv_dealloc_pd(handle_); }
  ProtectionDomain(const ProtectionDomain&) = delete;
  ProtectionDomain& operator=(const ProtectionDomain&) = delete;
  ibv_pd* handle() const { return handle_; }
  // What peers may do with registered memory.
  int access() const { return access_; }
  // The same with the order in which the device may access this memory. Devices, kernels and
  // libraries that do not know relaxed ordering ignore it.
  int access_to(const MemoryRegion& memory) const {
    const bool is_relaxed = can_relax_ && memory.device_order() == DeviceOrder::kRelaxed;
    return is_relaxed ? access_ | static_cast<int>(IBV_ACCESS_RELAXED_ORDERING) : access_;
  }
  // Whether memory can be registered without being locked (on-demand paging).
  bool can_page() const { return can_page_; }

 private:
  ProtectionDomain(ibv_pd* handle, int access, bool can_relax, bool can_page)
      : handle_(handle), access_(access), can_relax_(can_relax), can_page_(can_page) {}
  ibv_pd* handle_;
  int access_;
  bool can_relax_;
  bool can_page_;
};

// The registration of memory with a device. Does not own the memory.
class MemoryKey {
 public:
  // Registers for the access that the domain grants. If no more memory may be locked, on-demand
  // paging is used if the device supports it; otherwise the error names the remedy.
  static Result<std::unique_ptr<MemoryKey>> create(const ProtectionDomain& domain,
                                                   const MemoryRegion& memory);
  // Registers GPU memory that was exported as a dma-buf. The addresses remain those of `memory`.
  static Result<std::unique_ptr<MemoryKey>> create(const ProtectionDomain& domain,
                                                   const DmaBuf& exported,
                                                   const MemoryRegion& memory);
  ~MemoryKey() { ibv_dereg_mr(handle_); }
  MemoryKey(const MemoryKey&) = delete;
  MemoryKey& operator=(const MemoryKey&) = delete;
  std::uint32_t local() const { return handle_->lkey; }
  std::uint32_t remote() const { return handle_->rkey; }

 private:
  explicit MemoryKey(ibv_mr* handle) : handle_(handle) {}
  ibv_mr* handle_;
};

// Memory with its registrations, which are destroyed before the memory.
struct RegisteredMemory {
  std::shared_ptr<MemoryRegion> memory;
  std::unique_ptr<MemoryKey> key;
  std::vector<std::unique_ptr<MemoryKey>> rail_keys{};  // with the ports after the first
};

// Ok if the kernel and the device's driver can register dma-bufs at all.
Status check_dma_buf(const ProtectionDomain& domain);

// Where completion queues announce their completions. A thread that sleeps waits for its
// descriptor. Never blocks.
class CompletionChannel {
 public:
  static Result<std::unique_ptr<CompletionChannel>> create(ibv_context* device);
  ~CompletionChannel() { ibv_destroy_comp_channel(handle_); }
  CompletionChannel(const CompletionChannel&) = delete;
  CompletionChannel& operator=(const CompletionChannel&) = delete;
  ibv_comp_channel* handle() const { return handle_; }
  // Takes and acknowledges the pending announcements.
  void drain();

 private:
  explicit CompletionChannel(ibv_comp_channel* handle) : handle_(handle) {}
  ibv_comp_channel* handle_;
};

class CompletionQueue {
 public:
  // Makes a queue for `capacity` completions, which grows as room is reserved. On a device that
  // cannot resize queues it has room for `most` from the beginning, and never for more.
  static Result<std::unique_ptr<CompletionQueue>> create(ibv_context* device,
                                                         CompletionChannel& channel, int capacity,
                                                         int most);
  ~CompletionQueue() { ibv_destroy_cq(handle_); }
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;
  ibv_cq* handle() const { return handle_; }
  // Asks for an announcement of the next completion.
  bool arm() { return ibv_req_notify_cq(handle_, 0) == 0; }
  // Reserves room for `more` completions in addition to those reserved before. kResourceExhausted
  // if the queue cannot be made as large as that.
  Status reserve(int more);
  void release(int completions) { reserved_ -= completions; }

 private:
  explicit CompletionQueue(ibv_cq* handle) : handle_(handle) {}
  ibv_cq* handle_;
  int reserved_ = 0;
};

}  // namespace dunlin::transport::verbs
