// The server's API: the list of models, and replies as they are streamed.

export class ApiError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

export async function models(key) {
  const answer = await request("v1/models", { headers: headers(key) });
  return (await answer.json()).data.map((model) => model.id);
}

// Gives the chunks of a streamed chat completion.
export async function* chunks(body, key, signal) {
  const sent = { method: "POST", headers: headers(key), body: JSON.stringify(body), signal };
  const answer = await request("v1/chat/completions", sent);
  for await (const line of lines(answer.body)) {
    if (!line.startsWith("data: ") || line === "data: [DONE]") continue;
    const chunk = JSON.parse(line.slice(6));
    if (chunk.error) throw new ApiError(chunk.error.message);
    yield chunk;
  }
}

async function* lines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await heard(reader.read(), "The connection to the server broke off.");
    if (done) return;
    const found = (rest + value).split("\n");
    rest = found.pop();
    yield* found;
  }
}

function headers(key) {
  const json = { "Content-Type": "application/json" };
  return key ? { ...json, Authorization: `Bearer ${key}` } : json;
}

// What a promise of the network gives; `words` where the network fails.
async function heard(promise, words) {
  try {
    return await promise;
  } catch (error) {
    throw error instanceof TypeError ? new ApiError(words) : error;
  }
}

async function request(path, options) {
  const answer = await heard(fetch(path, options), "The server does not answer.");
  if (answer.status === 401) throw new ApiError(unknown(options.headers), 401);
  if (!answer.ok) throw new ApiError(await reason(answer), answer.status);
  return answer;
}

function unknown({ Authorization: given }) {
  return given ? "The server does not accept this API key." : "The server asks for an API key.";
}

async function reason(answer) {
  try {
    return (await answer.json()).error.message;
  } catch {
    return `The server answered ${answer.status}.`;
  }
}
