// Classes that own UCX's handles, one class per kind, and the errors of UCX. The objects are
// neither copied nor moved.
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "runtime/bytes.h"
#include "runtime/memory/region.h"
#include "runtime/status.h"

namespace dunlin::transport::ucx {

Code to_code(ucs_status_t status);
// The message is "<what>: <UCX's description>". `status` must not be UCS_OK.
Status to_status(std::string_view what, ucs_status_t status);

class Context {
 public:
  // `devices`: the value of UCX's NET_DEVICES, or empty for UCX's own choice.
  static Result<std::unique_ptr<Context>> create(const std::string& devices);
  ~Context() { ucp_cleanup(handle_); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ucp_context_h handle() const { return handle_; }

 private:
  explicit Context(ucp_context_h handle) : handle_(handle) {}
  ucp_context_h handle_;
};

// Used by one thread at a time. The context must outlive it.
class Worker {
 public:
  static Result<std::unique_ptr<Worker>> create(const Context& context);
  ~Worker() { ucp_worker_destroy(handle_); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  ucp_worker_h handle() const { return handle_; }
  std::size_t progress() { return ucp_worker_progress(handle_); }
  // Returns false if there are events that must be progressed first.
  bool arm() { return ucp_worker_arm(handle_) == UCS_OK; }
  int event_fd() const { return event_fd_; }
  Result<Bytes> address() const;
  Status set_handler(unsigned id, ucp_am_recv_callback_t handler, void* argument);

 private:
  explicit Worker(ucp_worker_h handle) : handle_(handle) {}
  ucp_worker_h handle_;
  int event_fd_ = -1;  // owned by UCX
};

// The destructor closes it by force: operations that are still pending are canceled, and their
// callbacks run in the following turns of progress.
class Endpoint {
 public:
  // `on_error(argument, ...)` is called at most once, inside progress. Without `reports_failure`,
  // UCX may use transports that cannot report that the peer is gone (the loopback).
  static Result<std::unique_ptr<Endpoint>> create(const Worker& worker,
                                                  std::span<const std::byte> address,
                                                  ucp_err_handler_cb_t on_error, void* argument,
                                                  bool reports_failure);
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;
  ucp_ep_h handle() const { return handle_; }

 private:
  explicit Endpoint(ucp_ep_h handle) : handle_(handle) {}
  ucp_ep_h handle_;
};

// The registration of memory with UCX. Does not own the memory.
class MemoryHandle {
 public:
  static Result<std::unique_ptr<MemoryHandle>> map(const Context& context,
                                                   const MemoryRegion& memory);
  ~MemoryHandle() { ucp_mem_unmap(context_, handle_); }
  MemoryHandle(const MemoryHandle&) = delete;
  MemoryHandle& operator=(const MemoryHandle&) = delete;
  ucp_mem_h handle() const { return handle_; }
  // What a peer needs to write here by RMA.
  Result<Bytes> pack_key() const;

 private:
  MemoryHandle(ucp_context_h context, ucp_mem_h handle) : context_(context), handle_(handle) {}
  ucp_context_h context_;
  ucp_mem_h handle_;
};

// A peer's packed key, usable on one endpoint.
class RemoteKey {
 public:
  static Result<std::unique_ptr<RemoteKey>> unpack(const Endpoint& endpoint,
                                                   std::span<const std::byte> packed);
  ~RemoteKey() { ucp_rkey_destroy(handle_); }
  RemoteKey(const RemoteKey&) = delete;
  RemoteKey& operator=(const RemoteKey&) = delete;
  ucp_rkey_h handle() const { return handle_; }

 private:
  explicit RemoteKey(ucp_rkey_h handle) : handle_(handle) {}
  ucp_rkey_h handle_;
};

}  // namespace dunlin::transport::ucx
