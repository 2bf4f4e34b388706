#include "bindings/c10d/messages.h"

#include <utility>

namespace dunlin::torch_backend {

using binding::Neighbors;
using binding::SessionOperation;
using collective::DataType;
using collective::NeighborCall;

Result<std::shared_ptr<Messages>> Messages::create(std::shared_ptr<binding::Session> session) {
  DUNLIN_ASSIGN(auto neighbors, Neighbors::create(*session, "c10d"));
  return std::shared_ptr<Messages>(new Messages(std::move(session), std::move(neighbors)));
}

// A message is a gather with one destination here and one source there.
Result<std::shared_ptr<SessionOperation>> Messages::send(Rank to, std::string_view name,
                                                         std::span<const std::byte> data,
                                                         WhenOver when_over) {
  NeighborCall call{.name = name, .input = data.data(), .count = data.size()};
  call.type = DataType::kUint8;
  call.destinations = {{to, 1}};
  DUNLIN_ASSIGN(auto sending, neighbors_->start_gather(call, std::move(when_over)));
  return std::move(sending.operation);
}

Result<Messages::Receipt> Messages::receive(Rank from, std::string_view name,
                                            collective::Missed missed, WhenOver when_over) {
  NeighborCall call{.name = name};
  call.type = DataType::kUint8;
  call.sources = {{from, 1}};
  DUNLIN_ASSIGN(auto receiving, neighbors_->start_gather(call, std::move(when_over), missed));
  return Receipt{std::move(receiving.operation), std::move(receiving.result)};
}

Result<Messages::Receipt> Messages::receive_any(std::span<const Rank> from, std::string_view name,
                                                WhenOver when_over) {
  NeighborCall call{.name = name};
  call.type = DataType::kUint8;
  for (const Rank rank : from) call.sources.push_back({rank, 1});
  DUNLIN_ASSIGN(auto receiving, neighbors_->start_gather_any(call, std::move(when_over)));
  return Receipt{std::move(receiving.operation), std::move(receiving.result)};
}

}  // namespace dunlin::torch_backend
