#include "espalier/run/page_writer.h"

#include <exception>

#include "espalier/watch/page/report.h"

namespace espalier::run {
namespace {

using Clock = std::chrono::steady_clock;

std::string written_page(const std::filesystem::path& run) {
  try {
    watch::write_report(run);
    return {};
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

void PageWriter::now_and_then() {
  if (std::chrono::duration<double>(Clock::now() - last_).count() / 60 < minutes_) return;
  last_ = Clock::now();
  if (pending_.valid() && pending_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return;
  pending_ = std::async(std::launch::async, written_page, run_);
}

void PageWriter::wait() {
  if (pending_.valid()) pending_.wait();
}

std::string PageWriter::write() const {
  return written_page(run_);
}

}  // namespace espalier::run
