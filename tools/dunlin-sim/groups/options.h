// The options of `dunlin-sim groups`: declares and checks them, and turns them into the settings of
// the simulation.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tools/dunlin-sim/groups/cluster.h"
#include "tools/dunlin-sim/network/scenario.h"

namespace CLI {
class App;
}

namespace dunlin::simulate {

class GroupsOptions {
 public:
  void set_defaults(Scenario& scenario) const;
  void declare(CLI::App& app);
  // Returns kInvalidArgument for options that do not fit together.
  Status check(const Scenario& scenario) const;
  nlohmann::ordered_json to_json() const;

  // The setting for this number of workers; 0: the number in the scenario.
  GroupSetting setting(const Scenario& scenario, int workers = 0) const;
  const std::vector<double>& factors() const { return factors_; }
  std::optional<LearningOptions> learning() const;
  // The times are in the order of the command line. An entry without a value is to be calibrated.
  std::vector<std::optional<Duration>> compute_times(const Scenario& scenario) const;
  double calibrated_ratio() const { return calibrated_ratio_; }
  const std::vector<int>& scale() const { return scale_; }
  const std::vector<std::uint64_t>& section_lengths() const { return section_lengths_; }

 private:
  void declare_methods(CLI::App& app);
  void declare_learning(CLI::App& app);
  void declare_sweeps(CLI::App& app);
  Status check_usage() const;
  Status check_numbers() const;
  Status check_cluster(const Scenario& scenario, int workers) const;

  GroupSetting setting_;
  LearningOptions learning_;
  bool has_learning_ = false;
  std::vector<double> factors_{2, 5};
  std::vector<std::optional<Duration>> compute_times_;
  double calibrated_ratio_ = 4.27;
  std::vector<int> scale_;
  std::vector<std::uint64_t> section_lengths_;
  const CLI::App* app_ = nullptr;
};

}  // namespace dunlin::simulate
