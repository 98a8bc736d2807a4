"use strict";

// drawHeat draws a panel of type heatmap of a histogram's buckets, which count
// all that is at most as large as their bound.
function drawHeat(panel, place) {
  const o = panel.options || {};
  only(panel.title, o, ["calculate", "yAxis", "color", "tooltip", "legend", "cellGap", "showValue", "filterValues", "exemplars", "rowsFrame"]);
  only(panel.title + ", color", o.color, ["mode", "scheme", "steps", "fill", "exponent", "reverse", "scale"]);
  oneOf(panel.title, o.color?.mode, ["scheme"]);
  if (o.calculate) problem(panel.title, "calculated buckets are not drawn here");
  if (o.showValue && o.showValue !== "never") problem(panel.title, "values in cells are not drawn here");
  const scheme = schemes[o.color?.scheme];
  if (!scheme) return problem(panel.title, `scheme ${o.color?.scheme} is not known here`);
  const reply = (paper.answers[panel.id] || [])[0];
  if (reply?.format !== "heatmap") return problem(panel.title, "the query's format is not heatmap");
  if (!reply.series.length) return nothing(panel, place);

  const rows = reply.series.map((s) => ({le: s.labels.le === "+Inf" ? Infinity : Number(s.labels.le), points: dense(s.points, reply.step)})).sort((a, b) => a.le - b.le);
  const cells = [], least = o.filterValues?.le ?? 1e-9;
  rows.forEach((r, y) => r.points.forEach(([, v], x) => {
    const below = y ? rows[y - 1].points[x][1] : 0;
    const n = v === null ? 0 : Math.max(0, v - (below ?? 0));
    if (n > least) cells.push([x, y, n]);
  }));
  const chart = begin(place);
  const unit = {unit: o.yAxis?.unit || "none"};
  const most = Math.max(...cells.map((c) => c[2]), 1e-9);
  chart.setOption({
    animation: false, grid: {left: 66, right: 14, top: 8, bottom: 24},
    xAxis: {type: "category", data: rows[0].points.map((p) => p[0]), axisLine: {show: false}, axisTick: {show: false}, splitLine: {show: false},
      axisLabel: {color: hues.text, fontSize: 12, hideOverlap: true, interval: (_, t) => Number(t) % 60000 === 0, formatter: (t) => time.format(Number(t))}},
    yAxis: {type: "category", data: rows.map((r) => (r.le === Infinity ? "+Inf" : marked(panel.title, unit, r.le))), axisLine: {show: false}, axisTick: {show: false},
      axisLabel: {color: hues.text, fontSize: 12, interval: 1}, splitArea: {show: false}},
    visualMap: {show: false, min: 0, max: most, inRange: {color: o.color.reverse ? [...scheme].reverse() : scheme}, dimension: 2, seriesIndex: 0},
    series: [{type: "heatmap", data: cells, itemStyle: {borderColor: "#181b1f", borderWidth: o.cellGap ?? 1}, progressive: 0,
      markLine: {silent: true, symbol: "none", animation: false, label: {show: false}, data: columns(rows[0].points, reply.step)}}],
  });
  if (o.legend?.show) {
    place.append(scaleOf(panel, scheme, most));
    chart.resize();
  }
}

// columns are the events' lines, at the columns of their times.
function columns(points, step) {
  const of = (t) => Math.min(points.length - 1, Math.max(0, Math.round((t - points[0][0]) / step)));
  return moments().map((m) => ({...m, xAxis: of(m.xAxis)}));
}

// scaleOf is the strip of colours below a heat map.
function scaleOf(panel, scheme, most) {
  const legend = document.createElement("div"), strip = document.createElement("i");
  legend.className = "legend";
  strip.style.cssText = `width: 160px; height: 10px; margin: 5px 8px; background: linear-gradient(to right, ${scheme.join(",")})`;
  legend.append("0", strip, united(panel.title, panel.fieldConfig?.defaults || {}, Number(most.toPrecision(2))));
  return legend;
}
