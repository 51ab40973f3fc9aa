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

  function duration(s) {
    if (s === null || s === undefined) return "–";
    if (s < 1 && s > 0) return `${Math.round(s * 1000)} ms`;
    if (s < 120) return `${+s.toPrecision(3)} s`;
    const [h, m] = [Math.floor(s / 3600), Math.floor(s / 60) % 60];
    return h ? `${h} h ${String(m).padStart(2, "0")} min` : `${m} min ${String(Math.floor(s % 60)).padStart(2, "0")} s`;
  }
  function clock(s) {
    const [h, m, sec] = [Math.floor(s / 3600), Math.floor(s / 60) % 60, Math.floor(s % 60)].map(n => String(n).padStart(2, "0"));
    return job.seconds >= 3600 ? `${h}:${m}:${sec}` : `${m}:${sec}`;
  }
  /** The short form, of ticks. */
  function tick(s) {
    return job.seconds < 3600 ? clock(s) : `${Math.floor(s / 3600)}h${String(Math.floor(s / 60) % 60).padStart(2, "0")}`;
  }
  function bytes(n) {
    for (const unit of ["B", "kB", "MB", "GB"]) {
      if (Math.abs(n) < 1000) return `${+n.toPrecision(3)} ${unit}`;
      n /= 1000;
    }
    return `${+n.toPrecision(3)} TB`;
  }
  const NICE = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400, 604800]; // seconds between ticks
  const share = part => `${(100 * part).toFixed((part < 0.1 && part > 0) || (part > 0.99 && part < 1) ? 1 : 0)} %`;
  const usd = seconds => { const n = seconds / 3600 * data.bill.price; return `$${n < 1 ? n.toFixed(3) : n.toFixed(2)}`; };
  const hide = id => { document.getElementById(id).hidden = true; };

  // ---- phases: a colour and, for what is idle, a pattern and the word ----

  const COLOURS = {
    start: "grey-2", prepare: "pink", rendezvous: "red", import: "sky", "first step": "yellow", train: "green",
    "data wait": "red", evaluation: "orange", checkpoint: "blue", serve: "green", still: "red", restart: "red", idle: "red", end: "grey",
  };
  const called = phase => phase.idle && phase.name !== "idle" ? `idle: ${phase.name === "still" ? "no progress" : phase.name}` : phase.name;
  let patterns = 0;
  /** <defs> with a pattern for each phase that has one, and the fill of each phase. */
  function fills() {
    const id = `p${patterns++}`;
    const stripes = (name, colour, turn, dark) => el("pattern", { id: `${id}${name}`, width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: `rotate(${turn})` },
      el("rect", { width: 7, height: 7, fill: `var(--${colour})` }), el("rect", { width: 2.5, height: 7, fill: dark ? "#0005" : "#fff8" }));
    const defs = el("defs", {}, stripes("idle", "red", 45), stripes("wait", "red", -45), stripes("serve", "green", 90));
    const fill = phase => phase.name === "serve" ? `url(#${id}serve)` : phase.name === "data wait" ? `url(#${id}wait)` : phase.idle ? `url(#${id}idle)` : `var(--${COLOURS[phase.name] || "grey"})`;
    return [defs, fill];
  }
  function swatch(phase, cls = "") {
    const [defs, fill] = fills();
    return el("svg", { width: 14, height: 14, class: cls, "aria-hidden": "true" }, defs, el("rect", { width: 14, height: 14, fill: fill(phase) }));
  }

  // ---- header ----

  function header() {
    const kind = job.outcome ? job.outcome.kind : "unknown";
    const cls = ["succeeded", "failed", "stopped"].includes(kind) ? kind : "unknown";
    const top = document.getElementById("top");
    top.append(el("div", { class: "title" }, el("h1", {}, job.name || "Training job"), el("span", { class: `badge ${cls}` }, job.outcome ? kind + (job.outcome.code ? `, exit code ${job.outcome.code}` : "") : "end unknown")));
    const cause = job.outcome && job.outcome.cause;
    if (cause) {
      const who = [cause.process, cause.host && `on ${cause.host}`].filter(Boolean).join(" ");
      top.append(el("div", { class: "cause" }, el("b", {}, `${who || "the job"}: ${cause.what}`), cause.error ? el("pre", { tabindex: 0 }, cause.error) : null));
    }
    const fact = (name, value, more) => el("div", {}, el("dt", {}, name), el("dd", {}, value, more ? el("small", {}, more) : null));
    const { bill } = data;
    const cpus = hosts.reduce((sum, host) => sum + host.cpus, 0), gpus = hosts.reduce((sum, host) => sum + host.gpus, 0);
    top.append(el("dl", { class: "facts" },
      fact("Duration", duration(job.seconds), `from ${job.began}`),
      fact("Hosts", String(hosts.length + job.missing), [job.instances.join(", "), `${cpus} CPUs${gpus ? `, ${gpus} GPUs` : ""}`].filter(Boolean).join(" · ")),
      fact("Mode", { ps: "parameter servers", mwms: "multi-worker mirrored", mpi: "MPI, Horovod", jax: "JAX", single: "single" }[job.mode] || job.mode || "unknown"),
      fact("Host-hours", (bill.total / 3600).toPrecision(3), bill.price === null ? "no price given" : `${usd(bill.total)} at $${bill.price} an hour`),
      fact("Idle", bill.total ? share(bill.idle / bill.total) : "–", bill.price === null ? `${duration(bill.idle)} of hosts` : `${duration(bill.idle)} of hosts, ${usd(bill.idle)}`)));
    if (data.notes.length) top.append(el("ul", { class: "notes warning", "aria-label": "What is wrong with the records" }, ...data.notes.map(note => el("li", {}, note))));
  }

  function verdicts() {
    const words = { error: "error", warning: "warning", note: "note" };
    at("verdicts").append(data.verdicts.length
      ? el("ol", { class: "verdicts" }, ...data.verdicts.map(verdict => el("li", { class: verdict.severity },
        el("p", { class: "head" }, el("span", { class: "word" }, words[verdict.severity]), el("b", {}, verdict.rule.replace(/_/g, " ")), el("span", { class: "where" }, [verdict.process, verdict.host].filter(Boolean).join(" on "))),
        el("p", {}, verdict.text[0].toUpperCase() + verdict.text.slice(1) + "."), el("p", { class: "do" }, el("b", {}, "What to do: "), verdict.advice + "."))))
      : el("p", { class: "none-said none" }, hosts.length ? "No problems found." : "There are no records to judge."));
    const rules = Object.entries(data.rules).map(([name, value]) => `${name}=${value}`).join(", ");
    at("verdicts").append(el("details", {}, el("summary", {}, "Thresholds of the rules"), el("p", { class: "muted" }, `ENTRYPOINT_RULES="${rules}"`)));
  }

  // ---- timeline ----

  function timeline() {
    if (!hosts.length) return hide("timeline");
    const used = new Set(hosts.flatMap(host => [...host.spans, ...host.processes.flatMap(process => process.spans)].map(span => span[0])));
    const total = hosts.reduce((sum, host) => sum + host.processes.length, 0);
    const box = el("div", { class: "rows", tabindex: 0, role: "group", "aria-label": "Timeline of hosts and processes; the table of the bill has its sums" });
    const choice = el("select", { id: "rows" }, ...["Hosts and processes", "Hosts"].map((name, number) => el("option", { value: number }, name)));
    choice.value = total > 40 ? 1 : 0;
    at("timeline").append(
      el("ul", { class: "legend", "aria-label": "Phases" }, ...data.phases.filter((_, number) => used.has(number)).map(phase => el("li", {}, swatch(phase), called(phase)))),
      el("div", { class: "controls" }, el("label", { for: "rows" }, "Show"), choice), box);
    const draw = () => {
      const wide = box.clientWidth || 800, left = wide < 600 ? 88 : 150, right = 8, scale = (wide - left - right) / (job.seconds || 1);
      const [defs, fill] = fills();
      const rows = hosts.flatMap(host => [[host.name, host.spans, true, []], ...(choice.value === "0" ? host.processes.filter(process => process.spans.length).map(process => [process.name, process.spans, false, process.ticks]) : [])]);
      const heights = rows.map(row => row[2] ? (hosts.length > 30 ? 14 : 22) : 13), head = 20;
      const high = head + heights.reduce((sum, h) => sum + h, 0) + 4;
      const svg = el("svg", { width: wide - 2, height: high, role: "img", "aria-label": `${hosts.length} hosts over ${duration(job.seconds)}` }, defs);
      const step = NICE.find(s => s * scale > 70) || 604800;
      for (let t = 0; t <= job.seconds; t += step) svg.append(el("line", { class: "grid", x1: left + t * scale, x2: left + t * scale, y1: head - 4, y2: high }), el("text", { class: "sub", x: left + t * scale, y: 12, "text-anchor": !t ? "start" : t * scale > wide - left - right - 20 ? "end" : "middle" }, tick(t)));
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
    choice.addEventListener("change", draw);
    let before = 0;
    new ResizeObserver(() => { if (box.clientWidth !== before) { before = box.clientWidth; draw(); } }).observe(box);
    draw();
  }

  // ---- bill ----

  function bill() {
    const { phases, total, idle, price } = data.bill;
    if (!total) return hide("bill");
    const about = name => data.phases.find(phase => phase.name === name);
    const [defs, fill] = fills();
    const bar = el("svg", { "aria-hidden": "true", preserveAspectRatio: "none" }, defs);
    let x = 0;
    for (const [name, seconds] of phases) {
      bar.append(el("rect", { x: `${100 * x / total}%`, width: `${100 * seconds / total}%`, height: "100%", fill: fill(about(name)) }, el("title", {}, `${called(about(name))}: ${share(seconds / total)}`)));
      x += seconds;
    }
    const head = names => el("thead", {}, el("tr", {}, ...names.map(name => el("th", { scope: "col" }, name))));
    const money = price === null ? [] : ["USD"], cost = seconds => price === null ? [] : [el("td", {}, usd(seconds))];
    const row = (name, seconds, cls, mark) => el("tr", { class: cls }, el("th", { scope: "row" }, mark, name), el("td", {}, duration(seconds)), el("td", {}, share(seconds / total)), ...cost(seconds));
    const table = el("table", { class: "plain" }, head(["Hosts were at", "Host-time", "Share", ...money]),
      el("tbody", {}, ...phases.map(([name, seconds]) => row(called(about(name)), seconds, about(name).idle ? "idle" : "", swatch(about(name), "swatch")))),
      el("tfoot", {}, row("All", total, "", null), row("of that idle", idle, idle ? "idle" : "", null)));
    const order = hosts.map((host, number) => [host, data.bill.hosts[number]]);
    const by = el("table", { class: "plain" }, head(["Host", ...phases.map(([name]) => name), "idle in all"]),
      el("tbody", {}, ...order.map(([host, sums]) => el("tr", {}, el("th", { scope: "row" }, host.name), ...sums.map(sum => el("td", {}, sum ? duration(sum) : "–")), el("td", {}, duration(sums.reduce((all, sum, number) => all + (about(phases[number][0]).idle ? sum : 0), 0)))))));
    at("bill").append(el("div", { class: "bar" }, bar), el("div", { class: "scroll wide" }, table));
    if (price === null) at("bill").append(el("p", { class: "muted" }, "To see costs, make the report again: entrypoint report FOLDER --price USD_PER_HOST_HOUR"));
    at("bill").append(el("details", {}, el("summary", {}, "By host"), el("div", { class: "scroll wide", tabindex: 0 }, by)));
  }

  // ---- plots ----

  const LINES = ["blue", "orange", "green", "pink", "sky", "red", "yellow", "grey"];
  const DASHES = [[], [6, 3], [2, 3]];
  const times = Array.from({ length: count }, (_, number) => (number + 0.5) * width);
  const plots = [];
  const seen = column => column && column.some(value => value !== null);
  const zeros = column => column || new Array(count).fill(0);

  /** A plot: series are {name, values, colour}; stacked ones lie one on another. */
  function plot(into, title, unit, series, { stacked = false, range = null } = {}) {
    series = series.filter(each => seen(each.values));
    if (!series.length) return false;
    const raw = series.map(each => each.values), drawn = raw.map(values => values.slice());
    if (stacked) for (let number = 1; number < drawn.length; number++) drawn[number] = drawn[number].map((value, i) => value === null || drawn[number - 1][i] === null ? null : value + drawn[number - 1][i]);
    const order = series.map((_, number) => number);
    if (stacked) order.reverse(); // the highest first, the others over it
    const box = el("div", { class: "plot", role: "group", "aria-label": `${title}${unit ? `, ${unit}` : ""}: ${series.map(each => each.name).join(", ")}` }, el("h3", {}, title, unit ? el("span", {}, `  ${unit}`) : null));
    into.append(box);
    const short = value => value === null || value === undefined ? "–" : Math.abs(value) >= 1e5 || (value && Math.abs(value) < 1e-3) ? value.toExponential(1) : String(+value.toPrecision(4));
    const axis = { stroke: () => css("ink-2"), grid: { stroke: () => css("grid"), width: 1 }, ticks: { stroke: () => css("grid"), size: 4 }, font: "11px system-ui, sans-serif" };
    const made = new uPlot({
      width: 480, height: 170, cursor: { sync: { key: "t" }, points: { show: !stacked } },
      legend: { live: true }, padding: [8, 20, 0, 0],
      scales: { x: { time: false, range: [0, job.seconds || 1] }, y: { range: range || ((_, low, high) => [Math.min(0, low), high > 0 ? high * 1.08 : 1]) } },
      axes: [{ ...axis, size: 26, space: 64, incrs: NICE, values: (_, ticks) => ticks.map(tick) }, { ...axis, size: 50, values: (_, ticks) => ticks.map(short) }],
      series: [{ label: "time", value: (_, t) => t === null ? "–" : clock(t) }, ...order.map(number => ({
        label: series[number].name, spanGaps: true, width: stacked ? 0 : 1.5, stroke: () => css(series[number].colour), points: { show: count < 3 || raw[number].filter(value => value !== null).length < 3 },
        fill: stacked ? () => css(series[number].colour) : undefined, dash: stacked ? undefined : series[number].dash, value: (_, __, ___, i) => i === null || i === undefined ? "–" : short(raw[number][i]),
      }))],
    }, [times, ...order.map(number => drawn[number])], box);
    plots.push([made, box]);
    return true;
  }
  /** Make plots as wide as their places: these change with the window, and as others come beside them. */
  function fit() {
    for (const [made, box] of plots) {
      const wide = Math.max(240, box.clientWidth);
      if (made.width !== wide) made.setSize({ width: wide, height: 170 });
    }
  }
  const lines = named => named.map(([name, values], number) => ({ name, values, colour: LINES[number % LINES.length], dash: DASHES[Math.floor(number / LINES.length) % 3] }));

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
    const choice = el("select", { id: "host" }, ...(hosts.length > 1 ? [el("option", { value: "mean" }, `all ${hosts.length} hosts, on average`)] : []), ...(hosts.length > 1 && hosts.length <= 24 ? [el("option", { value: "compare" }, "all hosts side by side")] : []), ...hosts.map((host, number) => el("option", { value: number }, host.name)));
    const box = el("div", { class: "plots" });
    at("use").append(el("div", { class: "controls" }, el("label", { for: "host" }, "Host"), choice), box);
    const CPU = [["user", "green"], ["system", "blue"], ["disks", "orange"], ["stolen", "red"], ["throttled", "pink"]];
    const draw = () => {
      plots.splice(0, plots.length, ...plots.filter(([made, where]) => { const goes = box.contains(where); if (goes) made.destroy(); return !goes; }));
      box.replaceChildren();
      const column = (host, name) => host.seen ? host.columns[name] || zeros().map((zero, i) => i < host.seen[0] || i > host.seen[1] ? null : zero) : null;
      if (choice.value === "compare") {
        const each = (title, unit, value) => plot(box, title, unit, lines(hosts.map(host => [host.name, value(host)])));
        const sum = (host, names) => { const parts = names.map(name => column(host, name)); return parts[0] && parts[0].map((_, i) => parts.some(part => part[i] === null) ? null : parts.reduce((all, part) => all + part[i], 0)); };
        each("CPUs", "% busy", host => scaled(sum(host, ["cpu user", "cpu system"]), 100 / host.cpus));
        each("Memory of programs", "GB", host => scaled(column(host, "memory programs"), 1e-3));
        each("Network", "MB/s, both ways", host => sum(host, ["net received", "net sent"]));
        each("Disks", "MB/s, both ways", host => sum(host, ["disk read", "disk written"]));
        const gpus = host => mean(Object.keys(host.columns).filter(name => /^gpu \d+$/.test(name)).map(name => host.columns[name]));
        if (hosts.some(host => host.gpus)) each("GPUs", "% busy", host => scaled(gpus(host), 100));
        return;
      }
      const chosen = choice.value === "mean" ? hosts : [hosts[+choice.value]];
      const all = (name, unit = () => 1) => mean(chosen.map(host => scaled(column(host, name), unit(host))));
      const any = name => chosen.some(host => host.columns[name]);
      const some = (title, unit, names, options, factor) => { const known = names.filter(([, name]) => any(name)); if (known.length) plot(box, title, unit, known.map(([label, name, colour]) => ({ name: label, values: all(name, factor), colour })), options); };
      plot(box, "CPUs", "% of the host's, by state", CPU.filter(([name]) => any(`cpu ${name}`)).map(([name, colour]) => ({ name: name === "disks" ? "waits for disks" : name, values: all(`cpu ${name}`, host => 100 / host.cpus), colour })), { stacked: true, range: (_, low, high) => [0, Math.max(100, high)] });
      const limit = chosen.length === 1 && chosen[0].memory ? `, of ${bytes(chosen[0].memory * 1e6)}` : "";
      some("Memory", `GB${limit}`, [["programs", "memory programs", "blue"], ["page cache", "memory cache", "sky"]], { stacked: true }, () => 1e-3);
      const gpus = [...new Set(chosen.flatMap(host => Object.keys(host.columns).filter(name => /^gpu \d+$/.test(name))))].sort();
      if (gpus.length) {
        plot(box, "GPUs", "% busy", lines(gpus.map(name => [name, all(name, () => 100)])), { range: [0, 100] });
        plot(box, "GPU memory", "% held", lines(gpus.map(name => [name, all(name.replace("gpu", "gpu memory"), () => 100)])), { range: [0, 100] });
      }
      some("Network", "MB/s", [["received", "net received", "blue"], ["sent", "net sent", "orange"]]);
      some("Disks", "MB/s", [["read", "disk read", "blue"], ["written", "disk written", "orange"]]);
      const pipes = [...new Set(chosen.flatMap(host => Object.keys(host.columns).filter(name => name.startsWith("fifo "))))].sort();
      if (pipes.length) plot(box, "Pipes of channels", "% filled", lines(pipes.map(name => [name.slice(5), all(name, () => 100)])), { range: [0, 100] });
      some("Free on the disk of models", chosen.length === 1 && chosen[0].disk ? `GB, of ${chosen[0].disk}` : "GB", [["free", "free", "green"]]);
      if (chosen.length === 1) {
        const processes = chosen[0].processes.filter(process => process.cpu && process.role !== "prepare");
        if (processes.length) plot(box, "CPUs by process", "CPUs", lines(processes.map(process => [process.name, process.cpu])));
        const held = chosen[0].processes.filter(process => process.memory && process.role !== "prepare");
        if (held.length) plot(box, "Memory by process", "GB", lines(held.map(process => [process.name, scaled(process.memory, 1e-3)])));
      }
    };
    choice.addEventListener("change", () => { draw(); fit(); });
    draw();
  }

  function training() {
    const box = el("div", { class: "plots" });
    at("training").append(box);
    const name = line => hosts.length > 1 ? `${line.process} ${hosts[line.host].name}` : line.process;
    const MOST = 16;
    let shown = data.rates;
    if (shown.length > MOST) { // the slowest and the fastest, by what the table of stragglers tells of all
      const sum = line => line.values.reduce((all, value) => all + (value || 0), 0);
      const sorted = [...shown].sort((a, b) => sum(a) - sum(b));
      shown = [...sorted.slice(0, MOST / 2), ...sorted.slice(-MOST / 2)];
    }
    let drawn = plot(box, "Steps", data.rates.length > MOST ? `a second; the ${MOST / 2} slowest and fastest of ${data.rates.length} processes` : "a second", lines(shown.map(line => [name(line), line.values])));
    for (const metric of data.metrics) {
      const low = (_, low, high) => { const room = (high - low || Math.abs(high) || 1) * 0.08; return [low >= 0 && low < (high - low) ? 0 : low - room, high + room]; };
      const more = metric.processes > metric.lines.length ? `the first ${metric.lines.length} of ${metric.processes} processes` : "";
      drawn = plot(box, metric.name, more, lines(metric.lines.map(line => [name(line), line.values])), { range: low }) || drawn;
    }
    if (!drawn) at("training").append(el("p", { class: "muted" }, "No steps or metrics found. What programs print as step=3 loss=0.5, or by Keras' progress bar, is recognised; ENTRYPOINT_METRICS adds others."));
  }

  // ---- tables ----

  function pace() {
    const rows = data.stragglers;
    if (rows.length < 2) return hide("pace");
    const sorted = rows.map(row => row[2]).sort((a, b) => a - b), median = sorted[Math.floor((sorted.length - 1) / 2)];
    const table = of => el("table", { class: "plain" }, el("thead", {}, el("tr", {}, ...["Process", "Host", "Seconds a step", "Times the median", "Steps"].map(name => el("th", { scope: "col" }, name)))),
      el("tbody", {}, ...of.map(([host, process, seconds, steps]) => { const slow = median && seconds / median >= (data.rules.straggler || Infinity); return el("tr", { class: slow ? "idle" : "" }, el("th", { scope: "row" }, process), el("td", {}, hosts[host].name), el("td", {}, duration(seconds)), el("td", {}, median ? `${(seconds / median).toFixed(2)}×${slow ? " slow" : ""}` : "–"), el("td", {}, steps === null ? "–" : String(steps))); })));
    at("pace").append(el("p", { class: "muted" }, "The mean time of a step of each process, the slowest first."), el("div", { class: "scroll wide", tabindex: 0 }, table(rows.slice(0, 12))));
    if (rows.length > 12) at("pace").append(el("details", {}, el("summary", {}, `All ${rows.length}`), el("div", { class: "scroll wide", tabindex: 0 }, table(rows))));
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
    const rows = hosts.flatMap(host => host.channels.map(channel => [channel, host]));
    if (!rows.length) return hide("data-read");
    const cells = ([channel, host]) => el("tr", {}, el("th", { scope: "row" }, channel.name), el("td", {}, host.name), el("td", {}, channel.mode || "–"), el("td", {}, channel.distribution || "–"), el("td", {}, channel.files === undefined ? "–" : `${channel.more ? "≥ " : ""}${channel.files.toLocaleString("en")}`), el("td", {}, channel.bytes === undefined ? "–" : bytes(channel.bytes)));
    const table = of => el("div", { class: "scroll wide", tabindex: 0 }, el("table", { class: "plain" }, el("thead", {}, el("tr", {}, ...["Channel", "Host", "Mode", "Distribution", "Files", "Size"].map(name => el("th", { scope: "col" }, name)))), el("tbody", {}, ...of.map(cells))));
    at("data-read").append(table(rows.slice(0, 16)));
    if (rows.length > 16) at("data-read").append(el("details", {}, el("summary", {}, `All ${rows.length}`), table(rows)));
  }

  function stacks() {
    if (!data.stacks.length) return hide("stacks");
    data.stacks.forEach((stack, number) => at("stacks").append(el("details", number ? {} : { open: "" }, el("summary", {}, `${stack.process} on ${stack.host} at ${clock(stack.at)}: ${[stack.place, stack.inside].filter(Boolean).join(", in ") || "an unknown place"}`), el("pre", { class: "stack", tabindex: 0 }, stack.text))));
  }

  function log() {
    if (!data.said.length) return hide("log");
    at("log").append(el("div", { class: "log", tabindex: 0, role: "log", "aria-label": "Lines of the launcher" }, ...data.said.map(([t, host, words]) => el("div", { class: /^(error|warning)|failed|lost|killed/.test(words) ? "bad" : "" }, el("i", {}, clock(t)), " ", el("b", {}, hosts[host].name), ` ${words}`))));
  }

  for (const part of [header, verdicts, timeline, bill, training, utilisation, pace, traffic, channels, stacks, log]) part();

  // ---- width and colours change ----

  fit();
  addEventListener("resize", fit);
  const again = () => plots.forEach(([made]) => made.redraw(false, true));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  document.documentElement.dataset.ready = "yes";
})();
