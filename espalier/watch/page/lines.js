// Curves over epochs, steps or rounds.

// series: [{name, style, x, y, lane?}], drawn in this order. A lane's curve is thin and has no name of its own.
function lineChart({ title, name, unit, series, xLabel, format = asNumber, within, height = 230, isKeyed = false }) {
  const shown = series.filter((each) => each.y.some(isNumber));
  if (shown.length === 0) return null;
  const ys = shown.map((each) => each.y);
  const isLog = !within && wantsLog(ys);
  const named = shown.filter((each) => each.lane === undefined);
  const lanes = shown.filter((each) => each.lane !== undefined);
  const key = isKeyed || shown.length > 1 ? named.map((each) => keyLine(each.name, each.style)) : [];
  if (lanes.length > 0) key.push(keyLine(lanes.length > 1 ? "each lane" : "lane", "lane"));
  const lastOf = (each) => each.y.findLast(isNumber);
  const summary = named.slice(0, 8).map((each) => `${each.name}: last ${format.value(lastOf(each))}`).join("; ");
  const xs = shown.flatMap((each) => [each.x[0], each.x[each.x.length - 1]]);
  const xRange = [Math.min(...xs), Math.max(...xs)];

  const draw = (width) => {
    const svg = svgOf(width, height);
    const yRange = isLog ? logRange(ys) : rangeOf(ys, within);
    const axes = drawAxes(svg, width, height, {
      x: { range: xRange, label: xLabel, format: asCount, isWhole: true },
      y: { range: yRange, format, isLog },
    });
    for (const each of shown) svg.append(...curve(each, axes));
    svg.style.setProperty("--lane-opacity", lanes.length <= 8 ? 0.75 : lanes.length <= 40 ? 0.5 : 0.28);
    follow(svg, axes, { named, lanes, xLabel, format });
    return svg;
  };
  const range = `${xLabel} ${count(xRange[0])} to ${count(xRange[1])}`;
  return figure({ title, name, unit: [unit, isLog ? "log scale" : null].filter(Boolean).join(", "), key, about: `${range}. ${summary}${lanes.length ? `; ${few(lanes.length, "lane", "lanes")}` : ""}.`, draw });
}

function logRange(lists) {
  const values = lists.flat().filter(isNumber);
  return [10 ** Math.floor(Math.log10(values.reduce((a, b) => Math.min(a, b)))), 10 ** Math.ceil(Math.log10(values.reduce((a, b) => Math.max(a, b))))];
}

// A path, broken where values are missing; a value alone is a dot.
function curve(each, { toX, toY }) {
  const style = each.lane === undefined ? each.style : `lane`;
  let path = "";
  const dots = [];
  each.y.forEach((value, i) => {
    if (!isNumber(value)) return;
    const [x, y] = [toX(each.x[i]).toFixed(1), toY(value).toFixed(1)];
    const isJoined = isNumber(each.y[i - 1]);
    path += `${isJoined ? "L" : "M"}${x} ${y}`;
    if (!isJoined && !isNumber(each.y[i + 1])) dots.push(shape("circle", { class: `dot ${each.lane === undefined ? style : "c0"}`, cx: x, cy: y, r: 3, "data-lane": each.lane }));
  });
  return [shape("path", { class: `line ${each.lane === undefined ? "series" : ""} ${style}`, d: path, "data-lane": each.lane }), ...dots];
}

function nearest(list, value) {
  let best = 0;
  for (let i = 1; i < list.length; ++i) if (Math.abs(list[i] - value) < Math.abs(list[best] - value)) best = i;
  return best;
}

// The pointer, or the arrow keys, walk along x and tell the values there.
function follow(svg, { box, toX, toY }, { named, lanes, xLabel, format }) {
  const cross = shape("line", { class: "cross", y1: box.top, y2: box.bottom, visibility: "hidden" });
  const area = shape("rect", { x: box.left, y: box.top, width: Math.max(0, box.right - box.left), height: box.bottom - box.top, fill: "none", "pointer-events": "all" });
  svg.append(cross, area);
  svg.setAttribute("tabindex", "0");
  const guide = (named[0] || lanes[0]).x;
  let at = guide.length - 1;

  const tell = (index, clientX, clientY, y) => {
    at = index;
    const place = guide[index];
    cross.setAttribute("x1", toX(place));
    cross.setAttribute("x2", toX(place));
    cross.setAttribute("visibility", "visible");
    const here = (each) => each.y[nearest(each.x, place)];
    const pairs = named.filter((each) => isNumber(here(each))).map((each) => [each.name, format.value(here(each))]);
    const close = y === null ? null : closestLane(lanes, here, toY, y);
    light(close === null ? null : close.lane);
    if (close) pairs.push([`lane ${close.lane}`, format.value(here(close))]);
    tip.show(clientX, clientY, `${xLabel} ${count(place)}`, pairs);
  };
  const end = () => {
    cross.setAttribute("visibility", "hidden");
    light(null);
    tip.hide();
  };
  svg.addEventListener("pointermove", (event) => {
    const frame = svg.getBoundingClientRect();
    tell(nearest(guide, toX.inverse(event.clientX - frame.left)), event.clientX, event.clientY, event.clientY - frame.top);
  });
  svg.addEventListener("pointerleave", end);
  svg.addEventListener("blur", end);
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const index = Math.max(0, Math.min(guide.length - 1, at + step));
    const frame = svg.getBoundingClientRect();
    tell(index, frame.left + toX(guide[index]), frame.top + box.top, null);
  });
}

function closestLane(lanes, here, toY, y) {
  let best = null;
  let distance = 40;
  for (const each of lanes) {
    if (!isNumber(here(each))) continue;
    const off = Math.abs(toY(here(each)) - y);
    if (off < distance) [best, distance] = [each, off];
  }
  return best;
}
