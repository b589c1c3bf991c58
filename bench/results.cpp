#include "bench/results.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "espalier/core/error.h"
#include "espalier/core/text/json_fields.h"
#include "espalier/core/text/utf8.h"

namespace espalier::bench {
namespace {

using Json = nlohmann::ordered_json;
constexpr int64_t kFormat = 1;

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

std::string value_text(const Json& value) {
  return on_one_line(value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

Json list_field(const Json& object, const char* key, const std::string& where) {
  if (!object.contains(key)) return Json::array();
  if (!object[key].is_array()) fail("{}: '{}': want a list, got {}", where, key, object[key].type_name());
  return object[key];
}

bool flag_field(const Json& object, const char* key, const std::string& where) {
  if (!object.contains(key)) return false;
  if (!object[key].is_boolean())
    fail("{}: '{}': want true or false, got {}", where, key, object[key].type_name());
  return object[key].get<bool>();
}

std::vector<double> times_field(const Json& object, const char* key, const std::string& where) {
  std::vector<double> times;
  for (const Json& value : list_field(object, key, where)) {
    const double time = value.is_number() ? value.get<double>() : -1;
    if (!(time >= 0 && std::isfinite(time)))
      fail("{}: '{}': want numbers from 0 on, got {}", where, key, value_text(value));
    times.push_back(time);
  }
  return times;
}

std::vector<std::string> texts_field(const Json& object, const char* key, const std::string& where) {
  std::vector<std::string> texts;
  for (const Json& value : list_field(object, key, where)) {
    if (!value.is_string()) fail("{}: '{}': want a list of texts, got {}", where, key, value_text(value));
    texts.push_back(value.get<std::string>());
  }
  return texts;
}

CaseResult case_of(const Json& value, const std::string& where) {
  CaseResult result{.name = text_field(value, "name", "", where),
                    .script = text_field(value, "script", "", where),
                    .note = text_field(value, "note", "", where),
                    .checked = text_field(value, "checked", "", where),
                    .times_us = times_field(value, "times_us", where),
                    .hosts_us = times_field(value, "hosts_us", where),
                    .floors_us = times_field(value, "floors_us", where)};
  if (result.times_us.empty())
    fail("{}: case '{}': want at least one of 'times_us', got none", where, on_one_line(result.name));
  return result;
}

RowResult row_of(const Json& value, const std::string& where) {
  RowResult row{.name = text_field(value, "row", "", where),
                .shapes = text_field(value, "shapes", "", where),
                .command = text_field(value, "command", "", where)};
  for (const Json& each : list_field(value, "cases", where)) row.cases.push_back(case_of(each, where));
  row.problems = texts_field(value, "problems", where);
  return row;
}

// What a cell of a Markdown table cannot hold.
std::string cell(std::string_view text) {
  std::string out;
  for (const char letter : text) {
    if (letter == '|') out += '\\';
    out += letter == '\n' ? ' ' : letter;
  }
  return out;
}

std::string spread_text(const CaseResult& result) {
  if (result.times_us.size() < 2) return time_text(result.median_us());
  return fmt::format("{} ({} to {})", time_text(result.median_us()), time_text(result.low_us()),
                     time_text(result.high_us()));
}

}  // namespace

double CaseResult::median_us() const {
  return median_of(times_us);
}
double CaseResult::low_us() const {
  return times_us.empty() ? 0 : std::ranges::min(times_us);
}
double CaseResult::high_us() const {
  return times_us.empty() ? 0 : std::ranges::max(times_us);
}
double CaseResult::floor_us() const {
  return median_of(floors_us);
}
bool CaseResult::knows_hosts() const {
  return std::ranges::any_of(hosts_us, [](double us) { return us > 0; });
}

const CaseResult* RowResult::ours() const {
  const auto found = std::ranges::find_if(cases, &CaseResult::is_ours);
  return found == cases.end() ? nullptr : &*found;
}

const CaseResult* RowResult::best_peer() const {
  const CaseResult* best = nullptr;
  for (const CaseResult& each : cases)
    if (!each.is_ours() && (!best || each.median_us() < best->median_us())) best = &each;
  return best;
}

RowResult& BenchResults::row(const std::string& name, const std::string& shapes) {
  for (RowResult& each : rows)
    if (each.name == name && each.shapes == shapes) return each;
  rows.push_back({.name = name, .shapes = shapes});
  return rows.back();
}

void add_repeat(RowResult& row, const std::vector<Case>& cases, const std::vector<std::string>& problems) {
  for (const Case& each : cases) {
    auto place = std::ranges::find_if(row.cases, [&](const CaseResult& known) {
      return known.name == each.name && known.script == each.script;
    });
    if (place == row.cases.end()) {
      row.cases.push_back({.name = each.name, .script = each.script});
      place = row.cases.end() - 1;
    }
    place->note = each.note;
    place->checked = each.checked;
    place->times_us.push_back(each.timing.median_us);
    place->hosts_us.push_back(each.timing.host_us);
    place->floors_us.push_back(each.floor_us);
  }
  for (const std::string& problem : problems)
    if (std::ranges::find(row.problems, problem) == row.problems.end()) row.problems.push_back(problem);
}

std::string to_json(const BenchResults& results) {
  Json rows = Json::array();
  for (const RowResult& row : results.rows) {
    const CaseResult* const ours = row.ours();
    Json cases = Json::array();
    for (const CaseResult& each : row.cases) {
      Json value{{"name", each.name},         {"script", each.script},         {"note", each.note},
                 {"checked", each.checked},   {"median_us", each.median_us()}, {"low_us", each.low_us()},
                 {"high_us", each.high_us()}, {"times_us", each.times_us},     {"floors_us", each.floors_us}};
      if (each.knows_hosts()) value["hosts_us"] = each.hosts_us;
      if (ours) value["times_ours"] = each.median_us() / ours->median_us();
      if (each.floor_us() > 0) value["of_floor"] = each.floor_us() / each.median_us();
      cases.push_back(std::move(value));
    }
    rows.push_back({{"row", row.name},
                    {"shapes", row.shapes},
                    {"command", row.command},
                    {"cases", std::move(cases)},
                    {"problems", row.problems}});
  }
  const Json whole{{"format", kFormat},
                   {"card", results.card},
                   {"machine", results.machine},
                   {"torch", results.torch},
                   {"commit", results.commit},
                   {"command", results.command},
                   {"began", results.began},
                   {"precision", results.precision},
                   {"repeats", results.repeats},
                   {"smoke", results.is_smoke},
                   {"complete", results.is_complete},
                   {"rates",
                    {{"copy_bytes_per_us", results.rates.copy_bytes_per_us},
                     {"product_flops_per_us", results.rates.product_flops_per_us},
                     {"product_type", results.rates.product_type},
                     {"sizes", results.rates.sizes}}},
                   {"rows", std::move(rows)}};
  return whole.dump(1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n";
}

BenchResults read_results(const std::string& path) {
  std::ifstream in(path);
  if (!in) fail_usage("'{}': want a file of `espalier bench all`, got none that can be read", path);
  const Json whole = Json::parse(in, nullptr, /*allow_exceptions=*/false);
  if (!whole.is_object() || integer_field(whole, "format", 0, path) != kFormat)
    fail_usage("'{}': want JSON of format {} as `espalier bench all` writes it, got something else", path,
               kFormat);
  BenchResults results{.card = text_field(whole, "card", "", path),
                       .machine = text_field(whole, "machine", "", path),
                       .torch = text_field(whole, "torch", "", path),
                       .commit = text_field(whole, "commit", "", path),
                       .command = text_field(whole, "command", "", path),
                       .began = text_field(whole, "began", "", path),
                       .precision = text_field(whole, "precision", "", path),
                       .repeats = integer_field(whole, "repeats", 1, path),
                       .is_smoke = flag_field(whole, "smoke", path),
                       .is_complete = flag_field(whole, "complete", path)};
  const Json rates = object_field(whole, "rates", path);
  results.rates = {.copy_bytes_per_us = number_field(rates, "copy_bytes_per_us", 0, path),
                   .product_flops_per_us = number_field(rates, "product_flops_per_us", 0, path),
                   .product_type = text_field(rates, "product_type", "", path),
                   .sizes = text_field(rates, "sizes", "", path)};
  for (const Json& row : list_field(whole, "rows", path)) {
    if (!row.is_object()) fail("{}: 'rows': want objects, got {}", path, row.type_name());
    results.rows.push_back(row_of(row, path));
  }
  return results;
}

std::string file_stem(std::string_view card, std::string_view began) {
  std::string stem;
  for (const char letter : card) {
    const auto byte = static_cast<unsigned char>(letter);
    if (byte < 128 && std::isalnum(byte)) {
      stem += static_cast<char>(std::tolower(byte));
    } else if (!stem.empty() && stem.back() != '-') {
      stem += '-';
    }
  }
  while (stem.ends_with('-')) stem.pop_back();
  return fmt::format("{}-{}", stem.empty() ? "machine" : stem, began.substr(0, 10));
}

std::string time_text(double us) {
  const auto [value, unit] = us < 1e3   ? std::pair{us, "us"}
                             : us < 1e6 ? std::pair{us / 1e3, "ms"}
                                        : std::pair{us / 1e6, "s"};
  return fmt::format("{:.{}f} {}", value, value < 10 ? 2 : value < 100 ? 1 : 0, unit);
}

std::string markdown_table(const BenchResults& results) {
  std::string text =
      fmt::format("`{}` on {} (torch {}), {}, commit {}, {}{}.\n", results.command, results.machine,
                  results.torch, results.began.substr(0, 10), results.commit, results.precision,
                  results.is_smoke ? ", small and once: that it works, not how fast it is" : "");
  if (!results.is_complete) text += "It was stopped before everything was measured.\n";
  text += fmt::format(
      "Medians of up to {} repeats, the lowest and the highest in brackets. Floors: bytes at {:.3g} GB/s and "
      "products at {:.3g} "
      "TFLOP/s ({}), as measured in the same run ({}).\n\n",
      results.repeats, results.rates.copy_bytes_per_us / 1e3, results.rates.product_flops_per_us / 1e6,
      results.rates.product_type, results.rates.sizes);
  text += "| workload | ours | best peer | times ours | floor | of the floor |\n|---|---|---|---|---|---|\n";
  std::map<std::string, std::vector<std::string>> missing;  // by the reason: the rows
  for (const RowResult& row : results.rows) {
    const std::string name = fmt::format("{}, {}", row.name, row.shapes);
    for (const std::string& problem : row.problems) missing[problem].push_back(name);
    const CaseResult* const ours = row.ours();
    const CaseResult* const peer = row.best_peer();
    const std::string peer_text =
        peer ? fmt::format("{}, {}", spread_text(*peer), cell(peer->name)) : std::string();
    const std::string ratio =
        ours && peer ? fmt::format("{:.2f}", peer->median_us() / ours->median_us()) : std::string();
    const bool has_floor = ours && ours->floor_us() > 0;
    text += fmt::format("| {} | {} | {} | {} | {} | {} |\n", cell(name),
                        ours ? "**" + spread_text(*ours) + "**" : "not measured", peer_text, ratio,
                        has_floor ? time_text(ours->floor_us()) : "",
                        has_floor ? fmt::format("{:.0f} %", 100 * ours->floor_us() / ours->median_us()) : "");
  }
  if (!missing.empty()) text += "\nNot measured:\n\n";
  for (const auto& [problem, rows] : missing)
    text += fmt::format("- {} ({})\n", cell(problem), fmt::join(rows, "; "));
  return text;
}

std::string with_table(const std::string& text, const std::string& table, const std::string& path) {
  const size_t begin = text.find(kTableBegin), end = text.find(kTableEnd);
  const auto is_once = [&](size_t place, std::string_view mark) {
    return place != text.npos && text.find(mark, place + mark.size()) == text.npos;
  };
  if (!is_once(begin, kTableBegin) || !is_once(end, kTableEnd) || begin > end)
    fail_usage("'{}': want the lines '{}' and '{}', each once and in this order, for the table to go between",
               path, kTableBegin, kTableEnd);
  return fmt::format("{}\n\n{}\n{}", text.substr(0, begin + kTableBegin.size()), table, text.substr(end));
}

}  // namespace espalier::bench
