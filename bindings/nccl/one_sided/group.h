// Group: the ranks of a communicator of NCCL, which put into one another's memory and add to one
// another's signals. One rank of it.
//
// Each rank has a connection to each other rank; what a rank puts into its own memory is copied. A
// window is memory that all ranks have registered together. A transfer names the windows and
// offsets of its two ends. NCCL's one-sided interface (abi.h) maps to this class one to one.
//
// Ordering. Transfers to one rank begin in the order of the calls. A signal is added when all bytes
// that its sender has put to that rank before are there. Additions of one sender to different words
// may become visible in any order.
//
// Progress. Most calls advance the group, and so does the endpoint's keeper, 100 times a second: a
// rank that only waits for signals need not call anything, but gets them later.
//
// Ends. A transfer is done when its local memory may be reused, or, for a get, when the bytes are
// there. When a rank dies, transfers to it fail, now and later, and has_failed() is true; transfers
// to other ranks go on. The same holds for a rank that has left, but has_failed() stays false.
//
// Any thread: each function takes the lock of the group's endpoint.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bindings/nccl/connecting.h"
#include "bindings/nccl/one_sided/gpu_words.h"
#include "bindings/nccl/one_sided/local_copies.h"
#include "bindings/nccl/one_sided/messages.h"
#include "bindings/nccl/one_sided/window.h"
#include "bindings/nccl/shared_endpoint.h"
#include "transports/completion.h"

namespace dunlin::nccl {

class Group {
 public:
  // A place in a window of any rank. `window` is what add_window() has returned.
  struct WindowOffset {
    const void* window = nullptr;
    std::uint64_t offset = 0;
  };
  struct Signal {
    WindowOffset word;
    std::uint64_t value = 0;
  };
  class Transfer {
   public:
    Transfer() = default;

   private:
    friend Group;
    int rank = 0;
    bool is_get = false;
    const Window* local = nullptr;
    std::uint64_t local_offset = 0;
    std::uint64_t remote_window = 0;
    std::uint64_t remote_offset = 0;
    std::size_t size = 0;
    std::optional<Addition> addition;

    bool is_used = false;
    bool is_posted = false;
    transport::Completion completion;
    std::uint64_t message = 0;  // the number of the message that carries the addition
  };

  // Connects with all ranks, as connect_ranks() says. The endpoint is not used for anything else.
  static Result<std::unique_ptr<Group>> connect(std::shared_ptr<SharedEndpoint> endpoint,
                                                std::span<const Handle> handles, int rank);
  // Ends the connections, as SharedEndpoint::end() says. Call detach() first.
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int size() const { return static_cast<int>(peers_.size()); }

  // Collective: all ranks call it in the same order of windows. Blocks until all have registered
  // their memory, at most until the deadline of the configuration. If one of them cannot, it fails
  // on all of them; after the deadline, the missing ranks count as failed. `gpu`: the driver of the
  // GPU whose memory it is, or the error with which there is none; null: it is the host's.
  Result<Window*> add_window(void* data, std::size_t size, Result<std::shared_ptr<GpuDriver>> gpu);
  // Not collective. Transfers that use the window must be done: those that are not fail, and with
  // them all that is under way to the same ranks. After an error, GPU copies may still access the
  // memory.
  Status remove_window(const void* window);

  // Puts `size` bytes at `from` of this rank to `to` of the other one. Then adds to its signal, if
  // there is one. kInvalidArgument or kOutOfRange if an offset does not lie within its window.
  Result<Transfer*> put(int rank, WindowOffset from, WindowOffset to, std::size_t size,
                        const std::optional<Signal>& signal);
  // Gets `size` bytes at `from` of the other rank to `to` of this one. kUnavailable if the
  // transport has no gets.
  Result<Transfer*> get(int rank, WindowOffset from, WindowOffset to, std::size_t size);
  // True once the transfer is done: then it must not be used any more. An error is returned by
  // each later call, too, and is logged once.
  Result<bool> test(Transfer* transfer);
  // Advances everything. The first failure, if there is one; it has been logged.
  Status progress();
  bool has_failed() const;
  // From now on, this rank accesses no registered memory, and transfers of others to it fail. Those
  // that others are carrying out just then may still land (transports/endpoint/endpoint.h).
  void detach();

 private:
  struct Peer {
    std::unique_ptr<transport::Connection> connection;  // null: it is this rank
    std::map<std::uint64_t, Announcement> windows;      // that the peer has announced
    std::deque<Transfer*> waiting;                      // to be posted
    std::deque<Bytes> owed;                             // messages, behind what was posted
    std::uint64_t messages = 0;                         // to the peer, those in `owed` included
    bool has_left = false;                              // in good order
    Status failure;
  };

  Group(std::shared_ptr<SharedEndpoint> endpoint,
        std::vector<std::unique_ptr<transport::Connection>> connections, int rank);
  // The functions below need the lock.
  TimePoint deadline() const;
  Status register_window(Window& window, void* data, std::size_t size,
                         Result<std::shared_ptr<GpuDriver>> gpu);
  Status await_announcements(std::unique_lock<std::mutex>& lock, std::uint64_t number);
  // Until no copy of this process uses the memory.
  Status await_copies(std::unique_lock<std::mutex>& lock, const Window& window, TimePoint limit);
  void forget(const Window& window);
  Result<const Window*> find(const void* window) const;
  Result<const Announcement*> announced(const Peer& peer, std::uint64_t number) const;
  // A transfer whose offsets have been checked, which is not under way yet.
  Result<Transfer*> prepare(int rank, WindowOffset local, WindowOffset remote, std::size_t size);
  Result<Transfer*> begin(Transfer* transfer);
  void tell(Peer& peer, const GroupMessage& message);
  void advance_all();
  void advance(Peer& peer);
  void advance_own(Peer& self);
  void take_messages(Peer& peer);
  Status take(Peer& peer, const GroupMessage& message);
  Status add_here(const Addition& addition);
  Status post(Peer& peer, Transfer& transfer);
  bool is_done(const Peer& peer, const Transfer& transfer) const;
  void fail(Peer& peer, Status why);
  // What a transfer to this peer meets now.
  const Status& state_of(Peer& peer);
  int rank_of(const Peer& peer) const { return static_cast<int>(&peer - peers_.data()); }
  Peer& peer_of(const Transfer& transfer) {
    return peers_[static_cast<std::size_t>(transfer.rank)];
  }

  std::shared_ptr<SharedEndpoint> endpoint_;
  std::vector<Peer> peers_;  // by rank
  std::uint64_t last_window_ = 0;
  std::map<const void*, std::unique_ptr<Window>> windows_;
  std::map<std::uint64_t, const Window*> by_number_;  // those that take signals
  std::deque<Transfer> transfers_;                    // in use, and free ones
  std::vector<Transfer*> free_;
  LocalCopies copies_;  // of what this rank puts into its own memory
  std::map<std::pair<GpuDriver*, int>, std::unique_ptr<GpuWords>> gpu_words_;
  Status failure_;  // the first one
};

}  // namespace dunlin::nccl
