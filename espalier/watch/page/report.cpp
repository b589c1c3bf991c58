#include "espalier/watch/page/report.h"

#include <nlohmann/json.hpp>

#include "espalier/core/files/atomic.h"
#include "espalier/watch/lines/reader.h"
#include "espalier/watch/page/data.h"
#include "espalier/watch/page/embedded_file.h"

namespace espalier::watch {
namespace {

std::string replaced(std::string_view text, char from, std::string_view to) {
  std::string made;
  made.reserve(text.size());
  for (const char c : text) {
    if (c == from)
      made += to;
    else
      made += c;
  }
  return made;
}

std::string html_text(std::string_view text) {
  return replaced(replaced(replaced(text, '&', "&amp;"), '<', "&lt;"), '>', "&gt;");
}

// What stands in report.html for the parts that differ: {{title}} and so on.
struct Parts {
  std::string_view policy;
  std::string title, style, data, script;
};

// In one pass: a mark inside a part is text.
std::string filled(const Parts& parts) {
  const std::pair<std::string_view, std::string_view> marks[] = {{"{{policy}}", parts.policy},
                                                                 {"{{title}}", parts.title},
                                                                 {"{{style}}", parts.style},
                                                                 {"{{data}}", parts.data},
                                                                 {"{{script}}", parts.script}};
  std::string page;
  for (std::string_view rest = embedded_file("report.html"); !rest.empty();) {
    const size_t brace = rest.find("{{");
    page += rest.substr(0, brace);
    if (brace == std::string_view::npos) break;
    rest.remove_prefix(brace);
    size_t used = 0;
    for (const auto& [mark, value] : marks) {
      if (!rest.starts_with(mark)) continue;
      page += value;
      used = mark.size();
    }
    if (used == 0) page += rest.substr(0, used = 2);
    rest.remove_prefix(used);
  }
  return page;
}

constexpr std::string_view kOfflinePolicy =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'";
constexpr std::string_view kServedPolicy =
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'";

std::string offline_page(const std::string& title, const nlohmann::ordered_json& data) {
  return filled({.policy = kOfflinePolicy,
                 .title = html_text(title),
                 .style = "<style>\n" + std::string(page_style()) + "</style>",
                 .data = "<script type=\"application/json\" id=\"data\">" + script_json(data) + "</script>",
                 .script = "<script>\n" + page_script() + "</script>"});
}

}  // namespace

std::string script_json(const nlohmann::ordered_json& data) {
  using Json = nlohmann::ordered_json;
  // Only strings may hold '<'. Text that is not UTF-8 cannot come from a parser, but a name of a file may
  // be.
  return replaced(data.dump(-1, ' ', false, Json::error_handler_t::replace), '<', "\\u003c");
}

std::string_view page_style() {
  return embedded_file("report.css");
}

std::string page_script() {
  std::string script = "\"use strict\";\n(() => {\n";
  for (const char* name : {"text.js", "view.js", "save.js", "chart.js", "lines.js", "figures.js", "groups.js",
                           "growing.js", "report.js"})
    script += embedded_file(name);
  return script + "})();\n";
}

std::string report_page(const RunRecord& run) {
  return offline_page(run.name, page_data(run));
}

std::string comparison_page(std::span<const RunRecord> runs) {
  std::string title;
  for (const RunRecord& run : runs) title += (title.empty() ? "" : " · ") + run.name;
  return offline_page(title, comparison_data(runs));
}

std::string live_page(const RunRecord& run) {
  return filled({.policy = kServedPolicy,
                 .title = html_text(run.name),
                 .style = "<link rel=\"stylesheet\" href=\"report.css\">",
                 .data = "",
                 .script = "<script src=\"report.js\"></script>"});
}

std::filesystem::path write_report(const std::filesystem::path& run_dir) {
  RunReader reader(run_dir);
  reader.refresh();
  std::filesystem::path path = reader.path() / "report.html";
  AtomicFile file(path.string());
  file.write(report_page(reader.record()));
  file.commit();
  return path;
}

}  // namespace espalier::watch
