// A TensorBoard event file: curves, histograms and pictures of one start of a run. Free of TensorFlow and
// torch.
//
// Kept true: records reach the system whole, several in one write, so that a killed process leaves at most
// one cut record, the last, which readers pass over; a write that fails throws and leaves the file ending
// with a whole record, so that writing may go on later; among the files of a folder the names sort in the
// order of the starts, as TensorBoard reads them. For one thread at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "espalier/watch/tensorboard/event_record.h"
#include "espalier/watch/tensorboard/png.h"

namespace espalier::watch {

class EventFile {
 public:
  // Makes events.out.tfevents.<seconds since 1970>.<host>.<process> in a folder that is there. The seconds
  // are those of the newest file there and one more, where the clock says no more.
  explicit EventFile(const std::filesystem::path& folder);
  ~EventFile();  // flushes, and keeps quiet about errors
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  // A tag is UTF-8 and belongs to one kind: TensorBoard shows a histogram named like a scalar as neither.
  void scalar(std::string_view tag, int64_t step, double value);
  // Values that are not finite are left out; without any other, nothing is written.
  void histogram(std::string_view tag, int64_t step, std::span<const double> values);
  void layout(std::string_view heading, std::span<const LayoutChart> charts);
  void image(std::string_view tag, int64_t step, const Picture& picture);

  // The run goes on with this step: readers drop what the earlier files of the folder have from this step on,
  // under every tag. So all tags of a run must count steps alike.
  void session_start(int64_t step);

  // Hands what was given so far to the system. When that fails, it throws, and what was not handed over is
  // lost.
  void flush();

  const std::filesystem::path& path() const { return path_; }

 private:
  void append(std::string_view event);

  std::filesystem::path path_;
  int descriptor_ = -1;
  int64_t whole_bytes_ = 0;  // the file's, all in whole records
  bool is_cut_ = false;      // bytes of a cut record follow them
  std::string pending_;      // whole records
};

}  // namespace espalier::watch
