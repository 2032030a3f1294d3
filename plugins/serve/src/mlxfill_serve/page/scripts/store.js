// Conversations in the browser's localStorage, each under a key of its own.

import { isConversation } from "./conversation.js";

const PREFIX = "mlxfill.conversation.";

export class Store {
  #held = new Map();
  #storage;

  // `changed` is called when another tab has changed the conversations.
  constructor(changed) {
    try {
      this.#storage = window.localStorage;
    } catch {
      this.#storage = null;   // the browser forbids it: conversations last as long as the page
    }
    this.#read();
    window.addEventListener("storage", ({ key }) => {
      if (key !== null && !key.startsWith(PREFIX)) return;
      this.#read();
      changed();
    });
  }

  // The newest first.
  all() { return [...this.#held.values()].sort((a, b) => b.updated - a.updated); }

  get(id) { return this.#held.get(id); }

  // Returns whether the conversation will survive a reload.
  save(conversation) {
    conversation.saved = Date.now();
    this.#held.set(conversation.id, conversation);
    if (this.#write(conversation)) return true;
    // Storage is full.  Texts matter more than where each token came from: the oldest go first.
    for (const other of this.all().reverse()) {
      if (other !== conversation && this.#write(other, withoutTokens) && this.#write(conversation)) return true;
    }
    return this.#write(conversation, withoutTokens);
  }

  remove(id) {
    this.#held.delete(id);
    this.#storage?.removeItem(PREFIX + id);
  }

  #write(conversation, replacer) {
    try {
      this.#storage.setItem(PREFIX + conversation.id, JSON.stringify(conversation, replacer));
      return true;
    } catch {
      return false;
    }
  }

  #read() {
    const before = this.#held;
    this.#held = new Map();
    for (const key of Object.keys(this.#storage ?? {})) {
      if (!key.startsWith(PREFIX)) continue;
      const found = parsed(this.#storage.getItem(key));
      if (!isConversation(found) || PREFIX + found.id !== key) continue;
      const known = before.get(found.id);
      this.#held.set(found.id, known && !(known.saved < found.saved) ? known : found);
    }
  }
}

const withoutTokens = (key, value) => (key === "tokens" ? [] : value);

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
