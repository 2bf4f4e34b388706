#include "apps/cnn/program/data.h"

#include <fmt/format.h>

#include <algorithm>

#include "apps/cnn/batches.h"
#include "apps/cnn/reader.h"
#include "runtime/memory/host_memory.h"

namespace dunlin::cnn {
namespace {

// A limit for the images that the ranks of a host generate. Each rank holds all of them, and a copy
// of its part.
Status check_memory(const Options& options, int local_ranks) {
  const GeneratorOptions& generate = options.generate;
  const double count =
      2 * static_cast<double>(generate.count) + static_cast<double>(options.test_images);
  const double image = static_cast<double>(generate.channels) * generate.side * generate.side;
  const double needed = count * image * local_ranks;
  const auto memory = static_cast<double>(host_memory_bytes());
  if (needed <= memory / 2) return Status::ok();
  return {Code::kInvalidArgument,
          fmt::format("--images {}, --test-images {}: {:.1f} GB in this host's ranks, more than "
                      "half of its memory of {:.1f} GB",
                      generate.count, options.test_images, needed * 1e-9, memory * 1e-9)};
}

Result<Images> load_training(const Options& options) {
  return options.is_generated ? generate(options.generate) : read_images(options.train);
}

Result<std::optional<Images>> read_test(const Options& options) {
  std::optional<Images> test;
  if (options.is_generated) {
    GeneratorOptions beyond = options.generate;
    beyond.first = options.generate.count;
    beyond.count = options.test_images;
    DUNLIN_ASSIGN(test, generate(beyond));
  } else if (!options.test.empty()) {
    DUNLIN_ASSIGN(test, read_images(options.test));
  }
  return test;
}

Status check_test(const Options& options, const Data& data, const Images& test) {
  const std::string& name = options.is_generated ? "generated images" : options.test.front();
  if (test.channels != data.channels || test.height != data.height || test.width != data.width) {
    return {Code::kInvalidArgument,
            fmt::format("{}: images of {} x {} x {}, those to train on have {} x {} x {} "
                        "(channels, height, width)",
                        name, test.channels, test.height, test.width, data.channels, data.height,
                        data.width)};
  }
  if (classes_of(test) > data.classes) {
    return {Code::kInvalidArgument, fmt::format("{}: label {}, but those to train on end at {}",
                                                name, classes_of(test) - 1, data.classes - 1)};
  }
  return Status::ok();
}

Images share_of(const Images& all, Shard share) {
  return shard_of(all, static_cast<int>(share.rank), static_cast<int>(share.ranks));
}

}  // namespace

Result<Data> load_data(const Options& options, std::optional<Shard> share, int most_workers,
                       int local_ranks) {
  if (options.is_generated) DUNLIN_TRY(check_memory(options, local_ranks));
  DUNLIN_ASSIGN(const Images all, load_training(options));
  Data data;
  data.source = options.is_generated ? "generated" : options.train.front();
  auto checked = check_images(all);
  if (!checked) return std::move(checked).with_context(data.source);
  data.total = all.count();
  const std::size_t needed = options.batch_size * static_cast<std::size_t>(most_workers);
  if (all.count() < needed) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{}: {} images; {} workers with batches of {} need {}", data.source,
                              all.count(), most_workers, options.batch_size, needed));
  }
  // There are at least two classes, because a single one would leave nothing to learn.
  data.classes = std::max(2, options.is_generated ? options.generate.classes : classes_of(all));
  data.digest = digest_of(all);
  data.normalization = normalization_of(all);
  data.channels = all.channels;
  data.height = all.height;
  data.width = all.width;
  if (share) data.train = share_of(all, *share);
  return data;
}

Result<Images> load_share(const Options& options, std::size_t total, Shard share) {
  DUNLIN_ASSIGN(const Images all, load_training(options));
  if (all.count() != total) {
    return Status(Code::kInvalidArgument, fmt::format("{}: {} images, which were {}",
                                                      options.train.front(), all.count(), total));
  }
  return share_of(all, share);
}

Status load_test(const Options& options, Data& data) {
  DUNLIN_ASSIGN(data.test, read_test(options));
  return data.test ? check_test(options, data, *data.test) : Status::ok();
}

}  // namespace dunlin::cnn
