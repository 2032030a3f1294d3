// Figures, legend and charts of one reply.

import { arrange, at, element } from "./dom.js";
import { classOf, nameOf } from "./tokens.js";

const WIDTH = 260, HEIGHT = 90;

// Draws what is known of a reply.  `picked`: the origin whose tokens are shown alone, "" for all.
export function showFigures(reply, picked, writing) {
  const tokens = reply?.tokens ?? [], figures = reply?.figures ?? {}, seconds = reply?.seconds ?? 0;
  const bursts = burstsOf(tokens, writing);
  const forwards = bursts.reduce((sum, n) => sum + n, 0);
  const perForward = figures.perForward ?? (forwards ? tokens.length / forwards : undefined);
  at("count").textContent = tokens.length || "–";
  at("speed").textContent = seconds > 0 && tokens.length > 1 ? ((tokens.length - 1) / seconds).toFixed(1) : "–";
  at("per-forward").textContent = perForward?.toFixed(2) ?? "–";
  at("cached").textContent = figures.cached ?? "–";
  showLegend(tokens, picked);
  chart("bursts", bursts, (i, n) => `${n} forwards gave ${i + 1} tokens`, "tokens that one forward gave");
  showPositions(figures, writing);
}

// How many forwards gave 1, 2, ... tokens.  The model's own choice ends what a forward gave.
function burstsOf(tokens, writing) {
  const bursts = [];
  let size = 0;
  tokens.forEach(([origin], i) => {
    size += 1;
    const isLast = i + 1 === tokens.length && !writing;
    if (origin !== "sampled" && !isLast) return;
    bursts[size - 1] = (bursts[size - 1] ?? 0) + 1;
    size = 0;
  });
  return Array.from(bursts, (n) => n ?? 0);
}

export function showLegend(tokens, picked) {
  // An origin that is picked can be let go, and a button that someone is on stays.
  const focused = document.activeElement?.dataset.pick;
  const counts = Object.fromEntries([picked, focused].filter(Boolean).map((origin) => [origin, 0]));
  for (const [origin] of tokens) counts[origin] = (counts[origin] ?? 0) + 1;
  const order = Object.entries(counts).sort((a, b) => b[1] - a[1]);
  at("legend-hint").textContent = order.length ? "Pick one to see only its tokens." : "Nothing yet.";
  arrange(at("legend"), order.map(([origin]) => origin), legendItem);
  order.forEach(([origin, n], i) => {
    const item = at("legend").children[i];
    item.querySelector("button").setAttribute("aria-pressed", String(picked === origin));
    item.querySelector(".share").textContent = `${n} · ${Math.round((100 * n) / (tokens.length || 1))} %`;
  });
}

function legendItem(origin) {
  const swatch = element("span", { class: `swatch t ${classOf(origin)}` });
  const share = element("span", { class: "share" });
  return element("li", {}, element("button", { type: "button", "data-pick": origin }, swatch, element("span", {}, nameOf(origin)), share));
}

function showPositions({ drafted = [], accepted = [], perForward }, writing) {
  const shares = drafted.map((n, i) => (n ? accepted[i] / n : 0));
  while (shares.length && !drafted[shares.length - 1]) shares.pop();
  if (shares.length) {
    const tell = (i, share) => `position ${i + 1}: ${Math.round(100 * share)} % of ${drafted[i]} drafts right`;
    chart("positions", shares, tell, "position in the draft", (share) => `${Math.round(100 * share)}%`, 1);
    return;
  }
  const words = writing ? "Known when the reply has ended." : perForward ? "No drafter took part in this reply." : "Nothing yet.";
  at("positions").replaceChildren(element("figcaption", {}, words));
}

function chart(id, values, tell, caption, label = String, top = Math.max(...values, 1)) {
  const figure = at(id);
  if (!values.length) return figure.replaceChildren(element("figcaption", {}, "Nothing yet."));
  const spoken = values.map((value, i) => tell(i, value)).join("; ");
  const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": spoken });
  const step = Math.min(WIDTH / values.length, 40), floor = HEIGHT - 14, every = Math.ceil(14 / step);
  drawing.append(svg("line", { class: "floor", x1: 0, x2: WIDTH, y1: floor, y2: floor }));
  values.forEach((value, i) => {
    const height = (value / top) * (floor - 14), x = i * step, middle = x + step / 2;
    const bar = svg("rect", { class: "bar", x: x + step * 0.15, y: floor - height, width: step * 0.7, height, rx: 1 });
    bar.append(svg("title", {}, tell(i, value)));
    drawing.append(bar);
    if (i % every === 0) drawing.append(svg("text", { x: middle, y: HEIGHT - 3, "text-anchor": "middle" }, String(i + 1)));
    if (value && step > 14) drawing.append(svg("text", { x: middle, y: floor - height - 3, "text-anchor": "middle" }, label(value)));
  });
  figure.replaceChildren(drawing, element("figcaption", {}, caption));
}

function svg(tag, attributes, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.textContent = text;
  return made;
}
