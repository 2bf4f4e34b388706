#include "apps/command_line/command_line.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <new>
#include <string_view>

#include "runtime/print.h"
#include "runtime/version.h"

namespace dunlin {
namespace {

constexpr std::size_t kWidth = 100;  // columns of the help text
constexpr std::size_t kHelpColumn = 28;

std::terminate_handler former_terminate = nullptr;

// Breaks one line of text between words. The first line begins at `column`, the others at `indent`.
std::string wrapped(std::string_view text, std::size_t column, std::size_t indent) {
  std::string result;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const bool is_first = result.empty();
    if (!is_first && column + 1 + end > kWidth) {
      result += '\n' + std::string(indent, ' ');
      column = indent;
    } else if (!is_first) {
      result += ' ';
      ++column;
    }
    result += text.substr(0, end);
    column += end;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return result;
}

// Breaks long lines. Lines that begin with a space, as examples and tables do, stay as they are.
std::string wrapped_lines(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    result += line.starts_with(' ') ? std::string(line) : wrapped(line, 0, 0);
    result += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return result;
}

std::string names_of(const CLI::Option& option) {
  std::string names;
  const auto add = [&names](const char* dashes, const std::vector<std::string>& all) {
    for (const std::string& name : all) names += (names.empty() ? "" : ", ") + (dashes + name);
  };
  add("-", option.get_snames());
  add("--", option.get_lnames());
  return names;
}

// CLI11 gives every option a type.
std::string value_name(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  if (type == "INT" || type == "UINT") return "N";
  if (type == "FLOAT") return "X";
  if (type != "TEXT" && type != "ENUM" && !type.empty()) return type;
  if (option.get_lnames().empty()) return "VALUE";
  const std::string& name = option.get_lnames().front();
  std::string last = name.substr(name.find_last_of('-') + 1);
  std::transform(last.begin(), last.end(), last.begin(),
                 [](unsigned char letter) { return std::toupper(letter); });
  return last;
}

std::string value_of(const CLI::Option& option) {
  if (!option.get_option_text().empty()) return ' ' + option.get_option_text();
  if (option.get_expected_max() == 0) return "";  // a flag
  std::string value = value_name(option);
  const bool takes_many = option.get_expected_max() == CLI::detail::expected_max_vector_size;
  if (takes_many) value += option.get_delimiter() != '\0' ? ",..." : " ...";
  if (option.get_expected_min() == 0) value = '[' + value + ']';
  if (!option.get_default_str().empty()) value += " (" + option.get_default_str() + ')';
  if (option.get_required()) value += " (required)";
  return ' ' + value;
}

class HelpFormatter final : public CLI::Formatter {
 public:
  HelpFormatter() {
    label("SUBCOMMAND", "COMMAND");
    label("Positionals", "Arguments");
  }

  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    // CLI11 separates groups of options by two empty lines.
    return CLI::detail::find_and_replace(CLI::Formatter::make_help(app, std::move(name), mode),
                                         "\n\n\n", "\n\n");
  }
  std::string make_description(const CLI::App* app) const override {
    return wrapped_lines(app->get_description()) + '\n';
  }
  std::string make_footer(const CLI::App* app) const override {
    return wrapped_lines(app->get_footer());
  }
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    const std::string left =
        is_positional ? option->get_name(true, false) : names_of(*option) + value_of(*option);
    return help_entry(left, option->get_description());
  }
  std::string make_subcommands(const CLI::App* app, CLI::AppFormatMode) const override {
    std::string text;
    for (const CLI::App* const command : app->get_subcommands({}))
      text += help_entry(command->get_name(), command->get_description());
    return text.empty() ? text : "\nCommands:\n" + text;
  }
};

// Help texts would show the descriptions of checks behind the type: "UINT:INT in [1 - 4096]".
void hide_checks(CLI::Option& option) {
  try {
    for (int i = 0;; ++i) option.get_validator(i)->description("");
  } catch (const CLI::OptionNotFound&) {  // beyond the last one
  }
}

// CLI11 takes -1, numbers of more than 64 bits and 010 for other numbers without a word.
void check_whole_numbers(CLI::Option& option) {
  if (option.get_type_name() != "UINT") return;
  const auto find_error = [](std::string& text) -> std::string {
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool is_whole = error == std::errc() && end == text.data() + text.size();
    if (!is_whole) return fmt::format("'{}' is not a whole number from 0 to {}", text, UINT64_MAX);
    text = fmt::format("{}", number);
    return "";
  };
  option.transform(CLI::Validator(find_error, ""));
}

// Neither infinity nor what is no number lies outside any range by CLI11's checks.
void check_finite_numbers(CLI::Option& option) {
  if (option.get_type_name() != "FLOAT") return;
  const auto find_error = [](const std::string& text) -> std::string {
    const bool is_finite = std::isfinite(std::strtod(text.c_str(), nullptr));
    return is_finite ? "" : fmt::format("'{}' is not a finite number", text);
  };
  option.check(find_error);
}

// An empty value is a mistake, such as a variable of the shell that is not set. Programs would take
// it for an option that was not given.
void check_that_it_is_not_empty(CLI::Option& option) {
  if (option.get_expected_max() == 0 || option.get_expected_min() == 0) return;
  option.check(CLI::Validator(
      [](const std::string& text) -> std::string {
        return text.empty() ? "the value is empty" : "";
      },
      ""));
}

// The JSON lines must not replace what is read, or be replaced by what is written.
void check_json_file(const CLI::App& app, const std::string& file) {
  for (const CLI::Option* const option : app.get_options()) {
    const bool names_file = option->get_description().find("file") != std::string::npos;
    if (!names_file || option->count() == 0 || option->check_lname("json-out")) continue;
    if (std::ranges::find(option->results(), file) != option->results().end()) {
      throw CLI::ValidationError(
          "--json-out", fmt::format("'{}' is the file of {}, too", file, option->get_name()));
    }
  }
}

void check_json_files(const CLI::App& app) {
  const CLI::Option* const json = app.get_option_no_throw("--json-out");
  if (json != nullptr && json->count() > 0) check_json_file(app, json->results().front());
  for (const CLI::App* const command : app.get_subcommands()) check_json_files(*command);
}

// Otherwise a file that is opened later gets the number of a standard stream that was closed.
void open_standard_streams() {
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream) {
    if (fcntl(stream, F_GETFD) < 0 && errno == EBADF) (void)open("/dev/null", O_RDWR);
  }
}

// A program whose memory does not suffice says so.
[[noreturn]] void end_for_want_of_memory() {
  if (const auto exception = std::current_exception()) {
    try {
      std::rethrow_exception(exception);
    } catch (const std::bad_alloc&) {
      print_error("error: there is not enough memory\n");
      _exit(1);
    } catch (...) {
    }
  }
  former_terminate();
  std::abort();
}

void prepare_options(CLI::App& app, const std::shared_ptr<CLI::FormatterBase>& formatter) {
  app.formatter(formatter);
  for (CLI::Option* const option : app.get_options({})) {
    hide_checks(*option);
    check_that_it_is_not_empty(*option);
    check_whole_numbers(*option);
    check_finite_numbers(*option);
  }
  if (app.get_help_ptr() != nullptr) app.get_help_ptr()->description("print this text and exit");
  for (CLI::App* const command : app.get_subcommands({})) prepare_options(*command, formatter);
}

// The list of commands when none was chosen, otherwise "".
std::string missing_command(const CLI::App& app) {
  if (!app.get_subcommands().empty()) return "";
  std::string commands;
  for (const CLI::App* const command : app.get_subcommands({}))
    commands += (commands.empty() ? "" : ", ") + command->get_name();
  return commands.empty() ? "" : wrapped("Commands: " + commands, 0, 2) + '\n';
}

std::string usage_message(const CLI::App* app, const CLI::Error& error) {
  const std::string commands = missing_command(*app);
  std::string what = error.what();
  if (!commands.empty() && !app->remaining().empty()) {
    const std::string unknown = app->remaining().front();
    what = fmt::format("'{}' is not {}", unknown,
                       unknown.starts_with('-') ? "an option" : "a command");
  } else if (!commands.empty() && what.starts_with("A subcommand")) {
    what = "A command is required";
  }
  std::string name = app->get_name();
  if (!app->get_subcommands().empty()) name += ' ' + app->get_subcommands().front()->get_name();
  return fmt::format("{}: {}\n{}'{} --help' says more.\n", app->get_name(), what, commands, name);
}

}  // namespace

std::string help_entry(const std::string& name, const std::string& meaning) {
  std::string text = "  " + name;
  if (meaning.empty()) return text + '\n';
  if (text.size() + 2 > kHelpColumn) {
    text += '\n' + std::string(kHelpColumn, ' ');
  } else {
    text.resize(kHelpColumn, ' ');
  }
  return text + wrapped(meaning, kHelpColumn, kHelpColumn) + '\n';
}

std::optional<int> parse_command_line(CLI::App& app, int argc, const char* const* argv,
                                      const std::function<void()>& finish) {
  open_standard_streams();
  if (std::get_terminate() != end_for_want_of_memory)
    former_terminate = std::set_terminate(end_for_want_of_memory);
  app.set_version_flag("--version", fmt::format("{} {}", app.get_name(), version()),
                       "print the version and exit");
  app.failure_message(usage_message);
  prepare_options(app, std::make_shared<HelpFormatter>());
  try {
    app.parse(argc, argv);
    check_json_files(app);
    if (finish) finish();
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kWrongUsage;
  }
  return std::nullopt;
}

bool parse_command_line(CLI::App& app, int argc, const char* const* argv,
                        const std::function<void()>& finish, int& exit_code) {
  const auto code = parse_command_line(app, argc, argv, finish);
  if (code) exit_code = *code;
  return !code.has_value();
}

CLI::Option* add_choice(CLI::App& app, const std::string& option, std::string& value,
                        const std::vector<std::string>& names, const std::string& help) {
  Choices<std::string> choices;
  for (const std::string& name : names) choices.emplace_back(name, name);
  return add_choice<std::string>(app, option, value, choices, help);
}

void add_json_options(CLI::App& app, std::string& target, const std::string& group) {
  CLI::Option* const flag = app.add_flag_callback(
                                   "--json", [&target] { target = "-"; },
                                   "print JSON lines on standard output instead of text")
                                ->group(group);
  app.add_option_function<std::string>(
         "--json-out",
         [&target](const std::string& file) {
           if (file == "-") {
             throw CLI::ValidationError("--json-out",
                                        "'-' is not a file; --json prints on standard output");
           }
           target = file;
         },
         "write JSON lines to this file, beside the text")
      ->type_name("FILE")
      ->excludes(flag)
      ->group(group);
}

}  // namespace dunlin
