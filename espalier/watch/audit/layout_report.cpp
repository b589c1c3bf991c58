#include <fmt/format.h>

#include <algorithm>

#include "espalier/watch/audit/layout.h"
#include "espalier/watch/terminal/table.h"

namespace espalier::watch {
namespace {

// One column a layout that any op met.
std::string ops_text(const std::vector<OpUse>& ops) {
  std::array<int64_t, kNumLayoutKinds> met{};
  for (const OpUse& use : ops)
    for (size_t kind = 0; kind < met.size(); ++kind) met[kind] += use.inputs[kind];
  std::vector<std::string> headings{"op", ">calls"};
  for (size_t kind = 0; kind < met.size(); ++kind)
    if (met[kind] > 0) headings.push_back(fmt::format(">{}", layout_text(static_cast<LayoutKind>(kind))));
  Table table(headings);
  for (const OpUse& use : ops) {
    std::vector<std::string> row{use.op, fmt::format("{}", use.calls)};
    for (size_t kind = 0; kind < met.size(); ++kind)
      if (met[kind] > 0) row.push_back(use.inputs[kind] > 0 ? fmt::format("{}", use.inputs[kind]) : "");
    table.add_row(std::move(row));
  }
  return table.text(2);
}

std::string conversions_text(const std::vector<Conversion>& conversions) {
  Table table({">times", "place", "op", "inside", "sizes", "from", "to"});
  for (const Conversion& one : conversions)
    table.add_row({fmt::format("{}", one.times), one.place, one.op, one.inside, one.sizes, one.from, one.to});
  return table.text(2);
}

std::string kernels_text(const std::vector<KernelUse>& kernels) {
  Table table({">times", ">us", "place", "launched by", "kernel", "counts"});
  for (const KernelUse& use : kernels)
    table.add_row({fmt::format("{}", use.times), fmt::format("{:.1f}", use.total_us), use.place, use.op,
                   use.kernel, use.is_behind_an_op ? "yes" : "no: that op is a copy"});
  return table.text(2);
}

}  // namespace

int64_t LayoutReport::num_conversions() const {
  int64_t sum = 0;
  for (const Conversion& one : conversions) sum += one.times;
  for (const KernelUse& use : kernels) sum += use.is_behind_an_op ? use.times : 0;
  return sum;
}

int64_t replayed_conversions(const LayoutReport& replayed, const LayoutReport& eager) {
  int64_t reformats = 0, copies = 0;
  for (const KernelUse& use : replayed.kernels)
    (use.kind == KernelKind::kReformat ? reformats : copies) += use.times;
  for (const KernelUse& use : eager.kernels) copies -= use.is_behind_an_op ? 0 : use.times;
  return reformats + std::max<int64_t>(copies, 0);
}

std::string LayoutReport::text() const {
  std::string out =
      fmt::format("layout: {} step(s) on {}, {} conversion(s)\n", steps, device, num_conversions());
  if (!conversions.empty()) out += "layout conversions\n" + conversions_text(conversions);
  if (!mixed_inputs.empty())
    out += "ops that read equal shapes in two layouts (no copy, but one of them is lost)\n" +
           conversions_text(mixed_inputs);
  if (!kernels.empty())
    out += fmt::format("device kernels that reformat or copy, of {}\n", num_kernels) + kernels_text(kernels);
  out += "ops, and the layouts of the tensors they took\n" + ops_text(ops);
  return out;
}

}  // namespace espalier::watch
