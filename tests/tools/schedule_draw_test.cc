// Pictures and traces of every all-reduce algorithm are well-formed and have every step once.
#include "tools/dunlin-schedule/draw.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "collectives/schedule/algorithm.h"

namespace dunlin::collective {
namespace {

using testing::HasSubstr;

struct Element {
  std::string name;
  std::map<std::string, std::string> attributes;
};

// A small XML reader for nested tags, attributes in double quotes and three entities.
class Xml {
 public:
  explicit Xml(std::string text) : document_(std::move(text)), text_(document_) {}

  // Says what is wrong; "" for a well-formed document.
  std::optional<std::string> read() {
    while (at_ < text_.size()) {
      if (text_[at_] != '<') {
        if (open_.empty() && !std::isspace(static_cast<unsigned char>(text_[at_])))
          return "text outside of the document";
        if (auto wrong = character()) return wrong;
        continue;
      }
      if (auto wrong = tag()) return wrong;
    }
    if (!open_.empty()) return "not closed: " + open_.back();
    return elements_.empty() ? std::optional<std::string>("empty") : std::nullopt;
  }
  const std::vector<Element>& elements() const { return elements_; }

 private:
  std::optional<std::string> character() {
    if (text_[at_] == '&') {
      const std::string_view rest = text_.substr(at_, 5);
      if (!rest.starts_with("&lt;") && !rest.starts_with("&gt;") && !rest.starts_with("&amp;"))
        return "a bare &";
    }
    ++at_;
    return std::nullopt;
  }
  std::string word() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 ||
                                  text_[at_] == '-' || text_[at_] == ':'))
      ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }
  bool take(std::string_view what) {
    if (!text_.substr(at_).starts_with(what)) return false;
    at_ += what.size();
    return true;
  }
  std::optional<std::string> tag() {
    if (take("</")) {
      const std::string name = word();
      if (open_.empty() || open_.back() != name || !take(">")) return "closes " + name;
      open_.pop_back();
      return std::nullopt;
    }
    ++at_;
    Element element{word(), {}};
    if (element.name.empty()) return "a bare <";
    while (take(" ")) {
      const std::string name = word();
      if (name.empty() || !take("=\"")) return "an attribute of " + element.name;
      const std::size_t end = text_.find('"', at_);
      if (end == std::string_view::npos) return "an attribute without end";
      if (!element.attributes.emplace(name, text_.substr(at_, end - at_)).second)
        return "an attribute twice";
      at_ = end + 1;
    }
    elements_.push_back(element);
    if (take("/>")) return std::nullopt;
    if (!take(">")) return "the end of " + element.name;
    open_.push_back(element.name);
    return std::nullopt;
  }

  std::string document_;
  std::string_view text_;
  std::size_t at_ = 0;
  std::vector<std::string> open_;
  std::vector<Element> elements_;
};

struct Schedule {
  std::vector<Program> programs;
  CostModel model;
  CostReport report;
  std::size_t steps = 0;
};

Schedule schedule_of(const Algorithm& algorithm, int ranks, const CostModel& model) {
  const Grouping grouping = Grouping::even(ranks, 2).value();
  Shape shape;
  shape.groups = &grouping;
  const std::size_t count = algorithm.collective == Collective::kBarrier ? 0 : 1000;
  Schedule schedule{{}, model, {}, 0};
  for (int rank = 0; rank < ranks; ++rank) {
    schedule.programs.push_back(
        generate(algorithm, {algorithm.collective, ranks, count, 0}, shape, rank).value());
    schedule.steps += schedule.programs.back().steps.size();
  }
  schedule.report = predict(schedule.programs, 4, model).value();
  return schedule;
}

const CostModel kModel = CostModel::uniform({1e-6, 1e-10}, 1e-11);

const Algorithm& all_reduce(std::string_view name) {
  return *find_algorithm(Collective::kAllReduce, name).value();
}

TEST(DrawSvg, ShowsEveryStepOfEveryAlgorithmOnce) {
  for (const Algorithm& algorithm : algorithms()) {
    const Schedule schedule = schedule_of(algorithm, 6, kModel);
    const auto svg = draw_svg(algorithm.name, schedule.programs, schedule.report, schedule.model);
    ASSERT_TRUE(svg.is_ok()) << svg.status().to_string();
    Xml xml(*svg);
    EXPECT_EQ(xml.read(), std::nullopt) << algorithm.name;
    std::set<std::string> seen;
    std::size_t groups = 0;
    std::size_t critical = 0;
    for (const Element& element : xml.elements()) {
      const auto step = element.attributes.find("data-step");
      if (step == element.attributes.end()) continue;
      ++groups;
      if (element.attributes.contains("class")) ++critical;
      seen.insert(step->second);
    }
    EXPECT_EQ(groups, schedule.steps) << algorithm.name;
    EXPECT_EQ(critical, schedule.report.critical_path.size()) << algorithm.name;
    EXPECT_EQ(seen.size(), schedule.steps) << algorithm.name;
  }
}

TEST(DrawSvg, StaysWithinItsFrame) {
  const Schedule schedule = schedule_of(all_reduce("2d-tga"), 16, kModel);
  const std::string svg =
      draw_svg("a & b", schedule.programs, schedule.report, schedule.model).value();
  EXPECT_THAT(svg, HasSubstr("a &amp; b"));
  Xml xml(svg);
  ASSERT_EQ(xml.read(), std::nullopt);
  const double width = std::stod(xml.elements().front().attributes.at("width"));
  std::size_t bars = 0;
  for (const Element& element : xml.elements()) {
    if (element.name != "rect" || !element.attributes.contains("class")) continue;
    ++bars;
    EXPECT_GE(std::stod(element.attributes.at("x")), 0);
    EXPECT_LE(std::stod(element.attributes.at("x")) + std::stod(element.attributes.at("width")),
              width);
  }
  EXPECT_GT(bars, 0u);
}

// Elements that travel around the ring keep their color, also in scratch.
TEST(DrawSvg, ColorsFollowTheElements) {
  const Schedule schedule = schedule_of(all_reduce("ring"), 4, kModel);
  Xml xml(draw_svg("ring", schedule.programs, schedule.report, schedule.model).value());
  ASSERT_EQ(xml.read(), std::nullopt);
  std::map<std::string, int> puts;
  for (const Element& element : xml.elements()) {
    const auto name = element.attributes.find("class");
    if (element.name == "rect" && name != element.attributes.end() && name->second == "put")
      ++puts[element.attributes.at("fill")];
  }
  EXPECT_EQ(puts.size(), 4u);
  // 3 hops of reduce-scatter, 3 of all-gather.
  for (const auto& [fill, count] : puts) EXPECT_EQ(count, 6) << fill;
}

TEST(DrawSvg, OfAScheduleThatTakesNoTime) {
  const Schedule schedule = schedule_of(all_reduce("ring"), 3, CostModel::uniform({0, 0}, 0));
  const auto svg = draw_svg("free", schedule.programs, schedule.report, schedule.model);
  ASSERT_TRUE(svg.is_ok());
  EXPECT_EQ(svg->find("nan"), std::string::npos);
}

TEST(DrawSvg, RefusesWhatWouldNotBeLegible) {
  const Schedule schedule = schedule_of(all_reduce("ring"), 65, kModel);
  const auto svg = draw_svg("ring", schedule.programs, schedule.report, schedule.model);
  EXPECT_THAT(svg.status().message(), HasSubstr("too many to draw"));
  const Schedule other = schedule_of(all_reduce("tree"), 4, kModel);
  EXPECT_EQ(draw_svg("", other.programs, schedule.report, kModel).status().code(),
            Code::kInvalidArgument);
}

TEST(DrawTrace, HasEveryStepAndEveryMessage) {
  for (const Algorithm& algorithm : algorithms()) {
    const Schedule schedule = schedule_of(algorithm, 5, kModel);
    const auto text = draw_trace(schedule.programs, schedule.report, schedule.model);
    ASSERT_TRUE(text.is_ok());
    const auto trace = nlohmann::json::parse(*text);
    std::set<std::pair<int, int>> steps;
    std::map<std::string, int> ends;
    double last = 0;
    std::size_t names = 0;
    for (const auto& event : trace.at("traceEvents")) {
      const std::string phase = event.at("ph");
      if (phase == "M") ++names;
      if (phase == "s") ++ends[event.at("id")];
      if (phase == "f") --ends[event.at("id")];
      if (phase != "X") continue;
      EXPECT_TRUE(steps.emplace(event.at("pid"), event.at("args").at("step")).second);
      last = std::max(last, event.at("ts").get<double>() + event.at("dur").get<double>());
    }
    EXPECT_EQ(names, schedule.programs.size());
    EXPECT_EQ(steps.size(), schedule.steps) << algorithm.name;
    EXPECT_NEAR(last, schedule.report.seconds * 1e6, 1e-5);
    for (const auto& [id, balance] : ends) EXPECT_EQ(balance, 0) << algorithm.name << " " << id;
  }
}

}  // namespace
}  // namespace dunlin::collective
