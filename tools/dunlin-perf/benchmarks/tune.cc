// tune: runs the tuner of the collectives and prints its choices.
#include <fmt/format.h>

#include "collectives/tuner/tuner.h"
#include "tools/dunlin-perf/benchmarks/benchmarks.h"

namespace dunlin::perf {
namespace {

using collective::TunedCandidate;
using collective::TunedChoice;
using collective::Tuning;

std::string describe(const TunedChoice& choice) {
  std::string text = fmt::format("{:>15} {:>10} {:>19} |", to_string(choice.collective),
                                 choice.bytes, choice.algorithm);
  for (const TunedCandidate& candidate : choice.candidates) {
    const std::string measured =
        candidate.measured ? fmt::format("{:.2f}", *candidate.measured * 1e6) : "-";
    text +=
        fmt::format(" {} {} ({:.2f})", candidate.algorithm, measured, candidate.predicted * 1e6);
  }
  return text;
}

nlohmann::ordered_json to_json(const TunedChoice& choice) {
  nlohmann::ordered_json json{{"collective", to_string(choice.collective)},
                              {"size", choice.bytes},
                              {"algorithm", choice.algorithm}};
  for (const TunedCandidate& candidate : choice.candidates) {
    json["predicted_us"][candidate.algorithm] = candidate.predicted * 1e6;
    if (candidate.measured) json["measured_us"][candidate.algorithm] = *candidate.measured * 1e6;
  }
  return json;
}

}  // namespace

Status run_tune(const Options& options, Job& job, const Output& output) {
  const std::string& named = options.collective.tuning_file;
  const std::string path = named.empty() ? job.config().tuning_file : named;
  if (path.empty()) {
    return {Code::kInvalidArgument, "no file to write to: give --file or DUNLIN_TUNING_FILE"};
  }
  collective::CommunicatorOptions wanted;
  wanted.name = "tune";
  std::unique_ptr<collective::Communicator> meeting;
  if (job.gpu() != nullptr) {
    wanted.gpu = job.gpu()->device().number;
    DUNLIN_ASSIGN(meeting, collective::Communicator::create(job.fabric(), {}));
  }
  DUNLIN_ASSIGN(const auto communicator, collective::Communicator::create(job.fabric(), wanted));
  if (job.is_root()) {
    DUNLIN_TRY(output.text(
        fmt::format("tuning for {}\n{:>15} {:>10} {:>19} | each: measured us (predicted us)",
                    communicator->shape().key(), "collective", "bytes", "chosen")));
  }
  collective::TunerOptions tuner;
  tuner.meeting = meeting.get();
  Status told;
  tuner.report = [&](const TunedChoice& choice) {
    if (told.is_ok()) told = output.text(describe(choice));
    if (told.is_ok()) told = output.json(context(options, job, 0), to_json(choice));
  };
  DUNLIN_ASSIGN(const Tuning tuning, tune(*communicator, tuner));
  DUNLIN_TRY(std::move(told));
  if (job.is_root()) {
    DUNLIN_TRY(write_tuning(path, tuning));
    for (const collective::MeasuredLink& link : tuning.links) {
      DUNLIN_TRY(
          output.text(fmt::format("between {}: {:.2f} us a message, {:.2f} GB/s", link.between,
                                  link.alpha * 1e6, link.beta == 0 ? 0 : 1e-9 / link.beta)));
    }
    DUNLIN_TRY(output.text(fmt::format("reducing: {:.2f} GB/s\nwritten to {}",
                                       tuning.gamma == 0 ? 0 : 1e-9 / tuning.gamma, path)));
  }
  return communicator->barrier();
}

}  // namespace dunlin::perf
