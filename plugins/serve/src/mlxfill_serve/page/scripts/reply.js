// A reply while it is read from a stream.  `tokens` holds [origin, id, text] of each token.

export function newReply() {
  return { role: "assistant", content: "", reasoning_content: "", tool_calls: [], tokens: [], thought: 0, seconds: 0 };
}

// Adds a chunk of the stream to a reply.
export function readChunk(reply, { choices: [choice] = [], mlxfill: token, usage }) {
  const { delta = {}, finish_reason } = choice ?? {};
  reply.content += delta.content ?? "";
  reply.reasoning_content += delta.reasoning_content ?? "";
  for (const part of delta.tool_calls ?? []) joinCall(reply.tool_calls, part);
  if (finish_reason) reply.finish = finish_reason;
  if (token?.origin) {
    reply.tokens.push([token.origin, token.token, token.text]);
    if (isThinking(reply)) reply.thought += 1;
  }
  if (usage) readUsage(reply, usage);
}

export const isThinking = (reply) => !reply.content && !reply.tool_calls.length;

// A call that breaks off cannot be answered, and no server takes it back.
export function dropBrokenCalls(reply) {
  reply.tool_calls = reply.tool_calls.filter((call) => call && isJson(call.function.arguments));
}

function joinCall(calls, part) {
  const call = (calls[part.index] ??= { id: part.id, type: "function", function: { name: "", arguments: "" } });
  call.function.name += part.function?.name ?? "";
  call.function.arguments += part.function?.arguments ?? "";
}

function readUsage(reply, usage) {
  reply.thought = usage.completion_tokens_details?.reasoning_tokens ?? reply.thought;
  reply.figures = {
    perForward: usage.tokens_per_forward,
    cached: usage.prompt_tokens_details?.cached_tokens,
    drafted: usage.speculation?.drafted_by_position,
    accepted: usage.speculation?.accepted_by_position,
  };
}

function isJson(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
