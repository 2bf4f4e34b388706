// The output of children on its way to the output of this process, without ever blocking:
// OutputSink holds what the reader has not taken yet, LineRelay fills it line by line, so that
// lines of several children never mix.
#pragma once

#include <string>
#include <string_view>

#include "runtime/fd.h"

namespace dunlin::run {

// Text on its way to a descriptor. A reader that is slow, or stopped, does not delay the caller.
class OutputSink {
 public:
  explicit OutputSink(int target);

  // The descriptor to poll for POLLOUT while has_text().
  int fd() const { return target_; }
  bool has_text() const { return written_ < text_.size(); }
  // True if children should wait before they write more.
  bool is_full() const { return text_.size() - written_ >= kMostText; }
  void append(std::string_view text) { text_ += text; }
  // Writes what the descriptor takes now. Drops everything when its reader has closed it, or when
  // it can't be written.
  void flush();
  // Why it couldn't be written, as in errno; 0 if it could, or if its reader has closed it.
  int error() const { return error_; }

 private:
  static constexpr std::size_t kMostText = std::size_t{1} << 20;

  Fd terminal_;  // open if the target is one
  int target_;
  std::string text_;
  std::size_t written_ = 0;  // bytes of text_
  int error_ = 0;
};

class LineRelay {
 public:
  // Reads from `source`, which is non-blocking, and writes to `sink`, which outlives this object.
  // Each line gets `prefix` before it, except that lines which hold a JSON object pass unchanged
  // when `keeps_json` is set.
  LineRelay(Fd source, OutputSink& sink, std::string prefix, bool keeps_json);

  // True until the end of the stream.
  bool is_open() const { return source_.is_open(); }
  // The descriptor to poll for POLLIN; -1 after the end of the stream, and while the sink is full.
  int fd() const { return sink_->is_full() ? -1 : source_.get(); }
  // Passes on the complete lines that have arrived. At the end of the stream it also passes on an
  // incomplete last line, and adds the line feed.
  void relay();

 private:
  void pass_on(std::string_view line);

  Fd source_;
  OutputSink* sink_;
  std::string prefix_;
  bool keeps_json_;
  std::string pending_;  // the beginning of a line
};

}  // namespace dunlin::run
