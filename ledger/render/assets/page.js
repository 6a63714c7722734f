"use strict";
// Filters, sorts and draws what the page's JSON document holds. Text of records is only ever set as text.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  // Columns of places among different values become rows.
  const columns = Object.entries(data.rows), count = columns[0][1][1].length;
  const all = Array.from({ length: count }, (_, row) =>
    Object.fromEntries(columns.map(([key, [values, places]]) => [key, values[places[row]]])));
  for (const [place, row] of all.entries()) {
    row.place = place;
    row.gap = row.percent === null ? null : row.percent - row.forecast;
    // At the same work, rates are to each other as percents of the same roof.
    row.from = row.rate === null ? null : (row.rate * row.forecast) / row.percent;
    row.named = row.named ? row.named.split(",").map(Number) : [];
    row.shares = row.shares && row.shares.split(",").map(Number);
  }
  // A forecast that was measured again has a row for each run.
  const forecasts = (several) => several.filter((row) => !row.again).length;
  const root = document.documentElement, by = (id) => document.getElementById(id);
  // The forecast that stands for a case: the first of those chosen.
  const rows = new Map(), leads = new Map(all.filter((row) => row.leads).map((row) => [row.n, row]));
  const table = document.querySelector("table.rows"), controls = by("controls");
  const charts = {}, picked = {}, narrow = () => window.innerWidth < 740;
  let shown = all, colourBy = "regime", focus = -1;
  root.classList.add("script");

  const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b58900", "#6b4fbb", "#56b4e9", "#a0522d", "#17a2a2",
    "#bc3754", "#7f9f1a", "#a3378a", "#7f7f7f", "#4a7c2c"];
  const colour = (key, number) =>
    colourBy === "regime" ? css("--" + key.replace("-bound", "")) || css("--none") : COLOURS[number % COLOURS.length];
  const digits = (value) => String(value).replace(/[-0-9]/g, (c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c]));
  const power = (value) => "10" + digits(Math.round(Math.log10(value)));
  const signed = (value) => (value < 0 ? "−" : "+") + Math.abs(value).toFixed(1);

  function tip(lines) {
    const box = document.createElement("div");
    box.className = "tip";
    lines.forEach((line, number) => {
      const part = document.createElement(number ? "div" : "b");
      part.textContent = line;
      box.append(part);
    });
    return box;
  }

  function rowTip(row) {
    const interval = row.low === null ? "" : ` (${row.low}–${row.high})`;
    return tip([`#${row.n} ${row.cell}`, `forecast ${row.said} ${row.forecast}%${interval} by ${row.forecaster}`,
      `measured ${row.regime} ${row.percent.toFixed(1)}%, ${row.time}`, `gap ${signed(row.gap)} points, ${row.sight}`,
      row.campaign]);
  }

  const base = () => ({
    animation: false, backgroundColor: "transparent", textStyle: { color: css("--ink"), fontFamily: "system-ui, sans-serif" },
    tooltip: { confine: true, backgroundColor: css("--soft"), borderColor: css("--line"), textStyle: { color: css("--ink") },
      formatter: (point) => (point.data.row >= 0 ? rowTip(all[point.data.row]) : tip([point.seriesName])) },
  });
  const axis = (name, more) => ({
    name, nameLocation: "middle", nameGap: 34, nameTextStyle: { color: css("--dim") }, axisLabel: { color: css("--dim") },
    axisLine: { show: true, lineStyle: { color: css("--dim") } }, splitLine: { lineStyle: { color: css("--line"), opacity: 0.6 } },
    minorTick: { show: false }, ...more,
  });
  const zoom = () => ["x", "y"].map((axisName) => ({
    type: "inside", [axisName + "AxisIndex"]: 0, filterMode: "none", zoomOnMouseWheel: "ctrl",
    moveOnMouseMove: !matchMedia("(pointer: coarse)").matches, moveOnMouseWheel: false, preventDefaultMouseMove: false,
  }));
  const line = (name, points, style, more) => ({
    name, type: "line", data: points, symbol: "none", lineStyle: style, itemStyle: { color: style.color }, silent: true, z: 1,
    emphasis: { disabled: true }, ...more,
  });

  function groups(measured) {
    const found = new Map();
    for (const row of measured) {
      const key = row[colourBy] || "none";
      found.set(key, [...(found.get(key) || []), row]);
    }
    return [...found].sort((one, other) => (one[0] < other[0] ? -1 : 1));
  }
  const dots = (measured, x, y) => groups(measured).map(([key, members], number) => ({
    name: key, type: "scatter", symbolSize: 8, z: 3, itemStyle: { color: colour(key, number), opacity: 0.85 },
    data: members.map((row) => ({ value: [row[x], row[y]], n: row.n, row: row.place })),
  }));
  const legend = (measured) => ({
    type: "scroll", bottom: 0, textStyle: { color: css("--ink") }, pageTextStyle: { color: css("--ink") },
    pageIconColor: css("--link"), data: groups(measured).map(([key]) => key),
  });

  // By how many pixels the name of a ceiling moves so that none covers another.
  const moved = (roof) => by("roofline").clientHeight < 500 ? 0 : (by("roofline").clientHeight - 100) *
    (Math.log(roof.points[1][1] / data.y[0]) / Math.log(data.y[1] / data.y[0]) - roof.level);

  function roofline(measured) {
    const named = window.innerWidth > 1000, kinds = { datasheet: "solid", burst: "dashed", sustained: "dotted" };
    const drawn = data.roofs.filter((roof) => !picked.gpu || roof.gpu === picked.gpu);
    const roofs = drawn.map((roof) => line(roof.label, roof.points,
      { color: css("--dim"), width: roof.thin ? 0.8 : 1.2, type: kinds[roof.kind] }, {
        silent: false, triggerLineEvent: true,
        endLabel: { show: named && roof.level !== null, formatter: "{a}", color: css("--dim"), fontSize: 11,
          offset: [6, moved(roof)] },
      }));
    const arrows = measured.flatMap((row) => [[row.x, row.from], [row.x, row.rate], ["-", "-"]]);
    return { ...base(), legend: legend(measured), dataZoom: zoom(),
      grid: { left: 64, right: named ? 366 : 14, top: named ? 34 : 16, bottom: 84 },
      xAxis: axis("FLOP per byte of compulsory DRAM traffic",
        { type: "log", min: data.x[0], max: data.x[1], axisLabel: { color: css("--dim"), formatter: power, showMinLabel: false, showMaxLabel: false } }),
      yAxis: axis("FLOP/s",
        { type: "log", min: data.y[0], max: data.y[1], nameGap: 44, axisLabel: { color: css("--dim"), formatter: power, showMinLabel: false, showMaxLabel: false } }),
      series: [...roofs, line("forecast", arrows, { color: css("--dim"), width: 1 }, { z: 2 }), ...dots(measured, "x", "rate")] };
  }

  function against(measured) {
    const most = Math.max(100, ...measured.flatMap((row) => [row.percent, row.forecast, row.high || 0])), end = Math.ceil(most / 10) * 10;
    const intervals = measured.flatMap((row) => (row.low === null ? [] : [[row.low, row.percent], [row.high, row.percent], ["-", "-"]]));
    const edge = (name, by, type) => line(name, [[Math.max(0, -by), Math.max(0, by)], [end, end + by]],
      { color: css("--dim"), width: 1, type }, { silent: false, triggerLineEvent: true });
    return { ...base(), legend: legend(measured), dataZoom: zoom(), grid: { left: 58, right: 18, top: 16, bottom: 84 },
      xAxis: axis("forecast, percent of the roof", { type: "value", min: 0, max: end }),
      yAxis: axis("measured, percent of the roof", { type: "value", min: 0, max: end }),
      series: [edge("forecast = measured", 0, "solid"), edge("5 points above", 5, "dotted"), edge("5 points below", -5, "dotted"),
        line("interval", intervals, { color: css("--dim"), width: 2, opacity: measured.length > 800 ? 0.1 : 0.35 }, { z: 2 }), ...dots(measured, "forecast", "percent")] };
  }

  // As ledger/analysis/track_record.py: ten bins, and the Wilson interval at 95%.
  function bins(measured) {
    const found = new Map();
    for (const row of measured) {
      if (!row.shares || !row.named.length) continue;
      row.shares.forEach((share, regime) => {
        const place = Math.min(9, Math.floor(share * 10)), bin = found.get(place) || { count: 0, sum: 0, hits: 0 };
        found.set(place, { count: bin.count + 1, sum: bin.sum + share, hits: bin.hits + row.named.includes(regime) });
      });
    }
    return [...found].sort((one, other) => one[0] - other[0]).map(([, bin]) => {
      const z = 1.959964, n = bin.count, observed = bin.hits / n, scale = 1 + (z * z) / n, middle = (observed + (z * z) / (2 * n)) / scale;
      const half = (z * Math.sqrt((observed * (1 - observed)) / n + (z * z) / (4 * n * n))) / scale;
      return { count: n, stated: bin.sum / n, observed, low: Math.max(0, middle - half), high: Math.min(1, middle + half) };
    });
  }

  const whole = (share) => `${(100 * share).toFixed(0)}%`;

  function calibration(measured) {
    const size = (number) => Math.min(22, 6 + Math.sqrt(number)), found = bins(measured);
    fill(document.querySelector("#calibrated tbody"), found.map((bin) =>
      [whole(bin.stated), whole(bin.observed), `${whole(bin.low)} to ${whole(bin.high)}`, String(bin.count)]));
    return { ...base(), grid: { left: 58, right: 18, top: 16, bottom: 58 },
      xAxis: axis("stated probability of a regime, percent", { type: "value", min: 0, max: 100 }),
      yAxis: axis("how often it was measured, percent", { type: "value", min: 0, max: 100 }),
      series: [line("perfect", [[0, 0], [100, 100]], { color: css("--dim"), width: 1, type: "dotted" }),
        { name: "calibration", type: "scatter", itemStyle: { color: css("--hbm") }, data: found.map((bin) => ({
          value: [100 * bin.stated, 100 * bin.observed], symbolSize: size(bin.count),
          tooltip: { formatter: () => tip([`stated ${whole(bin.stated)}, measured ${whole(bin.observed)}`,
            `${bin.count} probabilities`]) } })) }] };
  }

  function fill(body, lines) {
    body.replaceChildren(...lines.map((words) => {
      const row = document.createElement("tr");
      words.forEach((word, number) => { const cell = row.insertCell(); cell.textContent = word; if (number) cell.className = "number"; });
      return row;
    }));
  }

  function confuse(measured) {
    const place = by("confusion");
    if (!place) return;
    const names = place.querySelector("[data-regimes]").dataset.regimes.split(",");
    const known = measured.filter((row) => row.right !== null);
    names.forEach((said, line) => {
      const own = known.filter((row) => row.said === said), cells = place.tBodies[0].rows[line].querySelectorAll("td");
      names.forEach((other, column) => {
        const many = own.filter((row) => (row.right ? said : data.regimes[row.named[0]]) === other).length;
        const shade = many ? 1 + Math.min(2, Math.floor((3 * many) / (own.length + 1))) : 0;
        cells[column].textContent = many || "·";
        cells[column].className = `number share${shade}${said === other ? " right" : ""}`;
      });
    });
  }

  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

  const order = new Map(data.seals.map((one, number) => [one.seal, number]));

  function track(measured) {
    const found = [], known = new Map(data.seals.map((one) => [one.seal, one])), places = new Map();
    // Seals of one campaign by one forecaster are one; seals come in their order.
    const ordered = [...measured].sort((one, other) => order.get(one.seal) - order.get(other.seal));
    for (const row of ordered) {
      const key = `${row.campaign} ${row.forecaster}`;
      if (!places.has(key)) places.set(key, found.push({ ...known.get(row.seal), by: row.forecaster, own: [] }) - 1);
      found[places.get(key)].own.push(row);
    }
    for (const one of found) {
      const own = one.own, ranged = own.filter((row) => row.low !== null), judged = own.filter((row) => row.right !== null);
      Object.assign(one, { name: own[0].campaign === "none" ? one.by : own[0].campaign,
        error: mean(own.map((row) => Math.abs(row.gap))), bias: mean(own.map((row) => row.gap)),
        inside: ranged.length ? mean(ranged.map((row) => row.low <= row.percent && row.percent <= row.high)) : null,
        right: judged.length ? mean(judged.map((row) => row.right)) : null });
    }
    const percent = (value) => (value === null ? "–" : whole(value));
    return { ...base(), grid: { left: 52, right: 52, top: 34, bottom: narrow() ? 110 : 96 },
      legend: { top: 0, textStyle: { color: css("--ink") } },
      tooltip: { ...base().tooltip, trigger: "axis", formatter: ([point]) => { const one = found[point.dataIndex]; return tip(
        [`${one.name} by ${one.by}, ${one.date}`, `${one.own.length} measured, mean gap ${one.error.toFixed(1)}, signed ${signed(one.bias)}`,
          `in interval ${percent(one.inside)}, regime right ${percent(one.right)}`]); } },
      xAxis: axis("", { type: "category", data: found.map((one) => one.name), axisLabel: { color: css("--dim"), rotate: 35,
        width: 120, overflow: "truncate" } }),
      yAxis: [axis("mean gap, points", { type: "value", min: 0 }),
        axis("percent of cells", { type: "value", min: 0, max: 100, splitLine: { show: false } })],
      series: [{ name: "mean gap", type: "bar", itemStyle: { color: css("--hbm"), opacity: 0.55 }, data: found.map((one) => one.error) },
        ...[["regime right", "right", "--l2"], ["in interval", "inside", "--latency"]].map(([name, key, variable]) => ({
          name, type: "line", yAxisIndex: 1, symbolSize: 6, lineStyle: { color: css(variable) }, itemStyle: { color: css(variable) },
          data: found.map((one) => (one[key] === null ? "-" : 100 * one[key])) }))] };
  }

  function draw() {
    const measured = shown.filter((row) => row.percent !== null), placed = measured.filter((row) => row.x !== null);
    focus = -1;
    confuse(measured);
    const options = { roofline: () => roofline(placed), against: () => against(measured),
      calibration: () => calibration(measured), track: () => track(measured) };
    for (const [id, option] of Object.entries(options)) {
      if (by(id)) (charts[id] ||= start(by(id))).setOption(option(), true);
    }
  }

  function start(place) {
    const chart = echarts.init(place);
    // A wheel without Ctrl scrolls the page; the library would take it.
    for (const kind of ["wheel", "mousewheel"]) {
      place.addEventListener(kind, (event) => event.ctrlKey || event.stopPropagation(), { capture: true, passive: true });
    }
    new ResizeObserver(() => chart.resize()).observe(place);
    chart.on("click", (point) => rows.has(point.data && point.data.n) && open(point.data.n));
    chart.on("mouseover", { seriesType: "line" }, (point) => say(chart, point.seriesName));
    return chart;
  }

  // For screen readers, and the name of a roof under the pointer.
  const say = (chart, words) => { const place = by(chart.getDom().id + "-said"); if (place) place.textContent = words; };

  function open(n) {
    const body = by("row-" + n);
    body.querySelector("details:last-of-type")?.setAttribute("open", "");
    body.scrollIntoView({ block: "center" });
    body.querySelector("summary")?.focus({ preventScroll: true });
  }

  function scale(chart, factor) {
    chart.getOption().dataZoom.forEach((one, number) => {
      const middle = (one.start + one.end) / 2, half = factor === 0 ? 50 : Math.min(50, ((one.end - one.start) / 2) * factor);
      const from = factor === 0 ? 0 : Math.min(Math.max(0, middle - half), 100 - 2 * half);
      chart.dispatchAction({ type: "dataZoom", dataZoomIndex: number, start: from, end: from + 2 * half });
    });
  }

  function step(chart, by_) {
    const points = chart.getOption().series.flatMap((series, seriesIndex) => (series.type !== "scatter" ? [] :
      series.data.map((point, dataIndex) => ({ seriesIndex, dataIndex, row: point.row }))));
    if (!points.length) return;
    focus = (focus + by_ + points.length) % points.length;
    chart.dispatchAction({ type: "showTip", seriesIndex: points[focus].seriesIndex, dataIndex: points[focus].dataIndex });
    const row = all[points[focus].row];
    say(chart, [...rowTip(row).children].map((part) => part.textContent).join("; "));
    chart.chosen = row.n;
  }

  const KEYS = { ArrowRight: (c) => step(c, 1), ArrowLeft: (c) => step(c, -1), "+": (c) => scale(c, 0.5), "=": (c) => scale(c, 0.5),
    "-": (c) => scale(c, 2), 0: (c) => scale(c, 0), Enter: (c) => c.chosen && open(c.chosen) };
  for (const id of ["roofline", "against"]) {
    by(id)?.addEventListener("keydown", (event) => {
      if (KEYS[event.key] && !event.ctrlKey && !event.metaKey) { KEYS[event.key](charts[id]); event.preventDefault(); }
    });
  }
  for (const button of document.querySelectorAll("button[data-zoom]")) {
    button.addEventListener("click", () => scale(charts[button.dataset.chart], Number(button.dataset.zoom)));
  }

  function filter() {
    for (const one of controls.querySelectorAll("select[data-key]")) picked[one.dataset.key] = one.value;
    const words = by("search").value.toLowerCase();
    const fits = (row, key, value) => (value === "*" ? row.leads : !value || row[key] === value);
    const found = new Map();
    colourBy = by("colour").value;
    shown = all.filter((row) => {
      if (words && !found.has(row.n)) found.set(row.n, by("row-" + row.n).textContent.toLowerCase().includes(words));
      return Object.entries(picked).every(([key, value]) => fits(row, key, value)) && (!words || found.get(row.n));
    });
    rows.clear();
    for (const row of shown) if (!rows.has(row.n) || row.leads) rows.set(row.n, row);
    for (const n of leads.keys()) {
      by("row-" + n).hidden = !rows.has(n);
      if (rows.has(n)) stand(rows.get(n));
    }
    by("count").textContent = `${rows.size} of ${leads.size} rows, ${forecasts(shown)} of ${forecasts(all)} forecasts`;
    draw();
  }

  // Shows a forecast in the row of its case; the sentence below is about the first one.
  function stand(row) {
    const body = by("row-" + row.n), lead = leads.get(row.n);
    if (row.leads && !body.stood) return;
    const [, , said, , , gap, , sight] = body.rows[0].cells;
    body.stood ||= [said, gap, sight].map((cell) => [cell, cell.textContent, cell.className]);
    for (const [cell, words, kind] of body.stood) [cell.textContent, cell.className] = [words, kind];
    body.querySelector(".why span").hidden = row !== lead;
    if (row === lead) return;
    const interval = row.low === null ? "" : ` (${+row.low.toPrecision(3)}–${+row.high.toPrecision(3)})`;
    said.textContent = `${row.said} ${+row.forecast.toPrecision(3)}%${interval} by ${row.forecaster}`;
    gap.textContent = row.gap === null ? "" : signed(row.gap);
    gap.className = `number${row.gap === null ? "" : row.right === false || Math.abs(row.gap) > 5 ? " miss" : " hit"}`;
    sight.textContent = row.sight;
  }
  controls.addEventListener("input", filter);
  controls.addEventListener("submit", (event) => event.preventDefault());
  controls.addEventListener("reset", () => setTimeout(filter));

  function sort(heading, key) {
    const down = heading.getAttribute("aria-sort") !== "descending", way = down ? -1 : 1;
    const value = (row) => (key === "gap" && row.gap !== null ? Math.abs(row.gap) : row[key]);
    const order = [...leads.values()].map((row) => rows.get(row.n) || row).sort((one, other) => {
      const left = value(one), right = value(other);
      if (left === null || right === null) return (left === null) - (right === null);
      return left === right ? one.n - other.n : left < right ? -way : way;
    });
    for (const other of table.querySelectorAll("th")) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    table.append(...order.map((row) => by("row-" + row.n)));
  }
  for (const heading of table.querySelectorAll("th[data-sort]")) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => sort(heading, heading.dataset.sort));
  }

  // Numbers beside a chart are folded, except on paper.
  const unfold = (open_) => { for (const one of document.querySelectorAll("details.numbers")) one.open = open_; };
  unfold(false);
  addEventListener("beforeprint", () => unfold(true));
  addEventListener("afterprint", () => unfold(false));
  const dark = matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", draw);
  filter();
})();
