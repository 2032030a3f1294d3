"use strict";
// A chat in which every token shows where it came from.  Talks to /v1/chat/completions only.

const NAMES = {
  sampled: "the model itself", template: "chat template", schema: "tool schema", echo: "stood earlier",
  ngram: "n-gram lookup", draft: "draft model", mtp: "MTP head", grammar: "grammar",
};
const SAMPLE_TOOLS = [
  { type: "function", function: { name: "get_weather", description: "Weather of a city.",
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] } } },
];
const WIDTH = 260, HEIGHT = 90;

const at = (id) => document.getElementById(id);
const messages = [];
let session = newSession();
let calls = [];          // tool calls of the last reply that still need a result
let running = null;      // AbortController of the reply that streams
let picked = "";         // the origin that is shown alone
let tally = newTally();

function newSession() { return "page-" + Math.random().toString(36).slice(2, 12); }
// An origin that is picked stands in the legend from the start: it can be let go.
function newTally() { return { tokens: 0, origins: picked ? { [picked]: 0 } : {}, bursts: [], burst: 0, began: 0, last: 0 }; }

function element(tag, attributes = {}, text = "") {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text) made.textContent = text;
  return made;
}

// --- what is said ------------------------------------------------------------------------------

function say(role, name) {
  at("talk").querySelector(".empty")?.remove();
  const item = element("li", { class: role });
  item.append(element("span", { class: "who" }, name), element("span", { class: "said" }));
  at("talk").append(item);
  return item.lastChild;
}

function emptyTalk() {
  at("talk").replaceChildren(element("li", { class: "empty" }, "Each token of a reply gets the colour of its origin."));
}

function addToken(said, { origin, text, token }) {
  const known = origin in NAMES ? origin : "other";
  const span = element("span", { class: `t ${known}`, "data-origin": origin, title: `${NAMES[origin] ?? origin} · id ${token}` }, text);
  span.classList.toggle("out", picked !== "" && picked !== origin);
  said.append(span);
}

function count(origin) {
  const now = performance.now();
  tally.began ||= now;
  tally.last = now;
  tally.tokens += 1;
  tally.origins[origin] = (tally.origins[origin] ?? 0) + 1;
  tally.burst += 1;
  if (origin === "sampled") endBurst();   // the target's own choice ends what one forward gave
}

function endBurst() {
  if (!tally.burst) return;
  tally.bursts[tally.burst] = (tally.bursts[tally.burst] ?? 0) + 1;
  tally.burst = 0;
}

// --- a request ---------------------------------------------------------------------------------

function body() {
  const number = (id) => (at(id).value === "" ? undefined : Number(at(id).value));
  const tools = at("tools").value.trim();
  return {
    model: at("model").value || undefined, messages, stream: true, stream_options: { include_usage: true },
    temperature: number("temperature"), seed: number("seed"), max_tokens: number("most"),
    tools: tools ? JSON.parse(tools) : undefined,
    mlxfill: { origins: true, session, draft: at("draft").checked ? undefined : false },
  };
}

async function ask(text) {
  let request;
  const sent = push(text);
  try {
    request = body();
  } catch (error) {
    unsay(text, sent);
    return note(`The tools are no JSON: ${error.message}`);
  }
  const mine = session, signal = (running = new AbortController()).signal;
  const said = say("assistant", "assistant");
  const reply = { role: "assistant", content: "", reasoning_content: "", tool_calls: [] };
  tally = newTally();
  busy(true);
  let why = "";
  try {
    await stream(request, (chunk) => mine === session && take(chunk, said, reply), signal);
  } catch (error) {
    why = signal.aborted ? "Stopped." : reasonOf(error);
    if (!signal.aborted && mine === session) fail(said, why);
  }
  if (mine !== session) return;   // a new chat was begun meanwhile
  endBurst();
  running = null;
  busy(false);
  note(signal.aborted ? why : "");
  if (tally.tokens) keep(reply);
  else if (why) unsay(text, sent, said);
  draw();
}

// A tool call of the reply before is answered by what is typed next.
function push(text) {
  const call = calls.shift();
  const said = say(call ? "tool" : "user", call ? `${call.function.name} answers` : "you");
  said.textContent = text;
  messages.push(call ? { role: "tool", tool_call_id: call.id, content: text } : { role: "user", content: text });
  return { call, item: said.parentElement };
}

// Nothing came of it: the message goes back to where it was typed, to be changed and sent again.
function unsay(text, { call, item }, said) {
  messages.pop();
  if (call) calls.unshift(call);
  at("text").value ||= text;
  item.classList.add("unsaid");
  if (said && !said.textContent) said.parentElement.remove();
}

function keep(reply) {
  calls = reply.tool_calls.filter((call) => call);
  if (!calls.length) delete reply.tool_calls;
  if (!reply.reasoning_content) delete reply.reasoning_content;
  messages.push(reply);
  if (calls.length) note(`The model calls ${calls.map((c) => c.function.name).join(", ")}: type the result.`);
}

async function stream(request, take, signal) {
  const headers = { "Content-Type": "application/json" };
  if (at("key").value) headers.Authorization = `Bearer ${at("key").value}`;
  const answer = await fetch("v1/chat/completions", { method: "POST", headers, body: JSON.stringify(request), signal });
  if (!answer.ok) throw new Error(await reason(answer));
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (line.startsWith("data: ") && line !== "data: [DONE]") take(JSON.parse(line.slice(6)));
    }
  }
}

function reasonOf(error) {
  return error instanceof TypeError ? "The server does not answer." : error.message;
}

async function reason(answer) {
  try {
    return (await answer.json()).error.message;
  } catch {
    return `the server answered ${answer.status}`;
  }
}

function take(chunk, said, reply) {
  if (chunk.error) throw new Error(chunk.error.message);
  const choice = chunk.choices?.[0];
  if (chunk.mlxfill?.origin) {
    addToken(said, chunk.mlxfill);
    count(chunk.mlxfill.origin);
    draw();
    const talk = at("talk");
    if (talk.scrollHeight - talk.scrollTop - talk.clientHeight < 160) talk.scrollTop = talk.scrollHeight;
  }
  if (choice) {
    reply.content += choice.delta.content ?? "";
    reply.reasoning_content += choice.delta.reasoning_content ?? "";
    for (const part of choice.delta.tool_calls ?? []) joinCall(reply.tool_calls, part);
  }
  if (chunk.usage) final(chunk.usage);
}

function joinCall(list, part) {
  const call = (list[part.index] ??= { id: part.id, type: "function", function: { name: "", arguments: "" } });
  call.function.name += part.function?.name ?? "";
  call.function.arguments += part.function?.arguments ?? "";
}

// --- figures -------------------------------------------------------------------------------------

let drawing = 0;
function draw() {
  drawing ||= requestAnimationFrame(() => {
    drawing = 0;
    const seconds = (tally.last - tally.began) / 1000;
    const forwards = tally.bursts.reduce((sum, n) => sum + (n ?? 0), 0);
    at("count").textContent = tally.tokens || "–";
    at("speed").textContent = seconds > 0 && tally.tokens > 1 ? ((tally.tokens - 1) / seconds).toFixed(1) : "–";
    at("per-forward").textContent = tally.perForward ?? (forwards ? (tally.tokens / forwards).toFixed(2) : "–");
    at("cached").textContent = tally.cached ?? "–";
    legend();
    chart("bursts", Array.from(tally.bursts, (n) => n ?? 0).slice(1), (i, n) => `${n} forwards gave ${i + 1} tokens`, "tokens that one forward gave");
    positions();
  });
}

function final(usage) {
  tally.perForward = usage.tokens_per_forward?.toFixed(2);
  tally.cached = usage.prompt_tokens_details?.cached_tokens;
  tally.drafted = usage.speculation?.drafted_by_position;
  tally.accepted = usage.speculation?.accepted_by_position;
  draw();
}

// One child a key, in this order.  A child that is there stays the same element: someone may be on it.
function arrange(parent, keys, make) {
  const there = new Map(Array.from(parent.children, (child) => [child.dataset.key, child]));
  const wanted = keys.map((key) => there.get(key) ?? make(key));
  if (wanted.length === there.size && wanted.every((child, i) => child === parent.children[i])) return;
  wanted.forEach((child, i) => { child.dataset.key = keys[i]; });
  const focused = document.activeElement;
  parent.replaceChildren(...wanted);
  if (parent.contains(focused)) focused.focus();
}

function legend() {
  const order = Object.entries(tally.origins).sort((a, b) => b[1] - a[1]);
  at("legend-hint").hidden = order.length < 2;
  arrange(at("legend"), order.map(([origin]) => origin), legendItem);
  order.forEach(([origin, n], i) => {
    const item = at("legend").children[i];
    item.querySelector("button").setAttribute("aria-pressed", String(picked === origin));
    item.querySelector(".share").textContent = `${n} · ${Math.round((100 * n) / (tally.tokens || 1))} %`;
  });
}

function legendItem(origin) {
  const item = element("li"), button = element("button", { type: "button", "data-pick": origin });
  const swatch = element("span", { class: `swatch ${origin in NAMES ? origin : "t"}` });
  button.append(swatch, element("span", {}, NAMES[origin] ?? origin), element("span", { class: "share" }));
  item.append(button);
  return item;
}

function positions() {
  const drafted = tally.drafted ?? [];
  const shares = drafted.map((n, i) => (n ? tally.accepted[i] / n : 0));
  while (shares.length && !drafted[shares.length - 1]) shares.pop();
  if (!shares.length) {
    const words = tally.perForward ? "No drafter took part in this reply." : "Known when the reply has ended.";
    at("positions").replaceChildren(element("figcaption", {}, words));
    return;
  }
  chart("positions", shares, (i, share) => `position ${i + 1}: ${Math.round(100 * share)} % of ${drafted[i]} drafts right`,
    "position in the draft", (share) => `${Math.round(100 * share)}%`, 1);
}

function chart(id, values, tell, caption, label = String, top = Math.max(...values, 1)) {
  const figure = at(id);
  if (!values.length) return figure.replaceChildren(element("figcaption", {}, "Nothing yet."));
  const make = (tag, attributes, text = "") => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.textContent = text;
    return made;
  };
  const svg = make("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": values.map((v, i) => tell(i, v)).join("; ") });
  const step = Math.min(WIDTH / values.length, 40), floor = HEIGHT - 14, every = Math.ceil(14 / step);
  svg.append(make("line", { class: "floor", x1: 0, x2: WIDTH, y1: floor, y2: floor }));
  values.forEach((value, i) => {
    const height = (value / top) * (floor - 14), x = i * step;
    const bar = make("rect", { class: "bar", x: x + step * 0.15, y: floor - height, width: step * 0.7, height, rx: 1 });
    bar.append(make("title", {}, tell(i, value)));
    svg.append(bar);
    if (i % every === 0) svg.append(make("text", { x: x + step / 2, y: HEIGHT - 3, "text-anchor": "middle" }, String(i + 1)));
    if (value && step > 14) svg.append(make("text", { x: x + step / 2, y: floor - height - 3, "text-anchor": "middle" }, label(value)));
  });
  figure.replaceChildren(svg, element("figcaption", {}, caption));
}

// --- controls --------------------------------------------------------------------------------------

function note(text) { at("note").textContent = text; }

function fail(said, text) {
  said.append(element("span", { class: "failed" }, text));
}

function busy(is) {
  at("send").textContent = is ? "Stop" : "Send";
  at("talk").setAttribute("aria-busy", String(is));
  if (is) note("The model writes …");
}

function submit(event) {
  event?.preventDefault();
  if (running) return running.abort();
  const text = at("text").value.trim();
  if (!text) return;
  at("text").value = "";
  ask(text);
}

function pick(origin) {
  picked = picked === origin ? "" : origin;
  for (const token of document.querySelectorAll(".t[data-origin]")) {
    token.classList.toggle("out", picked !== "" && token.dataset.origin !== picked);
  }
  legend();
}

function fresh() {
  running?.abort();
  running = null;
  busy(false);
  messages.length = 0;
  calls = [];
  session = newSession();
  picked = "";
  tally = newTally();
  emptyTalk();
  note("");
  draw();
  at("text").focus();
}

async function models() {
  const headers = at("key").value ? { Authorization: `Bearer ${at("key").value}` } : {};
  try {
    const answer = await fetch("v1/models", { headers });
    if (!answer.ok) throw new Error(await reason(answer));
    const { data } = await answer.json();
    arrange(at("model"), data.map((m) => m.id), (id) => element("option", { value: id }, id));
    note("");
  } catch (error) {
    note(`Models: ${reasonOf(error)}`);
  }
}

at("ask").addEventListener("submit", submit);
at("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) submit(event);
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && running) running.abort();
  if (event.altKey && event.key.toLowerCase() === "n") { event.preventDefault(); fresh(); }
});
at("legend").addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button) pick(button.dataset.pick);
});
at("fresh").addEventListener("click", fresh);
at("key").addEventListener("change", models);
at("sample-tools").addEventListener("click", () => { at("tools").value = JSON.stringify(SAMPLE_TOOLS, null, 1); });

emptyTalk();
draw();
models();
