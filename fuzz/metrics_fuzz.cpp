// The files of a run: metrics.jsonl, a zero byte, config.json, a zero byte, environment.json. Held: reading
// ends with a record, whatever they hold; read in two pieces, as while a run writes, it is the same record as
// read at once; no page made of it lets the files' text become markup.
#include <algorithm>
#include <array>
#include <fstream>
#include <nlohmann/json.hpp>

#include "espalier/watch/lines/reader.h"
#include "espalier/watch/page/data.h"
#include "espalier/watch/page/report.h"
#include "fuzz/target.h"
#include "tests/support/temporary_folder.h"

namespace {

using namespace espalier;

std::array<std::string_view, 3> split(std::string_view input) {
  std::array<std::string_view, 3> parts;
  for (std::string_view& part : parts) {
    part = input.substr(0, input.find('\0'));
    input.remove_prefix(std::min(part.size() + 1, input.size()));
  }
  return parts;
}

void check_record(const watch::RunRecord& record) {
  fuzz::require(record.num_damaged <= record.num_lines, "a damaged line is a line");
  for (const watch::LaneLine& line : record.lanes) {
    for (const watch::SlotLine& slot : line.slots) {
      fuzz::require(slot.slot < record.slots.size(), "a slot has a name");
      fuzz::require(!slot.blueprint || *slot.blueprint < record.blueprints.size(), "a blueprint has a name");
    }
  }
  if (record.result) {
    for (const auto& row : record.result->confusion) {
      fuzz::require(row.size() == record.result->classes.size(), "a confusion matrix is square");
    }
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto [metrics, config, environment] = split(fuzz::text_of(data, size));
  static const support::TemporaryFolder folder;
  folder.write("config.json", config);
  folder.write("environment.json", environment);
  folder.write("metrics.jsonl", metrics.substr(0, metrics.size() / 2));
  watch::RunReader reader(folder.path());
  reader.refresh();
  check_record(reader.record());
  std::ofstream(folder / "metrics.jsonl", std::ios::binary | std::ios::app)
      << metrics.substr(metrics.size() / 2);
  reader.refresh();
  const watch::RunRecord whole = watch::read_run(folder.path());
  check_record(whole);
  const std::string drawn = watch::script_json(watch::page_data(whole));
  fuzz::require(drawn == watch::script_json(watch::page_data(reader.record())),
                "two pieces give what one gives");
  fuzz::require(drawn.find('<') == drawn.npos, "no text of a run can end a script");
  watch::report_page(whole);
  return 0;
}
