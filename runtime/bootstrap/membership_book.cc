#include "runtime/bootstrap/membership_book.h"

#include <algorithm>
#include <utility>

namespace dunlin::bootstrap {

MembershipBook::MembershipBook(int founders, Send send) : send_(std::move(send)) {
  for (int rank = 0; rank < founders; ++rank) membership_.members.emplace_back(rank);
  present_ = {membership_.members.begin(), membership_.members.end()};
}

bool MembershipBook::is_member(Rank rank) const {
  return std::ranges::binary_search(membership_.members, rank);
}

void MembershipBook::note_gone(Rank rank, PeerState state) {
  if (present_.erase(rank) == 0) return;
  retiring_.erase(rank);
  if (state == PeerState::kDead) dead_.push_back(rank);
  settle_steps();
}

void MembershipBook::change(std::vector<Rank> members) {
  present_ = {members.begin(), members.end()};
  membership_ = {membership_.epoch + 1, std::move(members)};
  dead_.clear();
  steps_.close();
}

void MembershipBook::ask_steps() {
  if (steps_.is_open()) return;
  steps_.open();
  for (const Rank rank : present_)
    send_(rank, {.type = MessageType::kAskStep, .number = membership_.epoch});
}

void MembershipBook::retire(Rank member) {
  if (!present_.contains(member)) return;
  retiring_.insert(member);
  ask_steps();
}

void MembershipBook::note_step(Rank member, const Message& answer) {
  ByteReader epoch(answer.value);
  if (epoch.number<std::uint64_t>() != membership_.epoch || !epoch.ok()) return;
  if (!present_.contains(member)) return;
  steps_.note(member, answer.number);
  settle_steps();
}

void MembershipBook::settle_steps() {
  const auto boundary = steps_.take(present_);
  if (!boundary) return;
  for (const Rank rank : present_)
    send_(rank, {.type = MessageType::kBoundary, .number = *boundary});
}

}  // namespace dunlin::bootstrap
