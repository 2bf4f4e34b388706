#include "runtime/bootstrap/lookup_book.h"

#include <cstddef>
#include <string>

#include "runtime/bootstrap/bootstrap.h"
#include "runtime/bootstrap/constants.h"
#include "runtime/bytes.h"

namespace dunlin::bootstrap {

RequestBook::Request LookupBook::request_of(const Message& lookup, TimePoint deadline) {
  RequestBook::Request request{.type = lookup.type,
                               .number = lookup.request,
                               .name = lookup.text,
                               .deadline = deadline,
                               .publisher = lookup.subject};
  if (lookup.ranks.empty()) return request;
  request.name = Bootstrap::key_of(lookup.text, lookup.ranks.front());
  request.topic = lookup.text;
  request.publishers = lookup.ranks;
  return request;
}

const Bytes* LookupBook::value(const RequestBook::Request& request, std::size_t place) const {
  return values_.find(Bootstrap::key_of(request.topic, request.publishers[place]));
}

std::optional<Message> LookupBook::answer(Rank asker) {
  const RequestBook::Request& request = *requests_.find(asker);
  const std::size_t count = request.publishers.size();
  if (count == 0) {
    const Bytes* const found = values_.find(request.name);
    return found == nullptr ? std::nullopt : std::optional(Message{.value = *found});
  }
  const auto await = [&](std::size_t place) {
    requests_.await(asker, place, Bootstrap::key_of(request.topic, request.publishers[place]));
    return std::nullopt;
  };
  for (std::size_t place = request.place; place < count; ++place) {
    if (value(request, place) == nullptr) return await(place);
  }
  ByteWriter values;
  std::size_t bytes = 0;
  for (std::size_t place = 0; place < count; ++place) {
    const Bytes* const found = value(request, place);
    if (found == nullptr) return await(place);  // it has been released meanwhile
    bytes += sizeof(std::uint32_t) + found->size();
    // The asker asks again for the rest. A message has room for one value of any size.
    if (place > 0 && bytes > kMaxValueBytes) break;
    values.blob(*found);
  }
  return Message{.value = values.take()};
}

std::optional<Rank> LookupBook::lost(Rank asker, const std::function<bool(Rank)>& is_gone) const {
  const RequestBook::Request* const request = requests_.find(asker);
  if (request == nullptr || request->type != MessageType::kLookup) return std::nullopt;
  if (request->publishers.empty())
    return is_gone(request->publisher) ? std::optional(request->publisher) : std::nullopt;
  // What precedes the place has been published.
  for (std::size_t place = request->place; place < request->publishers.size(); ++place) {
    const Rank publisher = request->publishers[place];
    if (is_gone(publisher) && value(*request, place) == nullptr) return publisher;
  }
  return std::nullopt;
}

}  // namespace dunlin::bootstrap
