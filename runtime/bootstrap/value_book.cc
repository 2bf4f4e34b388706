#include "runtime/bootstrap/value_book.h"

#include <fmt/format.h>

#include <iterator>
#include <string_view>

#include "runtime/bootstrap/bootstrap.h"

namespace dunlin::bootstrap {

Status ValueBook::keep(Rank from, const Message& message) {
  if (values_.contains(message.text)) {
    return {Code::kAlreadyExists,
            fmt::format("the key '{}' has been published before", message.text)};
  }
  const std::size_t bytes = Allowance::bytes_of(message);
  DUNLIN_TRY(allowance_.charge(from, bytes));
  values_.emplace(message.text, Value{message.value, from, bytes});
  return Status::ok();
}

const Bytes* ValueBook::find(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second.bytes;
}

ValueBook::Values::iterator ValueBook::erase(Values::iterator value) {
  allowance_.refund(value->second.publisher, value->second.kept_bytes);
  return values_.erase(value);
}

void ValueBook::forget(const std::string& topic) {
  if (const auto own = values_.find(topic); own != values_.end()) erase(own);
  // Keys that begin like those of ranks, but are others, may lie between them.
  const std::string head = Bootstrap::key_of(topic, Rank(0));
  const std::string_view prefix = std::string_view(head).substr(0, head.size() - 1);
  auto each = values_.lower_bound(prefix);
  while (each != values_.end() && each->first.starts_with(prefix)) {
    const Rank rank = each->second.publisher;
    each = each->first == Bootstrap::key_of(topic, rank) ? erase(each) : std::next(each);
  }
}

}  // namespace dunlin::bootstrap
