#include "transports/endpoint/connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/bootstrap/printable.h"
#include "transports/endpoint/constants.h"
#include "transports/endpoint/endpoint.h"

namespace dunlin::transport {

using endpoint::ImportAnswer;
using endpoint::ImportRequest;
using endpoint::MessageKind;

namespace {

// A lane that has failed carries nothing any more; a new connection can. Whether a peer has left or
// is dead, only the service threads know, whose word may come later than the lane's.
Status failure_of(Link& link) {
  for (const Lane* const lane : {&link.data(), &link.control()}) {
    Status failure = lane->failure();
    const bool is_peers_end = failure.code() == Code::kPeerDead || failure.code() == Code::kClosed;
    if (!failure.is_ok() && !is_peers_end) return failure;
  }
  return Status::ok();
}

}  // namespace

std::string_view Connection::awaited() const {
  switch (step_) {
    case Step::kDial:
      return "the handshake with the peer's endpoint";
    case Step::kMeet:
    case Step::kLink:
      return "the peer's address";
    case Step::kSlots:
      return "the place for messages to the peer";
    case Step::kGreeting:
      return has_greeting_ ? "the peer to take the greeting" : "the peer's greeting";
    default:
      return "the peer to say that the connection is usable";
  }
}

Connection::Connection(Endpoint& owner, Step first, Bytes greeting)
    : owner_(owner),
      config_(owner.config_),
      step_(first),
      greeting_(std::move(greeting)),
      deadline_(owner.clock_.now() + owner.config_.bootstrap_timeout) {
  config_.bootstrap_address.clear();  // of this process's job, which the peer may not belong to
}

Connection::Connection(Endpoint& owner, std::unique_ptr<endpoint::Dial> dial, Bytes greeting)
    : Connection(owner, Step::kDial, std::move(greeting)) {
  dial_ = std::move(dial);
}

Connection::Connection(Endpoint& owner, std::shared_ptr<endpoint::ControlLine> line, Bytes greeting)
    : Connection(owner, Step::kMeet, std::move(greeting)) {
  line_ = std::move(line);
}

Connection::~Connection() {
  if (line_ != nullptr) owner_.service_->detach(*line_);
  while (step_ == Step::kOpen && !finish()) progress();
  close();
  owner_.forget(*this);
  messages_.reset();
  slots_.reset();
  imports_.clear();
  regions_.clear();
  fabric_.reset();
  bootstrap_.reset();
}

bool Connection::finish() {
  if (dial_ != nullptr && !dial_->is_over()) {
    dial_->cancel();
    return false;
  }
  if (step_ != Step::kOpen) return true;
  const TimePoint now = owner_.clock_.now();
  if (!finish_by_) finish_by_ = now + endpoint::kFarewell;
  if (now >= *finish_by_ || (messages_->has_delivered_all() && lane().is_idle())) return true;
  if (!has_sent_all()) return false;
  if (!is_flush_posted_) is_flush_posted_ = lane().flush(Visibility::kRemote, &flushed_).is_ok();
  return is_flush_posted_ && flushed_.is_done();
}

void Connection::close() {
  if (dial_ != nullptr) dial_->cancel();
  if (step_ == Step::kEnded) return;
  // Told by way of the service threads, the end needs no progress of the peer. So the transports
  // need not wait until the peer has seen it.
  if (bootstrap_ != nullptr) leave();
  if (fabric_ != nullptr) fabric_->progress();
  end(Status(Code::kClosed, "this side has left the connection"));
}

Rank Connection::peer() const {
  return bootstrap_->peer();
}

std::size_t Connection::progress() {
  if (step_ == Step::kEnded) return 0;
  if (step_ != Step::kOpen) {
    Status status = advance();
    if (status.is_busy() && owner_.clock_.now() >= deadline_)
      status = Status(Code::kDeadlineExceeded,
                      fmt::format("not usable within {:g} s: this side still waits for {}{}{}",
                                  to_seconds(config_.bootstrap_timeout), awaited(),
                                  last_answer_.empty() ? "" : "; ", last_answer_));
    if (status.is_error()) end(std::move(status));
    return step_ == Step::kOpen || step_ == Step::kEnded ? 1 : 0;
  }
  const std::size_t before = inbox_.size();
  std::size_t events = fabric_->progress();
  // Before the messages are looked at: what the peer has sent before its end is there then.
  const PeerState state = bootstrap_->peers().state(peer());
  // All that a peer which has ended has sent is taken now, since nothing is taken after the end.
  const bool has_ended = state == PeerState::kLeft || state == PeerState::kDead;
  Status status = messages_->progress(
      [this, has_ended] { return has_ended || inbox_bytes_ < endpoint::kMaxUnread; });
  events += inbox_.size() - before;
  if (state == PeerState::kLeft) {
    end(Status(Code::kClosed, "the peer has left the connection"));
  } else if (state == PeerState::kDead) {
    end(status.is_ok() ? bootstrap_->peers().check(peer()) : std::move(status));
  } else if (!status.is_ok()) {
    leave();  // otherwise, the peer would wait for the rest of a message
    end(std::move(status));
  } else if (Status failure = failure_of(*link_); !failure.is_ok()) {
    leave();  // otherwise, the peer would wait for answers
    end(std::move(failure));
  }
  return events;
}

bool Connection::arm() {
  if (step_ == Step::kEnded) return true;
  // The steps before it are tried again and again.
  return step_ == Step::kOpen && has_sent_all() && fabric_->arm();
}

void Connection::disarm() {
  if (fabric_ != nullptr) fabric_->disarm();
}

void Connection::append_wait_fds(std::vector<int>& fds) const {
  if (fabric_ == nullptr || step_ == Step::kEnded) return;
  fds.insert(fds.end(), fabric_->wait_fds().begin(), fabric_->wait_fds().end());
}

Status Connection::advance() {
  if (step_ == Step::kDial) {
    DUNLIN_ASSIGN(line_, dial_->result());
    dial_.reset();
    owner_.service_->add(line_);
    step_ = Step::kMeet;
  }
  if (step_ == Step::kMeet) {
    bootstrap_ =
        std::make_unique<endpoint::PairBootstrap>(*owner_.service_, std::exchange(line_, nullptr));
    DUNLIN_ASSIGN(fabric_, Fabric::create(*bootstrap_, config_, owner_.clock_, nullptr,
                                          builtin_transports(), endpoint::kCells));
    step_ = Step::kLink;
  }
  fabric_->progress();
  if (step_ == Step::kConfirm && bootstrap_->peers().state(peer()) == PeerState::kLeft) {
    // The peer was usable, has sent its messages, and is gone already: they are to be read.
    open();
    return Status::ok();
  }
  DUNLIN_TRY(bootstrap_->peers().check(peer()));
  if (messages_ != nullptr) DUNLIN_TRY(messages_->progress([] { return true; }));
  const TimePoint began = owner_.clock_.now();
  if (began < next_try_) return Status::busy();
  Status status = ask();
  // Questions to a peer that is stopped take long. Other connections get most of the time.
  const TimePoint ended = owner_.clock_.now();
  next_try_ =
      ended + std::clamp<Duration>(4 * (ended - began), endpoint::kRetry, endpoint::kLongestRetry);
  return status;
}

// The steps that ask the other side or the service thread.
Status Connection::ask() {
  if (step_ == Step::kLink) DUNLIN_TRY(open_link());
  if (step_ == Step::kSlots) DUNLIN_TRY(open_messages());
  return confirm();
}

Status Connection::open_messages() {
  DUNLIN_TRY(slots_->check_neighbors());
  DUNLIN_TRY(slots_->connect());
  DUNLIN_ASSIGN(messages_, endpoint::MessageStream::create(*slots_, kMaxMessage,
                                                           [this](MessageKind kind, Bytes message) {
                                                             handle(kind, std::move(message));
                                                           }));
  step_ = Step::kGreeting;
  return messages_->send(MessageKind::kGreeting, greeting_);
}

// A side whose connection is usable may make no progress for long. So it must not be usable while
// the other side still needs that progress: until both lanes of both sides have been used, and each
// side knows that of the other. The last word goes by way of the service threads, which need no
// progress.
Status Connection::confirm() {
  const auto key = [](Rank rank) { return fmt::format("usable/{}", rank.value()); };
  if (step_ == Step::kGreeting) {
    if (!has_greeting_ || !messages_->has_delivered_all()) return Status::busy();
    DUNLIN_TRY(bootstrap_->post(key(bootstrap_->rank()), {}));
    step_ = Step::kConfirm;
  }
  const auto confirmed = bootstrap_->lookup_from(peer(), key(peer()), Duration::zero());
  if (confirmed.status().code() == Code::kDeadlineExceeded) return not_yet(confirmed.status());
  DUNLIN_TRY(confirmed.status());
  open();
  return Status::ok();
}

Status Connection::not_yet(const Status& answer) {
  last_answer_ = answer.message();
  return Status::busy();
}

void Connection::open() {
  step_ = Step::kOpen;
  has_opened_ = true;
  status_ = Status::ok();
}

Status Connection::open_link() {
  auto link = fabric_->link(peer(), Duration::zero());
  if (link.status().code() == Code::kDeadlineExceeded) return not_yet(link.status());
  last_answer_.clear();
  DUNLIN_ASSIGN(link_, std::move(link));
  transport_ = fabric_->transport_of(peer());
  SlotOptions options;
  options.name = "messages";
  options.in = options.out = {peer()};
  options.slot_bytes = endpoint::kSlotBytes;
  options.depth = endpoint::kDepth;
  DUNLIN_ASSIGN(slots_, SlotExchange::prepare(*fabric_, std::move(options)));
  step_ = Step::kSlots;
  return Status::ok();
}

void Connection::leave() {
  bootstrap_->leave();
  bootstrap_->peers().mark(peer(), PeerState::kLeft, "this side has left");
}

void Connection::end(Status why) {
  step_ = Step::kEnded;
  status_ = std::move(why);
  for (auto& [id, import] : imports_) {
    if (import.status.is_busy()) import.status = status_;
  }
  if (link_ == nullptr) return;
  link_->data().close();
  link_->control().close();
}

void Connection::handle(MessageKind kind, Bytes message) {
  switch (kind) {
    case MessageKind::kGreeting:
      if (!std::exchange(has_greeting_, true)) peers_greeting_ = std::move(message);
      return;
    case MessageKind::kProgram:
      inbox_bytes_ += message.size();
      inbox_.push_back(std::move(message));
      return;
    case MessageKind::kImport:
      return answer_import(message);
    case MessageKind::kImported:
      return take_import(message);
  }
}

Result<LocalRegion*> Connection::region(MemoryId id) {
  if (const auto found = regions_.find(id); found != regions_.end()) return found->second.get();
  const auto memory = owner_.registry_.find(id);
  if (memory == owner_.registry_.end()) {
    return Status(Code::kNotFound, fmt::format("no memory is registered with the number {}",
                                               static_cast<std::uint64_t>(id)));
  }
  DUNLIN_ASSIGN(auto region, fabric_->register_memory(memory->second));
  return regions_.emplace(id, std::move(region)).first->second.get();
}

Result<LocalSlice> Connection::local(MemoryId id, std::size_t offset, std::size_t size) {
  if (step_ != Step::kOpen) return status_;
  DUNLIN_ASSIGN(const LocalRegion* const found, region(id));
  return found->slice(offset, size);
}

Result<RemoteRegion*> Connection::remote(MemoryId id) {
  if (const auto found = imports_.find(id); found != imports_.end()) {
    DUNLIN_TRY(Status(found->second.status));
    return found->second.region.get();
  }
  if (step_ != Step::kOpen) return status_;
  DUNLIN_TRY(messages_->send(MessageKind::kImport,
                             ImportRequest{static_cast<std::uint64_t>(id)}.encode()));
  imports_.emplace(id, Import());
  return Status::busy();
}

void Connection::forget(MemoryId id) {
  imports_.erase(id);
}

void Connection::answer_import(std::span<const std::byte> request) {
  auto asked = ImportRequest::decode(request);
  if (!asked) return end(std::move(asked).status());
  auto found = region(MemoryId(asked->id));
  ImportAnswer answer{asked->id, found.status().code(), std::string(found.status().message()), {}};
  if (found) answer.descriptor = (*found)->descriptor();
  if (Status status = messages_->send(MessageKind::kImported, answer.encode()); !status.is_ok())
    end(std::move(status));
}

void Connection::take_import(std::span<const std::byte> answer) {
  auto told = ImportAnswer::decode(answer);
  if (!told) return end(std::move(told).status());
  const auto found = imports_.find(MemoryId(told->id));
  // Forgotten meanwhile, perhaps asked for again: the first answer counts.
  if (found == imports_.end() || !found->second.status.is_busy()) return;
  if (told->code != Code::kOk) {
    found->second.status =
        Status(told->code, "the peer cannot grant access: " + bootstrap::printable(told->why))
            .with_peer(peer());
    return;
  }
  auto region = fabric_->import_region(peer(), told->descriptor);
  found->second.status = region.status();
  if (region) found->second.region = std::move(*region);
}

Status Connection::send(std::span<const std::byte> message) {
  if (step_ != Step::kOpen) return status_;
  return messages_->send(MessageKind::kProgram, message);
}

std::optional<Bytes> Connection::receive() {
  if (inbox_.empty()) return std::nullopt;
  Bytes message = std::move(inbox_.front());
  inbox_.pop_front();
  inbox_bytes_ -= message.size();
  return message;
}

}  // namespace dunlin::transport
