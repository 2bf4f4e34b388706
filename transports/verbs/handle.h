// Owners of the objects of libibverbs, one per kind, and work completions in words.
// None of them moves. Owner thread only.
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

// A failed work completion: kNotFound for memory that the peer does not offer (any more),
// kPeerDead where the peer can't be reached.
Status to_status(std::string_view operation, const ibv_wc& completion);
// Whether the work request itself was at fault, so that it would fail over any connection. A
// "remote invalid request" is none: rdma_rxe sends that when it has lost the thread of a long write
// whose packets it had to ask for again.
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
  // `has_atomics`: the device's; memory is then registered for them, too.
  static Result<std::unique_ptr<ProtectionDomain>> create(ibv_context* device, bool has_atomics);
  ~ProtectionDomain() { ibv_dealloc_pd(handle_); }
  ProtectionDomain(const ProtectionDomain&) = delete;
  ProtectionDomain& operator=(const ProtectionDomain&) = delete;
  ibv_pd* handle() const { return handle_; }
  // What peers may do with registered memory.
  int access() const { return access_; }
  // Memory that is registered need not be locked.
  bool can_page() const { return can_page_; }

 private:
  ProtectionDomain(ibv_pd* handle, int access, bool can_page)
      : handle_(handle), access_(access), can_page_(can_page) {}
  ibv_pd* handle_;
  int access_;
  bool can_page_;
};

// Registered memory, without owning the bytes.
class MemoryKey {
 public:
  // For the access that the domain grants. Where no more memory may be locked, its pages are
  // fetched on demand, if the device can do that; else the error names the remedy.
  static Result<std::unique_ptr<MemoryKey>> create(const ProtectionDomain& domain,
                                                   const MemoryRegion& memory);
  // The same for GPU memory that was exported; its addresses are the region's.
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

// The keys go first.
struct RegisteredMemory {
  std::shared_ptr<MemoryRegion> memory;
  std::unique_ptr<MemoryKey> key;
  std::vector<std::unique_ptr<MemoryKey>> rail_keys{};  // with the ports behind the first
};

// Ok if the kernel and the device's driver register dma-bufs at all.
Status check_dma_buf(const ProtectionDomain& domain);

// Where completion queues announce their completions: what a sleeper polls. Never blocks.
class CompletionChannel {
 public:
  static Result<std::unique_ptr<CompletionChannel>> create(ibv_context* device);
  ~CompletionChannel() { ibv_destroy_comp_channel(handle_); }
  CompletionChannel(const CompletionChannel&) = delete;
  CompletionChannel& operator=(const CompletionChannel&) = delete;
  ibv_comp_channel* handle() const { return handle_; }
  // Takes (and acknowledges) the announcements that have come.
  void drain();

 private:
  explicit CompletionChannel(ibv_comp_channel* handle) : handle_(handle) {}
  ibv_comp_channel* handle_;
};

class CompletionQueue {
 public:
  static Result<std::unique_ptr<CompletionQueue>> create(ibv_context* device,
                                                         CompletionChannel& channel, int capacity);
  ~CompletionQueue() { ibv_destroy_cq(handle_); }
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;
  ibv_cq* handle() const { return handle_; }
  // The next completion is announced.
  bool arm() { return ibv_req_notify_cq(handle_, 0) == 0; }
  // Makes room for `more` completions at a time beside those promised before.
  Status reserve(int more);
  void release(int completions) { reserved_ -= completions; }

 private:
  explicit CompletionQueue(ibv_cq* handle) : handle_(handle) {}
  ibv_cq* handle_;
  int reserved_ = 0;
};

}  // namespace dunlin::transport::verbs
