#include "espalier/watch/tensorboard/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <system_error>
#include <tuple>
#include <utility>

#include "espalier/core/error.h"
#include "espalier/watch/tensorboard/event_record.h"

namespace espalier::watch {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "events.out.tfevents.";
constexpr int64_t kLargestSeconds = 9'999'999'999;  // with one digit more, names no longer sort by time
constexpr size_t kPendingBytes = 1 << 20;           // more is handed over without waiting for flush()

std::string reason_of(int error) {
  return std::generic_category().message(error);
}

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string host_name() {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return host.front() == '\0' ? "localhost" : host.data();
}

// When the newest event file in the folder was made; 0: none.
int64_t newest_seconds(const fs::path& folder) {
  int64_t newest = 0;
  std::error_code ignored;  // making the file says what is wrong with the folder
  for (fs::directory_iterator entry(folder, ignored), end; !ignored && entry != end;
       entry.increment(ignored)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    int64_t seconds = 0;
    const char* const begin = name.data() + kPrefix.size();
    const auto parsed = std::from_chars(begin, name.data() + name.size(), seconds);
    if (parsed.ec == std::errc() && seconds < kLargestSeconds) newest = std::max(newest, seconds);
  }
  return newest;
}

std::pair<fs::path, int> create_in(const fs::path& folder) {
  // Two starts in one second, or a clock that was set back, must not change the order of the files.
  int64_t seconds = std::max(static_cast<int64_t>(wall_seconds()), newest_seconds(folder) + 1);
  for (;; ++seconds) {
    fs::path path = folder / fmt::format("{}{}.{}.{}", kPrefix, seconds, host_name(), getpid());
    const int descriptor = open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_APPEND | O_CLOEXEC, 0666);
    if (descriptor >= 0) return {std::move(path), descriptor};
    if (errno != EEXIST)
      fail("{}: cannot make a file for TensorBoard's events there: {}", folder.string(), reason_of(errno));
  }
}

// How many of the bytes were written before an error, which is 0 for none.
std::pair<size_t, int> write_all(int descriptor, std::string_view bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t written = ::write(descriptor, bytes.data() + done, bytes.size() - done);
    if (written >= 0) {
      done += static_cast<size_t>(written);
    } else if (errno != EINTR) {
      return {done, errno};
    }
  }
  return {done, 0};
}

}  // namespace

EventFile::EventFile(const fs::path& folder) {
  std::tie(path_, descriptor_) = create_in(folder);
  try {
    append(version_event(wall_seconds()));
    flush();  // a file without this record is none: so it is not left behind
  } catch (...) {
    close(descriptor_);
    unlink(path_.c_str());
    throw;
  }
}

EventFile::~EventFile() {
  try {
    flush();
  } catch (const Error&) {
  }
  close(descriptor_);
}

void EventFile::scalar(std::string_view tag, int64_t step, double value) {
  append(scalar_event({wall_seconds(), step}, tag, value));
}

void EventFile::histogram(std::string_view tag, int64_t step, std::span<const double> values) {
  const Histogram histogram(values);
  if (histogram.count > 0) append(histogram_event({wall_seconds(), step}, tag, histogram));
}

void EventFile::layout(std::string_view heading, std::span<const LayoutChart> charts) {
  append(layout_event({wall_seconds(), 0}, heading, charts));
}

void EventFile::image(std::string_view tag, int64_t step, const Picture& picture) {
  append(image_event({wall_seconds(), step}, tag, picture));
}

void EventFile::session_start(int64_t step) {
  // Twice: TensorBoard's server takes the first one of all the files for the beginning of the run, and drops
  // nothing.
  for (int i = 0; i < 2; ++i) append(session_start_event({wall_seconds(), step}));
}

void EventFile::append(std::string_view event) {
  pending_ += record_of(event);
  if (pending_.size() >= kPendingBytes) flush();
}

void EventFile::flush() {
  if (pending_.empty()) return;
  const std::string records = std::exchange(pending_, {});
  if (is_cut_ && ftruncate(descriptor_, whole_bytes_) != 0)
    fail("{}: cannot be cut back to its last whole record: {}", path_.string(), reason_of(errno));
  is_cut_ = false;
  const auto [written, error] = write_all(descriptor_, records);
  if (error == 0) {
    whole_bytes_ += static_cast<int64_t>(written);
    return;
  }
  // Where even this fails, the next flush tries again.
  is_cut_ = written > 0 && ftruncate(descriptor_, whole_bytes_) != 0;
  fail("{}: TensorBoard's events cannot be written after {} bytes: {}", path_.string(), whole_bytes_,
       reason_of(error));
}

}  // namespace espalier::watch
