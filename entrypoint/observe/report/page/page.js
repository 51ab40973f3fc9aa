"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { hosts, job, width, count } = data;

  // Columns are texts: numbers with blanks between them, nothing for a gap.
  const unpack = text => text ? text.split(" ").map(word => word === "" ? null : +word) : null;
  for (const host of hosts) {
    for (const name of Object.keys(host.columns)) host.columns[name] = unpack(host.columns[name]);
    for (const process of host.processes) [process.cpu, process.memory] = [unpack(process.cpu), unpack(process.memory)];
  }
  for (const line of [...data.rates, ...data.metrics.flatMap(metric => metric.lines)]) line.values = unpack(line.values);

  // ---- words, numbers, elements ----

  const css = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const at = id => document.querySelector(`#${id} .body`);
  const SVG = "http://www.w3.org/2000/svg";

  /** An element; text is never taken for HTML. */
  function el(tag, attributes = {}, ...children) {
    const svg = ["svg", "rect", "g", "text", "line", "title", "pattern", "path", "defs", "circle"].includes(tag);
    const made = svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) if (value !== null && value !== undefined) made.setAttribute(name, value);
    made.append(...children.filter(child => child !== null && child !== undefined));
    return made;
  }

  /** A text with its commands, which are in backticks, as code. */
  const marked = text => text.split("`").map((part, number) => number % 2 ? el("code", {}, part) : part);
  const two = n => String(Math.floor(n)).padStart(2, "0");
  const DAY = 86400, isShort = job.seconds < 300;
  function duration(s) {
    if (s === null || s === undefined) return "–";
    if (s < 1 && s > 0) return `${Math.round(s * 1000)} ms`;
    if (s < 120) return `${+s.toPrecision(3)} s`;
    if (s < 3600) return `${Math.floor(s / 60)} min ${two(s % 60)} s`;
    return s < 2 * DAY ? `${Math.floor(s / 3600)} h ${two(s / 60 % 60)} min` : `${Math.floor(s / DAY)} d ${two(s / 3600 % 24)} h`;
  }
  /** A time of all hosts together, which is paid by the hour. */
  const hostTime = s => s < 2 * DAY ? duration(s) : `${Math.round(s / 3600).toLocaleString("en")} h`;
  /** A moment of the job, as precise as its duration asks for. */
  function clock(s) {
    if (isShort) return `${s.toFixed(1)} s`;
    if (job.seconds < 3600) return `${two(s / 60)}:${two(s % 60)}`;
    return `${s < DAY ? "" : `${Math.floor(s / DAY)} d `}${two(s / 3600 % 24)}:${two(s / 60 % 60)}:${two(s % 60)}`;
  }
  /** The label of a tick, with its unit; `step` is the time between two. */
  function tick(s, step) {
    const [d, h, m] = [Math.floor(s / DAY), Math.floor(s / 3600), Math.floor(s / 60)];
    if (isShort) return `${+s.toFixed(1)} s`;
    if (job.seconds < 7200) return `${m} min`;
    if (job.seconds < 2 * DAY || !d) return step < 3600 ? `${h} h ${two(m % 60)}` : `${h} h`;
    return h % 24 ? `${d} d ${h % 24} h` : `${d} d`;
  }
  function bytes(n) {
    for (const unit of ["B", "kB", "MB", "GB"]) {
      if (Math.abs(n) < 1000) return `${+n.toPrecision(3)} ${unit}`;
      n /= 1000;
    }
    return `${+n.toPrecision(3)} TB`;
  }
  const STEPS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, DAY, 7 * DAY].filter(s => isShort || s >= 60); // seconds between ticks
  const share = part => `${(100 * part).toFixed((part < 0.1 && part > 0) || (part > 0.99 && part < 1) ? 1 : 0)} %`;
  const money = (n, least, most = least) => `$${n.toLocaleString("en", { minimumFractionDigits: least, maximumFractionDigits: most })}`;
  const usd = seconds => { const n = seconds / 3600 * data.bill.price; return n > 0 && n < 0.0005 ? "<$0.001" : money(n, n && n < 1 ? 3 : 2); };
  const counted = (n, one) => `${n} ${one}${n === 1 ? "" : "s"}`;
  const paper = matchMedia("print");
  const hide = id => { document.getElementById(id).hidden = true; };

  // ---- phases: a colour and, for what is idle, a pattern and the word ----

  const COLOURS = {
    start: "grey-2", prepare: "pink", rendezvous: "red", import: "sky", "first step": "yellow", train: "green",
    "data wait": "red", evaluation: "orange", checkpoint: "blue", serve: "green", still: "red", restart: "red", idle: "red", end: "grey",
  };
  const called = phase => phase.idle && phase.name !== "idle" ? `idle: ${phase.name === "still" ? "no progress" : phase.name}` : phase.name;
  const stripes = (name, turn, colour = "red") => el("pattern", { id: name, width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: `rotate(${turn})` },
    el("rect", { width: 7, height: 7, fill: `var(--${colour})` }), el("rect", { width: 2.5, height: 7, fill: "#fff8" }));
  document.body.append(el("svg", { class: "patterns", "aria-hidden": "true" }, stripes("idle", 45), stripes("wait", -45), stripes("serve", 90, "green")));
  const fill = phase => phase.name === "serve" ? "url(#serve)" : phase.name === "data wait" ? "url(#wait)" : phase.idle ? "url(#idle)" : `var(--${COLOURS[phase.name] || "grey"})`;
  const swatch = phase => el("svg", { width: 14, height: 14, class: "swatch", "aria-hidden": "true" }, el("rect", { width: 14, height: 14, fill: fill(phase) }));
  const named = name => data.phases.find(phase => phase.name === name);

  // ---- header ----

  const steps = data.stragglers.map(row => row[2]).sort((a, b) => a - b), median = steps[Math.floor((steps.length - 1) / 2)];
  const gpusOf = host => Object.keys(host.columns).filter(name => /^gpu \d+$/.test(name));
  /** The mean of these columns of all hosts between the first and the last training of each; null if none is known. */
  function inTraining(names) {
    const found = hosts.flatMap(host => {
      const trains = host.spans.filter(([phase]) => data.phases[phase].name === "train");
      return trains.length ? names(host).flatMap(name => (host.columns[name] || []).slice(Math.ceil(trains[0][1] / width), Math.floor(trains[trains.length - 1][2] / width))) : [];
    }).filter(value => value !== null);
    return found.length ? found.reduce((sum, value) => sum + value, 0) / found.length : null;
  }

  const kind = job.outcome ? job.outcome.kind : "unknown";
  function header() {
    const apart = data.verdicts.some(verdict => verdict.rule === "apart");
    const cls = apart ? "failed" : ["succeeded", "failed", "stopped"].includes(kind) ? kind : "unknown";
    const top = document.getElementById("top");
    const title = el("div", { class: "title" }, el("h1", {}, job.name || "Training job"), el("span", { class: `badge ${cls}` }, (job.outcome ? kind + (job.outcome.code ? `, exit code ${job.outcome.code}` : "") : "end unknown") + (apart ? ", trained apart" : "")));
    top.append(title);
    const cause = job.outcome && job.outcome.cause, ending = data.ending;
    if (cause || ending) {
      const who = cause && ([cause.process, cause.host].filter(Boolean).join(" on ") || "the job");
      const output = ending ? ending.output : [];
      top.append(el("div", { class: `cause ${ending ? ending.severity : "error"}` },
        el("b", {}, cause ? `${who}: ${cause.what}` : `${ending.text[0].toUpperCase()}${ending.text.slice(1)}.`), cause && cause.error ? el("pre", { tabindex: 0 }, cause.error) : null,
        ending && ending.before ? el("p", {}, `Before: ${ending.before}.`) : null,
        ending ? el("p", {}, el("b", {}, "What to do: "), ...marked(ending.advice), ".") : null,
        output.length ? el("details", {}, el("summary", {}, output.some(line => /^Traceback|^  File "/.test(line)) ? "Traceback" : "What it printed last"), el("pre", { tabindex: 0 }, output.join("\n"))) : null));
    }
    const cpus = hosts.reduce((sum, host) => sum + host.cpus, 0), gpus = hosts.reduce((sum, host) => sum + host.gpus, 0);
    const mode = { ps: "parameter servers", mwms: "multi-worker mirrored", mpi: "MPI, Horovod", jax: "JAX", single: "" }[job.mode] ?? job.mode;
    title.after(el("p", { class: "about" }, [mode, counted(hosts.length + job.missing, "host"), job.instances.join(", "), cpus && counted(cpus, "CPU"), gpus && counted(gpus, "GPU"), `began ${job.began}`].filter(Boolean).join(" · ")));
    const bad = rule => data.verdicts.some(verdict => verdict.rule === rule) ? "bad" : null;
    const fact = (name, value, more, rule) => el("div", { class: bad(rule) }, el("dt", {}, name), el("dd", {}, value, more ? el("small", {}, more) : null));
    const { total, idle, price, phases } = data.bill;
    const facts = [fact("Duration", duration(job.seconds))];
    if (total) {
      const trains = (phases.find(([name]) => name === "train") || [0, 0])[1];
      const [next] = phases.filter(([name]) => name !== "train").sort((a, b) => b[1] - a[1]);
      facts.push(fact("Training", share(trains / total), next ? `${called(named(next[0]))} ${share(next[1] / total)}` : "of all host-time"));
    }
    const busy = inTraining(gpusOf), watts = inTraining(() => ["gpu watts"]);
    if (busy !== null) facts.push(fact("GPUs busy", share(busy), `while training${watts ? `, at ${Math.round(watts * hosts.length / gpus)} W${gpus > 1 ? " each" : ""}` : ""}`, "gpu_starved"));
    if (data.stragglers.length) facts.push(fact("A step takes", duration(median), data.stragglers.length > 1 ? `slowest of ${data.stragglers.length}: ${duration(data.stragglers[0][2])}` : data.stragglers[0][1]));
    if (total) facts.push(fact("Idle", share(idle / total), `${hostTime(idle)} of hosts${price === null ? "" : `, ${usd(idle)}`}`, "idle"), fact("Host-time", hostTime(total), price === null ? "no price given" : `${usd(total)} at ${money(price, 2, 4)} an hour`));
    top.append(el("dl", { class: "facts" }, ...facts));
    if (data.notes.length) top.append(el("ul", { class: "notes warning", "aria-label": "What is wrong with the records" }, ...data.notes.map(note => el("li", {}, ...marked(note)))));
  }

  function verdicts() {
    const warnings = kind === "succeeded" ? [...new Set(data.said.map(line => line[2]).filter(words => /^(warning|error): /.test(words)))].slice(0, 9) : [];
    at("verdicts").append(data.verdicts.length
      ? el("ol", { class: "verdicts" }, ...data.verdicts.map(verdict => el("li", { class: verdict.severity },
        el("p", { class: "head" }, el("span", { class: "word" }, verdict.severity), el("b", {}, verdict.rule.replace(/_/g, " ")), el("span", { class: "where" }, [verdict.process, verdict.host].filter(Boolean).join(" on "))),
        el("p", { class: "what" }, verdict.text[0].toUpperCase() + verdict.text.slice(1) + "."), el("p", { class: "do" }, el("b", {}, "What to do: "), ...marked(verdict.advice), "."))))
      : el("p", { class: `none-said ${kind === "succeeded" && !warnings.length ? "none" : "note"}` }, !hosts.length ? "There are no records to judge." : warnings.length ? "The rules found no problems; the launcher warned:" : data.ending ? "No other problems found." : "No problems found."));
    if (warnings.length) at("verdicts").append(el("ul", { class: "notes warning", "aria-label": "Warnings of the launcher" }, ...warnings.map(words => el("li", {}, words))));
    if (data.bill.phases.some(([name]) => name === "train") && !data.rates.length && !data.metrics.length) at("verdicts").append(el("p", { class: "muted" }, "No steps or metrics found. What programs print as step=3 loss=0.5, or by Keras' progress bar, is recognised; ENTRYPOINT_METRICS adds others."));
    const rules = Object.entries(data.rules).map(([name, value]) => `${name}=${value}`).join(", ");
    at("verdicts").append(el("details", {}, el("summary", {}, "Thresholds of the rules"), el("p", { class: "muted" }, `ENTRYPOINT_RULES="${rules}"`)));
  }

  // ---- timeline ----

  function timeline() {
    if (!hosts.length) return hide("timeline");
    const used = new Set(hosts.flatMap(host => [...host.spans, ...host.processes.flatMap(process => process.spans)].map(span => span[0])));
    // A host's own row shows what prepared it.
    const shown = host => host.processes.filter(process => process.spans.length && !(["prepare", "key"].includes(process.role) && process.ended === "exit code 0"));
    const total = hosts.reduce((sum, host) => sum + shown(host).length, 0);
    const box = el("div", { class: "rows", tabindex: 0, role: "group", "aria-label": "Timeline of hosts and processes; the table of the bill has its sums" });
    const choice = el("select", { id: "rows" }, ...["Hosts and processes", "Hosts"].map((name, number) => el("option", { value: number }, name)));
    choice.value = hosts.length + total > 20 ? 1 : 0;
    at("timeline").append(
      el("ul", { class: "legend", "aria-label": "Phases" }, ...data.phases.filter((_, number) => used.has(number)).map(phase => el("li", {}, swatch(phase), called(phase)))),
      el("div", { class: "controls" }, el("label", { for: "rows" }, "Show"), choice), box);
    const draw = () => {
      const wide = paper.matches ? 700 : box.clientWidth || 800, left = wide < 600 ? 88 : 150, right = 8, scale = (wide - left - right) / (job.seconds || 1);
      const rows = hosts.flatMap(host => [[host.name, host.spans, true, []], ...(choice.value === "0" ? shown(host).map(process => [process.name, process.spans, false, process.ticks]) : [])]);
      const heights = rows.map(row => row[2] ? (hosts.length > 30 ? 14 : 22) : 13), head = 20;
      const high = head + heights.reduce((sum, h) => sum + h, 0) + 4;
      const svg = el("svg", { width: wide - 2, height: high, viewBox: `0 0 ${wide - 2} ${high}`, role: "img", "aria-label": `${counted(hosts.length, "host")} over ${duration(job.seconds)}` });
      const step = STEPS.find(s => s * scale > 70) || 7 * DAY;
      for (let t = 0; t <= job.seconds; t += step) svg.append(el("line", { class: "grid", x1: left + t * scale, x2: left + t * scale, y1: head - 4, y2: high }), el("text", { class: "sub", x: left + t * scale, y: 12, "text-anchor": !t ? "start" : t * scale > wide - left - right - 20 ? "end" : "middle" }, tick(t, step)));
      let y = head;
      rows.forEach(([name, spans, isHost, ticks], number) => {
        const h = heights[number], most = Math.floor((left - (isHost ? 6 : 16)) / 6.8);
        const label = el("text", { x: isHost ? 0 : 12, y: y + h / 2 + 4, class: isHost ? "" : "sub" }, name.length > most ? "…" + name.slice(1 - most) : name);
        label.append(el("title", {}, name));
        svg.append(label);
        for (const [phase, start, end] of spans) {
          const about = data.phases[phase], w = Math.max(0.6, (end - start) * scale);
          const rect = el("rect", { x: left + start * scale, y: y + 1, width: w, height: h - 3, fill: fill(about), opacity: isHost ? 1 : 0.75 }, el("title", {}, `${name}: ${called(about)}, ${duration(end - start)} (${clock(start)} to ${clock(end)})`));
          svg.append(rect);
          if (isHost && about.idle && h > 16 && w > 46) svg.append(el("text", { class: "in", x: left + start * scale + w / 2, y: y + h / 2 + 3.5, "text-anchor": "middle", "pointer-events": "none" }, "idle"));
        }
        for (const t of ticks) svg.append(el("line", { class: "tick", x1: left + t * scale, x2: left + t * scale, y1: y + 1, y2: y + h - 2 }));
        y += h;
      });
      box.replaceChildren(svg);
    };
    for (const each of [choice, paper]) each.addEventListener("change", draw);
    let before = 0;
    new ResizeObserver(() => { if (box.clientWidth !== before && !paper.matches) { before = box.clientWidth; draw(); } }).observe(box);
    draw();
  }

  // ---- bill ----

  function bill() {
    const { phases, total, idle, price } = data.bill;
    if (!total) return hide("bill");
    const head = names => el("thead", {}, el("tr", {}, ...names.map(name => name ? el("th", { scope: "col" }, name) : el("td", { class: "bar" }))));
    const cost = seconds => price === null ? [] : [el("td", {}, usd(seconds))];
    const row = (name, seconds, cls, mark) => el("tr", { class: cls }, el("th", { scope: "row" }, mark ? swatch(mark) : null, name), el("td", {}, hostTime(seconds)), el("td", {}, share(seconds / total)), el("td", { class: "bar" }, mark ? el("svg", { height: 12, width: "100%", "aria-hidden": "true" }, el("rect", { width: `${100 * seconds / total}%`, height: 12, fill: fill(mark) })) : null), ...cost(seconds));
    const table = el("table", { class: "plain" }, head(["Hosts were at", "Host-time", "Share", "", ...(price === null ? [] : ["USD"])]),
      el("tbody", {}, ...phases.map(([name, seconds]) => row(called(named(name)), seconds, named(name).idle ? "idle" : "", named(name)))),
      el("tfoot", {}, row("All", total, "", null), idle ? row("of that idle", idle, "idle", null) : null));
    const order = hosts.map((host, number) => [host, data.bill.hosts[number]]);
    const by = el("table", { class: "plain" }, head(["Host", ...phases.map(([name]) => name), "idle in all"]),
      el("tbody", {}, ...order.map(([host, sums]) => el("tr", {}, el("th", { scope: "row" }, host.name), ...sums.map(sum => el("td", {}, sum ? duration(sum) : "–")), el("td", {}, duration(sums.reduce((all, sum, number) => all + (named(phases[number][0]).idle ? sum : 0), 0)))))));
    at("bill").append(el("div", { class: "scroll wide" }, table));
    if (price === null) at("bill").append(el("p", { class: "muted" }, "To see costs, make the report again: entrypoint report FOLDER --price USD_PER_HOST_HOUR"));
    if (hosts.length > 1) at("bill").append(el("details", {}, el("summary", {}, "By host"), el("div", { class: "scroll wide", tabindex: 0 }, by)));
  }

  /** What the script was given, and on what it ran. */
  function request() {
    const table = (heads, rows) => el("table", { class: "plain given" }, el("thead", {}, el("tr", {}, ...heads.map(name => el("th", { scope: "col" }, name)))), el("tbody", {}, ...rows.map(([name, value]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, value)))));
    const tables = [[["Hyperparameter", "Value"], data.hyperparameters], [["Software", "Version"], data.versions]].filter(([, rows]) => rows.length);
    if (!tables.length) return hide("request");
    const both = el("div", { class: "two" }, ...tables.map(() => el("div", {})));
    at("request").append(both);
    tables.forEach(([heads, rows], number) => folded(both.children[number], rows, of => table(heads, of), rows.length > 24 ? 12 : rows.length));
  }

  // ---- plots ----

  const LINES = ["blue", "orange", "green", "pink", "sky", "red", "yellow", "grey"];
  const times = Array.from({ length: count }, (_, number) => (number + 0.5) * width);
  const plots = [], HIGH = 160;
  const known = column => (column || []).filter(value => value !== null);
  const seen = column => known(column).length > 0;
  const meanOf = values => values.reduce((sum, value) => sum + value, 0) / values.length;
  const short = value => value === null || value === undefined ? "–" : Math.abs(value) >= 1e5 || (value && Math.abs(value) < 1e-3) ? value.toExponential(1) : String(+value.toPrecision(4));
  const zeros = column => column || new Array(count).fill(0);

  const SUMMARY = { mean: meanOf, last: values => values[values.length - 1], peak: values => Math.max(...values) }; // what a legend shows of a line
  /** A plot: series are {name, values, colour}; stacked ones lie one on another. If none of them changes, figures. */
  function plot([figures, into], title, unit, series, { stacked = false, range = null, rest = "mean", steps = null } = {}) {
    series = series.filter(each => seen(each.values));
    if (!series.length) return;
    const heading = el("h3", {}, title, unit ? el("span", {}, `  ${unit}`) : null);
    const levels = series.map(each => [...new Set(known(each.values).map(short))]);
    if (levels.every(level => level.length === 1)) {
      const first = series[0].values, isOne = series.every(each => known(each.values).length === 1);
      figures.append(el("div", { class: "figure" }, heading, ...series.map((each, number) => el("p", {}, el("b", {}, levels[number][0]), ` ${each.name}`)), el("p", { class: "muted" }, isOne ? `once, at ${clock(times[first.findIndex(value => value !== null)])}` : "throughout")));
      return;
    }
    const raw = series.map(each => each.values), drawn = raw.map(values => values.slice());
    if (stacked) for (let number = 1; number < drawn.length; number++) drawn[number] = drawn[number].map((value, i) => value === null || drawn[number - 1][i] === null ? null : value + drawn[number - 1][i]);
    const order = series.map((_, number) => number);
    if (stacked) order.reverse(); // the highest first, the others over it
    const box = el("div", { class: "plot", role: "group", "aria-label": `${title}${unit ? `, ${unit}` : ""}: ${series.map(each => each.name).join(", ")}` }, heading);
    into.append(box);
    const axis = { stroke: () => css("ink-2"), grid: { stroke: () => css("grid"), width: 1 }, ticks: { stroke: () => css("grid"), size: 4 }, font: "11px system-ui, sans-serif" };
    const made = new uPlot({
      width: 480, height: HIGH, cursor: { sync: { key: steps ? "step" : "t" }, points: { show: !stacked } },
      legend: { live: true }, padding: [8, 20, 0, 0],
      scales: { x: { time: false, range: steps ? [0, steps[steps.length - 1] || 1] : [0, job.seconds || 1] }, y: { range: range || ((_, low, high) => [Math.min(0, low), high > 0 ? high * 1.08 : 1]) } },
      axes: [steps ? { ...axis, size: 26, space: 64, values: (_, ticks) => ticks.map(short) } : { ...axis, size: 26, space: 64, incrs: STEPS, values: (_, ticks, __, ___, step) => ticks.map(t => tick(t, step)) }, { ...axis, size: 50, values: (_, ticks) => ticks.map(short) }],
      series: [{ label: steps ? "step" : "time", value: (_, t) => t === null ? "" : steps ? `at step ${short(t)}` : `at ${clock(t)}` }, ...order.map(number => ({
        label: series[number].name, spanGaps: true, width: stacked ? 0 : 1.5, stroke: () => css(series[number].colour), points: { show: known(raw[number]).length < 3 },
        fill: stacked ? () => css(series[number].colour) : undefined, value: (_, __, ___, i) => i === null || i === undefined ? `${rest} ${short(+SUMMARY[rest](known(raw[number])).toPrecision(3))}` : short(raw[number][i]),
      }))],
    }, [steps || times, ...order.map(number => drawn[number])], box);
    plots.push([made, box]);
  }
  /** Make plots as wide as their places: these change with the window, and as others come beside them; on paper, style does it. */
  function fit() {
    if (paper.matches) return;
    for (const [made, box] of plots) {
      const wide = Math.max(240, box.clientWidth);
      if (made.width !== wide) made.setSize({ width: wide, height: HIGH });
    }
  }
  /** Lines of [name, values]: all up to eight; of more the lowest and the highest on average, and the median. */
  function lines(all) {
    all = all.filter(([, values]) => seen(values));
    if (all.length > LINES.length) {
      const sorted = all.map(each => [meanOf(known(each[1])), each]).sort((a, b) => a[0] - b[0]).map(pair => pair[1]), high = sorted[sorted.length - 1];
      const middle = all[0][1].map((_, i) => { const values = known(all.map(each => each[1][i])).sort((a, b) => a - b); return values.length ? values[(values.length - 1) >> 1] : null; });
      all = [[`lowest: ${sorted[0][0]}`, sorted[0][1]], [`highest: ${high[0]}`, high[1]], [`median of ${all.length}`, middle]];
    }
    return all.map(([name, values], number) => ({ name, values, colour: LINES[number] }));
  }
  /** Take away the plots of a place, before others are drawn there. */
  function clear(box) {
    plots.splice(0, plots.length, ...plots.filter(([made, where]) => { const goes = box[1].contains(where); if (goes) made.destroy(); return !goes; }));
    box.forEach(place => place.replaceChildren());
  }
  /** The values of all lines by step: [steps, values of the first line, ...]; null if a line has no two steps. After a restart, what it repeats replaces what was before. */
  function bySteps(all) {
    const tables = all.map(line => {
      const steps = unpack(data.steps[`${line.host} ${line.process}`]) || [], found = [];
      for (let i = count - 1, least = Infinity; i >= 0; i--) if (line.values[i] !== null && steps[i] !== null && steps[i] < least) found.unshift([least = steps[i], line.values[i]]);
      return [found.map(pair => pair[0]), found.map(pair => pair[1])];
    });
    return tables.length && tables.every(([steps]) => steps.length > 1) ? uPlot.join(tables).map(column => column.map(value => value ?? null)) : null;
  }
  /** The places of figures and of plots in a section; empty ones take no room. */
  const places = () => [el("div", { class: "figures" }), el("div", { class: "plots" })];

  const mean = columns => {
    const found = new Array(count).fill(null);
    for (let i = 0; i < count; i++) {
      let sum = 0, n = 0;
      for (const column of columns) if (column && column[i] !== null && column[i] !== undefined) { sum += column[i]; n++; }
      if (n) found[i] = sum / n;
    }
    return found;
  };
  const scaled = (column, factor) => column && column.map(value => value === null ? null : value * factor);

  function utilisation() {
    if (!hosts.some(host => Object.keys(host.columns).length)) return hide("use");
    const choice = el("select", { id: "host" }, ...(hosts.length > 1 ? [el("option", { value: "mean" }, `all ${hosts.length} hosts, on average`)] : []), ...(hosts.length > 1 ? [el("option", { value: "compare" }, "all hosts side by side")] : []), ...hosts.map((host, number) => el("option", { value: number }, host.name)));
    const box = places();
    at("use").append(el("div", { class: "controls" }, el("label", { for: "host" }, "Host"), choice), ...box);
    const CPU = [["user", "green"], ["system", "blue"], ["disks", "orange"], ["stolen", "red"], ["throttled", "pink"]];
    const draw = () => {
      clear(box);
      const column = (host, name) => host.seen ? host.columns[name] || zeros().map((zero, i) => i < host.seen[0] || i > host.seen[1] ? null : zero) : null;
      if (choice.value === "compare") {
        const each = (title, unit, value) => plot(box, title, unit, lines(hosts.map(host => [host.name, value(host)])));
        const sum = (host, names) => { const parts = names.map(name => column(host, name)); return parts[0] && parts[0].map((_, i) => parts.some(part => part[i] === null) ? null : parts.reduce((all, part) => all + part[i], 0)); };
        if (hosts.some(host => host.gpus)) each("GPUs", "% busy", host => scaled(mean(gpusOf(host).map(name => host.columns[name])), 100));
        each("CPUs", "% busy", host => scaled(sum(host, ["cpu user", "cpu system"]), 100 / host.cpus));
        each("Memory of programs", "GB", host => scaled(column(host, "memory programs"), 1e-3));
        each("Network", "MB/s, both ways", host => sum(host, ["net received", "net sent"]));
        each("Disks", "MB/s, both ways", host => sum(host, ["disk read", "disk written"]));
        return;
      }
      const chosen = choice.value === "mean" ? hosts : [hosts[+choice.value]];
      const all = (name, unit = () => 1) => mean(chosen.map(host => scaled(column(host, name), unit(host))));
      const any = name => chosen.some(host => host.columns[name]);
      const some = (title, unit, names, options, factor) => { const there = names.filter(([, name]) => any(name)); plot(box, title, unit, there.map(([label, name, colour]) => ({ name: label, values: all(name, factor), colour })), options); };
      const gpus = [...new Set(chosen.flatMap(gpusOf))].sort();
      plot(box, "GPUs", "% busy", lines(gpus.map(name => [name, all(name, () => 100)])), { range: [0, 100] });
      plot(box, "GPU memory", "% held", lines(gpus.map(name => [name, all(name.replace("gpu", "gpu memory"), () => 100)])), { range: [0, 100], rest: "peak" });
      some("GPU power", "W", [["all GPUs", "gpu watts", "red"]]);
      plot(box, "CPUs", "% of the host's, by state", CPU.filter(([name]) => any(`cpu ${name}`)).map(([name, colour]) => ({ name: name === "disks" ? "waits for disks" : name, values: all(`cpu ${name}`, host => 100 / host.cpus), colour })).filter(each => each.values.some(value => value >= 0.5)), { stacked: true, range: (_, low, high) => [0, Math.max(100, high)] });
      const limit = chosen.length === 1 && chosen[0].memory ? `, of ${bytes(chosen[0].memory * 1e6)}` : "";
      some("Memory", `GB${limit}`, [["programs", "memory programs", "blue"], ["page cache", "memory cache", "sky"]], { stacked: true, rest: "peak" }, () => 1e-3);
      some("Network", "MB/s", [["received", "net received", "blue"], ["sent", "net sent", "orange"]]);
      some("Disks", "MB/s", [["read", "disk read", "blue"], ["written", "disk written", "orange"]]);
      const pipes = [...new Set(chosen.flatMap(host => Object.keys(host.columns).filter(name => name.startsWith("fifo "))))].sort();
      plot(box, "Pipes of channels", "% filled", lines(pipes.map(name => [name.slice(5), all(name, () => 100)])), { range: [0, 100] });
      some("Free on the disk of models", chosen.length === 1 && chosen[0].disk ? `GB, of ${chosen[0].disk}` : "GB", [["free", "free", "green"]], { rest: "last" });
      if (chosen.length === 1) {
        const processes = chosen[0].processes.filter(process => process.cpu && process.role !== "prepare");
        plot(box, "CPUs by process", "CPUs", lines(processes.map(process => [process.name, process.cpu])));
        const held = chosen[0].processes.filter(process => process.memory && process.role !== "prepare");
        plot(box, "Memory by process", "GB", lines(held.map(process => [process.name, scaled(process.memory, 1e-3)])), { rest: "peak" });
      }
    };
    choice.addEventListener("change", () => { draw(); fit(); });
    draw();
  }

  function training() {
    const box = places(), choice = el("select", { id: "over" }, ...["step", "time"].map(over => el("option", { value: over }, `by ${over}`)));
    const tables = data.metrics.map(metric => bySteps(metric.lines));
    if (tables.some(Boolean)) at("training").append(el("div", { class: "controls" }, el("label", { for: "over" }, "Metrics"), choice));
    at("training").append(...box);
    const name = line => hosts.length > 1 ? `${line.process} ${hosts[line.host].name}` : line.process;
    const draw = () => {
      clear(box);
      plot(box, "Steps", "a second", lines(data.rates.map(line => [name(line), line.values])));
      data.metrics.forEach((metric, number) => {
        const [steps, ...values] = choice.value === "step" && tables[number] || [null, ...metric.lines.map(line => line.values)];
        const low = (_, low, high) => { const room = (high - low || Math.abs(high) || 1) * 0.08; return [low >= 0 && low < (high - low) ? 0 : low - room, high + room]; };
        const more = metric.processes > metric.lines.length ? `the first ${metric.lines.length} of ${metric.processes} processes` : "";
        plot(box, metric.name, more, lines(metric.lines.map((line, at) => [name(line), values[at]])), { range: low, rest: "last", steps });
      });
    };
    choice.addEventListener("change", () => { draw(); fit(); });
    draw();
    if (box.every(place => !place.hasChildNodes())) hide("training");
  }

  // ---- tables ----

  /** A table of the first rows, and below it all of them, folded. */
  function folded(place, rows, table, most) {
    const boxed = (of, cls) => el("div", { class: `scroll wide ${cls}`, tabindex: 0 }, table(of));
    if (most) place.append(boxed(rows.slice(0, most), "first"));
    if (rows.length > most) place.append(el("details", {}, el("summary", {}, `All ${rows.length}`), boxed(rows, "")));
  }

  function pace() {
    const rows = data.stragglers;
    if (rows.length < 2) return hide("pace");
    const times = seconds => median ? seconds / median : 0, isSlow = seconds => times(seconds) >= (data.rules.straggler || Infinity);
    const table = of => el("table", { class: "plain" }, el("thead", {}, el("tr", {}, ...["Process", "Host", "Seconds a step", "Times the median", "Steps"].map(name => el("th", { scope: "col" }, name)))),
      el("tbody", {}, ...of.map(([host, process, seconds, steps]) => el("tr", { class: isSlow(seconds) ? "idle" : "" }, el("th", { scope: "row" }, process), el("td", {}, hosts[host].name), el("td", {}, duration(seconds)), el("td", {}, median ? `${times(seconds).toFixed(2)}×${isSlow(seconds) ? " slow" : ""}` : "–"), el("td", {}, steps === null ? "–" : steps.toLocaleString("en"))))));
    const [host, process, slowest] = rows[0];
    at("pace").append(el("p", {}, `The slowest of ${rows.length} processes, ${process} on ${hosts[host].name}, takes ${duration(slowest)} for a step on average: ${times(slowest).toFixed(2)} times the median of ${duration(median)}.`));
    folded(at("pace"), rows, table, isSlow(slowest) ? 8 : 0);
  }

  function traffic() {
    if (!data.matrix.length) return hide("traffic");
    const most = Math.max(...data.matrix.map(cell => cell[2]));
    const strength = n => Math.sqrt(n / most);
    const total = data.matrix.reduce((sum, cell) => sum + cell[2], 0);
    at("traffic").append(el("p", { class: "muted" }, `${bytes(total)} in all between training processes, from the host of the row to that of the column.`));
    const cells = new Map(data.matrix.map(([from, to, n]) => [`${from} ${to}`, n]));
    if (hosts.length <= 16) {
      const ink = n => strength(n) > 0.6 ? "#fff" : "var(--ink)";
      at("traffic").append(el("div", { class: "scroll", tabindex: 0 }, el("table", { class: "matrix" },
        el("thead", {}, el("tr", {}, el("td", {}), ...hosts.map(host => el("th", { scope: "col" }, host.name)))),
        el("tbody", {}, ...hosts.map((host, from) => el("tr", {}, el("th", { scope: "row" }, host.name), ...hosts.map((_, to) => { const n = cells.get(`${from} ${to}`); return el("td", { style: n ? `background: color-mix(in srgb, #0072b2 ${Math.round(100 * strength(n))}%, transparent); color: ${ink(n)}` : "background: var(--grid)" }, n ? bytes(n) : from === to ? "" : "–"); })))))));
      return;
    }
    const size = Math.max(3, Math.min(14, Math.floor(640 / hosts.length)));
    const canvas = el("canvas", { width: size * hosts.length, height: size * hosts.length, role: "img", "aria-label": `Matrix of ${hosts.length} hosts; the largest amount is ${bytes(most)}`, style: "max-width: 100%; background: var(--grid)" });
    const pen = canvas.getContext("2d");
    for (const [from, to, n] of data.matrix) { pen.fillStyle = `rgba(0, 114, 178, ${0.1 + 0.9 * strength(n)})`; pen.fillRect(to * size, from * size, size, size); }
    const top = [...data.matrix].sort((a, b) => b[2] - a[2]).slice(0, 10);
    at("traffic").append(el("div", { class: "two" }, el("div", {}, canvas), el("div", { class: "scroll wide" }, el("table", { class: "plain" }, el("thead", {}, el("tr", {}, ...["From", "To", "Bytes"].map(name => el("th", { scope: "col" }, name)))), el("tbody", {}, ...top.map(([from, to, n]) => el("tr", {}, el("th", { scope: "row" }, hosts[from].name), el("td", {}, hosts[to].name), el("td", {}, bytes(n)))))))));
  }

  function channels() {
    const rows = new Map(); // what several hosts have alike is one row
    for (const host of hosts) for (const channel of host.channels) {
      const key = JSON.stringify(channel);
      rows.set(key, [channel, [...(rows.get(key) || [null, []])[1], host.name]]);
    }
    if (!rows.size) return hide("data-read");
    const who = names => names.length === 1 ? names[0] : names.length === hosts.length ? `each of ${names.length}` : `each of ${names.length}: ${names.slice(0, 3).join(", ")}${names.length > 3 ? ", …" : ""}`;
    const cells = ([channel, names]) => el("tr", {}, el("th", { scope: "row" }, channel.name), el("td", {}, who(names)), el("td", {}, channel.mode || "–"), el("td", {}, channel.distribution || "–"), el("td", {}, channel.files === undefined ? "–" : `${channel.more ? "≥ " : ""}${channel.files.toLocaleString("en")}`), el("td", {}, channel.bytes === undefined ? "–" : bytes(channel.bytes)));
    folded(at("data-read"), [...rows.values()], of => el("table", { class: "plain" }, el("thead", {}, el("tr", {}, ...["Channel", "Host", "Mode", "Distribution", "Files", "Size"].map(name => el("th", { scope: "col" }, name)))), el("tbody", {}, ...of.map(cells))), 16);
  }

  function stacks() {
    if (!data.stacks.length) return hide("stacks");
    const pre = text => el("pre", { class: "stack", tabindex: 0 }, text);
    const waits = stack => /^works|collective|TensorFlow|jax|GPU/.test(stack.doing); // for the others, perhaps: those come last
    [...data.stacks].sort((a, b) => waits(a) - waits(b)).forEach((stack, number) => {
      const frames = stack.text.split("\n"), users = stack.place ? frames.findIndex(line => line.trim() === stack.place || line.endsWith(`/${stack.place}`)) : -1;
      const folded = users < 0 ? [pre(stack.text)] : [pre(frames.slice(users).join("\n").split("\n\n")[0]), el("details", {}, el("summary", {}, "All frames and threads"), pre(stack.text))];
      at("stacks").append(el("details", number ? {} : { open: "" }, el("summary", {}, `${stack.process} on ${stack.host} at ${clock(stack.at)}: ${[stack.place, stack.inside].filter(Boolean).join(", in ") || "an unknown place"}${stack.doing ? ` (${stack.doing})` : ""}`), ...folded));
    });
  }

  function log() {
    if (!data.said.length) return hide("log");
    at("log").append(el("div", { class: "log", tabindex: 0, role: "group", "aria-label": "Lines of the launcher" }, ...data.said.map(([t, host, words]) => el("div", { class: /^(error|warning)|failed|lost|ended: (?!exit code 0)/.test(words) ? "bad" : "" }, el("i", {}, clock(t)), " ", el("b", {}, hosts[host].name), ` ${words}`))));
  }

  for (const part of [header, stacks, verdicts, timeline, bill, request, training, pace, utilisation, traffic, channels, log]) part();

  // ---- width and colours change, and paper has nothing folded ----

  fit();
  addEventListener("resize", fit);
  const again = () => plots.forEach(([made]) => made.redraw(false, true));
  for (const query of [matchMedia("(prefers-color-scheme: dark)"), paper]) query.addEventListener("change", again);
  let opened = [];
  addEventListener("beforeprint", () => { opened = [...document.querySelectorAll("details:not([open])")]; for (const each of opened) each.open = true; });
  addEventListener("afterprint", () => { for (const each of opened) each.open = false; });
  document.documentElement.dataset.ready = "yes";
})();
