// The session stores of other programs, driven through their own code: node drive.mjs PROGRAM FOLDER ORDER PLACE
//
// ORDER is `read` (print every session: its name, and the messages that the program would send), `continue` (add a prompt, an
// answer with a call, its result and an end to every session) or `write` (a session of the program's own).
import { readdirSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [program, folder, order, place] = process.argv.slice(2);
const load = (path) => import(pathToFileURL(join(folder, path)).href);
const text = (content) =>
  typeof content === "string" ? content : (content ?? []).filter((block) => block.type === "text").map((block) => block.text).join("\n");
const THEIRS = "theirs ü 🥄";
const USAGE = { input: 3, output: 2, cacheRead: 0, cacheWrite: 0, totalTokens: 5, cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0 } };

// A message as [role, text, ...calls or the call of a result].
const plain = (message) => {
  const blocks = Array.isArray(message.content) ? message.content : [];
  const calls = blocks.filter((block) => ["toolCall", "tool-call"].includes(block.type)).map((block) => block.name ?? block.toolName);
  const result = blocks.find((block) => block.type === "tool-result");
  if (result) return ["toolResult", String(result.output.value), "tool"];
  if (message.role === "toolResult") return ["toolResult", text(message.content), message.isError ? "error" : "tool"];
  if (message.role === "compactionSummary") return ["user", message.summary];
  return [message.role, text(message.content), ...calls];
};

const programs = {
  // The newest version of pi and the one before it was renamed: a file for each session, as `clew export` writes it.
  async pi() {
    const { SessionManager } = await load("dist/index.js");
    const files = () => readdirSync(place).filter((name) => name.endsWith(".jsonl")).map((name) => join(place, name));
    const add = (manager) => {
      const about = { api: "anthropic-messages", provider: "anthropic", model: "claude-x", usage: USAGE, timestamp: Date.now() };
      manager.appendMessage({ role: "user", content: [{ type: "text", text: THEIRS }], timestamp: Date.now() });
      const call = { type: "toolCall", id: "t1", name: "read", arguments: { path: "x" } };
      manager.appendMessage({ role: "assistant", content: [{ type: "text", text: "their answer" }, call], stopReason: "toolUse", ...about });
      const result = { role: "toolResult", toolCallId: "t1", toolName: "read", content: [{ type: "text", text: "a spoon" }] };
      manager.appendMessage({ ...result, isError: false, timestamp: Date.now() });
      manager.appendMessage({ role: "assistant", content: [{ type: "text", text: "their end" }], stopReason: "stop", ...about });
    };
    return {
      read: () =>
        Object.fromEntries(
          files().map((file) => {
            const manager = SessionManager.open(file);
            return [file.split("/").pop(), { name: manager.getSessionName(), messages: manager.buildSessionContext().messages.map(plain) }];
          }),
        ),
      continue: () => files().forEach((file) => add(SessionManager.open(file))),
      write: () => {
        const manager = SessionManager.create(place, place);
        manager.appendSessionInfo("their own");
        add(manager);
      },
    };
  },

  // joe5saia/agent: a folder for each session, shared with a `jsonl:` store.
  async agent() {
    const { SessionManager } = await load("src/sessions/manager.ts");
    const manager = new SessionManager({ defaultModel: "d/m", sessionsDir: place });
    const add = async (id) => {
      const call = { type: "toolCall", id: `t-${id}`, name: "read", arguments: { path: "x" } };
      const result = { role: "toolResult", toolCallId: `t-${id}`, toolName: "read", isError: false };
      await manager.appendMessage(id, { role: "user", content: [{ type: "text", text: THEIRS }] });
      await manager.appendMessage(id, { role: "assistant", content: [{ type: "text", text: "their answer" }, call] });
      await manager.appendMessage(id, { ...result, content: [{ type: "text", text: "a spoon" }] });
      await manager.appendMessage(id, { role: "assistant", content: [{ type: "text", text: "their end" }] });
      await manager.recordTurnMetrics(id, { durationMs: 5, inputTokens: 1, outputTokens: 1, toolCalls: 1, totalTokens: 2 });
    };
    return {
      read: async () => {
        const found = {};
        for (const { id, name } of await manager.list()) found[id] = { name, messages: (await manager.buildContext(id)).map(plain) };
        return found;
      },
      continue: async () => {
        for (const { id } of await manager.list()) await add(id);
      },
      write: async () => add((await manager.create({ name: "their own" })).id),
    };
  },

  // Molf: a file for each session, shared with a `json:` store.
  async molf() {
    const { SessionManager } = await load("packages/server/src/session-mgr.ts");
    const { convertToModelMessages, getMessagesFromSummary } = await load("packages/agent-core/src/session.ts");
    const manager = new SessionManager(place);
    const add = async (id) => {
      manager.load(id);
      let n = 0;
      const message = (more) => manager.addMessage(id, { id: `msg_${id.slice(0, 8)}${n}`, timestamp: Date.now() + n++, ...more });
      message({ role: "user", content: THEIRS });
      message({ role: "assistant", content: "their answer", toolCalls: [{ toolCallId: "t1", toolName: "read", args: { path: "x" } }] });
      message({ role: "tool", content: "a spoon", toolCallId: "t1", toolName: "read" });
      message({ role: "assistant", content: "their end", usage: { inputTokens: 3, outputTokens: 2 }, model: "m/x" });
      await manager.save(id);
      await manager.release(id);
    };
    const sessions = async () => (await manager.list(undefined, undefined, { limit: 200 })).sessions;
    return {
      read: async () => {
        const found = {};
        for (const { sessionId, name } of await sessions()) {
          const held = getMessagesFromSummary(manager.load(sessionId).messages).map((one) => ({ ...one, attachments: undefined }));
          found[sessionId] = { name, messages: convertToModelMessages(held).map(plain) };
        }
        return found;
      },
      continue: async () => {
        for (const { sessionId } of await sessions()) await add(sessionId);
      },
      write: async () => add((await manager.create({ name: "their own", workerId: "w", workspaceId: "ws" })).sessionId),
    };
  },

  // Grida: one database, which it shares with a `sqlite:` store.
  async grida() {
    const { openSessionsDb } = await load("packages/grida-ai-agent/src/session/db.ts");
    const { SessionsStore } = await load("packages/grida-ai-agent/src/session/store.ts");
    mkdirSync(join(place, ".."), { recursive: true });
    const store = new SessionsStore(openSessionsDb({ user_data_path: "", db_file: place }));
    const put = async (session_id, role, ...parts) => {
      const message = await store.appendMessage(session_id, { role });
      for (const [index, data] of parts.entries()) {
        const hoisted = { tool_call_id: data.toolCallId ?? null, tool_state: data.state ?? null };
        await store.upsertPart(message.id, { index, type: data.type, data, session_id, ...hoisted });
      }
      return message.id;
    };
    const say = (words) => ({ type: "text", text: words });
    const add = async (id) => {
      const call = { type: "tool-read", toolCallId: `t-${id}`, state: "output-available", input: { path: "x" }, output: "a spoon" };
      await put(id, "user", say(THEIRS));
      await put(id, "assistant", say("their answer"), call, say("their end"));
    };
    const sessions = async () => (await store.list({ include_archived: true, limit: 200 })).items;
    const shown = (part) => part.data.text ?? part.data.output ?? part.data.errorText ?? part.data.data?.summary;
    return {
      read: async () => {
        const found = {};
        for (const { id, title } of await sessions()) {
          const messages = await store.listMessages(id);
          const visible = messages.filter((one) => one.hidden_at === null && one.metadata.queued_at === undefined);
          found[id] = { name: title, messages: visible.map((one) => [one.role, ...one.parts.map(shown).filter(Boolean)]) };
        }
        return found;
      },
      continue: async () => {
        for (const { id } of await sessions()) await add(id);
      },
      write: async () => {
        const { id } = await store.create({ agent: "grida", title: "their own" });
        await put(id, "user", say("before"));
        const kept = await put(id, "assistant", say("and after"));
        await put(id, "user", say("taken back"));
        await put(id, "assistant", say("gone"));
        await store.rewind(id, kept);
        await add(id);
        const waits = await store.create({ agent: "grida" });
        await put(waits.id, "user", say("do it"));
        await put(waits.id, "assistant", { type: "tool-run", toolCallId: "w1", state: "approval-requested", input: {} });
      },
    };
  },
};

const orders = await programs[program]();
console.log(JSON.stringify((await orders[order]()) ?? {}));
