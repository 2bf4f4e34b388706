#include "runtime/bootstrap/witness.h"

#include <utility>

namespace dunlin::bootstrap {

void Witness::take(const Message& inquiry) {
  const auto process = ProcessId::parse(inquiry.text);
  if (!process) return;
  ProcessWatch watch = watch_process(*process);
  if (watch.state == ProcessWatch::State::kUnknown) return;
  const bool is_alive = watch.state == ProcessWatch::State::kAlive;
  tell(inquiry.subject, is_alive ? PeerState::kAlive : PeerState::kDead);
  if (is_alive) watched_[inquiry.subject] = std::move(watch.pidfd);
}

void Witness::append_to(std::vector<pollfd>& entries) const {
  for (const auto& [rank, pidfd] : watched_) entries.push_back({pidfd.get(), POLLIN, 0});
}

void Witness::note(const pollfd* entries) {
  for (auto each = watched_.begin(); each != watched_.end();) {
    if ((entries++)->revents == 0) {
      ++each;
      continue;
    }
    tell(each->first, PeerState::kDead);
    each = watched_.erase(each);
  }
}

void Witness::tell(Rank about, PeerState state) {
  send_({.type = MessageType::kTestimony, .state = state, .subject = about});
}

}  // namespace dunlin::bootstrap
