// Generated from the API's own document by `make web-types`. Do not edit.

/** The fate of the queue: it stays, paused (`stay`), or continues (`go_on`). */
export interface AbortBody {
  queue?: "go_on" | "stay";
}

/** True if there was something to stop. */
export interface Aborted {
  aborted: boolean;
}

/** A rule to add, and its scope. */
export interface AddedRule {
  scope: "project" | "session";
  permission: string;
  pattern: string;
  action: "allow" | "ask" | "deny";
  session?: string | null;
  workspace?: string | null;
}

/** The available agents. `notices` report unusable manifests, with the reason. `internal` are the subagents that clew itself calls, for summaries and titles. No session can use them. */
export interface AgentList {
  agents: AgentShape[];
  notices: string[];
  internal?: AgentShape[];
}

/** An agent that a session can use. */
export interface AgentShape {
  name: string;
  description: string;
  mode: "primary" | "subagent";
  model: Model | null;
  tools: string[] | null;
  max_steps: number;
  source: "builtin" | "project" | "user";
  inspectable?: boolean;
}

/** A person's decision on all pending approval requests, or on the listed ones. */
export interface AllApprovalsBody {
  decision: "deny" | "once" | "project" | "session";
  reason?: string | null;
  approval_ids?: string[] | null;
}

/** A person's answer to a question; null is a valid answer. */
export interface AnswerBody {
  output?: unknown;
}

/** A person's decision on an approval request. */
export interface ApprovalBody {
  decision: "deny" | "once" | "project" | "session";
  reason?: string | null;
  pattern?: string | null;
}

/** The result of importing a session of another program. `turns` counts the prompts that were added, as a listing counts them, `subagents` the sessions below it; `why` is the reason why the rest was not imported; `remarks` list the contents of the file besides the conversation. */
export interface Arrival {
  session_id: string;
  title: string | null;
  outcome: "apart" | "grown" | "new" | "same";
  turns: number;
  subagents: number;
  why: string | null;
  remarks: Remark[];
}

/** The message where a branch starts, and what differs in it. */
export interface BranchBody {
  from_message_id: string;
  metadata?: Record<string, unknown> | null;
  model?: string | Record<string, unknown> | null;
  start_message_id?: string | null;
  worktree?: string | null;
}

/** The answer to Slack's verification of a webhook's URL. It starts no turn. */
export interface Challenge {
  challenge: string;
}

/** A file that a session changed. `added` and `removed` count lines, None for what is not text. `shared`: another session or a person changed it meanwhile. */
export interface ChangedFile {
  path: string;
  kind: "added" | "deleted" | "mode" | "modified";
  added?: number | null;
  removed?: number | null;
  shared?: boolean;
}

/** The changes of a session, a turn or a step. `skipped` are paths that snapshots do not cover, with reasons; `failed` is the newest reason why a snapshot is missing, so that changes may be missing, too. */
export interface ChangesReport {
  files: ChangedFile[];
  skipped?: Record<string, string>;
  failed?: string | null;
}

/** The request of the AI SDK v6 transport. Messages stay raw: they are the client's copy; the store has its own. */
export interface ChatBody {
  id: string;
  messages: unknown[];
  trigger?: "regenerate-message" | "submit-message";
  messageId?: string | null;
  model?: string | Record<string, unknown> | null;
  agent?: string | null;
}

/** A chunk of the AI SDK's stream; other fields depend on its type. The last frame is `[DONE]`. */
export interface Chunk {
  type: string;
  [key: string]: unknown;
}

/** The focus of the summary: content it should keep. */
export interface CompactBody {
  focus?: string | null;
}

/** The result of a compaction. `turns` is the number of earlier turns that the summary covers. */
export interface Compacted {
  compacted: boolean;
  message_id?: string | null;
  strategy?: string | null;
  tokens_before?: number;
  tokens_after?: number;
  turns?: number;
  pruned?: number;
}

/** A compaction with the messages its summary covers. `previous_id` is the previous marker, if there is one. */
export interface CompactionReport {
  message_id: string;
  turn_id: string;
  previous_id: string | null;
  data: Record<string, unknown>;
  messages: Message[];
}

/** A rule that matched but did not decide, and the reason. */
export interface ConsideredShape {
  rule: RuleShape;
  scope: "manifest" | "mode" | "project" | "session";
  why: string;
}

/** The parts of the next request, in tokens. `pruned` is what stubs save; it is not part of the sum. */
export interface ContextParts {
  system: number;
  tools: number;
  summary: number;
  history: number;
  pruned: number;
}

/** The context gauge. `measured` means that the provider counted most of `used`; else it is an estimate. */
export interface ContextReport {
  limit: number;
  reserve: number;
  threshold: number;
  used: number;
  measured: boolean;
  parts: ContextParts;
}

/** Resume the newest turn where it stopped (`on`), or run its prompt again (`again`). With `queue`, only resume a paused queue. */
export interface ContinueBody {
  mode?: "again" | "on";
  queue?: boolean;
}

/** A problem found by checking the store, with the ids it concerns. */
export interface Damage {
  what: string;
  session_id?: string | null;
  id?: string | null;
}

/** Bytes on disk by kind. `database` is None where the store is not on this machine; `outputs` are long outputs of tools; `workspaces` has the bytes of `snapshots` by workspace. */
export interface DiskUse {
  database: number | null;
  blobs: number;
  snapshots: number;
  outputs: number;
  workspaces: Record<string, number>;
}

/** The answer to a delivery that repeats an earlier one under a different id: the ids of the first. */
export interface Duplicate {
  event_id: string;
  session_id: string;
  message_id: string;
  duplicate?: true;
}

/** An event of this host; other fields depend on its type. */
export interface EventFrame {
  type: string;
  [key: string]: unknown;
}

/** A page of the events ledger, newest first. `next_cursor` is None on the last page. */
export interface EventList {
  events: LedgerEvent[];
  next_cursor: string | null;
}

/** The decision about a call, the rule and scope that made it, and the other rules considered. */
export interface ExplainedShape {
  action: "allow" | "ask" | "deny";
  rule: RuleShape | null;
  scope: "manifest" | "mode" | "project" | "session" | null;
  considered: ConsideredShape[];
  reason: string;
  subjects: SubjectShape[];
}

/** The difference of one file as a unified diff. `hunks` are the headers by which one can be reverted. */
export interface FileDiff {
  path: string;
  kind: "added" | "deleted" | "mode" | "modified";
  diff: string;
  hunks?: string[];
}

/** The effect of a restore on one file: `added` and `removed` count lines, None for what is not text. `conflict`: another hand has changed it since, so that it is left alone unless it is named. */
export interface FileEffect {
  path: string;
  kind: "added" | "deleted" | "mode" | "modified";
  added?: number | null;
  removed?: number | null;
  conflict?: boolean;
}

/** Files that the conversation has read or changed, the most recently touched first. Of all turns of the line, or of one page of them: then `count` and the actions are those of this page, and `next_cursor` leads to the page before it. A file touched on several pages is listed on each. */
export interface FileList {
  files: TouchedFile[];
  next_cursor?: string | null;
}

/** Paths in a workspace, best match first. */
export interface FileNames {
  files: string[];
}

/** The files that differ between the workspaces of a session and a branch of it, as last saved. `diff` is the unified diff of the one file that was asked for. */
export interface FilesCompared {
  files: ChangedFile[];
  diff?: string | null;
}

/** The result of a restore. `conflicts` are files that were left alone since another hand has changed them. */
export interface FilesRestored {
  snapshot_id: string;
  restored: string[];
  conflicts?: string[];
  skipped?: Record<string, string>;
  unsure?: string[];
}

/** The label of a fork, and its first prompt, which is run. */
export interface ForkBody {
  label?: string | null;
  text?: string | null;
}

/** Servers by name. */
export interface GivenServers {
  servers: Record<string, McpServer>;
}

/** The turn to go to; null is the empty start. And what happens to files. */
export interface HeadBody {
  turn_id?: string | null;
  files?: "keep" | "only" | "restore" | null;
  force?: boolean | null;
  paths?: string[] | null;
}

/** The version of clew and the kind of its store. `login`: whether clients authenticate by a token of clew, or by the host that clew is part of, for example with a cookie. */
export interface Health {
  version: string;
  store: string;
  login: "host" | "token";
}

/** A rule with its id and its owner `of`: a session's id, a project's folder, or an agent's name. `unknown`: it names no known tool, and applies to every tool if it denies or asks. */
export interface KeptRule {
  id: string;
  scope: "agent" | "project" | "session";
  of: string;
  permission: string;
  pattern: string;
  action: "allow" | "ask" | "deny";
  added_at: number | null;
  pinned: boolean;
  unknown?: boolean;
}

/** Rules with their ids, nearest scope first. */
export interface KeptRules {
  rules: KeptRule[];
}

/** A row of the ledger. `seq` is set by the store; `status` is the turn's, for outbound events only, except for repeated deliveries: both rows say `duplicate`. `turn_id` is stored with outbound events and looked up for inbound ones. `digest` is that of the inbound content; `routing` says how it found its session. `attempt` counts from 1; the rows of later ones name their turn. `owner` is the session's, set by the store. */
export interface LedgerEvent {
  id: string;
  direction: "in" | "out";
  source: string;
  source_id: string;
  session_id: string;
  message_id: string | null;
  at: number;
  type?: string | null;
  turn_id?: string | null;
  attempt?: number;
  status?: string | null;
  digest?: string | null;
  routing?: Record<string, unknown>;
  data?: Record<string, unknown>;
  owner?: string | null;
  seq?: number;
}

/** One MCP server: a program or an address. A person must approve its tool definitions before the model sees them, unless the server is trusted or the definitions match `pin`. `${NAME}` in a value of `env` or `headers` is replaced by that variable of clew's environment. */
export interface McpServer {
  command?: string | null;
  args?: string[];
  env?: Record<string, string>;
  cwd?: string | null;
  url?: string | null;
  headers?: Record<string, string>;
  timeout_s?: number;
  start_s?: number;
  trust?: boolean;
  pin?: string | null;
  enabled?: boolean;
  owners?: boolean;
}

/** MCP servers, by name. */
export interface McpServerList {
  servers: ServerState[];
}

/** A message as a view shows it: an AI SDK `UIMessage`, ready for `useChat`. */
export interface Message {
  id: string;
  role: "assistant" | "system" | "user";
  parts: Part[];
  metadata: Record<string, unknown>;
}

export interface MessageList {
  messages: Message[];
}

/** A model: its provider, its id, and a variant that applies to one turn. */
export interface Model {
  provider_id: string;
  model_id: string;
  variant?: string | null;
}

export interface ModelList {
  models: ModelListing[];
}

/** An entry of the list of models. `reason` says why a model cannot be used, and what to do about it. `files` are the media types it accepts besides text, as in :class:`ModelInfo`. `caching`: input that is sent again costs less. `known=False`: the limits are guesses. */
export interface ModelListing {
  id: string;
  window: number;
  max_output: number;
  usable: boolean;
  reason?: string | null;
  default?: boolean;
  variants?: string[];
  files?: string[];
  tools?: boolean;
  caching?: boolean;
  known?: boolean;
}

/** The message before which it is sent; null moves it to the end. */
export interface MoveBody {
  before?: string | null;
}

/** An event from elsewhere. The other fields are for a session that has to be created for it. */
export interface NewEvent {
  source: string;
  source_id: string;
  routing: RoutingBody;
  type?: string | null;
  text?: string | null;
  payload?: unknown;
  model?: string | Record<string, unknown> | null;
  agent?: string | null;
  workspace_root?: string | null;
  title?: string | null;
}

/** A prompt to save, and its name. */
export interface NewPrompt {
  name: string;
  text: string;
}

/** A rule as a client sends it. `source` is ignored; `pinned` is listed only to be refused. */
export interface NewRule {
  permission: string;
  pattern: string;
  action: "allow" | "ask" | "deny";
  source?: unknown;
  added_at?: number | null;
  pinned?: boolean | null;
}

/** A schedule: a prompt, its times, and its routing. Without a routing, each run gets its own session. */
export interface NewSchedule {
  cron: string;
  prompt: string;
  timezone?: string;
  name?: string | null;
  missed?: "once" | "skip";
  paused?: boolean;
  routing?: RoutingBody | null;
  model?: string | Record<string, unknown> | null;
  agent?: string | null;
  workspace_root?: string | null;
  title?: string | null;
}

/** A new secret, if the sender creates them. */
export interface NewSecret {
  secret?: string | null;
}

/** The properties of a new session. */
export interface NewSession {
  agent?: string | null;
  workspace_root?: string | null;
  model?: string | Record<string, unknown> | null;
  title?: string | null;
  metadata?: Record<string, unknown> | null;
  system_prompt?: string | null;
  mode?: "accept_edits" | "ask" | "read_only" | null;
  alias?: string | null;
}

/** A resource of an MCP server to watch, the session to notify, and the prompt. */
export interface NewWatch {
  session_id: string;
  server: string;
  uri: string;
  prompt?: string | null;
  name?: string | null;
}

/** A webhook and its routing. Without a routing, each delivery gets its own session. */
export interface NewWebhook {
  name: string;
  scheme?: "github" | "slack" | "standard" | "stripe";
  secret?: string | null;
  prompt?: string | null;
  paused?: boolean;
  routing?: RoutingBody | null;
  model?: string | Record<string, unknown> | null;
  agent?: string | null;
  workspace_root?: string | null;
  title?: string | null;
}

/** An empty body. */
export interface Nothing {
}

/** A part of a message, in the AI SDK's own format; other fields depend on its type. */
export interface Part {
  type: string;
  [key: string]: unknown;
}

/** The state of the queue: paused until a person resumes it, or running. */
export interface PauseBody {
  paused?: boolean;
}

/** An error: `code` is stable, `detail` is one sentence for people; the ids it is about are extra fields. */
export interface Problem {
  type: string;
  title: string;
  status: number;
  detail: string;
  code: string;
  [key: string]: unknown;
}

/** A prompt: its text, or its parts. */
export interface PromptBody {
  text?: string | null;
  parts?: Part[] | null;
  model?: string | Record<string, unknown> | null;
  agent?: string | null;
  message_id?: string | null;
  on_busy?: "interrupt" | "queue" | "reject" | null;
  attended?: boolean | null;
  output?: Record<string, unknown> | null;
  metadata?: Record<string, unknown> | null;
}

/** Saved prompts, by name. */
export interface PromptList {
  prompts: SavedPrompt[];
}

/** The queued messages, the next one first; `paused`, as in a status, while none will be sent. */
export interface QueueShape {
  messages: Message[];
  paused?: boolean;
  paused_by?: "abort" | "error" | "person" | "restart" | "waiting" | null;
}

/** The new text of a queued message. */
export interface QueuedBody {
  text: string;
}

/** The answer to every delivery of the same event. */
export interface Received {
  event_id: string;
  session_id: string;
  message_id: string;
}

/** A head move, and the label of the turn it went to; no text for the empty start. */
export interface ReflogEntry {
  seq: number;
  from_turn_id: string | null;
  to_turn_id: string | null;
  at: number;
  why: "branch" | "compaction" | "goto" | "rewind" | "turn" | "unrewind";
  text: string;
}

/** Moves of the head, newest first. */
export interface ReflogList {
  moves: ReflogEntry[];
}

/** The number of pending requests of the step; at 0 the run has resumed. */
export interface Remaining {
  remaining: number;
}

/** One line of an import report: what was found, how often, where first, and its fate. `kept`: imported, but not part of the conversation. `changed`: imported in another form. `lost`: not imported. */
export interface Remark {
  what: string;
  fate: "changed" | "kept" | "lost";
  count: number;
  where: string | null;
}

export interface ReplicaList {
  replicas: ReplicaShape[];
}

/** A process that serves the store. Times are by the store's clock. `alive`: its lease is valid; `here`: it is this process. */
export interface ReplicaShape {
  id: string;
  url: string | null;
  version: string;
  started_at: number;
  beat_at: number;
  lease_until: number;
  draining: boolean;
  alive: boolean;
  here: boolean;
  sessions: string[];
}

/** A request as it was sent. `digest` is that of the rebuilt request, `recorded` that of the sent one. */
export interface RequestReport {
  turn_id: string;
  step: number;
  model: Model;
  prompt: Section[];
  tools: ToolSchema[];
  messages: Message[];
  max_output_tokens: number | null;
  temperature: number | null;
  digest: string;
  recorded: string | null;
  proven: boolean;
}

/** The effect that a restore would have. `skipped` are paths that the snapshot does not cover, with reasons; `unsure` those that a call may have changed before the snapshot was taken, which was late. */
export interface RestorePreview {
  snapshot_id: string;
  taken_at: number;
  state: string;
  files: FileEffect[];
  skipped?: Record<string, string>;
  unsure?: string[];
}

/** The file, or one hunk of its differences by its header; of a turn or a step, by default of the whole session. */
export interface RevertBody {
  path: string;
  hunk?: string | null;
  turn_id?: string | null;
  step?: number | null;
  force?: boolean | null;
}

/** The user message to go back to, and what to do there. */
export interface RewindBody {
  message_id: string;
  mode?: "edit" | "resend" | null;
  text?: string | null;
  run?: boolean | null;
  files?: "keep" | "only" | "restore" | null;
  force?: boolean | null;
  paths?: string[] | null;
  restore_files?: boolean | null;
  parts?: Part[] | null;
  model?: string | Record<string, unknown> | null;
  agent?: string | null;
  client_message_id?: string | null;
  metadata?: Record<string, unknown> | null;
}

/** The new head, and the messages that left the line; with `message_id` and `queued` if the rewind runs, and with `files` if some were restored. */
export interface RewoundShape {
  head_turn_id: string | null;
  hidden: string[];
  draft: string | null;
  message_id?: string;
  queued?: boolean;
  files?: FilesRestored;
}

/** The target of an event: a session by its id, label or routing key; without any, a new session each time. The other values are for a session that is created. `model` and `agent` also apply to an existing one. */
export interface Routing {
  session_id?: string | null;
  label?: string | null;
  key?: string | null;
  model?: string | Model | null;
  agent?: string | null;
  workspace_root?: string | null;
  title?: string | null;
}

/** A session by its id, its label, or a routing key. For the latter two a session is created if needed. */
export interface RoutingBody {
  session_id?: string | null;
  label?: string | null;
  key?: string | null;
}

export interface RuleList {
  rules: RuleShape[];
}

/** A permission rule with its scope. `unknown`: it names no known tool, and applies to every tool if it denies or asks. */
export interface RuleShape {
  permission: string;
  pattern: string;
  action: "allow" | "ask" | "deny";
  source: "manifest" | "mode" | "project" | "session";
  added_at: number | null;
  pinned: boolean;
  unknown?: boolean;
}

/** All rules the session is to have. */
export interface RulesBody {
  rules: NewRule[];
}

/** A tool call that has been running for a second or longer. */
export interface RunningCall {
  tool_call_id: string;
  tool: string;
  since: number;
}

/** A text under a name; in the config folder it is the file `prompts/NAME.md`, an owner's in a subfolder of their own. */
export interface SavedPrompt {
  name: string;
  text: string;
}

/** A job that fires automatically. `last_id` is the source id of its newest run, `skipped` counts skipped runs. With an empty `cron` it fires once, at the time `at`, and is then removed; or whenever the resource that it `watches` changes. `by` says who made it. */
export interface Schedule {
  id: string;
  cron: string;
  prompt: string;
  created_at: number;
  at?: number | null;
  by?: "agent" | "person";
  timezone?: string;
  name?: string | null;
  missed?: "once" | "skip";
  paused?: boolean;
  routing?: Routing;
  next_fire_at?: number | null;
  last_fired_at?: number | null;
  last_id?: string | null;
  last_error?: string | null;
  skipped?: number;
  owner?: string | null;
  watches?: Watch | null;
}

/** All schedules, by id. */
export interface ScheduleList {
  schedules: Schedule[];
}

/** The properties of a schedule to change; `paused` pauses and resumes it. */
export interface SchedulePatch {
  cron?: string;
  prompt?: string;
  timezone?: string;
  name?: string | null;
  missed?: "once" | "skip";
  paused?: boolean;
}

/** The next times of a schedule that is not stored yet, and what is wrong with it, if anything. */
export interface SchedulePreview {
  times: number[];
  problem?: string | null;
}

/** A matching part. `snippet` is plain text with matches between two `**`, control characters included. `title` is the session's. `hidden`: the message is not part of the conversation any more. */
export interface SearchHit {
  session_id: string;
  message_id: string;
  part_id: string;
  title: string | null;
  snippet: string;
  hidden: boolean;
  role: string;
  created_at: number;
}

/** A page of hits, best first; `next_cursor` is None on the last one. `complete` is False while some messages may not be indexed yet. `total` is the number of hits; with `at_least` there are more, of which the newest are ranked and the others follow by age. */
export interface SearchPage {
  hits: SearchHit[];
  next_cursor: string | null;
  complete?: boolean;
  total?: number;
  at_least?: boolean;
}

/** One part of the prompt, with its name. */
export interface Section {
  name: string;
  text: string;
}

/** The session or the folder to start the server for. */
export interface ServerPlace {
  session_id?: string | null;
  workspace?: string | null;
}

/** Information about this server. `workspace_root` is the folder it was started in, null if that is gone. `chunk_durable`: chunks are stored before they are shown. `search`: the store supports search. `losses` lists acknowledged data that is missing from the store, until someone accepts the loss. `owner` is the authenticated owner; null for the administrator. Without `triggers` this is the server of a chat, which fires no schedules and ends with it. */
export interface ServerShape {
  version: string;
  store: string;
  workspace_root: string | null;
  chunk_durable: boolean;
  search: boolean;
  losses?: Damage[];
  owner?: string | null;
  triggers?: boolean;
}

/** A server as shown to people. `digest` identifies the definitions it listed last, `told` is their text; `notices` say which of its tools are left out, and why. `runs` counts its open connections. */
export interface ServerState {
  name: string;
  kind: "command" | "url";
  target: string;
  source: "agent" | "session" | "user";
  state: "failed" | "idle" | "off" | "ready" | "starting";
  runs?: number;
  error?: string | null;
  digest?: string | null;
  trusted?: boolean;
  tools?: string[];
  told?: string;
  notices?: string[];
}

export interface SessionList {
  sessions: SessionShape[];
}

/** Sessions, newest first; `next_cursor` is null on the last page. */
export interface SessionPage {
  sessions: SessionShape[];
  next_cursor: string | null;
}

/** The properties of a session to change. `agent` is listed only to be refused. */
export interface SessionPatch {
  title?: string | null;
  archived?: boolean;
  metadata?: Record<string, unknown>;
  model?: string | Record<string, unknown>;
  mode?: "accept_edits" | "ask" | "read_only";
  pinned?: boolean;
  agent?: unknown;
}

/** A session as clients see it: fields stored in its metadata are top-level, and its own rules are omitted. */
export interface SessionShape {
  id: string;
  agent: string;
  title: string | null;
  label: string | null;
  workspace_root: string | null;
  model: Model;
  parent_id: string | null;
  parent_message_id: string | null;
  kind: "chat" | "subagent";
  head_turn_id: string | null;
  metadata: Record<string, unknown>;
  prompt_tokens: number;
  completion_tokens: number;
  reasoning_tokens: number;
  cache_read: number;
  cache_write: number;
  total_tokens: number;
  cost_usd: number;
  created_at: number;
  updated_at: number;
  archived_at: number | null;
  owner: string | null;
  alias: string | null;
  status: Status;
  mode: "accept_edits" | "ask" | "read_only";
  spend: Spend;
  pinned: boolean;
}

/** The settings to change; null resets a setting. */
export interface SettingsPatch {
  default_model?: string | null;
  default_agent?: string | null;
  max_steps?: number | null;
}

/** The current settings. `default_model` null is the first usable one, `max_steps` null the preset's. `file` is where changes are stored; null if they last only as long as this process. */
export interface SettingsShape {
  default_model: string | null;
  default_agent: string;
  max_steps: number | null;
  file: string | null;
}

/** The spend of a session and its `subagents`. For a branch, only its own calls count. */
export interface Spend {
  calls: number;
  tokens: number;
  cost_usd: number;
  subagents: number;
}

/** The current activity of a session. It is idle while waiting for a person; `waiting` lists the pending calls. `problem` is the reason of a failure or a retry. `running` lists long-running calls. `paused`: messages are queued, and none is sent before a person prompts, or answers. */
export interface Status {
  state: "busy" | "error" | "idle" | "retrying";
  attempt?: number | null;
  message?: string | null;
  started_at?: number | null;
  retry_at?: number | null;
  waiting?: Waiting[];
  problem?: Record<string, unknown> | null;
  paused?: boolean;
  paused_by?: "abort" | "error" | "person" | "restart" | "waiting" | null;
  running?: RunningCall[];
}

/** A step: its model, usage, duration, and the digests of its prompt and request. */
export interface StepReport {
  index: number;
  message_id: string;
  model: Model;
  usage: Usage;
  cost_usd: number;
  started_at: number;
  finished_at: number;
  finish_reason: string | null;
  prompt_digest: string | null;
  request_digest: string | null;
}

/** One thing a call would touch: a path, a host, a command or a redirect of a command line. */
export interface SubjectShape {
  permission: string;
  kind: "command" | "host" | "path" | "plain";
  shown: string;
  action: "allow" | "ask" | "deny";
  rule: RuleShape | null;
  scope: "manifest" | "mode" | "project" | "session" | null;
  reason: string;
  considered: ConsideredShape[];
}

/** An accepted prompt. */
export interface SubmissionShape {
  message_id: string;
  queued: boolean;
}

/** A tool definition as a model receives it. `input_schema` is JSON Schema. */
export interface ToolSchema {
  name: string;
  description: string;
  input_schema: Record<string, unknown>;
}

/** A file that completed calls of the file tools read or changed. `count` counts all these calls, `changes` those that changed it. */
export interface TouchedFile {
  path: string;
  read: boolean;
  modified: boolean;
  count: number;
  changes: number;
  last_turn_id: string;
  last_at: number;
}

/** A session that starts as a copy of a line of this one. `turn_id` is where it branched, if known. */
export interface TreeBranch {
  session_id: string;
  title: string | null;
  label: string | null;
  from_message_id: string | null;
  turn_id: string | null;
  created_at: number;
}

/** A turn with its position. `text` is the beginning of its user message or summary. */
export interface TreeTurn {
  id: string;
  parent_turn_id: string | null;
  kind: "compaction" | "normal";
  status: "aborted" | "compacting" | "completed" | "failed" | "refused" | "retrying" | "running" | "unanswered" | "waiting";
  created_at: number;
  settled_at: number | null;
  depth: number;
  origin_turn_id: string | null;
  on_line: boolean;
  is_head: boolean;
  text: string;
  messages: string[];
}

/** Turns of a session, parents before children, and the branches that start at them, oldest first. All of them, or a page of the newest; `next_cursor` leads to the page before. Every descendant of a turn is on the same page or on one loaded before. Branches of unknown origin are on the last page. */
export interface TreeView {
  session_id: string;
  head_turn_id: string | null;
  open_turn_id: string | null;
  turns: TreeTurn[];
  branches: TreeBranch[];
  next_cursor?: string | null;
}

/** A turn with its steps. `data` depends on its kind and end: errors, metrics of a compaction. */
export interface TurnReport {
  id: string;
  session_id: string;
  parent_turn_id: string | null;
  origin_turn_id: string | null;
  kind: string;
  status: "aborted" | "compacting" | "completed" | "failed" | "refused" | "retrying" | "running" | "unanswered" | "waiting";
  depth: number;
  created_at: number;
  settled_at: number | null;
  data: Record<string, unknown>;
  messages: string[];
  steps: StepReport[];
}

/** The treatment of files: `restore` takes them along, `only` undoes the newest restore of files alone. */
export interface UnrewindBody {
  files?: "keep" | "only" | "restore" | null;
  force?: boolean | null;
  paths?: string[] | null;
}

/** Token usage: `input` without cache, `output` without reasoning; `total` is everything billed. */
export interface Usage {
  input?: number;
  output?: number;
  reasoning?: number;
  cache_read?: number;
  cache_write?: number;
}

/** The calls that share `key`; null for calls without one, such as those of a deleted session. */
export interface UsageGroup {
  calls: number;
  input: number;
  output: number;
  reasoning: number;
  cache_read: number;
  cache_write: number;
  cost_usd: number;
  estimated: number;
  unpriced: number;
  key: string | null;
}

/** Groups by key, and their total. */
export interface UsageReport {
  groups: UsageGroup[];
  total: UsageSums;
}

/** Sums over model calls. `estimated` counts those whose provider did not report all counts. `unpriced` counts calls that used tokens at no cost: the model is free, or its price is unknown. */
export interface UsageSums {
  calls: number;
  input: number;
  output: number;
  reasoning: number;
  cache_read: number;
  cache_write: number;
  cost_usd: number;
  estimated: number;
  unpriced: number;
}

/** A call that waits for a person. `approval_id` is None for a question. */
export interface Waiting {
  approval_id: string | null;
  tool_call_id: string;
  tool: string;
  since: number;
}

/** A resource of an MCP server whose changes fire a schedule. */
export interface Watch {
  server: string;
  uri: string;
}

/** All webhooks, by name; without their secrets. */
export interface WebhookList {
  webhooks: WebhookShape[];
}

/** The properties of a webhook to change; `paused` pauses and resumes it. */
export interface WebhookPatch {
  paused?: boolean;
  prompt?: string | null;
}

/** A webhook as clients see it. The secret is included only when it was just created. Deliveries are addressed to its `key`, which is its name if it has no owner. */
export interface WebhookShape {
  name: string;
  key: string;
  owner: string | null;
  scheme: "github" | "slack" | "standard" | "stripe";
  prompt: string | null;
  paused: boolean;
  routing: Routing;
  created_at: number;
  secret?: string;
}

/** The request and response of each operation; `frame` is one frame of a stream. */
export interface Operations {
  /** Get the web page. */
  "GET /": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    answer: string;
  };
  /** Get a file of the page. */
  "GET /assets/{file}": {
    path: { file: string };
    query: Record<string, never>;
    body: undefined;
    answer: Blob;
  };
  /** Get the bytes on disk by kind. */
  "GET /api/disk": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    answer: DiskUse;
  };
  /** Check that the server is up. */
  "GET /api/health": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    answer: Health;
  };
  /** Check that prompts are accepted; 503 with the reason during shutdown, or without a usable store or a lease. */
  "GET /api/health/ready": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    answer: Health;
  };
  /** Get metrics of this server since its start, in the Prometheus format. */
  "GET /metrics": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    answer: string;
  };
  /** List the replicas that serve the store, and their runs. */
  "GET /api/replicas": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    answer: ReplicaList;
  };
  /** Get information about this server. */
  "GET /api/server": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    answer: ServerShape;
  };
  /** List known models, usable ones first. */
  "GET /api/models": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    answer: ModelList;
  };
  /** List the agents a session can use. */
  "GET /api/agents": {
    path: Record<string, never>;
    query: { workspace?: string | null };
    body: undefined;
    answer: AgentList;
  };
  /** Get token usage and cost of all model calls, in groups. */
  "GET /api/usage": {
    path: Record<string, never>;
    query: { by?: "day" | "model" | "owner" | "session" | "workspace"; from?: string | null; to?: string | null };
    body: undefined;
    answer: UsageReport;
  };
  /** Get the bytes of a file in a message. */
  "GET /api/blobs/{sha256}": {
    path: { sha256: string };
    query: Record<string, never>;
    body: undefined;
    answer: Blob;
  };
  /** Find files of a workspace by part of their names, best match first. */
  "GET /api/files": {
    path: Record<string, never>;
    query: { q?: string; session?: string | null; workspace?: string | null; limit?: number; folders?: boolean };
    body: undefined;
    answer: FileNames;
  };
  /** Get the default settings. */
  "GET /api/settings": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    answer: SettingsShape;
  };
  /** Change settings. */
  "PATCH /api/settings": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: SettingsPatch;
    answer: SettingsShape;
  };
  /** List the MCP servers whose tools agents can use, and their state. */
  "GET /api/mcp-servers": {
    path: Record<string, never>;
    query: { session?: string | null; workspace?: string | null };
    body: undefined;
    answer: McpServerList;
  };
  /** Start an MCP server, or refresh its tool list. */
  "POST /api/mcp-servers/{name}/start": {
    path: { name: string };
    query: Record<string, never>;
    body: ServerPlace | undefined;
    answer: ServerState;
  };
  /** Set a session's own MCP servers, replacing previous ones. */
  "PUT /api/sessions/{id}/mcp-servers": {
    path: { id: string };
    query: Record<string, never>;
    body: GivenServers;
    answer: McpServerList;
  };
  /** List the saved prompts. */
  "GET /api/prompts": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    answer: PromptList;
  };
  /** Save a prompt under a name. */
  "POST /api/prompts": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: NewPrompt;
    answer: SavedPrompt;
  };
  /** Delete a saved prompt. */
  "DELETE /api/prompts/{name}": {
    path: { name: string };
    query: Record<string, never>;
    body: undefined;
    answer: undefined;
  };
  /** Accept a reported loss of acknowledged commits. */
  "POST /api/losses/{loss_id}/accept": {
    path: { loss_id: string };
    query: Record<string, never>;
    body: Nothing;
    answer: undefined;
  };
  /** Create the sample sessions. */
  "POST /api/examples": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: Nothing | undefined;
    answer: SessionList;
  };
  /** List sessions, newest first. */
  "GET /api/sessions": {
    path: Record<string, never>;
    query: { limit?: number; cursor?: string | null; agent?: string | null; workspace?: string | null; parent?: string | null; q?: string | null; kind?: "any" | "chat" | "subagent"; archived?: boolean; ephemeral?: boolean; pinned?: boolean };
    body: undefined;
    answer: SessionPage;
  };
  /** Create an empty session. */
  "POST /api/sessions": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: NewSession;
    answer: SessionShape;
  };
  /** Delete a session permanently. */
  "DELETE /api/sessions/{id}": {
    path: { id: string };
    query: { force?: boolean };
    body: undefined;
    answer: undefined;
  };
  /** Get a session. */
  "GET /api/sessions/{id}": {
    path: { id: string };
    query: Record<string, never>;
    body: undefined;
    answer: SessionShape;
  };
  /** Change a session. */
  "PATCH /api/sessions/{id}": {
    path: { id: string };
    query: Record<string, never>;
    body: SessionPatch;
    answer: SessionShape;
  };
  /** List the messages of a session. */
  "GET /api/sessions/{id}/messages": {
    path: { id: string };
    query: { view?: "all" | "model" | "visible"; limit?: number | null; before?: string | null };
    body: undefined;
    answer: MessageList;
  };
  /** Accept a damaged message in its current state. */
  "POST /api/sessions/{id}/messages/{message_id}/accept": {
    path: { id: string; message_id: string };
    query: Record<string, never>;
    body: Nothing;
    answer: Message;
  };
  /** List the files a session has read and changed. */
  "GET /api/sessions/{id}/files": {
    path: { id: string };
    query: { limit?: number | null; cursor?: string | null };
    body: undefined;
    answer: FileList;
  };
  /** Send a prompt. */
  "POST /api/sessions/{id}/prompt": {
    path: { id: string };
    query: Record<string, never>;
    body: PromptBody;
    answer: SubmissionShape;
  };
  /** Resume the newest turn, or the queue. */
  "POST /api/sessions/{id}/continue": {
    path: { id: string };
    query: Record<string, never>;
    body: ContinueBody | undefined;
    answer: SubmissionShape;
  };
  /** Stop the running turn, or deny pending requests; the queue is paused. */
  "POST /api/sessions/{id}/abort": {
    path: { id: string };
    query: Record<string, never>;
    body: AbortBody | undefined;
    answer: Aborted;
  };
  /** Get the status of a session; as a stream, the current status and each change. */
  "GET /api/sessions/{id}/status": {
    path: { id: string };
    query: Record<string, never>;
    body: undefined;
    answer: Status;
    frame: Status;
  };
  /** List the queued messages. */
  "GET /api/sessions/{id}/queue": {
    path: { id: string };
    query: Record<string, never>;
    body: undefined;
    answer: QueueShape;
  };
  /** Remove a message from the queue. */
  "DELETE /api/sessions/{id}/queue/{message_id}": {
    path: { id: string; message_id: string };
    query: Record<string, never>;
    body: undefined;
    answer: undefined;
  };
  /** Edit a queued message. */
  "PATCH /api/sessions/{id}/queue/{message_id}": {
    path: { id: string; message_id: string };
    query: Record<string, never>;
    body: QueuedBody;
    answer: undefined;
  };
  /** Move a queued message. */
  "POST /api/sessions/{id}/queue/{message_id}/move": {
    path: { id: string; message_id: string };
    query: Record<string, never>;
    body: MoveBody | undefined;
    answer: undefined;
  };
  /** Send a queued message now. */
  "POST /api/sessions/{id}/queue/{message_id}/send": {
    path: { id: string; message_id: string };
    query: Record<string, never>;
    body: undefined;
    answer: SubmissionShape;
  };
  /** Pause or resume the queue. */
  "POST /api/sessions/{id}/queue/pause": {
    path: { id: string };
    query: Record<string, never>;
    body: PauseBody | undefined;
    answer: undefined;
  };
  /** Answer an approval request. */
  "POST /api/sessions/{id}/approvals/{approval_id}": {
    path: { id: string; approval_id: string };
    query: Record<string, never>;
    body: ApprovalBody;
    answer: Remaining;
  };
  /** Answer all pending approval requests. */
  "POST /api/sessions/{id}/approvals": {
    path: { id: string };
    query: Record<string, never>;
    body: AllApprovalsBody;
    answer: Remaining;
  };
  /** Answer a question of the model. */
  "POST /api/sessions/{id}/answers/{tool_call_id}": {
    path: { id: string; tool_call_id: string };
    query: Record<string, never>;
    body: AnswerBody;
    answer: Remaining;
  };
  /** List the session's own rules. */
  "GET /api/sessions/{id}/permissions": {
    path: { id: string };
    query: Record<string, never>;
    body: undefined;
    answer: RuleList;
  };
  /** Replace the session's own rules. */
  "PUT /api/sessions/{id}/permissions": {
    path: { id: string };
    query: Record<string, never>;
    body: RulesBody;
    answer: RuleList;
  };
  /** List rules in force, with their ids. */
  "GET /api/rules": {
    path: Record<string, never>;
    query: { scope?: "agent" | "project" | "session" | null; session?: string | null; workspace?: string | null; agent?: string | null };
    body: undefined;
    answer: KeptRules;
  };
  /** Add a rule. */
  "POST /api/rules": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: AddedRule;
    answer: KeptRule;
  };
  /** Revoke a rule. */
  "DELETE /api/rules": {
    path: Record<string, never>;
    query: { id: string; session?: string | null; workspace?: string | null };
    body: undefined;
    answer: undefined;
  };
  /** Explain the permission decision about a call. */
  "GET /api/sessions/{id}/permissions/explain": {
    path: { id: string };
    query: { tool: string; target?: string };
    body: undefined;
    answer: ExplainedShape;
  };
  /** Go back to a user message. */
  "POST /api/sessions/{id}/rewind": {
    path: { id: string };
    query: Record<string, never>;
    body: RewindBody;
    answer: RewoundShape;
  };
  /** Undo the latest rewind. */
  "POST /api/sessions/{id}/unrewind": {
    path: { id: string };
    query: Record<string, never>;
    body: UnrewindBody | undefined;
    answer: RewoundShape;
  };
  /** Show what restoring files would do. */
  "GET /api/sessions/{id}/restore": {
    path: { id: string };
    query: { message_id?: string | null; turn_id?: string | null; to?: "start" | "undo" | "unrewind" | null };
    body: undefined;
    answer: RestorePreview;
  };
  /** List the files a session changed. */
  "GET /api/sessions/{id}/changes": {
    path: { id: string };
    query: { turn_id?: string | null; step?: number | null };
    body: undefined;
    answer: ChangesReport;
  };
  /** Show the changes of one file. */
  "GET /api/sessions/{id}/changes/diff": {
    path: { id: string };
    query: { path: string; turn_id?: string | null; step?: number | null };
    body: undefined;
    answer: FileDiff;
  };
  /** List the files that differ between a session and its branch. */
  "GET /api/sessions/{id}/changes/compare": {
    path: { id: string };
    query: { other_id: string; path?: string | null };
    body: undefined;
    answer: FilesCompared;
  };
  /** Take a file or a hunk back. */
  "POST /api/sessions/{id}/changes/revert": {
    path: { id: string };
    query: Record<string, never>;
    body: RevertBody;
    answer: FilesRestored;
  };
  /** Move the head to any turn. */
  "POST /api/sessions/{id}/head": {
    path: { id: string };
    query: Record<string, never>;
    body: HeadBody;
    answer: RewoundShape;
  };
  /** List the moves of the head, newest first. */
  "GET /api/sessions/{id}/reflog": {
    path: { id: string };
    query: { limit?: number | null; before?: number | null };
    body: undefined;
    answer: ReflogList;
  };
  /** Create a session as a copy up to a message. */
  "POST /api/sessions/{id}/branch": {
    path: { id: string };
    query: Record<string, never>;
    body: BranchBody;
    answer: SessionShape;
  };
  /** List the turns and branches of a session. */
  "GET /api/sessions/{id}/tree": {
    path: { id: string };
    query: { limit?: number | null; cursor?: string | null };
    body: undefined;
    answer: TreeView;
  };
  /** Compact older turns into a summary. */
  "POST /api/sessions/{id}/compact": {
    path: { id: string };
    query: Record<string, never>;
    body: CompactBody | undefined;
    answer: Compacted;
  };
  /** Replace older tool outputs by stubs. */
  "POST /api/sessions/{id}/prune": {
    path: { id: string };
    query: Record<string, never>;
    body: Nothing | undefined;
    answer: Compacted;
  };
  /** Get a compaction and what it replaced. */
  "GET /api/sessions/{id}/compactions/{message_id}": {
    path: { id: string; message_id: string };
    query: Record<string, never>;
    body: undefined;
    answer: CompactionReport;
  };
  /** Measure the next request to the model. */
  "GET /api/sessions/{id}/context": {
    path: { id: string };
    query: { model?: string | null };
    body: undefined;
    answer: ContextReport;
  };
  /** Get a turn with its steps. */
  "GET /api/turns/{id}": {
    path: { id: string };
    query: Record<string, never>;
    body: undefined;
    answer: TurnReport;
  };
  /** Create a branch at a turn. */
  "POST /api/turns/{id}/fork": {
    path: { id: string };
    query: Record<string, never>;
    body: ForkBody | undefined;
    answer: SessionShape;
  };
  /** Get the request the model received at a step. */
  "GET /api/turns/{id}/request": {
    path: { id: string };
    query: { step?: number | null };
    body: undefined;
    answer: RequestReport;
  };
  /** List the messages of a turn, including hidden ones. */
  "GET /api/turns/{id}/messages": {
    path: { id: string };
    query: Record<string, never>;
    body: undefined;
    answer: MessageList;
  };
  /** Export a session as a file. */
  "GET /api/sessions/{id}/export": {
    path: { id: string };
    query: { format?: "ai-sdk" | "atif" | "canonical-json" | "canonical-jsonl" | "claude-code" | "csv" | "html" | "json" | "jsonl" | "md" | "openai" | "pi"; redact?: boolean; hidden?: boolean };
    body: undefined;
    answer: Blob;
  };
  /** Import an exported session. */
  "POST /api/import": {
    path: Record<string, never>;
    query: { workspace?: string | null };
    body: Record<string, unknown>;
    answer: SessionShape;
  };
  /** Import a session file of another program. */
  "POST /api/import-from": {
    path: Record<string, never>;
    query: { program: "claude-code" | "codex" | "opencode" | "pi"; workspace?: string | null };
    body: Record<string, unknown>;
    answer: Arrival;
  };
  /** Search messages, including hidden ones. */
  "GET /api/search": {
    path: Record<string, never>;
    query: { q: string; limit?: number; cursor?: string | null; session?: string | null; wait?: boolean };
    body: undefined;
    answer: SearchPage;
  };
  /** Chat with the protocol of the AI SDK v6. */
  "POST /api/chat": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: ChatBody;
    answer: undefined;
    frame: Chunk;
  };
  /** Follow the live message from its first part, or the message of one turn, which may be over. */
  "GET /api/chat/{id}/stream": {
    path: { id: string };
    query: { replay?: boolean; message_id?: string | null; after?: string | null };
    body: undefined;
    answer: undefined;
    frame: Chunk;
  };
  /** Stream the events of this host, from now on. */
  "GET /api/events": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    answer: undefined;
    frame: EventFrame;
  };
  /** Receive an event and start or queue its turn. A repeated event gets the same answer. */
  "POST /api/events": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: NewEvent;
    answer: Received;
  };
  /** List received events and their replies, newest first. */
  "GET /api/events/ledger": {
    path: Record<string, never>;
    query: { limit?: number; cursor?: string | null; session?: string | null; source?: string | null; turn?: string | null; direction?: "in" | "out" | null };
    body: undefined;
    answer: EventList;
  };
  /** List all schedules. */
  "GET /api/schedules": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    answer: ScheduleList;
  };
  /** Create a schedule. */
  "POST /api/schedules": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: NewSchedule;
    answer: Schedule;
  };
  /** Notify a session whenever a resource of an MCP server changes. */
  "POST /api/schedules/watch": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: NewWatch;
    answer: Schedule;
  };
  /** Preview when a schedule would fire, without creating it. */
  "GET /api/schedules/preview": {
    path: Record<string, never>;
    query: { cron: string; timezone?: string };
    body: undefined;
    answer: SchedulePreview;
  };
  /** Delete a schedule. Its past runs stay. */
  "DELETE /api/schedules/{id}": {
    path: { id: string };
    query: Record<string, never>;
    body: undefined;
    answer: undefined;
  };
  /** Get a schedule, with its next run. */
  "GET /api/schedules/{id}": {
    path: { id: string };
    query: Record<string, never>;
    body: undefined;
    answer: Schedule;
  };
  /** Change, pause or resume a schedule. */
  "PATCH /api/schedules/{id}": {
    path: { id: string };
    query: Record<string, never>;
    body: SchedulePatch;
    answer: Schedule;
  };
  /** Run a schedule now; its next run is unchanged. */
  "POST /api/schedules/{id}/run": {
    path: { id: string };
    query: Record<string, never>;
    body: undefined;
    answer: Received;
  };
  /** List all webhooks, without their secrets. */
  "GET /api/hooks": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    answer: WebhookList;
  };
  /** Create a webhook. Its secret is only in this response. */
  "POST /api/hooks": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: NewWebhook;
    answer: WebhookShape;
  };
  /** Delete a webhook. Its past deliveries stay. */
  "DELETE /api/hooks/{name}": {
    path: { name: string };
    query: Record<string, never>;
    body: undefined;
    answer: undefined;
  };
  /** Get a webhook. */
  "GET /api/hooks/{name}": {
    path: { name: string };
    query: Record<string, never>;
    body: undefined;
    answer: WebhookShape;
  };
  /** Change, pause or resume a webhook. */
  "PATCH /api/hooks/{name}": {
    path: { name: string };
    query: Record<string, never>;
    body: WebhookPatch;
    answer: WebhookShape;
  };
  /** Deliver to a webhook: signed with its secret, without a token. A repeated delivery gets the same response, and a duplicate under another id starts nothing. */
  "POST /api/hooks/{name}": {
    path: { name: string };
    query: Record<string, never>;
    body: Record<string, unknown>;
    answer: Received | Challenge | Duplicate;
  };
  /** Create a new secret, which is only in this response. The old one becomes invalid. */
  "POST /api/hooks/{name}/rotate": {
    path: { name: string };
    query: Record<string, never>;
    body: NewSecret | undefined;
    answer: WebhookShape;
  };
  /** Get this document. */
  "GET /openapi.json": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    answer: Record<string, unknown>;
  };
}
