// espalier man, espalier completion: what packages install beside the program, made from its own flags
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <system_error>

#include "espalier/cli/commands.h"
#include "espalier/cli/manual/completion.h"
#include "espalier/cli/manual/page.h"
#include "espalier/cli/version.h"
#include "espalier/core/error.h"
#include "espalier/core/files/atomic.h"
#include "espalier/core/text/nearest.h"

namespace espalier::cli {
namespace {

struct CompletionOptions {
  std::string shell = "bash";

  template <class Visitor>
  void visit(Visitor&& v) {
    v({.name = "shell", .help = "the shell that the script is for", .choices = {"bash", "zsh", "fish"}},
      shell);
  }
};

struct ManOptions {
  std::string command;
  std::string out;

  template <class Visitor>
  void visit(Visitor&& v) {
    v({.name = "command",
       .help = "the command whose page is printed, its words joined by dashes: train-ppo; default: the "
               "program's own",
       .placeholder = "COMMAND"},
      command);
    v({.name = "out",
       .help = "write the pages of all commands into this folder instead",
       .placeholder = "DIR"},
      out);
  }
};

struct NamedPage {
  std::string name;  // "espalier-train-ppo"
  std::string text;
};

void add_pages(const CommandText& command, const CommandText* above, std::vector<NamedPage>& pages) {
  pages.push_back({page_name(command), manual_page(command, above, version())});
  for (const CommandText& child : command.commands) add_pages(child, &command, pages);
}

void write_pages(const std::vector<NamedPage>& pages, const std::filesystem::path& folder) {
  std::error_code code;
  std::filesystem::create_directories(folder, code);
  if (code) fail("--out {}: the folder cannot be made: {}", folder.string(), code.message());
  for (const NamedPage& page : pages) {
    AtomicFile file((folder / (page.name + ".1")).string());
    file.write(page.text);
    file.commit();
  }
}

int print_pages(const CLI::App& app, const ManOptions& options) {
  if (!options.command.empty() && !options.out.empty())
    fail_usage("--command {} and --out {}: one page is printed, or all are written: leave one of them out",
               options.command, options.out);
  std::vector<NamedPage> pages;
  add_pages(command_tree(app), nullptr, pages);
  if (!options.out.empty()) {
    write_pages(pages, options.out);
    fmt::print("{} pages in {}\n", pages.size(), options.out);
    return 0;
  }
  const std::string prefix = pages.front().name + "-";
  const std::string wanted = options.command.empty() ? pages.front().name : prefix + options.command;
  std::vector<std::string_view> names;
  for (const NamedPage& page : pages) {
    if (page.name == wanted) {
      fmt::print("{}", page.text);
      return 0;
    }
    if (page.name.starts_with(prefix)) names.push_back(std::string_view(page.name).substr(prefix.size()));
  }
  fail_usage("--command {}: there is no such command{}; 'espalier --help' lists them", options.command,
             suggestion(options.command, names));
}

}  // namespace

void add_completion_command(CLI::App& app, Context& context) {
  add_job<CompletionOptions>(
      app, context,
      {.name = "completion",
       .summary = "print a script that completes commands and flags in a shell",
       .examples = "  source <(espalier completion bash)\n"
                   "  espalier completion fish > ~/.config/fish/completions/espalier.fish\n",
       .positionals = {{"shell", "SHELL"}}},
      [&app](const CompletionOptions& options, Context&) {
        const CommandText root = command_tree(app);
        fmt::print("{}", options.shell == "bash"  ? bash_completion(root)
                         : options.shell == "zsh" ? zsh_completion(root)
                                                  : fish_completion(root));
        return 0;
      });
}

void add_man_command(CLI::App& app, Context& context) {
  add_job<ManOptions>(app, context,
                      {.name = "man",
                       .summary = "print the manual page of a command, or write those of all",
                       .examples = "  espalier man train-ppo | man -l -\n"
                                   "  espalier man --out /usr/local/share/man/man1\n",
                       .positionals = {{"command", "COMMAND"}}},
                      [&app](const ManOptions& options, Context&) { return print_pages(app, options); });
}

}  // namespace espalier::cli
