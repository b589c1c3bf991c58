// What all charts share: scales, axes, a frame that follows the width, the box that tells values, and the lane that is
// lit everywhere at once.

// The round number that steps through a span in at most so many steps.
function niceStep(span, most, isWhole) {
  const rough = span / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => Number((factor * power).toPrecision(12))).find((each) => each >= rough * 0.999);
  return isWhole ? Math.max(1, step === 2.5 ? 5 : Math.round(step)) : step;
}

function niceTicks(low, high, most, isWhole) {
  if (!(high > low)) return [low];
  const step = niceStep(high - low, most, isWhole);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9 && ticks.length < 100; ++i) ticks.push(Number((i * step).toPrecision(12)));
  return ticks;
}

function linearScale(low, high, from, to) {
  const factor = high > low ? (to - from) / (high - low) : 0;
  const scale = (value) => (factor === 0 ? (from + to) / 2 : from + (value - low) * factor);
  scale.ticks = (most, isWhole) => niceTicks(low, high, most, isWhole);
  scale.inverse = (place) => (factor === 0 ? low : low + (place - from) / factor);
  return scale;
}

function logScale(low, high, from, to) {
  const inner = linearScale(Math.log10(low), Math.log10(high), from, to);
  const scale = (value) => inner(Math.log10(value));
  scale.ticks = () => {
    const ticks = [];
    for (let power = Math.ceil(Math.log10(low) - 1e-9); power <= Math.log10(high) + 1e-9; ++power) ticks.push(10 ** power);
    return ticks.length > 1 ? ticks : [low, high];
  };
  scale.inverse = (place) => 10 ** inner.inverse(place);
  return scale;
}

// The range of all values, with air around it; `within` is what no value can leave (a share: 0 to 1), and nothing
// positive is shown to go below 0.
function rangeOf(lists, within = [-Infinity, Infinity]) {
  let [low, high] = [Infinity, -Infinity];
  for (const list of lists) {
    for (const value of list) {
      if (!isNumber(value)) continue;
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
  }
  if (low > high) return null;
  const air = high > low ? 0.06 * (high - low) : Math.abs(high) * 0.1 || 1;
  return [Math.max(within[0], low >= 0 ? Math.max(0, low - air) : low - air), Math.min(within[1], high + air)];
}

// All positive, and over more than two powers of ten: a straight scale would hide most of it.
function wantsLog(lists) {
  let [low, high] = [Infinity, 0];
  for (const list of lists) {
    for (const value of list) {
      if (!isNumber(value)) continue;
      if (value <= 0) return false;
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
  }
  return high > 200 * low;
}

function tickTexts(ticks, format) {
  const step = ticks.length > 1 ? ticks[1] - ticks[0] : Math.abs(ticks[0]) || 1;
  const largest = Math.max(...ticks.map(Math.abs));
  // On a log scale every tick has digits of its own.
  const isEven = ticks.length < 3 || Math.abs(ticks[2] - ticks[1] - step) < step * 1e-6;
  return ticks.map((tick) => format.tick(tick, isEven ? Number(step.toPrecision(6)) : tick, isEven ? largest : tick));
}

// Out to whole steps, so that the first and the last line have their numbers.
function roundedOut([low, high], most) {
  const step = niceStep(high - low, most);
  const [first, last] = [Math.floor(low / step + 1e-6), Math.ceil(high / step - 1e-6)];
  const ticks = Array.from({ length: last - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(12)));
  return { range: [ticks[0], ticks[ticks.length - 1]], ticks };
}

// The axes of a chart, drawn into `svg`; returns its scales and its inner box.
function drawAxes(svg, width, height, { x, y }) {
  const most = Math.max(2, Math.floor((height - 48) / 38));
  const { range, ticks } = y.isLog ? { range: y.range, ticks: logScale(...y.range, 0, 1).ticks() } : roundedOut(y.range, most);
  const texts = tickTexts(ticks, y.format);
  const widest = Math.max(...texts.map((text) => text.length), 3);
  const box = { left: Math.round(widest * 6.6) + 10, right: width - 10, top: 8, bottom: height - 40 };
  const toX = (x.isLog ? logScale : linearScale)(x.range[0], x.range[1], box.left, box.right);
  const toY = (y.isLog ? logScale : linearScale)(...range, box.bottom, box.top);
  ticks.forEach((tick, i) => {
    const at = Math.round(toY(tick)) + 0.5;
    svg.append(
      shape("line", { class: "grid-line", x1: box.left, x2: box.right, y1: at, y2: at }),
      shape("text", { x: box.left - 8, y: at + 4, "text-anchor": "end" }, texts[i]),
    );
  });
  drawBottomAxis(svg, box, toX, x);
  return { box, toX, toY };
}

function drawBottomAxis(svg, box, toX, x) {
  svg.append(shape("line", { class: "axis-line", x1: box.left, x2: box.right, y1: box.bottom + 0.5, y2: box.bottom + 0.5 }));
  const labelWidth = 7 * Math.max(3, ...tickTexts(toX.ticks(4, x.isWhole), x.format).map((text) => text.length)) + 26;
  const ticks = toX.ticks(Math.max(1, Math.floor((box.right - box.left) / labelWidth)), x.isWhole);
  const texts = tickTexts(ticks, x.format);
  ticks.forEach((tick, i) => {
    const at = toX(tick);
    svg.append(
      shape("line", { class: "axis-line", x1: at, x2: at, y1: box.bottom, y2: box.bottom + 4 }),
      shape("text", { x: at, y: box.bottom + 17, "text-anchor": "middle" }, texts[i]),
    );
  });
  svg.append(shape("text", { x: box.right, y: box.bottom + 33, "text-anchor": "end" }, x.label));
}

// A figure: a heading, a key, and a drawing that is made anew when its width or the reader's view changes. `draw(width)`
// returns an svg or several parts; `key()` the entries of the key; `rows()` the numbers as a table, its head first;
// `about` is the same in words, for those who cannot see it.
function figure({ title, unit, key = () => [], about, draw, name, after, rows }) {
  const plot = el("div", { class: "plot" });
  const keys = el("span", { class: "key" });
  const made = el("figure", { "data-chart": name });
  made.append(el("figcaption", null, el("span", { class: "name" }, title), unit ? el("span", { class: "unit" }, unit) : null, keys, saveButtons(name, made, rows)), plot, ...(after ? [after] : []));
  let drawn = 0;
  const redraw = (isForced) => {
    const width = Math.floor(plot.clientWidth);
    if (width < 40 || (width === drawn && !isForced)) return;
    drawn = width;
    keys.replaceChildren(...key());
    const parts = [draw(width)].flat();
    const svg = parts.find((part) => part instanceof SVGElement) || parts[0].querySelector("svg");
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", `${title}. ${about}`);
    plot.replaceChildren(...parts);
  };
  made.redraw = redraw;
  watchWidth(plot, () => redraw(false));
  return made;
}

const widthWatcher = new ResizeObserver((entries) => entries.forEach((entry) => entry.target.onWidth && entry.target.onWidth()));
function watchWidth(node, redraw) {
  node.onWidth = redraw;
  widthWatcher.observe(node);
}

const svgOf = (width, height) => shape("svg", { viewBox: `0 0 ${width} ${height}`, width, height });

const keyLine = (name, style) => el("span", null, el("i", { class: style, "aria-hidden": "true" }), name);

// The box beside the pointer: a heading, and pairs of names and values.
const tip = {
  node: document.getElementById("tip"),
  show(x, y, heading, pairs) {
    const rows = pairs.map(([name, value]) => el("div", { class: "pair" }, el("span", null, name), el("em", null, value)));
    this.node.replaceChildren(el("b", null, heading), ...rows);
    this.node.hidden = false;
    const { width, height } = this.node.getBoundingClientRect();
    const left = x + 16 + width > window.innerWidth ? x - 16 - width : x + 16;
    const top = y + 16 + height > window.innerHeight ? y - 16 - height : y + 16;
    this.node.style.left = `${Math.max(8, Math.min(left, window.innerWidth - width - 8))}px`;
    this.node.style.top = `${Math.max(8, top)}px`;
  },
  hide() {
    this.node.hidden = true;
  },
};

// One lane, marked in every chart that shows it.
let litLane = null;
function light(lane) {
  if (lane === litLane) return;
  litLane = lane;
  document.querySelectorAll("[data-lane].lit").forEach((node) => node.classList.remove("lit"));
  if (lane !== null) document.querySelectorAll(`[data-lane="${lane}"]`).forEach((node) => node.classList.add("lit"));
}
