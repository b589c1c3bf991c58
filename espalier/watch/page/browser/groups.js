// Charts of groups side by side: dots with their mean and its interval, shares of choices, counts.

// rows: [{name, style, dots: [{value, lane?, heading, pairs}], mean, half}]; half: of the 95 % interval, or null. One row
// below the other, values to the right.
function intervalChart({ title, name, unit, rows, format, xLabel, within, hasZero = false }) {
  const shown = rows.filter((row) => row.dots.length > 0 || isNumber(row.mean));
  if (shown.length === 0) return null;
  const values = shown.flatMap((row) => [...row.dots.map((dot) => dot.value), ...(isNumber(row.mean) ? [row.mean - (row.half || 0), row.mean + (row.half || 0)] : [])]);
  if (hasZero) values.push(0);
  const about = shown.map((row) => `${row.name}: ${format.value(row.mean)}${isNumber(row.half) ? `, 95 % interval ${format.value(row.mean - row.half)} to ${format.value(row.mean + row.half)}` : ""}`).join("; ");
  const rowHeight = 54;
  const draw = (width) => {
    const height = rowHeight * shown.length + 44;
    const svg = svgOf(width, height);
    const left = Math.min(Math.round(width * 0.34), 14 + Math.round(6.9 * Math.max(...shown.map((row) => row.name.length))));
    const box = { left, right: width - 12, top: 4, bottom: height - 40 };
    const range = rangeOf([values], within) || [0, 1];
    const toX = linearScale(...range, box.left, box.right);
    for (const tick of toX.ticks(Math.max(2, Math.floor((box.right - box.left) / 90)))) svg.append(shape("line", { class: "grid-line", x1: toX(tick), x2: toX(tick), y1: box.top, y2: box.bottom }));
    if (hasZero) svg.append(shape("line", { class: "zero", x1: toX(0), x2: toX(0), y1: box.top, y2: box.bottom }));
    drawBottomAxis(svg, box, toX, { label: xLabel, format });
    shown.forEach((row, i) => {
      const middle = box.top + rowHeight * (i + 0.5);
      svg.append(shape("text", { class: "group-name", x: box.left - 10, y: middle + 4, "text-anchor": "end" }, shortened(row.name, Math.max(3, Math.floor((left - 12) / 6.6)))));
      row.dots.forEach((dot, j) => svg.append(groupDot(dot, row.style, toX(dot.value), middle + 7 + 5 * ((j * 0.618) % 1) * 2)));
      if (!isNumber(row.mean)) return;
      const y = middle - 10;
      if (isNumber(row.half)) {
        const [x1, x2] = [toX(row.mean - row.half), toX(row.mean + row.half)];
        svg.append(shape("path", { class: `interval ${row.style}`, d: `M${x1} ${y - 5}V${y + 5}M${x1} ${y}H${x2}M${x2} ${y - 5}V${y + 5}` }));
      }
      const mark = shape("circle", { class: `dot mean ${row.style}`, cx: toX(row.mean), cy: y, r: 6 });
      telling(mark, row.name, [["mean", format.value(row.mean)], ...(isNumber(row.half) ? [["95\u202f% interval", `${format.value(row.mean - row.half)} to ${format.value(row.mean + row.half)}`]] : []), ["networks", count(row.dots.length)]]);
      svg.append(mark);
    });
    return svg;
  };
  const csv = () => [["group", "lane", "value"], ...shown.flatMap((row) => row.dots.map((dot) => [row.name, dot.lane, dot.value])),
    ...shown.flatMap((row) => [[`${row.name}: mean`, "", row.mean], [`${row.name}: half of the 95 % interval`, "", row.half]])];
  const key = () => [keyLine("mean and 95\u202f% interval", "c0"), keyLine("a network", "dot c0 filled")];
  return figure({ title, name, unit, key, about, draw, rows: csv });
}

function groupDot(dot, style, x, y) {
  const node = shape("circle", { class: `dot ${style}`, cx: x.toFixed(1), cy: y.toFixed(1), r: 4, "data-lane": dot.lane });
  telling(node, dot.heading, dot.pairs, dot.lane);
  if (dot.lane !== undefined) node.addEventListener("click", () => togglePin(dot.lane));
  return node;
}

function telling(node, heading, pairs, lane) {
  node.addEventListener("pointermove", (event) => {
    light(lane === undefined ? null : lane);
    tip.show(event.clientX, event.clientY, heading, pairs);
  });
  node.addEventListener("pointerleave", () => {
    light(null);
    tip.hide();
  });
}

// In the order of espalier/core/seed_stage.h.
const kOperations = ["wait", "germinate", "set the amplitude", "prune", "fossilize", "advance"];
const kOperationOrder = [4, 2, 5, 1, 3, 0];  // what keeps a seed at the bottom, waiting on top

// choices: {from, to, counts}: one bar per step or round, in shares of all decisions.
function choicesChart({ title, name, choices, xLabel }) {
  if (!choices) return null;
  const used = kOperationOrder.filter((op) => choices.counts.some((counts) => counts[op] > 0));
  const totals = kOperations.map((_, op) => choices.counts.reduce((sum, counts) => sum + counts[op], 0));
  const all = totals.reduce((sum, value) => sum + value, 0);
  const about = `${few(all, "decision", "decisions")}: ${used.map((op) => `${kOperations[op]} ${percent(totals[op] / all)}`).join(", ")}.`;
  const draw = (width) => {
    const height = 220;
    const svg = svgOf(width, height);
    const zoom = view.zoom.get(xLabel) || [-Infinity, Infinity];
    const places = choices.from.map((_, i) => i).filter((i) => choices.to[i] >= zoom[0] && choices.from[i] <= zoom[1]);
    if (places.length === 0) return svg;
    const [first, last] = [choices.from[places[0]] - 0.5, choices.to[places[places.length - 1]] + 0.5];
    const { box, toX, toY } = drawAxes(svg, width, height, { x: { range: [first, last], label: xLabel, format: asCount, isWhole: true }, y: { range: [0, 1], format: asShare } });
    for (const i of places) {
      const sum = choices.counts[i].reduce((a, b) => a + b, 0);
      const [x0, x1] = [toX(choices.from[i] - 0.5), toX(choices.to[i] + 0.5)];
      const gap = x1 - x0 > 8 ? 1.5 : 0;
      let below = 0;
      for (const op of used) {
        const share = choices.counts[i][op] / sum;
        if (share === 0) continue;
        svg.append(shape("rect", { class: `op${op}`, "data-op": op, x: (x0 + gap / 2).toFixed(1), width: Math.max(0.5, x1 - x0 - gap).toFixed(1), y: toY(below + share).toFixed(1), height: (toY(below) - toY(below + share)).toFixed(1) }));
        below += share;
      }
      const [from, to] = [choices.from[i], choices.to[i]];
      const area = shape("rect", { x: x0, width: Math.max(0.5, x1 - x0), y: box.top, height: box.bottom - box.top, fill: "none", "pointer-events": "all" });
      telling(area, `${xLabel} ${from === to ? count(from) : `${count(from)}–${count(to)}`}`, used.filter((op) => choices.counts[i][op] > 0).map((op) => [kOperations[op], `${percent(choices.counts[i][op] / sum)} (${count(choices.counts[i][op])})`]));
      svg.append(area);
    }
    return svg;
  };
  const rows = () => [[`first ${xLabel}`, `last ${xLabel}`, ...kOperations], ...choices.from.map((from, i) => [from, choices.to[i], ...choices.counts[i]])];
  return figure({ title, name, unit: "share of the decisions", key: () => used.map((op) => keyLine(kOperations[op], `box op${op}`)), about, draw, rows });
}

// items: [[name, count]], the most frequent first.
function countChart({ title, name, unit, items }) {
  const shown = items.filter(([, number]) => number > 0).sort((a, b) => b[1] - a[1]);
  if (shown.length === 0) return null;
  const most = shown[0][1];
  const draw = (width) => {
    const svg = svgOf(width, 26 * shown.length + 4);
    const left = Math.min(Math.round(width * 0.4), 14 + Math.round(6.8 * Math.max(...shown.map(([text]) => text.length))));
    shown.forEach(([text, number], i) => {
      const y = 26 * i + 4;
      const long = ((width - left - 60) * number) / most;
      svg.append(shape("text", { x: left - 8, y: y + 13, "text-anchor": "end" }, shortened(text, Math.floor((left - 8) / 6.4))),
        shape("rect", { class: "bar", x: left, y, width: Math.max(1, long), height: 18, rx: 2 }), shape("text", { x: left + long + 8, y: y + 13 }, count(number)));
    });
    return svg;
  };
  return figure({ title, name, unit, about: shown.map(([text, number]) => `${text} ${count(number)}`).join(", "), draw, rows: () => [["name", "count"], ...shown] });
}
