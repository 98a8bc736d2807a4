"use strict";

const customs = ["drawStyle", "lineWidth", "fillOpacity", "lineInterpolation", "showPoints", "stacking", "spanNulls", "thresholdsStyle", "axisLabel", "axisSoftMax", "axisSoftMin", "gradientMode", "lineStyle", "axisPlacement", "pointSize", "barAlignment"];

const time = new Intl.DateTimeFormat("en-GB", {hour: "2-digit", minute: "2-digit"});
const timeWithSeconds = new Intl.DateTimeFormat("en-GB", {hour: "2-digit", minute: "2-digit", second: "2-digit"});

// across is the time axis of a chart.
const across = () => ({
  type: "time", min: paper.from, max: paper.to, axisLine: {show: false}, axisTick: {show: false}, splitLine: {show: true, lineStyle: {color: "rgba(204,204,220,.08)"}},
  axisLabel: {color: hues.text, fontSize: 12, hideOverlap: true, formatter: (t) => (t % 60000 ? timeWithSeconds : time).format(t)},
});

// tick is a round distance between a few marks from low to high.
function tick(low, high) {
  const raw = (high - low) / 4, ten = Math.pow(10, Math.floor(Math.log10(raw)));
  return ten * [1, 2, 5, 10].find((n) => n * ten >= raw);
}

// drawLines draws a panel of type timeseries.
function drawLines(panel, place) {
  only(panel.title, panel.options, ["legend", "tooltip"]);
  const fields = fieldsOf(panel);
  if (!fields.length) return nothing(panel, place);
  const chart = begin(place);
  const first = fields[0];
  fields.forEach((f) => only(panel.title + ", custom", f.custom, customs));
  oneOf(panel.title, first.custom.axisPlacement, ["auto", "left"]);
  oneOf(panel.title, first.custom.gradientMode, ["none"]);
  const stacked = first.custom.stacking?.mode;
  oneOf(panel.title, stacked, ["none", "normal", "percent"]);
  if (stacked === "percent") share(fields);
  const series = fields.map((f) => lineOf(panel, f, stacked));
  series[0].markLine = {silent: true, symbol: "none", animation: false, label: {show: false}, data: [...limits(panel, first), ...moments()]};
  series[0].markArea = {silent: true, animation: false, data: spans()};
  const values = stacked === "normal" || stacked === "percent" ? sums(fields) : fields.flatMap((f) => f.points.map((p) => p[1]));
  const low = first.min ?? Math.min(0, first.custom.axisSoftMin ?? 0, ...values);
  let high = first.max ?? Math.max(first.custom.axisSoftMax ?? -Infinity, ...values);
  if (!(high > low)) high = low + 1;
  const each = tick(low, high);
  chart.setOption({
    animation: false, grid: {left: 66, right: 14, top: 10, bottom: 24}, xAxis: across(), series,
    yAxis: {type: "value", min: low, max: first.max ?? Math.ceil(high / each) * each, interval: each, splitLine: {lineStyle: {color: "rgba(204,204,220,.08)"}},
      axisLabel: {color: hues.text, fontSize: 12, formatter: (v) => marked(panel.title, first, Math.abs(v) < each / 1e6 ? 0 : Number(v.toPrecision(6)))},
      name: first.custom.axisLabel || "", nameLocation: "middle", nameGap: 52, nameTextStyle: {color: hues.text}},
  });
  const legend = legendOf(panel, fields);
  if (legend) { place.append(legend); chart.resize(); }
}

function lineOf(panel, f, stacked) {
  const c = f.custom;
  const kind = oneOf(panel.title, c.drawStyle, ["line", "bars", "points"]);
  const paint = f.colour || threshold(panel.title, f, calculate(panel, "lastNotNull", f) ?? 0);
  const on = stacked === "normal" || stacked === "percent";
  return {
    // A gap in a stack would let what is above fall; Grafana takes it for 0 too.
    type: kind === "bars" ? "bar" : "line", data: on ? f.points.map(([t, v]) => [t, v ?? 0]) : f.points,
    stack: on ? "all" : undefined, barCategoryGap: "10%", barWidth: kind === "bars" ? "85%" : undefined,
    step: {linear: false, smooth: false, stepAfter: "end", stepBefore: "start"}[oneOf(panel.title, c.lineInterpolation, ["linear", "smooth", "stepAfter", "stepBefore"])],
    smooth: c.lineInterpolation === "smooth", connectNulls: c.spanNulls === true, symbol: "circle",
    showSymbol: c.showPoints === "always" || kind === "points" || (c.showPoints !== "never" && alone(f.points)), symbolSize: c.pointSize ?? 5,
    lineStyle: {width: kind === "points" ? 0 : c.lineWidth ?? 1, color: paint, type: c.lineStyle?.fill === "dash" ? "dashed" : "solid"},
    itemStyle: {color: kind === "bars" ? alpha(paint, Math.max((c.fillOpacity ?? 0) / 100, 0.1)) : paint},
    areaStyle: c.fillOpacity && kind === "line" ? {color: paint, opacity: c.fillOpacity / 100} : undefined,
  };
}

// alone: one of the points has no neighbour to be joined with by a line.
const alone = (points) => points.some(([, v], i) => v !== null && (points[i - 1]?.[1] ?? null) === null && (points[i + 1]?.[1] ?? null) === null);

const sums = (fields) => fields[0].points.map((_, i) => fields.reduce((sum, f) => sum + (f.points[i][1] ?? 0), 0));

// share turns values into parts of their sum.
function share(fields) {
  const all = sums(fields);
  for (const f of fields) f.points = f.points.map(([t, v], i) => [t, all[i] ? (v ?? 0) / all[i] : 0]);
}

// limits are thresholds drawn as lines.
function limits(panel, f) {
  const mode = oneOf(panel.title, f.custom.thresholdsStyle?.mode, ["off", "line", "dashed"]);
  if (mode === "off") return [];
  return f.thresholds.steps.filter((s) => s.value !== null).map((s) => ({yAxis: s.value, lineStyle: {color: colour(panel.title, s.color), width: 1, type: mode === "line" ? "solid" : "dashed"}}));
}

// moments and spans are the events, with Grafana's mark below them.
function moments() {
  return paper.events.flatMap((e) => {
    const line = {lineStyle: {color: colour("annotations", e.color), type: [4, 3], width: 1.3}};
    return [{xAxis: e.from, ...line}, ...(e.to > e.from ? [{xAxis: e.to, ...line}] : [])];
  });
}

function spans() {
  return paper.events.filter((e) => e.to > e.from).map((e) => [{xAxis: e.from, itemStyle: {color: alpha(colour("annotations", e.color), 0.08)}}, {xAxis: e.to}]);
}
