// Group: the ranks of a communicator of NCCL, which put into one another's memory and add to one
// another's signals. One rank of it.
//
// Each rank has a connection to each rank, itself included. A window is memory that all ranks have
// registered together; a transfer names the windows and offsets of its two ends. NCCL's one-sided
// interface (abi.h) maps to this class one to one.
//
// Ordering. Transfers to one rank begin in the order of the calls. A signal is added behind all
// bytes that were put to its rank before. Signals to one rank are added in the order of the calls,
// but several to one word at once.
//
// A transfer is done when its local memory may be reused, or, for a get, when the bytes are there.
// A rank that dies, or leaves while it is needed, fails the transfers to it; the others go on.
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
#include <vector>

#include "bindings/nccl/connecting.h"
#include "bindings/nccl/one_sided/gpu_words.h"
#include "bindings/nccl/one_sided/messages.h"
#include "bindings/nccl/shared_endpoint.h"
#include "runtime/gpu/driver.h"
#include "transports/completion.h"

namespace dunlin::nccl {

class Group {
 public:
  // Memory that each rank has registered as the group's window with this number.
  struct Window {
    std::uint64_t number = 0;
    std::byte* data = nullptr;  // this rank's memory
    std::size_t size = 0;
    transport::MemoryId id{};
    std::shared_ptr<GpuDriver> gpu;  // null: the memory is the host's
    int gpu_device = 0;
  };
  struct Place {
    const void* window = nullptr;
    std::uint64_t offset = 0;
  };
  struct Signal {
    Place word;
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

  // Connects with all ranks, whose listeners have the handles, this rank's too. Blocks, until the
  // deadline of the configuration at most. kDeadlineExceeded names the missing ranks.
  static Result<std::unique_ptr<Group>> connect(std::shared_ptr<SharedEndpoint> endpoint,
                                                std::span<const Handle> handles, int rank);
  // Ends the connections, as SharedEndpoint::end() says.
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int size() const { return static_cast<int>(peers_.size()); }

  // Collective: all ranks call it in the same order of windows. Blocks like connect(), until all
  // ranks have registered theirs; fails on all of them if one cannot. `gpu`: the driver of the GPU
  // whose memory it is; null: it is the host's.
  Result<Window*> add_window(void* data, std::size_t size, std::shared_ptr<GpuDriver> gpu);
  // Not collective. Transfers that use the window must be done: others fail, together with all that
  // is under way to their ranks.
  Status remove_window(const void* window);

  // Puts `size` bytes at `from` of this rank to `to` of the other one. Then adds to its signal, if
  // there is one. kInvalidArgument or kOutOfRange if a place does not lie within its window.
  Result<Transfer*> put(int rank, Place from, Place to, std::size_t size,
                        const std::optional<Signal>& signal);
  // Gets `size` bytes at `from` of the other rank to `to` of this one. kUnavailable if the
  // transport has no gets.
  Result<Transfer*> get(int rank, Place from, Place to, std::size_t size);
  // True once the transfer is done: then it must not be used any more. So it is after an error.
  Result<bool> test(Transfer* transfer);
  // Advances everything. An error concerns this rank's signals: then all has failed. Another call
  // does not report it again.
  Status progress();
  // Whether something has failed that NCCL may not have tested.
  bool has_failed() const;
  // From now on, this rank accesses no registered memory, and transfers of others to it fail. Those
  // that others are carrying out just then may still land (transports/endpoint/endpoint.h).
  void detach();

 private:
  struct Peer {
    std::unique_ptr<transport::Connection> connection;
    // Of this rank itself only: the other end of its connection.
    std::unique_ptr<transport::Connection> other_end;
    std::map<std::uint64_t, Announcement> windows;  // that the peer has announced
    std::deque<Transfer*> waiting;                  // to be posted
    std::deque<Bytes> owed;                         // messages, behind what was posted
    std::uint64_t messages = 0;                     // to the peer, those in `owed` included
    Status failure;

    transport::Connection& inbound() const { return other_end ? *other_end : *connection; }
  };

  Group(std::shared_ptr<SharedEndpoint> endpoint, std::size_t ranks, int rank);
  // The functions below need the lock.
  Status dial(std::span<const Handle> handles);
  Status accept_peers();
  // kBusy while a connection is being made.
  Status check_connected();
  // Calls `ready` until it returns something other than kBusy, without the lock between calls.
  // kDeadlineExceeded, with what `missing` returns, after the deadline of the configuration.
  template <typename Ready, typename Missing>
  Status await(std::unique_lock<std::mutex>& lock, Ready&& ready, Missing&& missing);
  Status check_announced(std::uint64_t number);
  std::string missing_announcements(std::uint64_t number) const;
  Result<const Window*> find(const void* window) const;
  Result<const Announcement*> announced(const Peer& peer, std::uint64_t number) const;
  // A transfer whose places have been checked, which is not under way yet.
  Result<Transfer*> prepare(int rank, Place local, Place remote, std::size_t size);
  Result<Transfer*> begin(Transfer* transfer);
  void tell(Peer& peer, const GroupMessage& message);
  void advance(Peer& peer);
  void take_messages(Peer& peer);
  Status take(Peer& peer, const GroupMessage& message);
  Status add_here(const Addition& addition);
  Status post(Peer& peer, Transfer& transfer);
  bool is_done(const Peer& peer, const Transfer& transfer) const;
  void fail(Peer& peer, Status why);
  // What a transfer to this peer meets now.
  Status state_of(Peer& peer);
  void release(Transfer* transfer);
  int rank_of(const Peer& peer) const { return static_cast<int>(&peer - peers_.data()); }

  std::shared_ptr<SharedEndpoint> endpoint_;
  const int rank_;
  std::vector<Peer> peers_;  // by rank
  std::vector<std::unique_ptr<transport::Connection>> arriving_;
  std::uint64_t last_window_ = 0;
  std::map<const void*, std::unique_ptr<Window>> windows_;
  std::map<std::uint64_t, Window*> by_number_;
  std::deque<Transfer> transfers_;  // in use, and free ones
  std::vector<Transfer*> free_;
  std::map<std::pair<GpuDriver*, int>, std::unique_ptr<GpuWords>> gpu_words_;
  bool has_failed_ = false;
};

}  // namespace dunlin::nccl
