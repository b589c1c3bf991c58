// The page of a run (report.html), made again now and then while it goes on, and at its end.
//
// Kept true: it is made by a thread of its own that only reads the directory, one at a time; a page is no
// result, so a failure to make it is told and the run goes on.
#pragma once

#include <chrono>
#include <filesystem>
#include <future>
#include <string>

namespace espalier::run {

class PageWriter {
 public:
  // minutes: between two pages.
  PageWriter(std::filesystem::path run, double minutes) : run_(std::move(run)), minutes_(minutes) {}

  // From now on pages are due.
  void start() { last_ = std::chrono::steady_clock::now(); }
  // Begins one where it is due and none is being made.
  void now_and_then();
  // Waits for the one that is being made.
  void wait();
  // Makes the last one; returns what went wrong, or nothing.
  std::string write() const;

 private:
  std::filesystem::path run_;
  double minutes_;
  std::chrono::steady_clock::time_point last_;
  std::future<std::string> pending_;  // what went wrong with it
};

}  // namespace espalier::run
