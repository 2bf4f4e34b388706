// Transfer: a list of reads or writes between memory of this agent and memory of a peer. It is
// prepared once and can be started many times, without allocating.
//
// All functions are called under the agent's lock.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bindings/nixl/peer.h"
#include "transports/completion.h"

namespace dunlin::nixl {

enum class Direction { kWrite, kRead };

// One operation: `size` bytes of each side.
struct Piece {
  transport::MemoryId local{};
  std::size_t local_offset = 0;
  transport::MemoryId remote{};
  std::size_t remote_offset = 0;
  std::size_t size = 0;
};

// Adds an operation to a list. Joins it with the last one if they adjoin at both sides, and splits
// what is larger than one turn of progress should copy.
void append(std::vector<Piece>& pieces, Piece piece);

class Transfer {
 public:
  Transfer(std::shared_ptr<Peer> peer, Direction direction, std::vector<Piece> pieces);

  // Begins. `notification` reaches the peer when a write's data is there, or when a read's data has
  // arrived here. kBusy if the transfer is in progress already.
  Status start(std::optional<std::string> notification);
  // Advances it. kBusy while it is in progress; then its outcome, again and again.
  Status advance();
  // Posts nothing any more. advance() tells when nothing is in progress.
  void cancel(Status why);
  // Ends the connection that it uses, so that nothing is in progress any more.
  void close_connection();
  bool is_in_progress() const { return state_ != State::kDone; }

  Peer& peer() { return *peer_; }
  const Peer& peer() const { return *peer_; }
  // Whether it is in progress with this memory of the own agent at either end.
  bool is_using(transport::MemoryId memory, bool is_local_agent) const;
  // Whether it is in progress with this memory of the peer.
  bool is_using_remote(transport::MemoryId memory) const;
  std::size_t bytes() const { return bytes_; }

 private:
  enum class State { kConnecting, kPosting, kFinishing, kDone };

  // Looks up the slices of all pieces, unless they are still valid. kBusy while the peer has not
  // answered.
  Status resolve();
  Status post();
  Status announce();
  // kClosed if the peer has been disconnected since the transfer began.
  Status check_connection() const;
  // Takes the outcomes of operations that are done. kBusy while others are in progress.
  Status collect();
  Status finish();
  void fail(Status why);

  const std::shared_ptr<Peer> peer_;
  const Direction direction_;
  const std::vector<Piece> pieces_;
  std::size_t bytes_ = 0;
  std::uint64_t resolved_for_ = 0;    // the peer's epoch
  std::uint64_t disconnections_ = 0;  // the peer's
  // While it is in progress, as the peer may get another one meanwhile.
  std::shared_ptr<transport::Connection> connection_;
  std::size_t resolved_ = 0;  // pieces
  std::vector<transport::LocalSlice> locals_;
  std::vector<transport::RemoteSlice> remotes_;
  std::vector<transport::Completion> completions_;
  transport::Completion flushed_;
  State state_ = State::kDone;
  Status outcome_;
  std::optional<std::string> notification_;  // until it has been sent
  std::size_t posted_ = 0;
  std::size_t completed_ = 0;  // a prefix of the posted ones
  bool is_flush_posted_ = false;
  TimePoint began_{};
};

}  // namespace dunlin::nixl
