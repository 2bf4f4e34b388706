#include "collectives/graph/edge_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "collectives/graph/number.h"
#include "runtime/files/output_file.h"
#include "runtime/files/read_file.h"

namespace dunlin::collective {
namespace {

// A longer line does not belong to an edge list, and makes no readable error.
constexpr std::size_t kLongestLine = 1 << 16;

struct Word {
  std::string_view text;
  std::size_t column = 0;  // from 1
};

// The words of a line up to '#'. Blanks separate them.
class Words {
 public:
  explicit Words(std::string_view line) : line_(line.substr(0, line.find('#'))) {}

  // Returns an empty word at the end of the line.
  Word next() {
    constexpr std::string_view kBlanks = " \t\r";
    at_ = std::min(line_.find_first_not_of(kBlanks, at_), line_.size());
    const std::size_t begin = at_;
    at_ = std::min(line_.find_first_of(kBlanks, at_), line_.size());
    return {line_.substr(begin, at_ - begin), begin + 1};
  }

 private:
  std::string_view line_;
  std::size_t at_ = 0;
};

class Parser {
 public:
  Parser(const std::string& path, int nodes) : path_(path) { list_.nodes = nodes; }

  Status line(std::string_view text) {
    ++line_;
    Words words(text);
    const Word first = words.next();
    if (first.text.empty()) return Status::ok();
    DUNLIN_TRY(first.text == "nodes" ? nodes_line(first, words) : edge_line(first, words));
    const Word rest = words.next();
    if (!rest.text.empty()) return error(rest, fmt::format("unexpected '{}'", rest.text));
    return Status::ok();
  }

  EdgeList take() { return std::move(list_); }
  std::size_t lines() const { return line_; }

 private:
  Status nodes_line(const Word& keyword, Words& words) {
    if (has_nodes_line_) return error(keyword, "a second 'nodes' line");
    if (!list_.edges.empty()) return error(keyword, "'nodes' must stand before the first edge");
    const Word word = words.next();
    const auto nodes = parse_number<int>(word.text);
    if (!nodes || *nodes < 1)
      return error(word, fmt::format("'{}' is not a number of nodes", word.text));
    if (list_.nodes != 0 && list_.nodes != *nodes) {
      return error(word,
                   fmt::format("the file has {} nodes, but there are {}", *nodes, list_.nodes));
    }
    list_.nodes = *nodes;
    has_nodes_line_ = true;
    return Status::ok();
  }

  Status edge_line(const Word& first, Words& words) {
    if (list_.nodes == 0)
      return error(first, "an edge before the 'nodes' line, and no node count is given");
    DUNLIN_ASSIGN(const int from, node(first));
    DUNLIN_ASSIGN(const int to, node(words.next()));
    if (list_.edges.size() == kMaxEdges)
      return error(first, fmt::format("more than {} edges", kMaxEdges));
    list_.edges.push_back({from, to});
    return Status::ok();
  }

  Result<int> node(const Word& word) const {
    if (word.text.empty()) return error(word, "the edge's second node is missing");
    const auto number = parse_number<int>(word.text);
    if (!number) return error(word, fmt::format("'{}' is not a node number", word.text));
    if (*number >= list_.nodes) {
      return error(word, fmt::format("node {} is outside 0..{}", *number, list_.nodes - 1));
    }
    return *number;
  }

  Status error(const Word& word, std::string_view what) const {
    return {Code::kCorrupted, fmt::format("{}:{}:{}: {}", path_, line_, word.column, what)};
  }

  const std::string& path_;
  EdgeList list_;
  std::size_t line_ = 0;
  bool has_nodes_line_ = false;
};

}  // namespace

Result<EdgeList> parse_edge_list(const std::string& name, std::string_view text, int nodes) {
  Parser parser(name, nodes);
  while (!text.empty()) {
    const std::size_t size = std::min(text.find('\n'), text.size());
    if (size > kLongestLine) {
      return Status(Code::kCorrupted, fmt::format("{}:{}: longer than {} characters", name,
                                                  parser.lines() + 1, kLongestLine));
    }
    DUNLIN_TRY(parser.line(text.substr(0, size)));
    text.remove_prefix(std::min(size + 1, text.size()));
  }
  EdgeList list = parser.take();
  if (list.nodes == 0) {
    return Status(Code::kCorrupted, name + ": has no 'nodes' line, and no node count is given");
  }
  return list;
}

Result<EdgeList> read_edge_list(const std::string& path, int nodes) {
  DUNLIN_ASSIGN(const std::string text, read_file(path));
  return parse_edge_list(path, text, nodes);
}

std::string edge_list_text(const Graph& graph) {
  std::string text = fmt::format("# {}\nnodes {}\n", graph.spec(), graph.nodes());
  for (int from = 0; from < graph.nodes(); ++from) {
    for (const int to : graph.out_neighbors(from)) {
      fmt::format_to(std::back_inserter(text), "{} {}\n", from, to);
    }
  }
  return text;
}

Status write_edge_list(const Graph& graph, const std::string& path) {
  return replace_file(path, edge_list_text(graph));
}

}  // namespace dunlin::collective
