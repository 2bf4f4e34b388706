#include "apps/agreement.h"

#include <algorithm>
#include <array>
#include <utility>

#include "apps/digest.h"
#include "runtime/bootstrap/printable.h"
#include "runtime/bytes.h"

namespace dunlin {
namespace {

// Takes the first line of the text, without its end.
std::string_view take_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

struct Term {
  std::string_view name;
  std::string_view value;
};

Term parse(std::string_view line) {
  const std::size_t colon = std::min(line.find(": "), line.size());
  return {line.substr(0, colon), line.substr(std::min(colon + 2, line.size()))};
}

std::string_view text_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// What agree() does, as long as no member dies. `has_told`: whether this rank has published its
// text.
Status compare(Bootstrap& bootstrap, const std::string& topic, const std::vector<Rank>& members,
               const Terms& terms, Duration timeout, bool& has_told) {
  DUNLIN_ASSIGN(const auto digests, bootstrap.lookup_each(topic, members, timeout));
  const auto odd =
      std::ranges::find_if(digests, [&](const Bytes& each) { return each != digests.front(); });
  if (odd == digests.end()) return Status::ok();
  const std::array pair{members.front(), members[static_cast<std::size_t>(odd - digests.begin())]};
  const std::string texts = topic + "/text";
  if (std::ranges::find(pair, bootstrap.rank()) != pair.end() && !std::exchange(has_told, true)) {
    DUNLIN_TRY(
        bootstrap.publish(Bootstrap::key_of(texts, bootstrap.rank()), as_bytes(terms.text())));
  }
  DUNLIN_ASSIGN(const auto found, bootstrap.lookup_each(texts, pair, timeout));
  const std::string what =
      difference(text_of(found[0]), text_of(found[1]), fmt::format("rank {}", pair[0].value()),
                 fmt::format("rank {}", pair[1].value()));
  return {
      Code::kInvalidArgument,
      fmt::format("the ranks of the job were started with different options or data: {}", what)};
}

}  // namespace

std::string difference(std::string_view one, std::string_view other, std::string_view first,
                       std::string_view second) {
  using bootstrap::printable;
  const bool are_unequal = one != other;
  std::string found;
  const auto add = [&](std::string_view name, std::string_view ones, std::string_view others) {
    found += fmt::format("{}{}: {} has {}, {} has {}", found.empty() ? "" : "; ", printable(name),
                         first, printable(ones), second, printable(others));
  };
  while (!one.empty() || !other.empty()) {
    const Term left = parse(take_line(one));
    const Term right = parse(take_line(other));
    if (left.name != right.name) {
      // What follows has nothing in common, as with another version of the program.
      add("terms", left.name, right.name);
      break;
    }
    if (left.value != right.value) add(left.name, left.value, right.value);
  }
  // Not texts of Terms.
  if (found.empty() && are_unequal) return "terms";
  return found;
}

Status agree(transport::Fabric& fabric, const std::string& topic, std::vector<Rank> members,
             const Terms& terms, MemberDeath death, Duration timeout) {
  Bootstrap& bootstrap = fabric.bootstrap();
  const Digest own = digest_of({as_bytes(terms.text())});
  DUNLIN_TRY(bootstrap.publish(Bootstrap::key_of(topic, bootstrap.rank()), own));
  for (bool has_told = false;;) {
    Status status = compare(bootstrap, topic, members, terms, timeout, has_told);
    const bool is_death = status.code() == Code::kPeerDead && status.peer();
    if (!is_death || death == MemberDeath::kIsAnError) return status;
    if (std::erase(members, *status.peer()) == 0) return status;
  }
}

}  // namespace dunlin
