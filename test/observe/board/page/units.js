"use strict";

// decimalsOf is how many decimals Grafana gives a value: three digits in all,
// none to what is whole.
const decimalsOf = (v) => (Number.isInteger(v) ? 0 : Math.max(0, 2 - Math.floor(Math.log10(Math.abs(v)))));

const fixed = (v, decimals) => v.toFixed(decimals ?? decimalsOf(v));

// scaled divides by the largest of the steps that leaves a whole digit.
function scaled(v, factor, names, decimals) {
  let i = 0;
  while (Math.abs(v) >= factor && i < names.length - 1) { v /= factor; i++; }
  return [fixed(v, decimals), names[i]];
}

const counted = (unit) => (v, d) => {
  const [n, name] = scaled(v, 1000, ["", "K", "Mil", "Bil"], d);
  return n + (name || unit ? " " : "") + [name, unit].filter(Boolean).join(" ");
};

const units = {
  none: (v, d) => fixed(v, d),
  short: counted(""),
  cps: counted("c/s"),
  percentunit: (v, d) => fixed(v * 100, d) + "%",
  bytes: (v, d) => scaled(v, 1024, ["B", "KiB", "MiB", "GiB"], d).join(" "),
  s: (v, d) => {
    const a = Math.abs(v);
    if (a === 0) return "0 s";
    for (const [from, name] of [[86400, v / 86400 === 1 ? "day" : "days"], [3600, v / 3600 === 1 ? "hour" : "hours"], [60, v / 60 === 1 ? "min" : "mins"], [1, "s"], [1e-3, "ms"], [1e-6, "µs"]]) {
      if (a >= from) return fixed(v / from, d) + " " + name;
    }
    return fixed(v, d) + " s";
  },
};

// shown is a value as a field shows it: by its mappings, else with its unit.
function shown(where, field, v) {
  if (v === null || v === undefined) return "";
  for (const m of field.mappings || []) {
    oneOf(where, m.type, ["value", "range"]);
    const to = m.type === "value" ? m.options[String(v)] : (v >= (m.options.from ?? -Infinity) && v <= (m.options.to ?? Infinity) ? m.options.result : undefined);
    if (to?.text) return to.text;
  }
  return united(where, field, v);
}

function united(where, field, v) {
  const own = /^suffix:(.*)$/.exec(field.unit);
  if (own) return fixed(v, field.decimals) + own[1];
  const unit = units[field.unit || "none"];
  if (!unit) { problem(where, `unit ${field.unit} is not known here`); return String(v); }
  return unit(v, field.decimals);
}

// marked is a value as an axis shows it: a round one, without zeros at its end.
const marked = (where, field, v) => united(where, field, v).replace(/(\.\d*?)0+(?!\d)/, "$1").replace(/\.(?!\d)/, "");
