"use strict";

// drawStates draws a panel of type state-timeline: a bar a series, of pieces
// with one value each.
function drawStates(panel, place) {
  const o = panel.options || {};
  only(panel.title, o, ["legend", "tooltip", "showValue", "rowHeight", "mergeValues", "alignValue"]);
  const fields = fieldsOf(panel).filter((f) => f.points.some((p) => p[1] !== null));
  if (!fields.length) return nothing(panel, place);
  fields.forEach((f) => only(panel.title + ", custom", f.custom, ["fillOpacity", "lineWidth", "spanNulls"]));
  const texts = oneOf(panel.title, o.showValue, ["auto", "always", "never"]);
  const left = oneOf(panel.title, o.alignValue, ["left", "center"]) === "left";
  const chart = begin(place);
  const pieces = fields.flatMap((f, row) => piecesOf(panel, f, o.mergeValues !== false).map((p) => ({...p, row})));
  const bar = (_, api) => {
    const p = pieces[api.value(3)];
    const [x1, y] = api.coord([Math.max(p.from, paper.from), p.row]), [x2] = api.coord([Math.min(p.to, paper.to), p.row]);
    const height = api.size([0, 1])[1] * (o.rowHeight ?? 0.9);
    const text = texts !== "never" && (texts === "always" || x2 - x1 > 8 * p.text.length + 8) ? p.text : "";
    return {
      type: "rect", shape: {x: x1, y: y - height / 2, width: Math.max(x2 - x1, 1), height}, style: {fill: alpha(p.colour, (fields[p.row].custom.fillOpacity ?? 70) / 100)},
      textContent: {style: {text, fill: "#fff", font: '500 13px Inter, "DejaVu Sans", sans-serif'}}, textConfig: {position: left ? "insideLeft" : "inside"},
    };
  };
  const widest = Math.max(...fields.map((f) => f.name.length));
  chart.setOption({
    animation: false, grid: {left: Math.min(24 + widest * 8, 280), right: 14, top: 8, bottom: 24}, xAxis: across(),
    yAxis: {type: "category", data: fields.map((f) => f.name), inverse: true, axisLine: {show: false}, axisTick: {show: false}, axisLabel: {color: hues.text, fontSize: 12}},
    series: [
      {type: "custom", renderItem: bar, encode: {x: [0, 1], y: 2}, data: pieces.map((p, i) => [p.from, p.to, p.row, i]),
        markLine: {silent: true, symbol: "none", animation: false, label: {show: false}, data: moments()}},
    ],
  });
  const legend = legendOf(panel, fields);
  if (legend) { place.append(legend); chart.resize(); }
}

function piecesOf(panel, f, merge) {
  const all = [];
  for (const [t, v] of f.points) {
    const last = all.at(-1);
    if (last && last.open) last.to = t;
    if (v === null) { if (last) last.open = false; continue; }
    // Where thresholds colour them, values between the same two are merged.
    const text = merge && !f.colour ? between(panel, f, v) : shown(panel.title, f, v);
    const piece = {from: t, to: t + f.step, text, colour: f.colour || threshold(panel.title, f, v), open: true};
    if (merge && last?.open && last.text === piece.text && last.colour === piece.colour) { last.to = piece.to; continue; }
    if (last) last.open = false;
    all.push(piece);
  }
  return all;
}

// between tells a value by its thresholds: "< 2%", "10%+".
function between(panel, f, v) {
  const steps = f.thresholds.steps;
  const at = steps.findLastIndex((s) => s.value === null || v >= s.value);
  return at ? united(panel.title, f, steps[at].value) + "+" : steps.length > 1 ? "< " + united(panel.title, f, steps[1].value) : "";
}
