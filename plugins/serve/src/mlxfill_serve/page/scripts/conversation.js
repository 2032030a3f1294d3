// A conversation and what can be derived from it.  No DOM, no storage.

import { dropBrokenCalls } from "./reply.js";

export function newConversation() {
  const id = Array.from(crypto.getRandomValues(new Uint32Array(3)), (n) => n.toString(36)).join("");
  return { id, title: "", updated: Date.now(), system: "", messages: [] };
}

export function titleOf({ title, messages }) {
  const asked = messages.find((message) => message.role === "user")?.content.trim();
  return title || asked?.split("\n")[0].slice(0, 80) || "New chat";
}

// Calls of the last reply that have no result yet.
export function pendingCalls(messages) {
  const last = messages.findLastIndex((message) => message.role === "assistant");
  const answered = new Set(messages.slice(last + 1).map((message) => message.tool_call_id));
  return (messages[last]?.tool_calls ?? []).filter((call) => !answered.has(call.id));
}

// The call that a message with the role "tool" answers.
export function answeredCall(messages, { tool_call_id }) {
  const calls = messages.flatMap((message) => message.tool_calls ?? []);
  return calls.findLast((call) => call.id === tool_call_id);
}

// The calls of a reply, to be copied.
export function callsText({ tool_calls = [] }) {
  return tool_calls.map((call) => `${call.function.name}(${call.function.arguments})`).join("\n");
}

// What the next thing that is typed becomes: the result of a call, or a message of the user.
export function typedMessage(messages, text) {
  const [call] = pendingCalls(messages);
  return call ? { role: "tool", tool_call_id: call.id, content: text } : { role: "user", content: text };
}

// The messages as the API takes them.
export function apiMessages({ system, messages }) {
  const said = messages.map(({ role, content, reasoning_content, tool_calls, tool_call_id }) => ({
    role, content, tool_call_id, reasoning_content: reasoning_content || undefined,
    tool_calls: tool_calls?.length ? tool_calls : undefined,
  }));
  return system.trim() ? [{ role: "system", content: system }, ...said] : said;
}

// Makes a conversation that was left while a reply was written one that can go on.
export function mend({ messages }) {
  const last = messages.at(-1);
  if (last?.role !== "assistant" || last.finish) return;
  if (!last.tokens?.length) {
    messages.pop();
    return;
  }
  last.finish = "stopped";
  dropBrokenCalls(last);
}

// Whether a stored value can be shown as a conversation.
export function isConversation(value) {
  return areTexts(value?.id, value?.title, value?.system) && typeof value.updated === "number"
    && Array.isArray(value.messages) && value.messages.every(isMessage);
}

function isMessage(message) {
  const { role, content, reasoning_content = "", tool_calls = [], tokens = [] } = message ?? {};
  return ["user", "assistant", "tool"].includes(role) && areTexts(content, reasoning_content)
    && Array.isArray(tokens) && tokens.every(Array.isArray) && Array.isArray(tool_calls)
    && tool_calls.every((call) => areTexts(call?.function?.name, call?.function?.arguments));
}

const areTexts = (...values) => values.every((value) => typeof value === "string");
