#include "collectives/communicator/mismatch.h"

#include <fmt/format.h>

#include "runtime/bytes.h"

namespace dunlin::collective {

std::string MismatchNews::topic(const std::string& communicator) {
  return fmt::format("communicator/{}/mismatch", communicator);
}

std::string MismatchNews::call_of(int member) const {
  return Bootstrap::key_of(topic(communicator_), rank_of(member));
}

void MismatchNews::publish_own(const std::string& text) {
  ByteWriter writer;
  writer.text(text);
  // The first description stays. Without a coordinator, the others end at their deadlines.
  (void)bootstrap_.post(call_of(self_), writer.take());
}

void MismatchNews::tell(std::uint64_t part, const std::string& own_text, int other,
                        std::string other_text) {
  publish_own(own_text);
  MismatchReport report{part, self_, other, own_text, std::move(other_text)};
  (void)bootstrap_.post(topic(communicator_), report.encode());
  // If another member was first, all report what that one has found.
  look({});
  if (!news_) news_ = std::move(report);
}

void MismatchNews::look(const Describe& own) {
  const auto value = bootstrap_.lookup(topic(communicator_), Duration::zero());
  if (!value) return;
  auto news = MismatchReport::decode(*value, members_.size());
  if (!news) return;
  if (const std::string text = own ? own(news->part) : ""; !text.empty()) publish_own(text);
  news_ = std::move(*news);
}

Status MismatchNews::advance(TimePoint now, const Describe& own) {
  if (!news_) look(own);
  if (!news_) return Status::ok();
  if (!known_since_) known_since_ = now;
  if (const auto value = bootstrap_.lookup(call_of(news_->other), Duration::zero())) {
    ByteReader reader(*value);
    news_->other_text = reader.text();
    return error();
  }
  return now - *known_since_ < kAnswerTime ? Status::busy() : error();
}

Status MismatchNews::error() const {
  const Rank other = rank_of(news_->other);
  return Status(
             Code::kInvalidArgument,
             fmt::format("the members of communicator '{}' make different calls: rank {} "
                         "executes {}, but rank {} executes {}. All members must make the same "
                         "calls in the same order, with the same names, counts, types, algorithms "
                         "and places in memory",
                         communicator_, rank_of(news_->finder).value(), news_->finder_text,
                         other.value(), news_->other_text))
      .with_peer(other);
}

}  // namespace dunlin::collective
