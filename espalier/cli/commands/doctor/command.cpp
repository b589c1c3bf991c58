// espalier doctor
#include <fmt/format.h>
#include <unistd.h>

#include "espalier/cli/commands.h"
#include "espalier/cli/commands/doctor/checks.h"

namespace espalier::cli {
namespace {

struct DoctorOptions {
  std::string run_dir = ".";
  int64_t disk_bytes = int64_t{64} << 20;

  template <class Visitor>
  void visit(Visitor&& v) {
    v({.name = "run-dir", .help = "where runs will be written: its disk is timed", .placeholder = "DIR"},
      run_dir);
    v({.name = "disk-size",
       .help = "how much to write there, and to remove again",
       .low = 1 << 20,
       .high = 16.0 * (1 << 30),
       .format = OptionFormat::kByteSize},
      disk_bytes);
  }
};

// Prints as it goes: a check may take a second. Returns how many are broken.
int print_checks(const std::vector<Check>& checks, const Context& context) {
  struct Word {
    const char* text;
    watch::Color color;
  };
  constexpr Word kWords[] = {
      {"ok", watch::Color::kGreen}, {"note", watch::Color::kYellow}, {"broken", watch::Color::kRed}};
  const bool is_colored = watch::uses_color(context.color, STDOUT_FILENO);
  int num_broken = 0;
  for (const Check& check : checks) {
    const Word& word = kWords[static_cast<size_t>(check.health)];
    fmt::print("{} {:<10}  {}{}{}\n", watch::painted(fmt::format("{:<6}", word.text), word.color, is_colored),
               check.name, check.found, check.remedy.empty() ? "" : "; ", check.remedy);
    num_broken += check.health == Health::kBroken ? 1 : 0;
  }
  std::fflush(stdout);
  return num_broken;
}

int run_doctor(const DoctorOptions& options, Context& context) {
  int num_broken = print_checks(check_torch(), context);
  num_broken += print_checks(check_gpus(), context);
  num_broken += print_checks(check_determinism(), context);
  num_broken += print_checks({check_cpu(), check_load(), check_openmp()}, context);
  num_broken += print_checks({check_disk(options.run_dir, options.disk_bytes)}, context);
  num_broken += print_checks({check_python()}, context);
  return num_broken == 0 ? 0 : 1;
}

}  // namespace

void add_doctor_command(CLI::App& app, Context& context) {
  add_job<DoctorOptions>(
      app, context,
      {.name = "doctor",
       .summary = "look at torch, CUDA, devices, disk and settings: each line fine, or what to do",
       .examples = "  espalier doctor --run-dir /data/runs"},
      run_doctor);
}

}  // namespace espalier::cli
