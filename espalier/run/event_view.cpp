#include "espalier/run/event_view.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "espalier/core/error.h"
#include "espalier/run/location.h"

namespace espalier::run {

using Json = nlohmann::ordered_json;

void EventView::open(const std::filesystem::path& run, int64_t episode_length) {
  attempt([&] {
    file_ = std::make_unique<watch::EventFile>(run);
    metrics_ = std::make_unique<watch::MetricEvents>(*file_, episode_length);
  });
}

void EventView::resume(const std::filesystem::path& run, int64_t episode_length) {
  open(run, episode_length);
  if (!is_open()) return;
  std::ifstream file(run / kMetrics);
  Json last = Json::object();
  for (std::string line; std::getline(file, line);)
    if (Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
        json.is_object() && (json.contains("epoch") || json.contains("round")))
      last = std::move(json);
  attempt([&] { metrics_->resume_after(last); });
}

void EventView::add(const Json& line) {
  if (is_open()) attempt([&] { metrics_->add(line); });
}

void EventView::add(const std::vector<watch::NamedPicture>& pictures) {
  if (!is_open()) return;
  attempt([&] {
    for (const watch::NamedPicture& picture : pictures)
      file_->image(picture.name, 0, {picture.width, picture.height, picture.channels, picture.bytes});
  });
}

void EventView::flush() {
  if (is_open()) attempt([&] { metrics_->flush(); });
}

void EventView::attempt(const std::function<void()>& write) {
  try {
    write();
  } catch (const Error& error) {
    warn_(fmt::format("{}; TensorBoard sees no more of this run, metrics.jsonl does", error.what()));
    metrics_.reset();
    file_.reset();
  }
}

}  // namespace espalier::run
