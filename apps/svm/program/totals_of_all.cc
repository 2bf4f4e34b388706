#include "apps/svm/program/totals_of_all.h"

#include <fmt/format.h>

#include "apps/job.h"

namespace dunlin::svm {

Result<Totals> collect_totals(transport::Fabric& fabric, const Membership& membership,
                              const Totals& own) {
  Bootstrap& bootstrap = fabric.bootstrap();
  const auto key = [&](Rank rank) {
    return fmt::format("svm/totals/{}/{}", membership.epoch, rank.value());
  };
  DUNLIN_TRY(bootstrap.publish(key(fabric.rank()), own.encode()));
  Totals all;
  for (const Rank member : membership.members) {
    Result<Bytes> theirs = Bytes();
    do {
      theirs = lookup_among(bootstrap, membership.members, member, key(member),
                            fabric.config().deadline);
    } while (theirs.status().code() == Code::kDeadlineExceeded);
    DUNLIN_TRY(theirs.status());
    DUNLIN_ASSIGN(const Totals decoded, Totals::decode(*theirs));
    all += decoded;
  }
  DUNLIN_TRY(
      bootstrap.barrier(fmt::format("svm/end/{}", membership.epoch), fabric.config().deadline));
  return all;
}

}  // namespace dunlin::svm
