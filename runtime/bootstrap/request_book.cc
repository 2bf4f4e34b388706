#include "runtime/bootstrap/request_book.h"

#include <algorithm>

namespace dunlin::bootstrap {

void RequestBook::open(Rank rank, Request request) {
  close(rank);
  ranks_[{request.type, request.name}].insert(rank);
  deadlines_.emplace(request.deadline, rank);
  requests_.emplace(rank, std::move(request));
}

void RequestBook::close(Rank rank) {
  const auto found = requests_.extract(rank);
  if (found.empty()) return;
  const Request& request = found.mapped();
  unlist(rank, request);
  deadlines_.erase({request.deadline, rank});
}

void RequestBook::unlist(Rank rank, const Request& request) {
  const auto group = ranks_.find({request.type, request.name});
  group->second.erase(rank);
  if (group->second.empty()) ranks_.erase(group);
}

void RequestBook::await(Rank rank, std::size_t place, std::string name) {
  Request& request = requests_.at(rank);
  unlist(rank, request);
  request.name = std::move(name);
  request.place = place;
  ranks_[{request.type, request.name}].insert(rank);
}

const RequestBook::Request* RequestBook::find(Rank rank) const {
  const auto found = requests_.find(rank);
  return found == requests_.end() ? nullptr : &found->second;
}

std::vector<Rank> RequestBook::waiting(MessageType type, const std::string& name) const {
  const auto found = ranks_.find({type, name});
  if (found == ranks_.end()) return {};
  return {found->second.begin(), found->second.end()};
}

std::size_t RequestBook::count(MessageType type, const std::string& name) const {
  const auto found = ranks_.find({type, name});
  return found == ranks_.end() ? 0 : found->second.size();
}

std::vector<std::string> RequestBook::names(MessageType type) const {
  std::vector<std::string> result;
  for (auto at = ranks_.lower_bound({type, ""}); at != ranks_.end() && at->first.first == type;
       ++at) {
    result.push_back(at->first.second);
  }
  return result;
}

std::vector<Rank> RequestBook::all() const {
  std::vector<Rank> result;
  for (const auto& [rank, request] : requests_) result.push_back(rank);
  return result;
}

std::vector<Rank> RequestBook::due(TimePoint now) const {
  std::vector<Rank> result;
  for (const auto& [deadline, rank] : deadlines_) {
    if (deadline > now) break;
    result.push_back(rank);
  }
  return result;
}

TimePoint RequestBook::next(TimePoint otherwise) const {
  return deadlines_.empty() ? otherwise : std::min(otherwise, deadlines_.begin()->first);
}

}  // namespace dunlin::bootstrap
