// The page: which sections a run has, what is in them, and how it stays up to date.

const kAccuracy = { within: [0, 1], format: asShare };
const chosen = { round: null };

function section(id, title, about, ...content) {
  const parts = content.flat().filter(Boolean);
  if (parts.length === 0) return null;
  const head = el("div", { class: "head" }, el("div", { class: "title" }, el("h2", null, title)), about ? el("p", { class: "about" }, about) : null);
  return el("section", { id, "aria-label": title }, head, parts);
}

function grid(style, ...figures) {
  const parts = figures.flat().filter(Boolean);
  return parts.length ? el("div", { class: `grid ${style}` }, parts) : null;
}

// From {x, values}: one named curve, or none where the run has no such key.
function curveOf(series, key, name, style) {
  return series.values[key] ? [{ name, style, x: series.x, y: series.values[key] }] : [];
}

// ---- the headline

function header(run) {
  const planned = run.config || {};
  const environment = run.environment || {};
  const size = environment.parameters ?? environment.parameters_per_lane;
  const best = run.best;
  const place = [best.round ? `round ${count(best.round)}` : null, best.epoch ? `${best.round ? "step" : "epoch"} ${count(best.epoch)}` : null, best.lane !== null && run.num_lanes > 1 ? `lane ${best.lane}` : null].filter(Boolean).join(", ");
  const returns = run.rounds.values["charts/episodic_return"] || [];
  const numbers = run.result ? run.result.numbers : {};
  const of = (done, all) => (isNumber(all) && all >= done ? `${count(done)} of ${count(all)}` : count(done));
  const evaluation = run.evaluation;
  const stats = [
    evaluation ? ["episodes", of(run.num_episodes, isNumber(planned.episodes) ? planned.episodes * evaluation.controllers.length : NaN), `${few(evaluation.controllers.length, "controller", "controllers")}, ${few(run.num_lanes, "lane", "lanes")} each`]
      : ["best validation accuracy", percent(best.validation_accuracy), place],
    isNumber(run.test_accuracy) ? ["test accuracy", percent(run.test_accuracy), run.num_lanes > 1 ? `mean of ${run.num_lanes} lanes${run.last_round ? ", last round" : ""}` : numbers.best_epoch ? `network of epoch ${count(numbers.best_epoch)}` : ""] : null,
    returns.length ? ["return", plain(returns.findLast(isNumber)), `in the last round; ${plain(returns.find(isNumber))} in the first`] : null,
    evaluation ? null : run.last_round ? ["rounds", of(run.last_round, planned.rounds), `of ${few(run.last_epoch, "step", "steps")}`] : ["epochs", of(run.last_epoch, planned.epochs), ""],
    run.num_lanes > 1 && !evaluation ? ["lanes", count(run.num_lanes), ""] : null,
    isNumber(size) ? ["parameters", compact(size), run.num_lanes > 1 ? "a lane, before growth" : ""] : null,
    ["duration", seconds(run.seconds), run.state === "running" ? "so far" : ""],
  ].filter(Boolean);
  return el("header", null,
    el("div", { class: "kind" }, el("span", { class: `state ${run.state}`, id: "state" }, run.state), el("span", null, jobName(run.job))),
    el("h1", null, run.name),
    el("p", { class: "when" }, [moment(run.began) && `began ${moment(run.began)}`, deviceText(environment)].filter(Boolean).join(" · ")),
    verdict(run),
    el("dl", { class: "stats" }, stats.map(([name, value, note]) => el("div", null, el("dt", null, name), el("dd", null, value, note ? el("small", null, note) : null)))));
}

// The answer in a sentence; commands in it stand between backquotes.
function verdict(run) {
  const sentence = run.evaluation ? run.evaluation.sentence : run.payoff ? run.payoff.sentence : "";
  if (!sentence) return null;
  const round = run.payoff && run.payoff.round > 0 ? `In round ${count(run.payoff.round)}: ` : "";
  return el("p", { class: "verdict", id: "verdict" }, round, sentence.split("`").map((part, i) => (i % 2 ? el("code", null, part) : part)));
}

const jobName = (job) => ({ host: "one network", population: "a population of networks", linet: "a multi-stream network", ppo: "a policy that grows networks", evaluate: "controllers compared" })[job] || `job ${job}`;

function deviceText(environment) {
  const devices = Array.isArray(environment.devices) ? environment.devices : environment.device ? [environment] : [];
  return devices.map((each) => [each.device, each.precision].filter((part) => typeof part === "string").join(" ")).filter(Boolean).join(", ");
}

// ---- learning

const kLearning = [
  ["train_loss", "Training loss", {}],
  ["validation_loss", "Validation loss", {}],
  ["train_accuracy", "Training accuracy", kAccuracy],
  ["validation_accuracy", "Validation accuracy", kAccuracy],
];
const kUnderneath = [
  ["gradient_norm", "Gradient norm", { height: 190, unit: "mean over the batches" }],
  ["parameters", "Parameters", { height: 190, format: asSize }],
];

// All lanes thin; their mean, and the lane that ended best.
function laneCharts(detail, xLabel, kinds = kLearning) {
  const best = detail.lanes.indexOf(detail.best_lane);
  return kinds.map(([key, title, options]) => {
    const curves = detail.curves[key];
    if (key === "parameters" && new Set(curves.flat()).size < 2) return null;  // nothing grew
    const series = detail.lanes.map((lane, i) => ({ lane, x: detail.x, y: curves[i] }));
    if (detail.lanes.length > 1) {
      if (best >= 0) series.push({ name: `best, lane ${detail.best_lane}`, style: "best c1", x: detail.x, y: curves[best] });
      series.push({ name: "mean", style: "mean c0", x: detail.x, y: detail.mean[key] });
    }
    return lineChart({ title, name: key, series, xLabel, ...options });
  });
}

function wholeCharts(series, xLabel) {
  const pair = (measure) => [...curveOf(series, `train_${measure}`, "training", "c1 dash"), ...curveOf(series, `validation_${measure}`, "validation", "c0")];
  return [
    lineChart({ title: "Loss", name: "loss", series: pair("loss"), xLabel }),
    lineChart({ title: "Accuracy", name: "accuracy", series: [...pair("accuracy"), ...curveOf(series, "validation_mean_class_accuracy", "validation, mean over classes", "c2")], xLabel, ...kAccuracy }),
  ];
}

const rateChart = (run) => lineChart({ title: "Learning rate", name: "learning_rate", unit: "at the end of an epoch", series: curveOf(run.epochs, "learning_rate", "learning rate", "c0"), xLabel: "epoch", height: 190, isLinear: true });

function learning(run) {
  if (run.job === "ppo" || run.num_rounds > 1 || run.rounds.x.length) return null;
  const detail = run.details[0];
  if (!detail) {
    const norm = lineChart({ title: "Gradient norm", name: "gradient_norm", unit: "mean over the batches", series: curveOf(run.epochs, "gradient_norm", "gradient norm", "c0"), xLabel: "epoch", height: 190 });
    return section("learning", "Learning", null, grid("", wholeCharts(run.epochs, "epoch"), norm, rateChart(run)));
  }
  const about = `${few(detail.all_lanes, "lane", "lanes")}, validated after every epoch. Point at a curve to see its lane in every chart, click to keep it.${shownLanes(detail)}`;
  return section("learning", "Learning", about, grid("", laneCharts(detail, "epoch")), grid("small", laneCharts(detail, "epoch", kUnderneath), rateChart(run)));
}

const shownLanes = (detail) => (detail.lanes.length < detail.all_lanes ? ` ${count(detail.lanes.length)} of them are drawn.` : "");

// ---- growth (more in growing.js)

// One round from inside, by choice.
function insideRound(run) {
  const rounds = run.details.filter((detail) => detail.round > 0);
  if (rounds.length === 0) return null;
  const body = el("div");
  const select = el("select", { id: "round" }, rounds.map((detail) => el("option", { value: detail.round }, count(detail.round))));
  const show = () => {
    const detail = rounds.find((each) => String(each.round) === select.value) || rounds[rounds.length - 1];
    const timeline = detail.growth.length ? growthChart(detail, run.blueprints, "step") : el("p", { class: "note" }, "No seed germinated in this round.");
    body.replaceChildren(...[timeline, contributionChart(detail, "step"), choicesChart({ title: "Choices by step", name: "choices/step", choices: detail.choices, xLabel: "step" }),
      el("h3", null, "Learning curves of the round"), grid("", laneCharts(detail, "step")), grid("small", laneCharts(detail, "step", kUnderneath))].filter(Boolean));
    markPinned();
  };
  select.value = String(rounds.some((detail) => detail.round === chosen.round) ? chosen.round : rounds[rounds.length - 1].round);
  select.addEventListener("change", () => {
    chosen.round = Number(select.value) === rounds[rounds.length - 1].round ? null : Number(select.value);
    show();
  });
  show();
  const kept = rounds.length < run.num_rounds ? ` ${count(rounds.length)} of ${count(run.num_rounds)} rounds are kept in this page.` : "";
  const made = section("round-view", "Inside a round", `All lanes start anew in every round: which seed lived where and when, and how the lanes learned.${kept}`, body);
  made.querySelector("h2").after(el("label", { class: "choice", for: "round" }, "Round", select));
  return made;
}

function frontier(run) {
  const hasRounds = run.details.some((detail) => detail.round > 0);
  const chart = frontierChart(run.frontier, hasRounds);
  if (!chart) return null;
  const name = ([, , lane, round]) => (hasRounds ? `round ${count(round)}, lane ${lane}` : `lane ${lane}`);
  const rows = run.frontier.front.slice(-12).map((point) => [name(point), count(point[0]), percent(point[1], 2)]);
  return section("frontier", "Accuracy against size", "No other network of the run is both smaller and better than one on the frontier.",
    grid("split", chart, table("On the frontier", ["network", "parameters", run.frontier.measure], rows)));
}

// ---- the policy

const kDiagnostics = [
  ["losses/entropy", "Entropy", "share of the log of the legal choices", { within: [0, 1], format: asShare }],
  ["losses/approx_kl", "Approximate KL divergence", "nats"],
  ["losses/clipfrac", "Clip fraction", "share of decisions"],
  ["losses/explained_variance", "Explained variance", "1 is perfect"],
  ["losses/value_loss", "Value loss", ""],
  ["losses/policy_loss", "Policy loss", ""],
  ["losses/gradient_norm", "Gradient norm of the policy", "before it is clipped"],
  ["charts/learning_rate", "Learning rate of the policy", ""],
];

function policy(run) {
  const series = run.rounds;
  if (series.x.length === 0) return null;
  const one = (key, title, unit, more = {}) => lineChart({ title, name: key, unit, series: curveOf(series, key, words(key), "c0"), xLabel: "round", height: 190, ...more });
  const terms = Object.keys(series.values).filter((key) => key.startsWith("rewards/") && series.values[key].some((value) => value));
  const reward = lineChart({ title: "Reward terms", name: "rewards", unit: "sum over an episode, mean over lanes", series: terms.map((key, i) => ({ name: words(key), style: `c${i % 8}`, x: series.x, y: series.values[key] })), xLabel: "round" });
  return section("policy", "Policy", "One round is one episode of all lanes, then one update.",
    grid("", one("charts/episodic_return", "Return", "mean over lanes", { height: 230 }), reward,
      lineChart({ title: "Validation accuracy at the end of a round", name: "lanes/validation_accuracy", series: [...curveOf(series, "lanes/best_validation_accuracy", "best lane", "c1"), ...curveOf(series, "lanes/validation_accuracy", "mean", "c0")], xLabel: "round", ...kAccuracy }),
      lineChart({ title: "Parameters added", name: "growth/added", unit: "share of the host's, mean over lanes", series: curveOf(series, "growth/added_parameters", "parameters added", "c0"), xLabel: "round", format: asShare })),
    el("h3", null, "Diagnostics of the update"), grid("small", kDiagnostics.map(([key, title, unit, more]) => one(key, title, unit, more))));
}

// ---- streams and classes

function streams(run) {
  const order = Array.isArray(run.environment.streams) ? run.environment.streams : [];
  const sorted = (object) => Object.keys(object).sort((a, b) => order.indexOf(a) - order.indexOf(b));
  const names = sorted(run.streams);
  if (names.length === 0) return null;
  const chart = (key, title, unit, options) => lineChart({ title, name: `streams/${key}`, unit, series: names.flatMap((name, i) => curveOf(run.streams[name], key, name, `c${i % 8}`)), xLabel: "epoch", ...options });
  const final = run.result ? run.result.streams : {};
  const rows = sorted(final).map((name) => [name, percent(final[name].share), percent(final[name].accuracy_alone), percent(final[name].accuracy_without)]);
  return section("streams", "Streams", "What each stream brings to the integrated path, and what it knows alone.",
    grid("", chart("share", "Share of the integrated path", "", kAccuracy), chart("validation_accuracy", "Validation accuracy of each stream alone", "", kAccuracy), chart("gradient_norm", "Gradient norm", "mean over an epoch", {}),
      rows.length ? table("At the end, on the test split", ["stream", "share", "accuracy alone", "accuracy without it"], rows) : null));
}

function classes(run) {
  const result = run.result;
  if (!result || !result.num_classes) return null;
  const mistakes = result.mistakes.length
    ? table("Most frequent mistakes", ["class", "taken for", "samples", "share"], result.mistakes.map(([label, answer, number, all]) => [label, answer, `${count(number)} of ${count(all)}`, percent(number / all)]))
    : el("p", { class: "note" }, "No mistakes.");
  const map = result.confusion ? heatMap(result) : el("p", { class: "note" }, `${count(result.num_classes)} classes: the matrix is in metrics.jsonl.`);
  return section("classes", "Classes", null, grid("split", map, mistakes));
}

// ---- time, configuration, what else

function time(run) {
  const rounds = run.rounds;
  return section("time", "Time", null, grid("",
    lineChart({ title: "Time per epoch", name: "time/epoch", series: curveOf(run.epochs, "seconds", "epoch", "c0"), xLabel: "epoch", height: 190, format: asSeconds }),
    lineChart({ title: "Time per round", name: "time/round", series: [...curveOf(rounds, "time/episode_seconds", "episode", "c0"), ...curveOf(rounds, "time/update_seconds", "update", "c1")], xLabel: "round", height: 190, format: asSeconds }),
    lineChart({ title: "Lane steps per second", name: "time/SPS", series: curveOf(rounds, "charts/SPS", "steps per second", "c0"), xLabel: "round", height: 190 })));
}

const options = (object) => el("dl", { class: "options" }, Object.entries(object).map(([key, value]) => el("div", null, el("dt", null, key), el("dd", null, valueText(value)))));

function configuration(run) {
  const { config, environment } = run;
  return section("configuration", "Configuration", null,
    Object.keys(config).length ? options(config) : el("p", { class: "note" }, "The run has no config.json."),
    Object.keys(environment).length ? [el("h3", null, "Environment"), options(environment)] : null);
}

function footer(run) {
  const isThinned = run.details.some((detail) => detail.thinned) || run.epochs.x.length >= 400 || run.rounds.x.length >= 400;
  return el("footer", null,
    el("p", null, `Espalier, from ${few(run.num_lines, "line", "lines")} of metrics.jsonl${run.num_damaged ? `; ${few(run.num_damaged, "line was", "lines were")} damaged and left out` : ""}.`),
    isThinned ? el("p", null, "Long curves are drawn with at most 400 points: the smallest and the largest value of each stretch.") : null);
}

function contents(sections) {
  return el("nav", { "aria-label": "Sections" }, sections.map((each) => el("a", { href: `#${each.id}` }, each.querySelector("h2").textContent)));
}

function show(run) {
  view.run = run.name;
  view.lanes = [...new Set(run.details.flatMap((detail) => detail.lanes))].sort((a, b) => a - b);
  view.pinned = view.pinned.filter((lane) => view.lanes.includes(lane));
  const made = [payoff, evaluation, learning, policy, choices, insideRound, growth, collapses, streams, classes, frontier, time, configuration].map((make) => make(run)).filter(Boolean);
  const isEmpty = !run.evaluation && run.epochs.x.length === 0 && run.details.length === 0 && run.rounds.x.length === 0;
  const note = isEmpty ? el("p", { class: "note" }, run.state === "running" ? "No epoch is complete yet." : "The run ended before its first epoch did.") : null;
  document.getElementById("page").replaceChildren(...[header(run), contents(made), note, ...made, footer(run)].filter(Boolean));
  markPinned();
  showTools();
}

// ---- several runs

function showComparison({ runs, options }) {
  view.run = "comparison";
  const title = (run, i) => el("span", { class: `c${i % 8}` }, run.name);
  const style = (i) => `c${i % 8}${i >= 8 ? " dash" : ""}`;
  const chart = (title, name, of, key, xLabel, more) => lineChart({ title, name, series: runs.flatMap((run, i) => curveOf(run[of], key, run.name, style(i))), xLabel, height: 260, isKeyed: true, ...more });
  const facts = [
    ["job", (run) => run.job], ["state", (run) => run.state],
    ["best validation accuracy", (run) => percent(run.best.validation_accuracy, 2)], ["test accuracy", (run) => percent(run.test_accuracy, 2)],
    ["epochs", (run) => (run.last_round || run.num_episodes ? "–" : count(run.last_epoch))], ["rounds", (run) => (run.last_round ? count(run.last_round) : "–")],
    ["return of the policy", (run) => plain(run.last_return)], ["episodes", (run) => (run.num_episodes ? count(run.num_episodes) : "–")],
    ["duration", (run) => seconds(run.seconds)],
  ];
  const head = () => ["", ...runs.map(title)];
  const rows = facts.map(([name, of]) => [name, ...runs.map(of)]).filter((row) => row.slice(1).some((text) => text !== "–"));
  const differing = Object.entries(options).map(([key, values]) => [key, ...values.map(valueText)]);
  const made = [
    section("results", "Results", null, table(null, head(), rows)),
    section("learning", "Learning", null, grid("",
      chart("Validation accuracy", "validation_accuracy", "epochs", "validation_accuracy", "epoch", kAccuracy), chart("Validation loss", "validation_loss", "epochs", "validation_loss", "epoch"),
      chart("Training accuracy", "train_accuracy", "epochs", "train_accuracy", "epoch", kAccuracy), chart("Training loss", "train_loss", "epochs", "train_loss", "epoch"),
      chart("Return", "return", "rounds", "charts/episodic_return", "round"), chart("Validation accuracy at the end of a round", "rounds_accuracy", "rounds", "lanes/validation_accuracy", "round", kAccuracy),
      chart("Entropy, as a share of the log of the legal choices", "entropy", "rounds", "losses/entropy", "round", kAccuracy), chart("Time per epoch", "seconds", "epochs", "seconds", "epoch", { format: asSeconds }))),
    section("options", "What was set differently", differing.length ? null : "Nothing: all options are the same.", differing.length ? table(null, head(), differing) : el("span")),
  ].filter(Boolean);
  document.getElementById("page").replaceChildren(el("header", null, el("div", { class: "kind" }, "Comparison"), el("h1", null, few(runs.length, "run", "runs"))), contents(made), ...made);
  showTools();
}

// ---- where the data come from: inside the page, or a server that says when there is more

function showLive() {
  let isFetching = false;
  let isBehind = false;
  const update = async () => {
    if (isFetching) {
      isBehind = true;
      return;
    }
    isFetching = true;
    try {
      const response = await fetch("data", { cache: "no-store" });
      if (response.ok) show(await response.json());
    } catch {
      // The server went away; EventSource tries again, and then comes a change.
    }
    isFetching = false;
    if (isBehind) {
      isBehind = false;
      setTimeout(update, 500);
    }
  };
  new EventSource("events").addEventListener("change", update);
}

const inside = document.getElementById("data");
if (inside) {
  const data = JSON.parse(inside.textContent);
  if (data.runs) showComparison(data);
  else show(data);
} else {
  showLive();
}
