// What the ranks of a job have to have in common: options, and digests of data. Ranks that train
// with different ones would end without an error, and with a wrong result.
//
//   Terms terms;
//   terms.add("--lambda", options.lambda).add("--loss", to_string(options.loss));
//   DUNLIN_TRY(agree(fabric, "svm/terms", members, terms, MemberDeath::kIsAnError, timeout));
//
// Values are added as they were parsed, so that 1e-4 and 0.0001 agree. Files are added by digests
// of their contents, since hosts may have them in different places. What may differ is not added:
// paths, transports, reports, and how fast or patient a rank is.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "transports/fabric.h"

namespace dunlin {

class Terms {
 public:
  // `name`: an option, or a noun for people; without a colon or a line break.
  template <typename Value>
  Terms& add(std::string_view name, const Value& value) {
    text_ += fmt::format("{}: {}\n", name, value);
    return *this;
  }
  // "none" if there is no value.
  template <typename Value>
  Terms& add(std::string_view name, const std::optional<Value>& value) {
    return value ? add(name, *value) : add(name, "none");
  }
  Terms& add(const Terms& others) {
    text_ += others.text_;
    return *this;
  }
  // A line for each of them, in the order of the calls.
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// For options that all ranks have to give or none, such as a path.
inline const char* given(std::string_view value) {
  return value.empty() ? "not given" : "given";
}

// How two texts of Terms differ, for people: "--lambda: rank 0 has 0.1, rank 1 has 0.2". `first`
// and `second` say whose they are. Empty if they are equal. The texts may come from the network.
std::string difference(std::string_view one, std::string_view other, std::string_view first,
                       std::string_view second);

// What agree() does when a member dies before it has told its terms.
enum class MemberDeath { kIsAnError, kIsNoMatter };

// Ok if all `members` have the same terms; otherwise kInvalidArgument on all of them, which names
// what differs, with the values of two ranks. Collective over `members`, which are the same on all
// of them; each topic can be used once. If a member is gone, kPeerDead, at once, or the others are
// compared, as `death` says. kDeadlineExceeded after `timeout`. To be called by the thread that
// owns the fabric.
Status agree(transport::Fabric& fabric, const std::string& topic, std::vector<Rank> members,
             const Terms& terms, MemberDeath death, Duration timeout);

}  // namespace dunlin
