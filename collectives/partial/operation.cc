#include "collectives/partial/operation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "runtime/fnv.h"

namespace dunlin::collective::partial {

using transport::Awaited;
using transport::NotifyCell;

namespace {

std::uint64_t tag_of(const std::vector<Rank>& members, std::string_view label) {
  Fnv tag;
  for (const Rank member : members) tag.add(static_cast<std::uint64_t>(member.value()));
  tag.add(hash_of(label));
  return tag.value();
}

std::string describe_call(const Hello& hello) {
  return fmt::format("{} elements of {}, {}", hello.count, to_string(DataType(hello.type)),
                     to_string(ReduceOp(hello.op)));
}

}  // namespace

std::string PartialOperation::describe() const {
  std::vector<int> ranks;
  for (const Rank member : members) ranks.push_back(member.value());
  return fmt::format("partial all-reduce {} of {}", task.number, fmt::join(ranks, ", "));
}

std::unique_ptr<PartialOperation> PartialProtocol::prepare(const PartialCall& call,
                                                           const Memory& memory) {
  auto operation = std::make_unique<PartialOperation>();
  operation->members = call.members;
  operation->label = call.label;
  std::ranges::sort(operation->members);
  const std::size_t size = operation->members.size();
  operation->has_greeted.resize(size);
  operation->has_come.resize(size);

  Task& task = operation->task;
  task.number = call.number;
  task.tag = tag_of(operation->members, call.label);
  task.input = call.input;
  task.output = call.output;
  task.count = call.count;
  task.reduction = call.reduction;
  task.contacts.resize(size);
  task.hellos.resize(size);
  for (std::size_t member = 0; member < size; ++member) {
    const Rank rank = operation->members[member];
    if (rank == fabric_.rank()) {
      task.index = static_cast<int>(member);
    } else {
      task.contacts[member] = &contacts_.of(rank);
    }
  }
  Hello& hello = task.hellos[static_cast<std::size_t>(task.index)];
  hello.count = call.count;
  hello.type = static_cast<std::uint8_t>(call.reduction.type);
  hello.op = static_cast<std::uint8_t>(call.reduction.op);
  const std::size_t bytes = call.count * size_of(call.reduction.type);
  if (bytes == 0) return operation;
  task.input_window = memory.find(call.input, bytes);
  task.output_window = memory.find(call.output, bytes);
  hello.is_staged = task.input_window == nullptr || task.output_window == nullptr;
  if (hello.is_staged != 0) return operation;
  const auto offset = [](const void* data, const OwnWindow& window) {
    return static_cast<std::uint64_t>(static_cast<const std::byte*>(data) - window.region->data());
  };
  hello.input_window = task.input_window->id;
  hello.input_offset = offset(call.input, *task.input_window);
  hello.output_window = task.output_window->id;
  hello.output_offset = offset(call.output, *task.output_window);
  return operation;
}

void PartialProtocol::advance(PartialOperation& operation) {
  if (operation.outcome.is_ok()) {
    Status status = step(operation);
    if (status.is_busy()) return;
    if (status.is_ok()) {
      operation.phase = Phase::kOver;
      contacts_.forget(operation.number());
      return;
    }
    operation.outcome = std::move(status).with_context(operation.describe());
  }
  give_up(operation, operation.outcome);
}

Status PartialProtocol::step(PartialOperation& operation) {
  const Task& task = operation.task;
  switch (operation.phase) {
    case Phase::kQueued:
      if (operation.members.size() == 1) {
        return runner_.copy(task);
      }
      operation.phase = Phase::kMeeting;
      [[fallthrough]];
    case Phase::kMeeting:
      DUNLIN_TRY(check_while_meeting(operation));
      DUNLIN_TRY(meet(operation));
      operation.phase = Phase::kGreeting;
      [[fallthrough]];
    case Phase::kGreeting:
      DUNLIN_TRY(greet(operation));
      contacts_.begin(operation.number());
      if (Status status = runner_.start(task); !status.is_ok()) {
        // A lookup of a window, which the bootstrap doesn't wait for in a chore.
        return status.code() == Code::kDeadlineExceeded ? Status::busy() : std::move(status);
      }
      operation.phase = Phase::kRunning;
      [[fallthrough]];
    case Phase::kRunning:
      return run(operation);
    case Phase::kOver:
      return Status::ok();
  }
  return Status::ok();
}

// Members that were met may abort while others are still to be met.
Status PartialProtocol::check_while_meeting(PartialOperation& operation) {
  Status loss = check_members(operation);
  DUNLIN_TRY(check_aborts(operation));
  return loss;
}

Status PartialProtocol::meet(PartialOperation& operation) {
  bool has_met_all = true;
  bool maps_all = true;
  for (Contact* const contact : operation.task.contacts) {
    if (contact == nullptr) continue;
    if (Status status = contacts_.meet(*contact); status.is_busy()) {
      has_met_all = false;
    } else {
      DUNLIN_TRY(std::move(status));
    }
    maps_all = maps_all && contact->is_mapped;
  }
  if (!has_met_all) return Status::busy();
  operation.task.hellos[static_cast<std::size_t>(operation.task.index)].maps_all = maps_all;
  return Status::ok();
}

Status PartialProtocol::greet(PartialOperation& operation) {
  // Checked before the hellos, some of which may be missing because a member is gone.
  Status loss = check_members(operation);
  const Task& task = operation.task;
  const auto own = static_cast<std::size_t>(task.index);
  // All hellos are sent before an answer can end the operation: a member whose call differs tells
  // all others itself.
  for (std::size_t member = 0; member < operation.members.size(); ++member) {
    if (member == own || operation.has_greeted[member]) continue;
    if (!contacts_.may_greet(*task.contacts[member])) continue;
    // Not earlier: the peer may have released scratch memory now, which it has mapped already.
    DUNLIN_TRY(runner_.allocate_scratch());
    operation.task.hellos[own].scratch_window = runner_.scratch_window();
    Status status =
        contacts_.greet(*task.contacts[member], task.number, task.tag,
                        static_cast<std::uint32_t>(operation.members.size()), task.hellos[own]);
    operation.has_greeted[member] = status.is_ok();
    if (status.is_error()) return std::move(status).with_peer(operation.members[member]);
  }
  bool is_complete = true;
  for (std::size_t member = 0; member < operation.members.size(); ++member) {
    if (member == own) continue;
    DUNLIN_TRY(hear(operation, member));
    is_complete = is_complete && operation.has_greeted[member] && operation.has_come[member];
  }
  DUNLIN_TRY(check_aborts(operation));
  if (is_complete) return Status::ok();
  return is_final(operation, loss) ? loss : Status::busy();
}

Status PartialProtocol::hear(PartialOperation& operation, std::size_t member) {
  if (operation.has_come[member]) return Status::ok();
  const Contact& contact = *operation.task.contacts[member];
  const NotifyCell& cell = contacts_.hello_of(contact);
  // Acquire: pairs with the publication.
  const std::uint64_t number = cell.sequence.load(std::memory_order_acquire);
  if (number < operation.number()) return Status::ok();
  if (number > operation.number()) {
    if (contacts_.abort_of(contact, operation.number()))
      return Status::ok();  // check_aborts() reports it
    return Status(Code::kInvalidArgument,
                  fmt::format("rank {} has gone on to partial all-reduce {} without this one",
                              contact.rank.value(), number))
        .with_peer(contact.rank);
  }
  DUNLIN_TRY(compare(operation, member, cell));
  operation.task.hellos[member] = content_of<Hello>(cell);
  operation.has_come[member] = true;
  return Status::ok();
}

Status PartialProtocol::compare(const PartialOperation& operation, std::size_t member,
                                const NotifyCell& cell) const {
  const Hello theirs = content_of<Hello>(cell);
  const Hello& ours = operation.task.hellos[static_cast<std::size_t>(operation.task.index)];
  const Rank rank = operation.members[member];
  if (cell.length != operation.members.size()) {
    return Status(Code::kInvalidArgument,
                  fmt::format("rank {} calls it with another group, of {} ranks", rank.value(),
                              cell.length))
        .with_peer(rank);
  }
  if (cell.tag != operation.task.tag) {
    return Status(
               Code::kInvalidArgument,
               fmt::format("rank {} calls it with other members, or with another label; here, {}",
                           rank.value(),
                           operation.label.empty() ? "it has none"
                                                   : "the label is \"" + operation.label + '"'))
        .with_peer(rank);
  }
  if (theirs.count == ours.count && theirs.type == ours.type && theirs.op == ours.op)
    return Status::ok();
  return Status(Code::kInvalidArgument,
                fmt::format("rank {} calls it with {}, rank {} with {}", rank.value(),
                            describe_call(theirs), fabric_.rank().value(), describe_call(ours)))
      .with_peer(rank);
}

Status PartialProtocol::run(PartialOperation& operation) {
  Status loss = check_members(operation);
  Status status = runner_.test();
  if (status.is_ok() && runner_.touches_peers()) {
    // This rank has read the memory of members, which may have aborted the operation and changed
    // that memory meanwhile. Their aborts have arrived before that: a member that has sent its
    // hello owes no abort of an earlier operation, and shm, over which mapped members are reached,
    // is never busy.
    contacts_.progress();
    return check_aborts(operation);
  }
  if (!status.is_busy()) return status;
  DUNLIN_TRY(check_aborts(operation));
  return is_final(operation, loss) ? loss : status;
}

// What the operation waited for may have arrived before the member left.
bool PartialProtocol::is_final(const PartialOperation& operation, const Status& loss) const {
  if (!loss.is_error()) return false;
  const auto member = std::ranges::find(operation.members, *loss.peer());
  return fabric_.peers().state(*member) == PeerState::kDead ||
         is_waited_for(operation, static_cast<std::size_t>(member - operation.members.begin()));
}

bool PartialProtocol::has_same_call(const PartialOperation& operation, Rank rank) const {
  if (rank == fabric_.rank()) return true;
  const auto member = std::ranges::find(operation.members, rank);
  return member != operation.members.end() &&
         operation.has_come[static_cast<std::size_t>(member - operation.members.begin())];
}

Status PartialProtocol::check_aborts(const PartialOperation& operation) const {
  for (std::size_t member = 0; member < operation.members.size(); ++member) {
    const Contact* const contact = operation.task.contacts[member];
    if (contact == nullptr) continue;
    const auto notice = contacts_.abort_of(*contact, operation.number());
    if (!notice) continue;
    Rank culprit(notice->culprit);
    // None, or the peer's cell holds nonsense.
    if (culprit.value() < 0 || culprit.value() >= fabric_.size()) culprit = Rank();
    const Code code = code_of(*notice);
    // Two members with different calls blame each other. If the blamed one is known to have made
    // this rank's call, the member that sent the abort is to blame. A late member is told that it
    // is late, and tells others so.
    const bool is_turned = code == Code::kInvalidArgument && has_same_call(operation, culprit);
    const bool has_culprit = culprit != Rank() && culprit != contact->rank && !is_turned;
    return Status(code, has_culprit
                            ? fmt::format("rank {} has aborted it on account of rank {}: {}",
                                          contact->rank.value(), culprit.value(), to_string(code))
                            : fmt::format("rank {} has aborted it: {}", contact->rank.value(),
                                          to_string(code)))
        .with_peer(has_culprit ? culprit : contact->rank);
  }
  return Status::ok();
}

bool PartialProtocol::is_waited_for(const PartialOperation& operation, std::size_t member) const {
  switch (operation.phase) {
    case Phase::kGreeting:
      // The hello is sent only after the peer has acknowledged the last abort.
      return !operation.has_come[member] || !operation.has_greeted[member];
    case Phase::kRunning:
      return runner_.awaited() == operation.members[member];
    default:
      return true;
  }
}

Status PartialProtocol::check_members(PartialOperation& operation) const {
  const PeerTable& table = fabric_.peers();
  if (const std::uint64_t version = table.version(); version != operation.seen) {
    operation.seen = version;
    operation.is_member_gone = table.is_anybody_gone();
  }
  if (!operation.is_member_gone) return Status::ok();
  for (std::size_t member = 0; member < operation.members.size(); ++member) {
    const Rank rank = operation.members[member];
    if (table.is_present(rank)) continue;
    const bool is_dead = table.state(rank) == PeerState::kDead;
    if (is_dead || is_waited_for(operation, member)) return table.check(rank);
  }
  return Status::ok();
}

// This rank may wait for a member that waits for a stopped one: the error names the stopped one.
Status PartialProtocol::name_stalled(const PartialOperation& operation, Status status) const {
  if (status.code() != Code::kDeadlineExceeded) return status;
  const PeerTable& table = fabric_.peers();
  for (const Rank rank : operation.members) {
    if (table.state(rank) != PeerState::kStalled) continue;
    return Status(Code::kPeerStalled, fmt::format("{}; rank {} is {}", status.message(),
                                                  rank.value(), table.describe(rank)))
        .with_peer(rank);
  }
  return status;
}

void PartialProtocol::give_up(PartialOperation& operation, const Status& why) {
  runner_.finish_reduction();
  const auto culprit = why.peer();
  const AbortNotice notice{culprit ? culprit->value() : -1, static_cast<std::uint32_t>(why.code())};
  for (Contact* const contact : operation.task.contacts) {
    if (contact == nullptr || !fabric_.peers().is_present(contact->rank)) continue;
    contacts_.queue_abort(*contact, operation.number(), notice);
  }
  std::vector<const Contact*> greeted;
  for (std::size_t member = 0; member < operation.members.size(); ++member) {
    if (operation.has_greeted[member]) greeted.push_back(operation.task.contacts[member]);
  }
  if (!greeted.empty()) runner_.abandon(operation.task, std::move(greeted));
  operation.phase = Phase::kOver;
  contacts_.forget(operation.number());
}

bool PartialProtocol::holds_up(const PartialOperation& operation, std::size_t member) const {
  const Rank rank = operation.members[member];
  if (rank == fabric_.rank() || !is_waited_for(operation, member)) return false;
  // The member is as far as this rank; another one is missing.
  const bool is_met = operation.task.contacts[member]->link != nullptr;
  if (operation.phase == Phase::kMeeting && is_met) return false;
  // A member that is gone fails the operation in the next step.
  return fabric_.peers().is_present(rank);
}

Rank PartialProtocol::blocker(const PartialOperation& operation) const {
  for (std::size_t member = 0; member < operation.members.size(); ++member) {
    if (holds_up(operation, member)) return operation.members[member];
  }
  return {};
}

std::vector<Awaited> PartialProtocol::awaited(const PartialOperation& operation) const {
  std::vector<Awaited> all;
  for (std::size_t member = 0; member < operation.members.size(); ++member) {
    if (!holds_up(operation, member)) continue;
    const Rank rank = operation.members[member];
    const bool is_running = operation.phase == Phase::kRunning;
    all.push_back(
        {rank, fmt::format("its {} {}", is_running ? "part of" : "call of", operation.describe())});
  }
  return all;
}

}  // namespace dunlin::collective::partial
