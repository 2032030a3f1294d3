// Messages as list items: what a user wrote, replies, results of calls.

import { answeredCall, pendingCalls } from "./conversation.js";
import { element } from "./dom.js";
import { showMarkdown } from "./markdown.js";
import { pretty } from "./pretty.js";
import { isThinking } from "./reply.js";
import { showTokens } from "./tokens.js";

const made = new WeakMap();   // the item of each message, which keeps what is unfolded and selected in it

// The item of the message at `index`, up to date.  `view`: { tokens, picked, writing }.
export function messageItem(messages, index, view) {
  const message = messages[index], kind = view.tokens && message.role === "assistant" ? "tokens" : "rendered";
  let item = made.get(message);
  if (item?.dataset.kind !== kind) {
    item = element("li", { class: message.role, "data-kind": kind });
    item.append(...MAKE[message.role](message, messages, kind));
    made.set(message, item);
  }
  item.dataset.index = index;
  if (message.role === "assistant") updateReply(item, message, view);
  else item.querySelector('[data-do="again"]').hidden = index < messages.length - 1 || view.writing || pendingCalls(messages).length > 0;
  return item;
}

// Makes the item of a message anew when it is shown next.
export const forgetItem = (message) => made.delete(message);

const MAKE = {
  user: ({ content }) => [who("you"), element("div", { class: "said" }, content), typedActions()],
  tool: (message, messages) => {
    const name = answeredCall(messages, message)?.function.name ?? "a call";
    return [who("tool"), card("result", `Result of ${name}`, message.content), typedActions()];
  },
  assistant: (_, __, kind) => {
    const parts = kind === "tokens" ? [element("div", { class: "raw" })]
      : [reasoning(), element("div", { class: "said markdown" }), element("div", { class: "calls" })];
    return [who("assistant"), ...parts, element("p", { class: "ended" }), actions(["copy", "Copy"], ["again", "Regenerate"])];
  },
};

const typedActions = () => actions(["edit", "Edit"], ["copy", "Copy"], ["again", "Ask again"]);

// Replies ---------------------------------------------------------------------------------------

// Brings the item of a reply up to date, piece by piece while it is written.
export function updateReply(item, reply, view) {
  if (view.tokens) showTokens(item.querySelector(".raw"), reply.tokens ?? [], view.picked);
  else updateParts(item, reply, view);
  const ended = item.querySelector(".ended");
  ended.textContent = view.writing ? "" : endOf(reply);
  ended.classList.toggle("failed", Boolean(reply.failed));
}

function updateParts(item, reply, { writing }) {
  const thoughts = item.querySelector(".reasoning"), thinks = writing && isThinking(reply);
  thoughts.hidden = !reply.reasoning_content?.trim();
  const counted = `${reply.thought ?? 0} ${reply.thought === 1 ? "token" : "tokens"}`;
  thoughts.querySelector("summary").textContent = thinks ? `Thinking … ${counted}` : `Thought for ${counted}`;
  if (!thoughts.hidden) showMarkdown(thoughts.querySelector(".markdown"), reply.reasoning_content);
  showMarkdown(item.querySelector(".said"), reply.content);
  const cards = item.querySelector(".calls");
  const calls = (reply.tool_calls ?? []).filter(Boolean);
  calls.forEach((call, i) => showCall(cards, i, call));
  while (cards.children.length > calls.length) cards.lastChild.remove();
}

function reasoning() {
  const thoughts = element("div", { class: "thoughts markdown" });
  return element("details", { class: "reasoning" }, element("summary"), thoughts);
}

function showCall(cards, i, { function: { name, arguments: text } }) {
  if (!cards.children[i]) cards.append(card("call", `Call of ${name}`, ""));
  const [title, body] = cards.children[i].children, laidOut = pretty(text);
  title.textContent = `Call of ${name}`;
  if (body.textContent !== laidOut) body.textContent = laidOut;
}

const ENDS = { length: "It ends here: the most tokens are reached.", stopped: "Stopped." };
const endOf = (reply) => reply.failed ?? ENDS[reply.finish] ?? (isSilent(reply) ? "The reply is empty." : "");
const isSilent = ({ content, tool_calls }) => !content.trim() && !tool_calls?.length;

// Pieces ----------------------------------------------------------------------------------------

function card(kind, title, text) {
  const body = element("pre", { tabindex: 0, role: "region", "aria-label": title }, pretty(text));
  return element("div", { class: `card ${kind}` }, element("p", { class: "card-title" }, title), body);
}

const who = (name) => element("span", { class: "who" }, name);

function actions(...all) {
  const buttons = all.map(([what, label]) => element("button", { type: "button", "data-do": what }, label));
  return element("div", { class: "actions" }, ...buttons);
}

// A form in the place of a message.  Enter sends, Escape leaves the message as it was.
export function editItem(item, text, { send, cancel }) {
  const label = "Change the message; what follows it is written anew";
  const box = element("textarea", { rows: 3, "aria-label": label });
  const back = element("button", { type: "button" }, "Cancel");
  const hint = element("p", { class: "hint" }, "What follows is written anew.");
  const form = element("form", { class: "edit" }, box, element("div", { class: "actions" }, element("button", { type: "submit" }, "Send"), back, hint));
  box.value = text;
  const submit = (event) => {
    event.preventDefault();
    if (box.value.trim()) send(box.value.trim());
  };
  form.addEventListener("submit", submit);
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing && event.target === box) submit(event);
    if (event.key === "Escape") cancel();
  });
  back.addEventListener("click", cancel);
  item.replaceChildren(form);
  box.focus();
}
