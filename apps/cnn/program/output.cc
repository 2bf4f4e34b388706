#include "apps/cnn/program/output.h"

#include <fmt/format.h>

namespace dunlin::cnn {

Result<Output> Output::open(const Options& options, bool is_teller) {
  return open(options, is_teller, !options.resume.empty());
}

Result<Output> Output::take_over(const Options& options) {
  return open(options, true, true);
}

Result<Output> Output::open(const Options& options, bool is_teller, bool is_continued) {
  Output output;
  DUNLIN_TRY(output.Teller::open(is_teller, options.output, is_continued));
  return output;
}

Status Output::progress(const Moment& moment) {
  DUNLIN_TRY(event("progress", {{"time_s", moment.time_s},
                                {"iteration", moment.iteration},
                                {"epoch", moment.epoch},
                                {"learning_rate", moment.learning_rate},
                                {"loss", moment.loss},
                                {"accuracy", moment.accuracy},
                                {"bytes_sent", moment.bytes_sent},
                                {"wait_s", moment.wait_s},
                                {"compute_s", moment.compute_s},
                                {"samples_per_s", moment.samples_per_s}}));
  if (!has_heading_) {
    DUNLIN_TRY(say(fmt::format("{:>9}  {:>7}  {:>9}  {:>8}  {:>8}  {:>9}  {:>9}  {:>8}  {:>9}",
                               "iteration", "epoch", "time s", "loss", "accuracy", "compute s",
                               "wait s", "images/s", "MB sent")));
    has_heading_ = true;
  }
  return say(fmt::format(
      "{:>9}  {:>7.2f}  {:>9.2f}  {:>8.5g}  {:>7.2f}%  {:>9.2f}  {:>9.2f}  {:>8.1f}  {:>9.1f}",
      moment.iteration, moment.epoch, moment.time_s, moment.loss, 100 * moment.accuracy,
      moment.compute_s, moment.wait_s, moment.samples_per_s,
      static_cast<double>(moment.bytes_sent) * 1e-6));
}

Status Output::members(double time_s, std::uint64_t iteration, const MembersChange& change) {
  Json line = {{"time_s", time_s}, {"iteration", iteration}};
  change.describe(line);
  DUNLIN_TRY(event("members", line));
  return say(change.to_text());
}

Status Output::evaluation(const Moment& moment, const TestResult& result) {
  DUNLIN_TRY(event("evaluation", {{"time_s", moment.time_s},
                                  {"iteration", moment.iteration},
                                  {"epoch", moment.epoch},
                                  {"test_loss", result.loss},
                                  {"test_accuracy", result.accuracy}}));
  return say(fmt::format("{:>9}  test: loss {:.4f}, accuracy {:.2f} %", moment.iteration,
                         result.loss, 100 * result.accuracy));
}

}  // namespace dunlin::cnn
