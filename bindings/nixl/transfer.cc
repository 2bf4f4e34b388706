#include "bindings/nixl/transfer.h"

#include <algorithm>
#include <utility>

namespace dunlin::nixl {
namespace {

// What one turn may copy. Over shared memory, a put copies while it is posted, and other calls of
// the agent wait meanwhile.
constexpr std::size_t kBytesPerTurn = std::size_t{8} << 20;

}  // namespace

void append(std::vector<Piece>& pieces, Piece piece) {
  if (!pieces.empty()) {
    Piece& last = pieces.back();
    if (last.local == piece.local && last.remote == piece.remote &&
        last.local_offset + last.size == piece.local_offset &&
        last.remote_offset + last.size == piece.remote_offset) {
      const std::size_t more = std::min(piece.size, kBytesPerTurn - last.size);
      last.size += more;
      piece.local_offset += more;
      piece.remote_offset += more;
      piece.size -= more;
    }
  }
  while (piece.size > 0) {
    Piece part = piece;
    part.size = std::min(piece.size, kBytesPerTurn);
    pieces.push_back(part);
    piece.local_offset += part.size;
    piece.remote_offset += part.size;
    piece.size -= part.size;
  }
}

Transfer::Transfer(std::shared_ptr<Peer> peer, Direction direction, std::vector<Piece> pieces)
    : peer_(std::move(peer)),
      direction_(direction),
      pieces_(std::move(pieces)),
      locals_(pieces_.size()),
      remotes_(pieces_.size()),
      completions_(pieces_.size()) {
  for (const Piece& piece : pieces_) bytes_ += piece.size;
}

bool Transfer::is_using(transport::MemoryId memory, bool is_local_agent) const {
  return is_in_progress() && std::ranges::any_of(pieces_, [&](const Piece& piece) {
           return piece.local == memory || (is_local_agent && piece.remote == memory);
         });
}

bool Transfer::is_using_remote(transport::MemoryId memory) const {
  return is_in_progress() &&
         std::ranges::any_of(pieces_, [&](const Piece& piece) { return piece.remote == memory; });
}

Status Transfer::start(std::optional<std::string> notification) {
  if (is_in_progress()) return Status::busy();
  for (transport::Completion& completion : completions_) completion.reset();
  flushed_.reset();
  outcome_ = Status::ok();
  notification_ = std::move(notification);
  posted_ = completed_ = 0;
  is_flush_posted_ = false;
  state_ = State::kConnecting;
  began_ = peer_->now();
  peer_->connect();
  return Status::ok();
}

Status Transfer::advance() {
  if (state_ == State::kConnecting) {
    Status status = resolve();
    if (status.is_busy()) return status;
    if (status.is_ok()) {
      state_ = State::kPosting;
    } else {
      fail(std::move(status));
    }
  }
  if (state_ == State::kPosting) {
    if (Status status = post(); status.is_busy()) {
      (void)collect();
      return status;
    } else if (!status.is_ok()) {
      fail(std::move(status));
    }
  }
  if (state_ == State::kFinishing) {
    Status status = finish();
    if (status.is_busy()) return status;
    if (outcome_.is_ok()) outcome_ = std::move(status);
    if (outcome_.is_ok()) peer_->note(bytes_, peer_->now() - began_);
    connection_.reset();
    state_ = State::kDone;
  }
  return outcome_;
}

void Transfer::cancel(Status why) {
  if (is_in_progress()) fail(std::move(why));
}

void Transfer::close_connection() {
  if (connection_ != nullptr) connection_->close();
}

// What has been posted must complete before the memory may be used for something else.
void Transfer::fail(Status why) {
  if (outcome_.is_ok()) outcome_ = std::move(why);
  notification_.reset();
  state_ = State::kFinishing;
}

Status Transfer::resolve() {
  connection_.reset();
  DUNLIN_TRY(peer_->status());
  if (resolved_for_ != peer_->epoch()) {
    resolved_for_ = peer_->epoch();
    resolved_ = 0;
  }
  connection_ = peer_->connection();
  disconnections_ = peer_->disconnections();
  while (resolved_ < pieces_.size()) {
    const Piece& piece = pieces_[resolved_];
    DUNLIN_ASSIGN(const transport::RemoteRegion* const region, peer_->remote(piece.remote));
    DUNLIN_ASSIGN(remotes_[resolved_], region->slice(piece.remote_offset, piece.size));
    DUNLIN_ASSIGN(locals_[resolved_],
                  connection_->local(piece.local, piece.local_offset, piece.size));
    ++resolved_;
  }
  return Status::ok();
}

Status Transfer::check_connection() const {
  if (disconnections_ == peer_->disconnections()) return Status::ok();
  return {Code::kClosed, "the connection to the agent has ended"};
}

Status Transfer::post() {
  DUNLIN_TRY(check_connection());
  transport::Lane& lane = connection_->lane();
  std::size_t bytes = 0;
  for (; posted_ < pieces_.size(); ++posted_) {
    if (bytes >= kBytesPerTurn) return Status::busy();
    transport::Completion* const done = &completions_[posted_];
    if (direction_ == Direction::kWrite) {
      DUNLIN_TRY(lane.put(locals_[posted_], remotes_[posted_], done));
    } else {
      transport::RemoteReads* const reads = lane.reads();
      if (reads == nullptr)
        return {Code::kUnavailable, "the transport between the two agents has no reads"};
      DUNLIN_TRY(reads->get(remotes_[posted_], locals_[posted_], done));
    }
    bytes += pieces_[posted_].size;
  }
  if (direction_ == Direction::kWrite) {
    // Before the notification: a peer without a progress thread may make no more progress once it
    // has that.
    if (!is_flush_posted_) DUNLIN_TRY(lane.flush(transport::Visibility::kRemote, &flushed_));
    is_flush_posted_ = true;
    DUNLIN_TRY(announce());
  }
  state_ = State::kFinishing;
  return Status::ok();
}

Status Transfer::announce() {
  if (!notification_) return Status::ok();
  DUNLIN_TRY(check_connection());
  // Those that were sent before. They may wait for this transfer's connection, if it is a former
  // one.
  if (connection_ == peer_->connection()) DUNLIN_TRY(peer_->send_waiting());
  DUNLIN_TRY(connection_->send(as_bytes(*notification_)));
  notification_.reset();
  return Status::ok();
}

Status Transfer::collect() {
  for (; completed_ < posted_; ++completed_) {
    const transport::Completion& next = completions_[completed_];
    if (!next.is_done()) return Status::busy();
    if (outcome_.is_ok() && !next.status().is_ok()) fail(next.status());
  }
  return Status::ok();
}

Status Transfer::finish() {
  DUNLIN_TRY(collect());
  if (is_flush_posted_) {
    if (!flushed_.is_done()) return Status::busy();
    return flushed_.status();
  }
  return outcome_.is_ok() ? announce() : Status::ok();
}

}  // namespace dunlin::nixl
