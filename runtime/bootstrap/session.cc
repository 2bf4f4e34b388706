#include "runtime/bootstrap/session.h"

#include <fmt/format.h>

namespace dunlin::bootstrap {
namespace {

std::size_t size_of(const Message& message) {
  const std::size_t shared = message.shared_value ? message.shared_value->size() : 0;
  return sizeof(Message) + message.text.size() + message.value.size() + shared +
         message.ranks.size() * sizeof(Rank);
}

}  // namespace

Status Session::keep(const Message& message, std::size_t most_bytes) {
  if (kept_bytes_ + size_of(message) > most_bytes) {
    return {Code::kResourceExhausted,
            fmt::format("{} messages are not acknowledged", kept_.size())};
  }
  kept_bytes_ += size_of(message);
  kept_.push_back(message);
  return Status::ok();
}

Status Session::acknowledge(std::uint64_t count) {
  if (count < acknowledged_ || count - acknowledged_ > kept_.size()) {
    return {Code::kCorrupted,
            fmt::format("{} messages are said to have arrived, but {} were sent and {} arrived "
                        "before",
                        count, acknowledged_ + kept_.size(), acknowledged_)};
  }
  for (; acknowledged_ < count; ++acknowledged_) {
    kept_bytes_ -= size_of(kept_.front());
    kept_.pop_front();
  }
  return Status::ok();
}

void Session::withdraw(std::uint64_t request) {
  for (Message& message : kept_) {
    if (message.request != request) continue;
    kept_bytes_ -= size_of(message);
    message = {.type = MessageType::kCancel, .request = request};
    kept_bytes_ += size_of(message);
  }
}

void Session::note_received(const Message& message) {
  ++received_;
  ++untold_messages_;
  untold_bytes_ += size_of(message);
}

}  // namespace dunlin::bootstrap
