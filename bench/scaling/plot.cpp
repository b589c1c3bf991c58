#include "bench/scaling/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/results.h"

namespace espalier::bench {
namespace {

constexpr double kPanelWidth = 420, kPanelHeight = 280;
constexpr double kLeft = 64, kRight = 16, kTop = 40, kBottom = 40;  // around what is drawn
constexpr double kLineHeight = 16;

// Colours by the page's own scheme; on a page without one, dark on white. Blue and orange can be told apart
// by all eyes, and points from the line by their form.
constexpr const char* kStyle =
    "<style>\n"
    "svg{background:#fff;font:12px "
    "system-ui,sans-serif}text{fill:#222}.axis{stroke:#999}.grid{stroke:#e4e4e4}\n"
    ".point{fill:#1f6fb4}.fit{stroke:#d9730d;fill:none;stroke-width:2}.knee{stroke:#999;stroke-dasharray:4 "
    "4}\n"
    "@media "
    "(prefers-color-scheme:dark){svg{background:#16181d}text{fill:#ddd}.axis{stroke:#777}.grid{stroke:#"
    "2c2f36}\n"
    ".point{fill:#6cb2eb}.fit{stroke:#f2a154}.knee{stroke:#777}}\n"
    "</style>\n";

std::string escaped(const std::string& text) {
  std::string out;
  for (const char letter : text) {
    switch (letter) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      default:
        out += letter;
    }
  }
  return out;
}

// From a logarithm to a place on the picture.
struct Scale {
  double low, high;   // log2
  double begin, end;  // pixels
  double operator()(double value) const {
    return begin + (std::log2(value) - low) / std::max(high - low, 1e-9) * (end - begin);
  }
};

std::string panel(const ScalingCurve& curve, double left, double top) {
  const double right = left + kPanelWidth - kRight, bottom = top + kPanelHeight - kBottom;
  left += kLeft;
  top += kTop;
  double fastest = curve.points.front().time_us, slowest = fastest;
  for (const Point& point : curve.points) {
    fastest = std::min({fastest, point.time_us, curve.fit.at(point.size)});
    slowest = std::max({slowest, point.time_us, curve.fit.at(point.size)});
  }
  const Scale x{std::log2(curve.points.front().size), std::log2(curve.points.back().size), left, right};
  const Scale y{std::floor(std::log2(fastest)), std::ceil(std::log2(slowest) + 1e-9), bottom, top};
  std::string out =
      fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\" font-weight=\"bold\">a step, by {}</text>\n", left,
                  top - 22, escaped(curve.axis)) +
      fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\">{}</text>\n", left, top - 7, escaped(curve.shapes));
  const int lines = static_cast<int>(y.high - y.low), every = std::max(1, (lines + 5) / 6);
  for (int i = 0; i <= lines; i += every) {
    const double time = std::exp2(y.low + i);
    out += fmt::format(
        "<line class=\"grid\" x1=\"{0:.1f}\" x2=\"{1:.1f}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/>"
        "<text x=\"{3:.1f}\" y=\"{4:.1f}\" text-anchor=\"end\">{5}</text>\n",
        left, right, y(time), left - 6, y(time) + 4, time_text(time));
  }
  for (const Point& point : curve.points)
    out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{:g}</text>\n", x(point.size),
                       bottom + 18, point.size);
  out += fmt::format("<path class=\"axis\" fill=\"none\" d=\"M{0:.1f} {1:.1f}V{2:.1f}H{3:.1f}\"/>\n", left,
                     top, bottom, right);
  if (curve.fit.floor_us > 0)
    out += fmt::format("<line class=\"knee\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\"/>\n",
                       x(curve.fit.knee), top, bottom);
  constexpr int kSteps = 64;
  std::string path;
  for (int i = 0; i <= kSteps; ++i) {
    const double size = std::exp2(x.low + (x.high - x.low) * i / kSteps);
    path += fmt::format("{}{:.1f} {:.1f}", i == 0 ? "M" : "L", x(size),
                        y(std::max(curve.fit.at(size), std::exp2(y.low))));
  }
  out += fmt::format("<path class=\"fit\" d=\"{}\"/>\n", path);
  for (const Point& point : curve.points)
    out += fmt::format("<circle class=\"point\" r=\"4\" cx=\"{:.1f}\" cy=\"{:.1f}\"/>\n", x(point.size),
                       y(point.time_us));
  return out;
}

}  // namespace

std::string scaling_svg(const std::vector<ScalingCurve>& curves, const std::vector<std::string>& caption) {
  const auto columns = static_cast<double>(std::min<size_t>(2, std::max<size_t>(1, curves.size())));
  const double rows = std::ceil(static_cast<double>(curves.size()) / columns);
  const double width = columns * kPanelWidth,
               height = rows * kPanelHeight + kLineHeight * static_cast<double>(caption.size() + 1);
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" "
      "role=\"img\">\n<title>How long a training step takes, by its size</title>\n{2}",
      width, height, kStyle);
  for (size_t i = 0; i < curves.size(); ++i)
    out += panel(curves[i], std::fmod(static_cast<double>(i), columns) * kPanelWidth,
                 std::floor(static_cast<double>(i) / columns) * kPanelHeight);
  for (size_t i = 0; i < caption.size(); ++i)
    out += fmt::format("<text x=\"12\" y=\"{:.0f}\">{}</text>\n",
                       rows * kPanelHeight + kLineHeight * static_cast<double>(i + 1), escaped(caption[i]));
  return out + "</svg>\n";
}

}  // namespace espalier::bench
