// The page: one conversation is open, at most one reply is written.

import { chunks, models } from "./api.js";
import { apiMessages, callsText, mend, newConversation, pendingCalls, titleOf, typedMessage } from "./conversation.js";
import { copyFrom } from "./copying.js";
import { arrange, at, eachFrame, element, note, place } from "./dom.js";
import { showFigures, showLegend } from "./figures.js";
import { focusEntry, showList } from "./list.js";
import { editItem, forgetItem, messageItem, updateReply } from "./messages.js";
import { dropBrokenCalls, newReply, readChunk } from "./reply.js";
import { apiKey, drafts, loadSettings, requestSettings, saveSettings, showsTokens, useSampleTools, viewTokens } from "./settings.js";
import { Store } from "./store.js";
import { pickTokens } from "./tokens.js";

const NEAR_END = 160;   // pixels from the end of the conversation at which it follows a reply
const UNKEPT = "The browser's storage is full: this conversation will not survive a reload.";

const store = new Store(changedElsewhere);
let current = newConversation();
let running = null;   // AbortController of the reply that is written
let failure = null;   // the error that the conversation ends with
let picked = "";      // the origin that is shown alone
const typed = new Map();   // what was typed and not sent, by conversation

// The open conversation -------------------------------------------------------------------------

function open(conversation) {
  stop();
  running = null;
  typed.set(current.id, at("text").value);
  current = conversation;
  at("text").value = typed.get(current.id) ?? "";
  failure = null;
  mend(current);
  history.replaceState(null, "", `#${current.id}`);
  closeDrawers();
  at("system-text").value = current.system;
  note("");
  showAll();
  at("talk").scrollTop = at("talk").scrollHeight;
}

function choose(conversation) {
  if (conversation === current) closeDrawers();
  else open(conversation);
}

function fresh() {
  picked = "";
  open(newConversation());
  at("text").focus();
}

function keep(conversation) {
  const { messages, system, title } = conversation;
  if (!messages.length && !system.trim() && !title) store.remove(conversation.id);
  else if (!store.save(conversation)) note(UNKEPT);
  showConversations();
}

function changedElsewhere() {
  const changed = store.get(current.id) ?? current;
  if (running || changed === current) return showConversations();
  current = changed;
  showAll();
}

function rename(conversation, title) {
  conversation.title = title;
  keep(conversation);
  focusEntry(conversation.id);
}

function remove(conversation) {
  store.remove(conversation.id);
  if (conversation === current) open(store.all()[0] ?? newConversation());
  showConversations();
  focusEntry(current.id);
}

// What is shown ---------------------------------------------------------------------------------

const view = () => ({ tokens: showsTokens(), picked, writing: running !== null });
const lastReply = () => current.messages.findLast((message) => message.role === "assistant");

function showAll() {
  showConversations();
  showTalk();
  showFigures(lastReply(), picked, running !== null);
}

function showConversations() {
  showList(store.all(), current, { open: choose, rename, remove });
  document.title = `${titleOf(current)} · mlxfill`;
}

function showTalk() {
  const { messages } = current, now = view();
  // Only the last message may still be written.
  const items = messages.map((_, i) => messageItem(messages, i, { ...now, writing: now.writing && i === messages.length - 1 }));
  if (!items.length && !failure) items.push(emptyItem());
  if (failure) items.push(failureItem(failure));
  place(at("talk"), items);
  showComposer();
}

function showComposer() {
  const [call] = running ? [] : pendingCalls(current.messages), result = call && `Result of ${call.function.name}`;
  at("text-label").textContent = result ?? "Message";
  at("text").placeholder = result ?? "Ask something";
  at("send").textContent = running ? "Stop" : "Send";
  at("talk").setAttribute("aria-busy", String(running !== null));
}

const drawSoon = eachFrame(() => {
  const reply = current.messages.at(-1), item = at("talk").lastElementChild, talk = at("talk");
  if (reply?.role === "assistant" && item?.classList.contains("assistant")) {
    const follows = talk.scrollHeight - talk.scrollTop - talk.clientHeight < NEAR_END;
    updateReply(item, reply, view());
    if (follows) talk.scrollTop = talk.scrollHeight;
  }
  showFigures(lastReply(), picked, running !== null);
});

function emptyItem() {
  return element("li", { class: "empty" },
    element("p", {}, "Ask the model something."),
    element("p", { class: "hint" }, "“Tokens” shows each token of a reply in the colour of its origin."));
}

function failureItem({ message, status }) {
  const item = element("li", { class: "failed", role: "alert" }, element("p", {}, message));
  if (status === 401) item.append(element("button", { type: "button", "data-do": "key" }, "Enter the API key"));
  return item;
}

function pick(origin) {
  picked = picked === origin ? "" : origin;
  if (picked && !showsTokens()) {
    viewTokens(true);
    showTalk();
  }
  pickTokens(picked);
  showLegend(lastReply()?.tokens ?? [], picked);
}

// Asking ----------------------------------------------------------------------------------------

// Changes the messages, then asks for a reply.  When nothing comes of it all is as before, and
// `giveBack` may return to the user what was typed.
async function ask(change, giveBack = () => {}) {
  if (running) return;
  const conversation = current, before = [...conversation.messages];
  change(conversation.messages);
  failure = null;
  const calls = pendingCalls(conversation.messages);
  if (!calls.length) {
    const isUnanswered = await answer(conversation);
    if (!isUnanswered || conversation !== current) return;
    conversation.messages = before;
  }
  keep(conversation);
  showAll();
  if (failure) at("talk").lastElementChild.scrollIntoView({ block: "nearest" });
  if (calls.length) tellCalls(calls);
  else giveBack();
}

function tellCalls(calls) {
  note(`The model calls ${calls.map((call) => call.function.name).join(", ")}: type the result.`);
}

// Returns whether no token came.
async function answer(conversation) {
  let body;
  try {
    body = requestBody(conversation);
  } catch (error) {
    note(`The tools are no JSON: ${error.message}`);
    return true;
  }
  const { signal } = (running = new AbortController()), mine = running, reply = newReply();
  conversation.updated = Date.now();
  keep(conversation);
  conversation.messages.push(reply);
  note("The model writes …");
  showAll();
  at("talk").scrollTop = at("talk").scrollHeight;
  let error = null;
  try {
    await read(reply, chunks(body, apiKey(), signal), conversation);
  } catch (caught) {
    error = signal.aborted ? null : caught;
  }
  if (running === mine) running = null;
  reply.finish ??= error ? "failed" : "stopped";
  dropBrokenCalls(reply);
  finish(conversation, reply, error, signal.aborted);
  return !reply.tokens.length;
}

function requestBody(conversation) {
  const extras = { origins: true, session: `page-${conversation.id}`, draft: drafts() };
  const messages = apiMessages(conversation);
  return { ...requestSettings(), messages, stream: true, stream_options: { include_usage: true }, mlxfill: extras };
}

async function read(reply, stream, conversation) {
  let began = 0;
  for await (const chunk of stream) {
    readChunk(reply, chunk);
    if (reply.tokens.length) began ||= performance.now();
    reply.seconds = began ? (performance.now() - began) / 1000 : 0;
    if (conversation === current) drawSoon();
  }
}

function finish(conversation, reply, error, isStopped) {
  if (!reply.tokens.length) conversation.messages = conversation.messages.filter((message) => message !== reply);
  else if (error) reply.failed = error.message;
  if (conversation !== current) {
    if (store.get(conversation.id)) keep(conversation);
    return;
  }
  note(isStopped ? "Stopped." : "");
  if (!reply.tokens.length) failure = error;
  else keep(conversation);
  showAll();
  const calls = pendingCalls(conversation.messages);
  if (calls.length) tellCalls(calls);
}

function send() {
  const text = at("text").value.trim();
  if (!text || running) return;
  at("text").value = "";
  ask((messages) => messages.push(typedMessage(messages, text)), () => { at("text").value ||= text; });
}

function askAgain(index) {
  const isReply = current.messages[index].role === "assistant";
  ask((messages) => messages.splice(isReply ? index : index + 1));
  at("text").focus();
}

function edit(index, text = current.messages[index].content) {
  forgetItem(current.messages[index]);
  const cancel = () => {
    showTalk();
    at("talk").children[index]?.querySelector('[data-do="edit"]')?.focus();
  };
  const resend = (changed) => {
    const put = (messages) => messages.splice(index, Infinity, { ...messages[index], content: changed });
    ask(put, () => edit(index, changed));
    at("text").focus();
  };
  editItem(at("talk").children[index], text, { send: resend, cancel });
}

function stop() { running?.abort(); }

// Controls --------------------------------------------------------------------------------------

function act(button) {
  const index = Number(button.closest("li")?.dataset.index), message = current.messages[index];
  switch (button.dataset.do) {
    case "copy": return copyFrom(button, message.content || callsText(message) || message.reasoning_content || "");
    case "copy-code": return copyFrom(button, button.closest(".code").querySelector("pre").textContent);
    case "edit": return running ? undefined : edit(index);
    case "again": return running ? undefined : askAgain(index);
    case "key": return enterKey();
    default: return undefined;
  }
}

function enterKey() {
  if (at("open-pane").offsetParent) at("pane").showPopover();
  at("settings").open = true;
  at("key").focus();
}

function closeDrawers() {
  for (const drawer of document.querySelectorAll("[popover]:popover-open")) drawer.hidePopover();
}

async function listModels() {
  try {
    const names = await models(apiKey());
    arrange(at("model"), names, (id) => element("option", { value: id }, id));
    if (failure?.status !== 401) return;
    failure = null;
  } catch (error) {
    failure = error;
  }
  showTalk();
}

function onKey(event) {
  // Escape closes an open drawer first.
  if (event.key === "Escape" && !document.querySelector("[popover]:popover-open")) stop();
  if (event.altKey && event.code === "KeyN") {
    event.preventDefault();
    fresh();
  }
}

at("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  if (running) stop();
  else send();
});
at("text").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  send();
});
document.addEventListener("keydown", onKey);
document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button?.dataset.pick) pick(button.dataset.pick);
  if (button?.dataset.do) act(button);
});
at("fresh").addEventListener("click", fresh);
at("key").addEventListener("change", listModels);
at("sample-tools").addEventListener("click", useSampleTools);
at("system-text").addEventListener("input", () => { current.system = at("system-text").value; });
at("system-text").addEventListener("change", () => keep(current));
at("view").addEventListener("change", showTalk);
document.addEventListener("change", saveSettings);
window.addEventListener("pagehide", () => {
  if (running) store.save(current);   // the part of the reply that has come
});

loadSettings();
open(store.get(location.hash.slice(1)) ?? store.all()[0] ?? current);
listModels();
at("text").focus();
