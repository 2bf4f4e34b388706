// JobReport: which ranks of this host held up the others, from their flight records, which are kept
// for it beyond the end of the ranks. Owner thread only.
#pragma once

#include <string>

#include "runtime/config.h"

namespace dunlin::run {

class JobReport {
 public:
  explicit JobReport(const Config& config) : config_(config) {}

  // kInvalidArgument if the configuration says that ranks keep no records.
  Status check() const;
  // Makes ranks with this environment keep their records.
  static void prepare(Environment& environment);
  // The report, as lines, when all ranks of this host have ended. Removes the records if
  // `is_well`, unless the configuration says otherwise.
  std::string take(const std::string& job_id, const std::string& secret, bool is_well) const;

 private:
  const Config& config_;
};

}  // namespace dunlin::run
