"use strict";
// Filters, sorts and draws what the page's JSON document holds. Text of records is only ever set as text.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement, by = (id) => document.getElementById(id);
  const rows = new Map(data.rows.map((row) => [row.n, row]));
  const table = document.querySelector("table.rows"), controls = by("controls");
  const charts = {}, picked = {}, narrow = () => window.innerWidth < 740;
  let shown = data.rows, colourBy = "regime", focus = -1;
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
    return tip([`#${row.n} ${row.cell}`, `forecast ${row.said} ${row.forecast}%${interval}`,
      `measured ${row.regime} ${row.percent.toFixed(1)}%, ${row.time}`, `gap ${signed(row.gap)} points, ${row.sight}`,
      row.campaign]);
  }

  const base = () => ({
    animation: false, backgroundColor: "transparent", textStyle: { color: css("--ink"), fontFamily: "system-ui, sans-serif" },
    tooltip: { confine: true, backgroundColor: css("--soft"), borderColor: css("--line"), textStyle: { color: css("--ink") },
      formatter: (point) => (rows.has(point.data.n) ? rowTip(rows.get(point.data.n)) : tip([point.seriesName])) },
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
    data: members.map((row) => ({ value: [row[x], row[y]], n: row.n })),
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
      grid: { left: 64, right: named ? 300 : 14, top: 16, bottom: 84 },
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
        line("interval", intervals, { color: css("--dim"), width: 2, opacity: 0.35 }, { z: 2 }), ...dots(measured, "forecast", "percent")] };
  }

  function calibration() {
    const size = (count) => Math.min(22, 6 + Math.sqrt(count));
    return { ...base(), grid: { left: 58, right: 18, top: 16, bottom: 58 },
      xAxis: axis("stated probability of a regime, percent", { type: "value", min: 0, max: 100 }),
      yAxis: axis("how often it was measured, percent", { type: "value", min: 0, max: 100 }),
      series: [line("perfect", [[0, 0], [100, 100]], { color: css("--dim"), width: 1, type: "dotted" }),
        { name: "calibration", type: "scatter", itemStyle: { color: css("--hbm") }, data: data.calibration.map((bin) => ({
          value: [100 * bin.stated, 100 * bin.observed], symbolSize: size(bin.count),
          tooltip: { formatter: () => tip([`stated ${(100 * bin.stated).toFixed(0)}%, measured ${(100 * bin.observed).toFixed(0)}%`,
            `${bin.count} probabilities`]) } })) }] };
  }

  function track() {
    const at = (number) => data.track[number];
    const percent = (value) => (value === null ? "–" : `${(100 * value).toFixed(0)}%`);
    return { ...base(), grid: { left: 52, right: 52, top: 34, bottom: narrow() ? 110 : 96 },
      legend: { top: 0, textStyle: { color: css("--ink") } },
      tooltip: { ...base().tooltip, trigger: "axis", formatter: ([point]) => { const one = at(point.dataIndex); return tip(
        [`${one.name}, ${one.date}`, `${one.measured} measured, mean gap ${one.error.toFixed(1)}, signed ${signed(one.bias)}`,
          `in interval ${percent(one.inside)}, regime right ${percent(one.right)}`]); } },
      xAxis: axis("", { type: "category", data: data.track.map((one) => one.name), axisLabel: { color: css("--dim"), rotate: 35,
        width: 120, overflow: "truncate" } }),
      yAxis: [axis("mean gap, points", { type: "value", min: 0 }),
        axis("percent of cells", { type: "value", min: 0, max: 100, splitLine: { show: false } })],
      series: [{ name: "mean gap", type: "bar", itemStyle: { color: css("--hbm"), opacity: 0.55 }, data: data.track.map((one) => one.error) },
        ...[["regime right", "right", "--l2"], ["in interval", "inside", "--latency"]].map(([name, key, variable]) => ({
          name, type: "line", yAxisIndex: 1, symbolSize: 6, lineStyle: { color: css(variable) }, itemStyle: { color: css(variable) },
          data: data.track.map((one) => (one[key] === null ? "-" : 100 * one[key])) }))] };
  }

  function draw() {
    const measured = shown.filter((row) => row.percent !== null), placed = measured.filter((row) => row.x !== null);
    focus = -1;
    const options = { roofline: () => roofline(placed), against: () => against(measured), calibration, track };
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
    body.querySelector("details")?.setAttribute("open", "");
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
      series.data.map((point, dataIndex) => ({ seriesIndex, dataIndex, n: point.n }))));
    if (!points.length) return;
    focus = (focus + by_ + points.length) % points.length;
    chart.dispatchAction({ type: "showTip", seriesIndex: points[focus].seriesIndex, dataIndex: points[focus].dataIndex });
    const row = rows.get(points[focus].n);
    say(chart, row ? [...rowTip(row).children].map((part) => part.textContent).join("; ") : "");
    chart.chosen = points[focus].n;
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
    colourBy = by("colour").value;
    shown = data.rows.filter((row) => Object.entries(picked).every(([key, value]) => !value || row[key] === value) &&
      (!words || by("row-" + row.n).textContent.toLowerCase().includes(words)));
    const kept = new Set(shown.map((row) => row.n));
    for (const row of data.rows) by("row-" + row.n).hidden = !kept.has(row.n);
    by("count").textContent = `${shown.length} of ${data.rows.length} rows`;
    draw();
  }
  controls.addEventListener("input", filter);
  controls.addEventListener("submit", (event) => event.preventDefault());
  controls.addEventListener("reset", () => setTimeout(filter));

  function sort(heading, key) {
    const down = heading.getAttribute("aria-sort") !== "descending", way = down ? -1 : 1;
    const value = (row) => (key === "gap" && row.gap !== null ? Math.abs(row.gap) : row[key]);
    const order = [...data.rows].sort((one, other) => {
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
