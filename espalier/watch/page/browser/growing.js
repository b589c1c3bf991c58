// The sections that say what growing came to: whether it paid, which controller did better, what was chosen and grown.

function growth(run) {
  const detail = run.details[run.details.length - 1];
  if (!detail || detail.round !== 0) return null;
  if (detail.growth.length === 0) return null;
  return section("growth", "Growth", "Which seed lived where and when. Slots that never held one are left out.", growthChart(detail, run.blueprints, "epoch"), contributionChart(detail, "epoch"));
}

// What each seed was measured to bring, as long as it was measured.
function contributionChart(detail, xLabel) {
  const kinds = [...new Set(detail.contributions.map((seed) => seed.blueprint))].sort();
  return lineChart({ title: "What each seed contributes", name: "contributions", unit: "points of validation accuracy: with the seed minus without it", xLabel, format: asPoints, hasZero: true, isLinear: true,
    legend: () => kinds.map((name, i) => keyLine(name, `c${i % 8}`)),
    series: detail.contributions.map((seed) => ({ ...seed, style: `seed c${kinds.indexOf(seed.blueprint) % 8}`, name: `lane ${seed.lane}, ${seed.blueprint} in ${seed.slot}` })) });
}

// ---- did growing pay?

function payoff(run) {
  const told = run.payoff;
  if (!told) return null;
  const kinds = { grown: ["kept seeds", "c2"], bare: ["kept none", "c1"], on_trial: ["still on trial", "c6"] };
  const dot = (lane) => ({ value: lane.accuracy, lane: lane.lane, heading: `Lane ${lane.lane}`, pairs: [[told.measure, percent(lane.accuracy, 2)], ["parameters", count(lane.parameters)], ["seeds kept", count(lane.kept)]] });
  const row = (kind) => ({ name: kinds[kind][0], style: kinds[kind][1], dots: told.lanes.filter((lane) => lane.group === kind).map(dot), mean: told[kind] ? told[kind].mean : null, half: told[kind] ? told[kind].half_width : null });
  const chart = intervalChart({ title: `${capital(told.measure)} of each lane`, name: "payoff", format: asShare, xLabel: told.measure,
    within: [0, 1], rows: Object.keys(kinds).map(row) });
  const seedText = ([slot, blueprint, stage, points]) => `${blueprint} in ${slot}${kStages[stage] === "fossilized" ? "" : ` (${kStages[stage]})`}${isNumber(points) ? ` ${signed(points)}` : ""}`;
  const rows = told.lanes.map((lane) => [lane, [el("button", { type: "button", class: `pin ${kinds[lane.group][1]}`, "data-pin": lane.lane, "aria-pressed": "false", title: "pin this lane in all charts" }, `lane ${lane.lane}`), percent(lane.accuracy, 2), count(lane.parameters), count(lane.kept), lane.seeds.map(seedText).join(", ") || "–"]]);
  const shown = told.lanes.length < told.all_lanes ? ` The best ${count(told.lanes.length)} of ${count(told.all_lanes)} are listed.` : "";
  const list = laneTable(["lane", told.measure, "parameters", "seeds kept", "seeds at the end, and what each last contributed in points"], rows);
  const about = `One network per lane${told.round > 0 ? `, at the end of round ${count(told.round)}` : ""}. Lanes chose for themselves what to keep, so the two groups may differ in more than that; espalier evaluate compares controllers on the same episodes.${shown}`;
  return section("payoff", "Did growing pay?", about, grid("split even", chart, list));
}

function laneTable(head, rows) {
  const made = el("table", { class: "lanes" },
    el("thead", null, el("tr", null, head.map((name, i) => el("th", { scope: "col", class: i > 0 && i < 4 ? "number" : null }, name)))),
    el("tbody", null, rows.map(([lane, cells]) => el("tr", { "data-lane": lane.lane }, cells.map((cell, i) => el(i === 0 ? "th" : "td", { scope: i === 0 ? "row" : null, class: i > 0 && i < 4 ? "number" : null }, cell))))));
  made.addEventListener("click", (event) => {
    const row = event.target.closest("tr[data-lane]");
    if (row) togglePin(Number(row.dataset.lane));
  });
  return el("div", { class: "wide tall", tabindex: "0" }, made);
}

// ---- networks that collapsed

function collapses(run) {
  const found = run.collapses;
  if (!found) return null;
  const reasons = { loss_jumped: "the loss jumped", guessing: "accuracy fell back to guessing", not_finite: "numbers were not finite" };
  const rows = found.listed.map((each) => [`lane ${each.lane}`, each.round > 0 ? `round ${count(each.round)}, step ${count(each.step)}` : count(each.step), reasons[each.why] || each.why, each.barred.join(", ") || "–"]);
  const shown = found.listed.length < found.total ? ` The first ${count(found.listed.length)} are listed.` : "";
  return section("collapses", "Collapses", `${few(found.total, "collapse", "collapses")} in ${few(found.num_lanes, "lane", "lanes")}. A network that collapsed went back to its last good state (in a policy's learning rounds its episode was over); slots named here may not be tried again in that episode.${shown}`,
    el("div", { class: "wide tall", tabindex: "0" }, table(null, ["lane", "when", "why", "not tried again in"], rows)));
}

// ---- what an evaluation found

function evaluation(run) {
  const found = run.evaluation;
  if (!found) return null;
  const first = found.controllers[0];
  const heading = (name, [episode, lane]) => `${name}, episode ${count(episode)}, lane ${lane}`;
  const group = (place, key, format) => (one, i) => ({ name: one.name, style: `c${i % 8}`, mean: one.numbers[key], half: one.numbers[`${key}_95`],
    dots: one.networks.filter((each) => isNumber(each[place])).map((each) => ({ value: each[place], heading: heading(one.name, each), pairs: [["test accuracy", percent(each[2], 2)], ["return", plain(each[3])], ["parameters", count(each[4])], ["seeds kept", count(each[5])]] })) });
  const base = new Map(first.networks.map((each) => [`${each[0]} ${each[1]}`, each[2]]));
  const paired = (one, i) => ({ name: `${one.name} − ${first.name}`, style: `c${(i + 1) % 8}`, mean: one.numbers.test_accuracy_over_first, half: one.numbers.test_accuracy_over_first_95,
    dots: one.networks.map((each) => [each, each[2] - base.get(`${each[0]} ${each[1]}`)]).filter(([, gain]) => isNumber(gain)).map(([each, gain]) => ({ value: gain, heading: heading(one.name, each), pairs: [["difference", asPointShare.value(gain)]] })) });
  const interval = (one, key, format) => (isNumber(one.numbers[key]) ? `${format(one.numbers[key])} ± ${format(one.numbers[`${key}_95`])}` : "–");
  const chance = (p) => (isNumber(p) ? (p < 0.001 ? "< 0.001" : p.toFixed(3)) : "–");
  const rows = found.controllers.map((one, i) => [el("span", { class: `c${i % 8}` }, one.name), interval(one, "test_accuracy", (x) => percent(x, 2)), i === 0 ? "" : interval(one, "test_accuracy_over_first", (x) => percent(x, 2)), i === 0 ? "" : chance(one.numbers.test_accuracy_over_first_p), interval(one, "added_parameters", percent), interval(one, "seeds_kept", plain), interval(one, "return", plain), count(one.numbers.lost), count(one.numbers.illegal_actions)]);
  const over = found.intervals_over === "networks" ? "the networks of a single episode" : "the means of episodes, since networks of one episode are not independent";
  return section("evaluation", "Controllers side by side", `Every controller played the same episodes: the same first weights, the same order of samples. Intervals and p-values (sign flips, two-sided) are over ${over}.`,
    grid("", intervalChart({ title: "Test accuracy", name: "evaluation", format: asShare, xLabel: "test accuracy", within: [0, 1], rows: found.controllers.map(group(2, "test_accuracy")) }),
      intervalChart({ title: `Difference from ${first.name}, pair by pair`, name: "evaluation/paired", unit: "points of test accuracy", format: asPointShare, xLabel: "points", hasZero: true, rows: found.controllers.slice(1).map(paired) }),
      intervalChart({ title: "Return", name: "evaluation/return", format: asNumber, xLabel: "return", rows: found.controllers.map(group(3, "return")) }),
      intervalChart({ title: "Parameters", name: "evaluation/parameters", format: asSize, xLabel: "parameters", rows: found.controllers.map((one, i) => ({ ...group(4, "parameters")(one, i), ...meanOf(one.networks.map((each) => each[4])) })) })),
    table("Means with their 95 % intervals", ["controller", "test accuracy", `over ${first.name}, pair by pair`, "p", "parameters added", "seeds kept", "return", "lost", "not replayable"], rows));
}

function meanOf(values) {
  const numbers = values.filter(isNumber);
  return { mean: numbers.reduce((sum, value) => sum + value, 0) / numbers.length, half: null };
}

// ---- what the controller chose

function choices(run) {
  const chooser = run.job === "ppo" && ((run.config || {}).controller || "ppo") === "ppo" ? "policy" : "controller";
  const byStep = run.details.length && run.details[run.details.length - 1].round === 0 ? run.details[run.details.length - 1].choices : null;
  const counted = run.choices || byStep;
  if (!counted) return null;
  const title = `What the ${chooser} chose`;
  return section("choices", title, "One decision per lane after each epoch or step but the last; a lane that waits lets its seeds go on.",
    grid("split", choicesChart({ title: run.choices ? "Choices by round" : "Choices by epoch", name: "choices", choices: counted, xLabel: run.choices ? "round" : "epoch" }),
      countChart({ title: "Blueprints planted", name: "planted", unit: "times", items: run.blueprints.map((name, i) => [name, counted.planted[i] || 0]) })));
}
