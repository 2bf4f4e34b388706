#include <fmt/format.h>

#include <algorithm>

#include "collectives/communicator/tuning.h"
#include "tools/dunlin-info/report.h"
#include "tools/dunlin-info/text.h"

namespace dunlin::tools {
namespace {

using collective::TunedCandidate;
using collective::TunedChoice;

// Says why the first candidate was chosen.
std::string explain(const TunedChoice& choice) {
  if (choice.candidates.size() == 1) return "the only one that suits this shape";
  std::string text;
  const double best = choice.candidates.front().measured.value_or(0);
  for (const TunedCandidate& candidate : choice.candidates) {
    if (!text.empty()) text += "; ";
    if (!candidate.measured) {
      text += fmt::format("{} not tried: predicted {:.2f} us", candidate.algorithm,
                          candidate.predicted * 1e6);
    } else if (candidate.algorithm == choice.algorithm) {
      text += fmt::format("{:.2f} us measured, {:.2f} predicted", best * 1e6,
                          candidate.predicted * 1e6);
    } else {
      text += fmt::format("{} {:.2f} us, {:.1f} times as long", candidate.algorithm,
                          *candidate.measured * 1e6, *candidate.measured / std::max(best, 1e-12));
    }
  }
  return text;
}

}  // namespace

Result<Json> tuning_report(const Config& config) {
  Json report{
      {"file", config.tuning_file}, {"forced", config.algorithms}, {"shapes", Json::array()}};
  DUNLIN_ASSIGN(const auto tunings, collective::read_tunings(config.tuning_file));
  for (const collective::Tuning& tuning : tunings) {
    Json shape{{"shape", tuning.shape.key()}, {"links", Json::array()}};
    for (const collective::MeasuredLink& link : tuning.links) {
      shape["links"].push_back({{"between", link.between},
                                {"alpha_us", link.alpha * 1e6},
                                {"gbytes_per_s", link.beta == 0 ? 0 : 1e-9 / link.beta}});
    }
    shape["reduced_gbytes_per_s"] = tuning.gamma == 0 ? 0 : 1e-9 / tuning.gamma;
    for (const TunedChoice& choice : tuning.choices) {
      shape["choices"].push_back({{"collective", to_string(choice.collective)},
                                  {"size_bytes", choice.bytes},
                                  {"algorithm", choice.algorithm},
                                  {"reason", explain(choice)}});
    }
    report["shapes"].push_back(std::move(shape));
  }
  return report;
}

std::string tuning_text(const Json& report) {
  std::string text = fmt::format("Tuning file: {}\n", report.at("file").get<std::string>());
  if (const auto forced = report.at("forced").get<std::string>(); !forced.empty())
    text += fmt::format("Forced by DUNLIN_ALGORITHMS, independently of measurements: {}\n", forced);
  if (report.at("shapes").empty()) {
    return text +
           "There are no measurements: rules choose by size, ranks, hosts and transport.\n"
           "To measure: dunlin-run -n RANKS dunlin-perf tune, or the same under mpirun or srun.\n";
  }
  for (const Json& shape : report.at("shapes")) {
    text += fmt::format("\n{}\n", shape.at("shape").get<std::string>());
    for (const Json& link : shape.at("links")) {
      text += fmt::format("  between {}: {:.2f} us a message, {:.2f} GB/s\n",
                          link.at("between").get<std::string>(), link.at("alpha_us").get<double>(),
                          link.at("gbytes_per_s").get<double>());
    }
    text +=
        fmt::format("  reducing: {:.2f} GB/s\n", shape.at("reduced_gbytes_per_s").get<double>());
    for (const Json& choice : shape.at("choices")) {
      text += fmt::format(
          "  {:<15} {:>10} bytes  {:<19} {}\n", choice.at("collective").get<std::string>(),
          choice.at("size_bytes").get<std::size_t>(), choice.at("algorithm").get<std::string>(),
          choice.at("reason").get<std::string>());
    }
  }
  return text;
}

}  // namespace dunlin::tools
