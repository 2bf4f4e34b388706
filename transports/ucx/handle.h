// Owners of UCX's handles, one per kind, and its status in words. None of them moves.
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "runtime/bytes.h"
#include "runtime/memory/region.h"
#include "runtime/status.h"

namespace dunlin::transport::ucx {

Code to_code(ucs_status_t status);
// "<what>: <UCX's words>"; not for UCS_OK.
Status to_status(std::string_view what, ucs_status_t status);

class Context {
 public:
  static Result<std::unique_ptr<Context>> create();
  ~Context() { ucp_cleanup(handle_); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ucp_context_h handle() const { return handle_; }

 private:
  explicit Context(ucp_context_h handle) : handle_(handle) {}
  ucp_context_h handle_;
};

// One thread at a time; its context has to outlive it.
class Worker {
 public:
  static Result<std::unique_ptr<Worker>> create(const Context& context);
  ~Worker() { ucp_worker_destroy(handle_); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  ucp_worker_h handle() const { return handle_; }
  std::size_t progress() { return ucp_worker_progress(handle_); }
  // False: there are events to progress first.
  bool arm() { return ucp_worker_arm(handle_) == UCS_OK; }
  int event_fd() const { return event_fd_; }
  Result<Bytes> address() const;
  Status set_handler(unsigned id, ucp_am_recv_callback_t handler, void* argument);

 private:
  explicit Worker(ucp_worker_h handle) : handle_(handle) {}
  ucp_worker_h handle_;
  int event_fd_ = -1;  // UCX's
};

// Closed by force when it goes: operations that are still pending are cancelled, and their
// callbacks run in the following turns of progress.
class Endpoint {
 public:
  // `on_error(argument, ...)` is called at most once, inside progress. Without `reports_failure`
  // UCX may use transports that can't tell that the peer is gone (the loopback).
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

// Registered memory, without owning the bytes.
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
