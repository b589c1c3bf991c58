// Curves over epochs, steps or rounds.

// series: [{name, style, x, y, lane?}], drawn in this order. A lane's curve is thin and its name is told beside the pointer,
// unless it is pinned.
function lineChart({ title, name, unit, series, xLabel, format = asNumber, within, height = 230, isKeyed = false, hasZero = false, isLinear = false, legend }) {
  const all = series.filter((each) => each.y.some(isNumber));
  if (all.length === 0) return null;
  const isLog = !within && !isLinear && wantsLog(all.map((each) => each.y));
  const named = all.filter((each) => each.lane === undefined);
  const lanes = all.filter((each) => each.lane !== undefined);
  const key = () => {
    if (legend) return legend();
    const entries = isKeyed || all.length > 1 ? named.map((each) => keyLine(each.name, each.style)) : [];
    const pinned = new Set(lanes.map((each) => each.lane).filter((lane) => view.pinned.includes(lane)));
    for (const lane of pinned) entries.push(keyLine(`lane ${lane}`, pinStyle(lane)));
    if (lanes.length > pinned.size) entries.push(keyLine(lanes.length > 1 ? "each lane" : "lane", "lane"));
    return entries;
  };
  const lastOf = (each) => each.y.findLast(isNumber);
  const summary = named.slice(0, 8).map((each) => `${each.name}: last ${format.value(lastOf(each))}`).join("; ");
  const xs = all.flatMap((each) => [each.x[0], each.x[each.x.length - 1]]);
  const wholeRange = [Math.min(...xs), Math.max(...xs)];

  const draw = (width) => {
    const svg = svgOf(width, height);
    const xRange = view.zoom.get(xLabel) || wholeRange;
    const cut = (each) => stretchOf({ ...each, y: smoothed(each.y) }, xRange);
    const faint = view.smooth > 0 ? named.map((each) => ({ ...stretchOf(each, xRange), isFaint: true })) : [];
    const [namedHere, lanesHere] = [named.map(cut), lanes.map(cut).sort((a, b) => view.pinned.indexOf(a.lane) - view.pinned.indexOf(b.lane))];
    const shown = [...lanesHere, ...faint, ...namedHere];
    const ys = shown.map((each) => each.y).filter((list) => list.some(isNumber));
    if (hasZero) ys.push([0]);
    const yRange = ys.length === 0 ? [0, 1] : isLog ? logRange(ys) : rangeOf(ys, within);
    const axes = drawAxes(svg, width, height, {
      x: { range: xRange, label: xLabel, format: asCount, isWhole: true },
      y: { range: yRange, format, isLog },
    });
    if (hasZero) svg.append(shape("line", { class: "zero", x1: axes.box.left, x2: axes.box.right, y1: axes.toY(0), y2: axes.toY(0) }));
    for (const each of shown) svg.append(...curve(each, axes));
    svg.style.setProperty("--lane-opacity", lanes.length <= 8 ? 0.75 : lanes.length <= 40 ? 0.5 : 0.28);
    const followed = [...namedHere, ...lanesHere].filter((each) => each.x.length > 0);
    if (followed.length > 0) follow(svg, axes, { named: followed.filter((each) => each.lane === undefined), lanes: followed.filter((each) => each.lane !== undefined), xLabel, format });
    return svg;
  };
  const rows = () => {
    const places = placesOf(all);
    const columns = all.map((each) => new Map(each.x.map((x, i) => [x, each.y[i]])));
    return [[xLabel, ...all.map((each) => each.name || `lane ${each.lane}`)], ...places.map((x) => [x, ...columns.map((values) => values.get(x))])];
  };
  const range = `${xLabel} ${count(wholeRange[0])} to ${count(wholeRange[1])}`;
  return figure({ title, name, unit: [unit, isLog ? "log scale" : null].filter(Boolean).join(", "), key, about: `${range}. ${summary}${lanes.length ? `; ${few(new Set(lanes.map((each) => each.lane)).size, "lane", "lanes")}` : ""}.`, draw, rows });
}

// All places that any of the curves has a value at, in order. Lanes share one list.
const placesOf = (series) => [...new Set([...new Set(series.map((each) => each.x))].flat())].sort((a, b) => a - b);

// The part of a curve inside a stretch of its axis.
function stretchOf(each, [from, to]) {
  const inside = each.x.map((x, i) => [x, i]).filter(([x]) => x >= from && x <= to).map(([, i]) => i);
  return inside.length === each.x.length ? each : { ...each, x: inside.map((i) => each.x[i]), y: inside.map((i) => each.y[i]) };
}

function logRange(lists) {
  const values = lists.flat().filter(isNumber);
  return [10 ** Math.floor(Math.log10(values.reduce((a, b) => Math.min(a, b)))), 10 ** Math.ceil(Math.log10(values.reduce((a, b) => Math.max(a, b))))];
}

// A path, broken where values are missing; a value alone is a dot.
function curve(each, { toX, toY }) {
  const style = each.lane === undefined ? `${each.style} ${each.isFaint ? "faint" : ""}` : `lane ${pinStyle(each.lane) || each.style || ""}`;
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
  const guide = placesOf([...named, ...lanes]);
  let at = guide.length - 1;

  const tell = (index, clientX, clientY, y) => {
    at = index;
    const place = guide[index];
    cross.setAttribute("x1", toX(place));
    cross.setAttribute("x2", toX(place));
    cross.setAttribute("visibility", "visible");
    const here = (each) => (place < each.x[0] || place > each.x[each.x.length - 1] ? undefined : each.y[nearest(each.x, place)]);
    const pairs = named.filter((each) => isNumber(here(each))).map((each) => [each.name, format.value(here(each))]);
    const close = y === null ? null : closestLane(lanes, here, toY, y);
    light(close === null ? null : close.lane);
    const nameOf = (each) => each.name || `lane ${each.lane}`;
    for (const each of lanes)
      if (each !== close && view.pinned.includes(each.lane) && isNumber(here(each))) pairs.push([nameOf(each), format.value(here(each))]);
    if (close) pairs.push([nameOf(close), format.value(here(close))]);
    tip.show(clientX, clientY, `${xLabel} ${count(place)}`, pairs);
  };
  const end = () => {
    cross.setAttribute("visibility", "hidden");
    light(null);
    tip.hide();
  };
  zoomable(svg, { box, toX }, guide, xLabel);
  svg.addEventListener("pointermove", (event) => {
    const frame = svg.getBoundingClientRect();
    tell(nearest(guide, toX.inverse(event.clientX - frame.left)), event.clientX, event.clientY, event.clientY - frame.top);
  });
  svg.addEventListener("pointerleave", end);
  svg.addEventListener("blur", end);
  svg.addEventListener("keydown", (event) => {
    if (event.key === "+" || event.key === "-") return zoomAround(guide[at], event.key === "+" ? 0.5 : 2, guide, toX, box, xLabel);
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

// A drag across a chart shows that stretch in all charts over the same axis; a click pins the lane that is lit.
function zoomable(svg, { box, toX }, places, axis) {
  const band = shape("rect", { class: "band", y: box.top, height: box.bottom - box.top, visibility: "hidden" });
  svg.append(band);
  let start = null;
  const at = (event) => Math.max(box.left, Math.min(box.right, event.clientX - svg.getBoundingClientRect().left));
  svg.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    start = at(event);
    svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener("pointermove", (event) => {
    if (start === null || Math.abs(at(event) - start) < 6) return;
    band.setAttribute("x", Math.min(start, at(event)));
    band.setAttribute("width", Math.abs(at(event) - start));
    band.setAttribute("visibility", "visible");
  });
  svg.addEventListener("pointerup", (event) => {
    if (start === null) return;
    const [from, to] = [Math.min(start, at(event)), Math.max(start, at(event))].map(toX.inverse);
    const isClick = Math.abs(at(event) - start) < 6;
    start = null;
    band.setAttribute("visibility", "hidden");
    if (isClick) return litLane === null ? undefined : togglePin(litLane);
    const inside = places.filter((x) => x >= from && x <= to);
    if (inside.length > 1) zoomTo(axis, [inside[0], inside[inside.length - 1]]);
  });
  svg.addEventListener("pointercancel", () => {
    start = null;
    band.setAttribute("visibility", "hidden");
  });
  svg.addEventListener("dblclick", () => zoomTo(axis, null));
}

// By the keyboard: half or twice the stretch that is shown, around a place.
function zoomAround(place, factor, places, toX, box, axis) {
  const [from, to] = [toX.inverse(box.left), toX.inverse(box.right)];
  const half = ((to - from) * factor) / 2;
  const inside = places.filter((x) => x >= place - half && x <= place + half);
  if (factor > 1) zoomTo(axis, null);
  else if (inside.length > 1) zoomTo(axis, [inside[0], inside[inside.length - 1]]);
}
