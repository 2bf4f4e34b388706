// PeerProcess: the process of a peer on this host, and how this process gets at its descriptors.
//
// In the same PID namespace, it opens them through /proc. In another one the peer's process has no
// id here, and a descriptor server passes the descriptors (descriptor_server.h). Owner thread only.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/fd.h"
#include "runtime/peers.h"
#include "runtime/status.h"
#include "transports/shm/descriptor_client.h"

namespace dunlin::transport::shm {

// Opens descriptor `fd` of process `pid` of this PID namespace.
Result<Fd> open_descriptor_of(int pid, int fd, int flags);

class PeerProcess {
 public:
  // A process of this PID namespace.
  explicit PeerProcess(pid_t pid) : pid_(pid) {}
  // A process of another PID namespace. Fetches its pidfd.
  static Result<std::unique_ptr<PeerProcess>> meet(std::unique_ptr<DescriptorClient> client);

  // PeerTable::kForeignPid for a process of another PID namespace.
  pid_t pid() const { return pid_; }
  bool is_foreign() const { return client_ != nullptr; }
  // For messages: "process 4711".
  std::string name() const;
  // A duplicate of the pidfd of a foreign process, for another owner.
  Result<Fd> watch() const;
  // False if the kernel has no pidfds.
  bool has_ended();

  // Opens the peer's descriptor, which it has described by its number and offers under the key. The
  // flags of open() count in the same PID namespace only.
  Result<Fd> open(OfferKey offer, int number, int flags);

  // Whether this process may access memory of the other one that is not shared. Called before
  // access_memory(). The error says why not, and what to do.
  Status check_memory(std::uint64_t address);
  // Copies as process_vm_readv(2) and process_vm_writev(2) do; `local` and `remote` are of the same
  // sizes. Returns how many bytes were copied, at least one; else the error is in errno: ESRCH if
  // the process has ended, EFAULT if the memory is not there.
  ssize_t read_memory(const iovec* local, const iovec* remote, std::size_t count) const;
  ssize_t write_memory(const iovec* local, const iovec* remote, std::size_t count) const;

 private:
  PeerProcess(std::unique_ptr<DescriptorClient> client, Fd pidfd);

  const pid_t pid_;
  const std::unique_ptr<DescriptorClient> client_;  // null in the same PID namespace
  // Tells a process that has ended from a later one with the same number. Closed: not needed yet,
  // or not supported.
  Fd pidfd_;
  Fd memory_;  // /proc/PID/mem of a process of another PID namespace, once it has been needed
};

}  // namespace dunlin::transport::shm
