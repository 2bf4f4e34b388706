#include "collectives/communicator/tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "runtime/files/output_file.h"
#include "runtime/files/read_file.h"

namespace dunlin::collective {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;

Json to_json(const Tuning& tuning) {
  Json json{{"processor", tuning.shape.processor},
            {"ranks", tuning.shape.size},
            {"hosts", tuning.shape.hosts},
            {"transport", tuning.shape.transport},
            {"mapped", tuning.shape.is_all_mapped},
            {"gamma_s_per_byte", tuning.gamma},
            {"links", Json::array()},
            {"choices", Json::array()}};
  for (const MeasuredLink& link : tuning.links) {
    json["links"].push_back(
        {{"between", link.between}, {"alpha_s", link.alpha}, {"beta_s_per_byte", link.beta}});
  }
  for (const TunedChoice& choice : tuning.choices) {
    Json entry{{"collective", to_string(choice.collective)},
               {"bytes", choice.bytes},
               {"algorithm", choice.algorithm},
               {"candidates", Json::array()}};
    for (const TunedCandidate& candidate : choice.candidates) {
      Json row{{"algorithm", candidate.algorithm}, {"predicted_s", candidate.predicted}};
      if (candidate.measured) row["measured_s"] = *candidate.measured;
      entry["candidates"].push_back(std::move(row));
    }
    json["choices"].push_back(std::move(entry));
  }
  return json;
}

// Throws the exceptions of the JSON library.
Tuning from_json(const Json& json) {
  Tuning tuning;
  tuning.shape = {json.at("processor"), json.at("ranks"), json.at("hosts"), json.at("transport"),
                  json.at("mapped")};
  tuning.gamma = json.at("gamma_s_per_byte");
  for (const Json& link : json.at("links")) {
    tuning.links.push_back({link.at("between"), link.at("alpha_s"), link.at("beta_s_per_byte")});
  }
  for (const Json& entry : json.at("choices")) {
    auto collective = parse_collective(entry.at("collective").get<std::string>());
    if (!collective) throw std::invalid_argument(std::string(collective.status().message()));
    TunedChoice choice{*collective, entry.at("bytes"), entry.at("algorithm"), {}};
    for (const Json& row : entry.at("candidates")) {
      TunedCandidate candidate{row.at("algorithm"), row.at("predicted_s"), std::nullopt};
      if (row.contains("measured_s")) candidate.measured = row.at("measured_s").get<double>();
      choice.candidates.push_back(std::move(candidate));
    }
    tuning.choices.push_back(std::move(choice));
  }
  return tuning;
}

// What an exception says, without the JSON library's name for it.
std::string_view plain(std::string_view what) {
  if (!what.starts_with("[json.exception.")) return what;
  const auto end = what.find("] ");
  return end == what.npos ? what : what.substr(end + 2);
}

template <typename Parse>
auto guarded(const std::string& what, Parse&& parse) -> Result<decltype(parse())> {
  try {
    return parse();
  } catch (const std::exception& error) {
    return Status(Code::kCorrupted, fmt::format("{}: {}", what, plain(error.what())));
  }
}

}  // namespace

std::string TuningShape::key() const {
  return fmt::format("{} rank{} on {} host{}, {}{}; {}", size, size == 1 ? "" : "s", hosts,
                     hosts == 1 ? "" : "s", transport, is_all_mapped ? ", mapped" : "", processor);
}

const TunedChoice* Tuning::find(Collective collective, std::size_t bytes) const {
  const TunedChoice* nearest = nullptr;
  double least = 0;
  for (const TunedChoice& choice : choices) {
    if (choice.collective != collective) continue;
    const auto log = [](std::size_t size) { return std::log2(static_cast<double>(size) + 1); };
    const double distance = std::abs(log(choice.bytes) - log(bytes));
    if (nearest != nullptr && distance >= least) continue;
    nearest = &choice;
    least = distance;
  }
  return nearest;
}

std::string to_text(const Tuning& tuning) {
  return to_json(tuning).dump();
}

Result<Tuning> parse_tuning(const std::string& text) {
  return guarded("a tuning", [&] { return from_json(Json::parse(text)); });
}

Result<std::vector<Tuning>> parse_tunings(const std::string& name, const std::string& text) {
  return guarded(name, [&] {
    const Json json = Json::parse(text);
    std::vector<Tuning> tunings;
    if (json.at("version") != kVersion) return tunings;  // another version: measure again
    for (const Json& entry : json.at("tunings")) tunings.push_back(from_json(entry));
    return tunings;
  });
}

std::string to_text(const std::vector<Tuning>& tunings) {
  Json json{{"version", kVersion}, {"tunings", Json::array()}};
  for (const Tuning& each : tunings) json["tunings"].push_back(to_json(each));
  return json.dump(1) + '\n';
}

Result<std::vector<Tuning>> read_tunings(const std::string& path) {
  auto text = read_file(path);
  if (text) return parse_tunings("tuning file " + path, *text);
  const Code code = text.status().code();
  if (code == Code::kNotFound || code == Code::kPermissionDenied) return std::vector<Tuning>{};
  return std::move(text).status().with_context("tuning file");
}

Status write_tuning(const std::string& path, const Tuning& tuning) {
  auto before = read_tunings(path);
  std::vector<Tuning> tunings;
  if (before) tunings = std::move(before).value();
  std::erase_if(tunings,
                [&](const Tuning& other) { return other.shape.key() == tuning.shape.key(); });
  tunings.push_back(tuning);
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  return replace_file(path, to_text(tunings));
}

}  // namespace dunlin::collective
