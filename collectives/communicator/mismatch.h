// MismatchNews: tells all members of a communicator that two of them make different calls.
//
// The member that finds out publishes what it executes, and which member executes something else.
// Members that wait look for such news from time to time, so that they end with the same error
// instead of at their deadline. The members that disagree publish descriptions of their calls, so
// that the error names both. The news goes through the bootstrap, since the cells of members that
// disagree may be in any state. A state machine; each of its calls costs some round trips to the
// coordinator. Owner thread only.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/communicator/offers.h"
#include "runtime/bootstrap/bootstrap.h"
#include "runtime/clock.h"
#include "runtime/status.h"

namespace dunlin::collective {

class MismatchNews {
 public:
  // Describes the call that a part belongs to. Empty if this member has not started the part, or no
  // longer knows it.
  using Describe = std::function<std::string(std::uint64_t part)>;

  // `self`: this member. The other arguments outlive this object.
  MismatchNews(Bootstrap& bootstrap, const std::string& communicator,
               const std::vector<Rank>& members, int self)
      : bootstrap_(bootstrap), communicator_(communicator), members_(members), self_(self) {}

  // The topic (Bootstrap::release) of a communicator's news, and of its members' descriptions.
  static std::string topic(const std::string& communicator);

  // In this part the member `other` executes something else than this one. The texts describe both
  // calls, as far as this member knows.
  void tell(std::uint64_t part, const std::string& own_text, int other, std::string other_text);
  // True once this member knows of a mismatch.
  bool is_known() const { return news_.has_value(); }
  // Looks for news of others. Once there is a mismatch: kBusy while the other member's description
  // may still come, then kInvalidArgument, which names both calls. Otherwise ok.
  Status advance(TimePoint now, const Describe& own);

 private:
  // How long to wait for the other member to describe its call. Longer than the pauses between its
  // looks at the news; but it may be busy with other things.
  static constexpr Duration kAnswerTime = std::chrono::milliseconds(1500);

  void look(const Describe& own);
  void publish_own(const std::string& text);
  Status error() const;
  std::string call_of(int member) const;
  Rank rank_of(int member) const { return members_[static_cast<std::size_t>(member)]; }

  Bootstrap& bootstrap_;
  const std::string& communicator_;
  const std::vector<Rank>& members_;
  const int self_;
  std::optional<MismatchReport> news_;
  std::optional<TimePoint> known_since_;
};

}  // namespace dunlin::collective
