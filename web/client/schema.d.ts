// Generated from the API's own document by `make web-types`. Do not edit.

/** What becomes of the queue: it stays where it is, paused, or goes on. */
export interface AbortBody {
  queue?: "go_on" | "stay";
}

/** Whether there was something to stop. */
export interface Aborted {
  aborted: boolean;
}

/** A rule to add, and whose it is to be. */
export interface AddedRule {
  scope: "project" | "session";
  permission: string;
  pattern: string;
  action: "allow" | "ask" | "deny";
  session?: string | null;
  workspace?: string | null;
}

/** `notices` say which manifests could not be used, and why. */
export interface AgentList {
  agents: AgentShape[];
  notices: string[];
}

/** An agent a session can have. */
export interface AgentShape {
  name: string;
  description: string;
  mode: "internal" | "primary" | "subagent";
  model: Model | null;
  tools: string[] | null;
  max_steps: number;
  source: "builtin" | "project" | "user";
}

/** A human's word on every request that waits, or on those of them that were seen. */
export interface AllApprovalsBody {
  decision: "deny" | "once" | "project" | "session";
  reason?: string | null;
  approval_ids?: string[] | null;
}

/** A human's answer to a question; null is one too. */
export interface AnswerBody {
  output?: unknown;
}

/** A human's word on a request. */
export interface ApprovalBody {
  decision: "deny" | "once" | "project" | "session";
  reason?: string | null;
  pattern?: string | null;
}

/** What became of a session of another program. `turns` counts the prompts that were added, as a listing counts them, `subagents` the sessions below it; `why` says what kept the rest out; `remarks` name what the file holds besides the conversation. */
export interface Arrival {
  session_id: string;
  title: string | null;
  outcome: "apart" | "grown" | "new" | "same";
  turns: number;
  subagents: number;
  why: string | null;
  remarks: Remark[];
}

/** Where a branch leaves, and what is different in it. */
export interface BranchBody {
  from_message_id: string;
  metadata?: Record<string, unknown> | null;
  model?: string | Record<string, unknown> | null;
  start_message_id?: string | null;
}

/** What Slack asks to hear back before it sends anything to a webhook. It starts no turn. */
export interface Challenge {
  challenge: string;
}

/** What a v6 transport posts. Messages stay raw: they are the client's memory, not ours. */
export interface ChatBody {
  id: string;
  messages: unknown[];
  trigger?: "regenerate-message" | "submit-message";
  messageId?: string | null;
  model?: string | Record<string, unknown> | null;
  agent?: string | null;
}

/** A chunk of the AI SDK's stream; what else it holds depends on its type. The last frame is `[DONE]`. */
export interface Chunk {
  type: string;
  [key: string]: unknown;
}

/** What a summary should not leave out. */
export interface CompactBody {
  focus?: string | null;
}

/** What became of it. `turns` is how many earlier turns the summary stands for. */
export interface Compacted {
  compacted: boolean;
  message_id?: string | null;
  strategy?: string | null;
  tokens_before?: number;
  tokens_after?: number;
  turns?: number;
  pruned?: number;
}

/** What a summary stands for. `previous_id` is the marker of the compaction it carries on, if there is one. */
export interface CompactionReport {
  message_id: string;
  turn_id: string;
  previous_id: string | null;
  data: Record<string, unknown>;
  messages: Message[];
}

/** A rule that matched and did not decide, and why it did not. */
export interface ConsideredShape {
  rule: RuleShape;
  scope: "manifest" | "mode" | "project" | "session";
  why: string;
}

/** What the next request is made of, in tokens. `pruned` is what stubs save; it is not part of the sum. */
export interface ContextParts {
  system: number;
  tools: number;
  summary: number;
  history: number;
  pruned: number;
}

/** The gauge. `measured` says that the provider counted most of `used`; else it is an estimate. */
export interface ContextReport {
  limit: number;
  reserve: number;
  threshold: number;
  used: number;
  measured: boolean;
  parts: ContextParts;
}

/** How to go on: with the newest turn where it stopped, or with its prompt anew; with `queue` a paused queue is started, and nothing else. */
export interface ContinueBody {
  mode?: "again" | "on";
  queue?: boolean;
}

/** Something a look at the whole store found wrong, with the ids it concerns. */
export interface Damage {
  what: string;
  session_id?: string | null;
  id?: string | null;
}

/** The answer to a delivery that repeats another one under a different id: the ids of the first. */
export interface Duplicate {
  event_id: string;
  session_id: string;
  message_id: string;
  duplicate?: true;
}

/** An event of this host; what else it holds depends on its type. */
export interface EventFrame {
  type: string;
  [key: string]: unknown;
}

/** A page of the events ledger, newest first. `next_cursor` is None on the last page. */
export interface EventList {
  events: LedgerEvent[];
  next_cursor: string | null;
}

/** What would be decided about a call, by which rule of which scope, and what else was looked at. */
export interface ExplainedShape {
  action: "allow" | "ask" | "deny";
  rule: RuleShape | null;
  scope: "manifest" | "mode" | "project" | "session" | null;
  considered: ConsideredShape[];
  reason: string;
  subjects: SubjectShape[];
}

/** Files that the conversation has read or changed, the one touched last first. Of all turns of the line, or of a stretch of them: `count` and what was done to a file are of that stretch alone, and `next_cursor` leads to the one before it. A file that was touched in several is told of in each. */
export interface FileList {
  files: TouchedFile[];
  next_cursor?: string | null;
}

/** Paths in a workspace, the likeliest first. */
export interface FileNames {
  files: string[];
}

/** What a fork is called, and its first prompt, which runs. */
export interface ForkBody {
  label?: string | null;
  text?: string | null;
}

/** Servers by name. */
export interface GivenServers {
  servers: Record<string, McpServer>;
}

/** The turn to go to; null is the empty beginning. */
export interface HeadBody {
  turn_id?: string | null;
}

/** That clew is here, and the kind of its store. `login`: by a token of clew's, or as the host that clew is a part of knows people, such as by a cookie. */
export interface Health {
  version: string;
  store: string;
  login: "host" | "token";
}

/** A rule with its id and whose it is: `of` a session's id, a project's folder, an agent's name. `unknown`: it names no known tool, and applies to every tool if it denies or asks. */
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

/** A row of the ledger. `seq` is given by the store; `status` is the turn's, of outbound ones alone, but for a delivery that repeats another one: both its rows say `duplicate`. `turn_id` is stored with outbound events and looked up for inbound ones. `digest` is of what came in; `routing` says how it found its session. `attempt` counts from 1; the rows of later ones name their turn. `owner` is the session's, which the store fills in. */
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

/** One server: a `command` with its `args`, or a `url` that speaks streamable HTTP. `env` is all that the program sees beside a short list (`PATH`, `HOME` and the like), `headers` go with each request; `${NAME}` in a value of either is that variable of clew's own environment. A program runs in `cwd`, else in the session's workspace. `timeout_s` is how long one call may take, `start_s` the start. What it says its tools are is asked about before a model is told, unless the server is trusted (`trust`) or these are its definitions (`pin`); `enabled` leaves it out without forgetting it. A program runs as the server's user and in no sandbox, so sessions of owners have it only with `owners`. */
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

/** MCP servers, by their names. */
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

/** Which model answers: a provider, a model of it, and a variant that lasts for one turn. */
export interface Model {
  provider_id: string;
  model_id: string;
  variant?: string | null;
}

export interface ModelList {
  models: ModelListing[];
}

/** A line of the list of models. `reason` says why one cannot be used, and what to do about it. `files` are the media types it takes beside text, as :class:`ModelInfo` has them. `caching`: what is sent again costs less there. `known=False`: the figures are guesses. */
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

/** Before which message it is to be fired; null is last. */
export interface MoveBody {
  before?: string | null;
}

/** Something that happened elsewhere. The rest is for a session that has to be made for it. */
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

/** Words to keep, and their name. */
export interface NewPrompt {
  name: string;
  text: string;
}

/** A rule as a client sends it. `source` is not believed; `pinned` is named here only to be refused. */
export interface NewRule {
  permission: string;
  pattern: string;
  action: "allow" | "ask" | "deny";
  source?: unknown;
  added_at?: number | null;
  pinned?: boolean | null;
}

/** What is said when, and where. Without a routing each run has a session of its own. */
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

/** The sender's own new secret, where it makes them. */
export interface NewSecret {
  secret?: string | null;
}

/** What a new session may be given. */
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

/** What a session is told of: a resource of an MCP server, and with which words. */
export interface NewWatch {
  session_id: string;
  server: string;
  uri: string;
  prompt?: string | null;
  name?: string | null;
}

/** A door and where it leads. Without a routing each delivery has a session of its own. */
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

/** A body that says nothing. */
export interface Nothing {
}

/** A part of a message, in the AI SDK's own shape; what else it holds depends on its type. */
export interface Part {
  type: string;
  [key: string]: unknown;
}

/** Whether the queue waits until a person says go on, or goes on. */
export interface PauseBody {
  paused?: boolean;
}

/** An error: `code` is stable, `detail` one sentence for people; the ids it is about stand beside them. */
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

/** Saved prompts, by their names. */
export interface PromptList {
  prompts: SavedPrompt[];
}

/** The messages that wait, the next one first; `paused`, as of a status, while nothing will fire them. */
export interface QueueShape {
  messages: Message[];
  paused?: boolean;
  paused_by?: "abort" | "error" | "person" | "restart" | "waiting" | null;
}

/** A queued message in other words. */
export interface QueuedBody {
  text: string;
}

/** What every delivery of the same event is answered with. */
export interface Received {
  event_id: string;
  session_id: string;
  message_id: string;
}

/** One move of the head, and what the turn it went to is known by; no text at the empty beginning. */
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

/** How many requests of the step are still open; at 0 the run has started. */
export interface Remaining {
  remaining: number;
}

/** Something a report says: what was found, how often, where first, and what became of it. `kept`: it came along and is not part of the conversation. `changed`: it came, but not as it was. `lost`: it stands in the other program's file alone. */
export interface Remark {
  what: string;
  fate: "changed" | "kept" | "lost";
  count: number;
  where: string | null;
}

export interface ReplicaList {
  replicas: ReplicaShape[];
}

/** A process that serves the store, by the store's clock. `alive`: its lease holds; `here`: it is this one. */
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

/** A request as it was sent. `digest` is of what was put together here, `recorded` of what was sent. */
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

/** Which user message to go back to, and what for. */
export interface RewindBody {
  message_id: string;
  mode?: "edit" | "resend" | null;
  text?: string | null;
  run?: boolean | null;
  restore_files?: boolean | null;
  parts?: Part[] | null;
  model?: string | Record<string, unknown> | null;
  agent?: string | null;
  client_message_id?: string | null;
  metadata?: Record<string, unknown> | null;
}

/** Where the head went, and what left the line; `message_id` and `queued` of a rewind that runs. */
export interface RewoundShape {
  head_turn_id: string | null;
  hidden: string[];
  draft: string | null;
  message_id?: string;
  queued?: boolean;
}

/** Where to: a session by its id, by its label, or by a routing key; without any, a new session each time. The rest is what a session that has to be made gets. `model` and `agent` also answer in one that is there. */
export interface Routing {
  session_id?: string | null;
  label?: string | null;
  key?: string | null;
  model?: string | Model | null;
  agent?: string | null;
  workspace_root?: string | null;
  title?: string | null;
}

/** One of these: a session by its id, its label, or a routing key. The latter two are made when missing. */
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

/** All the rules the session is to have. */
export interface RulesBody {
  rules: NewRule[];
}

/** A tool that has been running for a second or longer. */
export interface RunningCall {
  tool_call_id: string;
  tool: string;
  since: number;
}

/** Words under a name; in the folder of settings it is the file `prompts/NAME.md`, an owner's in a folder of their own below. */
export interface SavedPrompt {
  name: string;
  text: string;
}

/** A job that fires by itself. `last_id` is the source id of its newest run, `skipped` counts runs left out. Where `cron` is empty it fires once, `at` a moment, and is gone then; or it fires whenever what it `watches` changes. `by` says who made it. */
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

/** All schedules, by their ids. */
export interface ScheduleList {
  schedules: Schedule[];
}

/** What of a schedule can be changed; `paused` pauses and resumes it. */
export interface SchedulePatch {
  cron?: string;
  prompt?: string;
  timezone?: string;
  name?: string | null;
  missed?: "once" | "skip";
  paused?: boolean;
}

/** The next moments of a schedule that is not kept yet, and what is wrong with it where it cannot be. */
export interface SchedulePreview {
  times: number[];
  problem?: string | null;
}

/** A part that matches. `snippet` is plain text with what matched between two `**`, controls and all. `title` is the session's. `hidden` says that the message is not in the conversation any more. */
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

/** A page of hits, the best first; `next_cursor` is None on the last one. `complete` is False while there may be messages that are not indexed yet. `total` is how many hits there are; with `at_least` there are more, of which the newest are ranked and the others follow by age. */
export interface SearchPage {
  hits: SearchHit[];
  next_cursor: string | null;
  complete?: boolean;
  total?: number;
  at_least?: boolean;
}

/** One part of the prompt, by the name it has in the order. */
export interface Section {
  name: string;
  text: string;
}

/** Where it is started: for a session, or in a folder. */
export interface ServerPlace {
  session_id?: string | null;
  workspace?: string | null;
}

/** What is running here. `workspace_root` is the folder it was started in, null when that is gone. `chunk_durable` says that what is streamed is stored before it is shown, `search` that the store can search. `losses` is what was acknowledged and is not in the store any more, until somebody has accepted it. `owner` is who asks; null for whoever sees all there is. Without `triggers` it is the server of a chat, which fires no schedules and ends when that does. */
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

/** A server as people are told of it. `digest` names the definitions it gave last, `told` says them out; `notices` say which tools of it are left out, and why. `runs` counts the connections there are to it now. */
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

/** Sessions, newest first; null as `next_cursor` on the last page. */
export interface SessionPage {
  sessions: SessionShape[];
  next_cursor: string | null;
}

/** What of a session can be changed. `agent` is named here only to be refused. */
export interface SessionPatch {
  title?: string | null;
  archived?: boolean;
  metadata?: Record<string, unknown>;
  model?: string | Record<string, unknown>;
  mode?: "accept_edits" | "ask" | "read_only";
  pinned?: boolean;
  agent?: unknown;
}

/** A session as clients see it: what lives in its metadata lifted out, its own rules left out. */
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

/** What is changed; null takes a setting back. */
export interface SettingsPatch {
  default_model?: string | null;
  default_agent?: string | null;
  max_steps?: number | null;
}

/** `default_model` null is the first one that can be used, `max_steps` null what the preset of a session says. `file` is where a change is kept; null where it lasts as long as this process. */
export interface SettingsShape {
  default_model: string | null;
  default_agent: string;
  max_steps: number | null;
  file: string | null;
}

/** What a session has spent, with its subagents, of which `subagents` there are. A branch's is its own alone. */
export interface Spend {
  calls: number;
  tokens: number;
  cost_usd: number;
  subagents: number;
}

/** What a session is doing now. While a human is awaited it is idle, with what is `waiting`. `problem` is why it failed, or is being tried again. `running` are the calls that take long. `paused` while messages wait in the queue and nothing will fire them before a person speaks, or answers. */
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

/** One step: who answered, what it used, how long it took, and the digests of its prompt and its request. */
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

/** One thing the call would touch: a path, a host, one command or redirect of a line. */
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

/** A prompt that was taken. */
export interface SubmissionShape {
  message_id: string;
  queued: boolean;
}

/** A tool as a model is told about it. `input_schema` is JSON Schema. */
export interface ToolSchema {
  name: string;
  description: string;
  input_schema: Record<string, unknown>;
}

/** A file that completed calls of the file tools read or changed. `count` is how many of them there were, `changes` how many of these changed it. */
export interface TouchedFile {
  path: string;
  read: boolean;
  modified: boolean;
  count: number;
  changes: number;
  last_turn_id: string;
  last_at: number;
}

/** A session that starts as a copy of a line of this one. `turn_id` is where it left, if that is known. */
export interface TreeBranch {
  session_id: string;
  title: string | null;
  label: string | null;
  from_message_id: string | null;
  turn_id: string | null;
  created_at: number;
}

/** A turn with its place in the tree. `text` is the beginning of its user message, or of its summary. */
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

/** Turns of a session, parents before children, and the branches that left them, oldest first. All of them, or a page of the newest; `next_cursor` leads to those before it. Whatever hangs below a turn of the page is on it, or on a page that came before. Branches of which nobody knows where they left are on the last page. */
export interface TreeView {
  session_id: string;
  head_turn_id: string | null;
  open_turn_id: string | null;
  turns: TreeTurn[];
  branches: TreeBranch[];
  next_cursor?: string | null;
}

/** A turn with its steps. `data` holds what its kind and its end left: errors, figures of a compaction. */
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

/** `input` without cache, `output` without reasoning; `total` is what was billed in all. */
export interface Usage {
  input?: number;
  output?: number;
  reasoning?: number;
  cache_read?: number;
  cache_write?: number;
}

/** The calls that have `key` in common; null for those that have none, as of a session that is gone. */
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

/** Groups by their keys, and what they come to together. */
export interface UsageReport {
  groups: UsageGroup[];
  total: UsageSums;
}

/** Sums over model calls. `estimated`: how many of them the provider did not say all the counts of. `unpriced`: how many used something and count as nothing: their model is free, or nobody knows its price. */
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

/** A call that waits for a human. `approval_id` is None for a question. */
export interface Waiting {
  approval_id: string | null;
  tool_call_id: string;
  tool: string;
  since: number;
}

/** A resource of an MCP server, whose changes are what a schedule fires by. */
export interface Watch {
  server: string;
  uri: string;
}

/** All webhooks, by their names; without their secrets. */
export interface WebhookList {
  webhooks: WebhookShape[];
}

/** What of a webhook can be changed; `paused` pauses and resumes it. */
export interface WebhookPatch {
  paused?: boolean;
  prompt?: string | null;
}

/** A webhook as clients see it. The secret is there once, when it was made. Deliveries go to its `key`, which is its name where it has no owner. */
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

/** What each operation takes and gives; `frame` is one frame of a stream. */
export interface Operations {
  /** The page. */
  "GET /": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    answer: string;
  };
  /** A file of the page. */
  "GET /assets/{file}": {
    path: { file: string };
    query: Record<string, never>;
    body: undefined;
    answer: Blob;
  };
  /** That the server is up. */
  "GET /api/health": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    answer: Health;
  };
  /** Whether prompts are accepted now; 503 with the reason during shutdown, without a usable store or a lease. */
  "GET /api/health/ready": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    answer: Health;
  };
  /** What this server has done and used since it was started, as Prometheus reads it. */
  "GET /metrics": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    answer: string;
  };
  /** Who serves the store, and what each runs. */
  "GET /api/replicas": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    answer: ReplicaList;
  };
  /** What is running here, and where. */
  "GET /api/server": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    answer: ServerShape;
  };
  /** The models that can be named, the usable ones first. */
  "GET /api/models": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    answer: ModelList;
  };
  /** The agents a session can have. */
  "GET /api/agents": {
    path: Record<string, never>;
    query: { workspace?: string | null };
    body: undefined;
    answer: AgentList;
  };
  /** What all model calls have used and cost, in groups. */
  "GET /api/usage": {
    path: Record<string, never>;
    query: { by?: "day" | "model" | "owner" | "session" | "workspace"; from?: string | null; to?: string | null };
    body: undefined;
    answer: UsageReport;
  };
  /** The bytes of a file in a message. */
  "GET /api/blobs/{sha256}": {
    path: { sha256: string };
    query: Record<string, never>;
    body: undefined;
    answer: Blob;
  };
  /** Files of a workspace by what is typed of their names, the likeliest first. */
  "GET /api/files": {
    path: Record<string, never>;
    query: { q?: string; session?: string | null; workspace?: string | null; limit?: number; folders?: boolean };
    body: undefined;
    answer: FileNames;
  };
  /** What holds where nobody says otherwise. */
  "GET /api/settings": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    answer: SettingsShape;
  };
  /** Change what is given. */
  "PATCH /api/settings": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: SettingsPatch;
    answer: SettingsShape;
  };
  /** The MCP servers whose tools agents have, and how they are. */
  "GET /api/mcp-servers": {
    path: Record<string, never>;
    query: { session?: string | null; workspace?: string | null };
    body: undefined;
    answer: McpServerList;
  };
  /** Start an MCP server, or ask it again what its tools are. */
  "POST /api/mcp-servers/{name}/start": {
    path: { name: string };
    query: Record<string, never>;
    body: ServerPlace | undefined;
    answer: ServerState;
  };
  /** Give a session MCP servers of its own, in the place of those it was given before. */
  "PUT /api/sessions/{id}/mcp-servers": {
    path: { id: string };
    query: Record<string, never>;
    body: GivenServers;
    answer: McpServerList;
  };
  /** The saved prompts. */
  "GET /api/prompts": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    answer: PromptList;
  };
  /** Keep words under a name. */
  "POST /api/prompts": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: NewPrompt;
    answer: SavedPrompt;
  };
  /** Forget a saved prompt. */
  "DELETE /api/prompts/{name}": {
    path: { name: string };
    query: Record<string, never>;
    body: undefined;
    answer: undefined;
  };
  /** Accept that acknowledged commits are lost. */
  "POST /api/losses/{loss_id}/accept": {
    path: { loss_id: string };
    query: Record<string, never>;
    body: Nothing;
    answer: undefined;
  };
  /** Make the sample sessions. */
  "POST /api/examples": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: Nothing | undefined;
    answer: SessionList;
  };
  /** Sessions, newest first. */
  "GET /api/sessions": {
    path: Record<string, never>;
    query: { limit?: number; cursor?: string | null; agent?: string | null; workspace?: string | null; parent?: string | null; q?: string | null; kind?: "any" | "chat" | "subagent"; archived?: boolean; ephemeral?: boolean; pinned?: boolean };
    body: undefined;
    answer: SessionPage;
  };
  /** A new, empty session. */
  "POST /api/sessions": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: NewSession;
    answer: SessionShape;
  };
  /** Remove it for good. */
  "DELETE /api/sessions/{id}": {
    path: { id: string };
    query: { force?: boolean };
    body: undefined;
    answer: undefined;
  };
  /** A session. */
  "GET /api/sessions/{id}": {
    path: { id: string };
    query: Record<string, never>;
    body: undefined;
    answer: SessionShape;
  };
  /** Change what is given. */
  "PATCH /api/sessions/{id}": {
    path: { id: string };
    query: Record<string, never>;
    body: SessionPatch;
    answer: SessionShape;
  };
  /** Its messages. */
  "GET /api/sessions/{id}/messages": {
    path: { id: string };
    query: { view?: "all" | "model" | "visible"; limit?: number | null; before?: string | null };
    body: undefined;
    answer: MessageList;
  };
  /** Accept a damaged message as it is now. */
  "POST /api/sessions/{id}/messages/{message_id}/accept": {
    path: { id: string; message_id: string };
    query: Record<string, never>;
    body: Nothing;
    answer: Message;
  };
  /** The files it has read and changed. */
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
  /** Go on. */
  "POST /api/sessions/{id}/continue": {
    path: { id: string };
    query: Record<string, never>;
    body: ContinueBody | undefined;
    answer: SubmissionShape;
  };
  /** Stop what runs, or deny what waits; the queue is paused. */
  "POST /api/sessions/{id}/abort": {
    path: { id: string };
    query: Record<string, never>;
    body: AbortBody | undefined;
    answer: Aborted;
  };
  /** What it is doing; as a stream the present status, then each change. */
  "GET /api/sessions/{id}/status": {
    path: { id: string };
    query: Record<string, never>;
    body: undefined;
    answer: Status;
    frame: Status;
  };
  /** The messages that wait. */
  "GET /api/sessions/{id}/queue": {
    path: { id: string };
    query: Record<string, never>;
    body: undefined;
    answer: QueueShape;
  };
  /** Take a message out of the queue. */
  "DELETE /api/sessions/{id}/queue/{message_id}": {
    path: { id: string; message_id: string };
    query: Record<string, never>;
    body: undefined;
    answer: undefined;
  };
  /** Say it in other words. */
  "PATCH /api/sessions/{id}/queue/{message_id}": {
    path: { id: string; message_id: string };
    query: Record<string, never>;
    body: QueuedBody;
    answer: undefined;
  };
  /** Fire it earlier, or later. */
  "POST /api/sessions/{id}/queue/{message_id}/move": {
    path: { id: string; message_id: string };
    query: Record<string, never>;
    body: MoveBody | undefined;
    answer: undefined;
  };
  /** Send it now. */
  "POST /api/sessions/{id}/queue/{message_id}/send": {
    path: { id: string; message_id: string };
    query: Record<string, never>;
    body: undefined;
    answer: SubmissionShape;
  };
  /** Pause the queue, or go on with it. */
  "POST /api/sessions/{id}/queue/pause": {
    path: { id: string };
    query: Record<string, never>;
    body: PauseBody | undefined;
    answer: undefined;
  };
  /** Answer a request for approval. */
  "POST /api/sessions/{id}/approvals/{approval_id}": {
    path: { id: string; approval_id: string };
    query: Record<string, never>;
    body: ApprovalBody;
    answer: Remaining;
  };
  /** Answer every request for approval that waits. */
  "POST /api/sessions/{id}/approvals": {
    path: { id: string };
    query: Record<string, never>;
    body: AllApprovalsBody;
    answer: Remaining;
  };
  /** Answer a question. */
  "POST /api/sessions/{id}/answers/{tool_call_id}": {
    path: { id: string; tool_call_id: string };
    query: Record<string, never>;
    body: AnswerBody;
    answer: Remaining;
  };
  /** The session's own rules. */
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
  /** Rules in force, with their ids. */
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
  /** Take a rule away. */
  "DELETE /api/rules": {
    path: Record<string, never>;
    query: { id: string; session?: string | null; workspace?: string | null };
    body: undefined;
    answer: undefined;
  };
  /** What would be decided about a call, and why. */
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
  /** Undo the newest rewind. */
  "POST /api/sessions/{id}/unrewind": {
    path: { id: string };
    query: Record<string, never>;
    body: Nothing | undefined;
    answer: RewoundShape;
  };
  /** Go to any turn. */
  "POST /api/sessions/{id}/head": {
    path: { id: string };
    query: Record<string, never>;
    body: HeadBody;
    answer: RewoundShape;
  };
  /** Moves of the head, newest first. */
  "GET /api/sessions/{id}/reflog": {
    path: { id: string };
    query: { limit?: number | null; before?: number | null };
    body: undefined;
    answer: ReflogList;
  };
  /** A session that starts as a copy. */
  "POST /api/sessions/{id}/branch": {
    path: { id: string };
    query: Record<string, never>;
    body: BranchBody;
    answer: SessionShape;
  };
  /** Its turns and branches. */
  "GET /api/sessions/{id}/tree": {
    path: { id: string };
    query: { limit?: number | null; cursor?: string | null };
    body: undefined;
    answer: TreeView;
  };
  /** Summarise the older turns. */
  "POST /api/sessions/{id}/compact": {
    path: { id: string };
    query: Record<string, never>;
    body: CompactBody | undefined;
    answer: Compacted;
  };
  /** Stubs for older outputs. */
  "POST /api/sessions/{id}/prune": {
    path: { id: string };
    query: Record<string, never>;
    body: Nothing | undefined;
    answer: Compacted;
  };
  /** What a compaction summarised. */
  "GET /api/sessions/{id}/compactions/{message_id}": {
    path: { id: string; message_id: string };
    query: Record<string, never>;
    body: undefined;
    answer: CompactionReport;
  };
  /** How large the next request would be. */
  "GET /api/sessions/{id}/context": {
    path: { id: string };
    query: { model?: string | null };
    body: undefined;
    answer: ContextReport;
  };
  /** A turn with its steps. */
  "GET /api/turns/{id}": {
    path: { id: string };
    query: Record<string, never>;
    body: undefined;
    answer: TurnReport;
  };
  /** A branch at a turn. */
  "POST /api/turns/{id}/fork": {
    path: { id: string };
    query: Record<string, never>;
    body: ForkBody | undefined;
    answer: SessionShape;
  };
  /** What the model was sent at a step. */
  "GET /api/turns/{id}/request": {
    path: { id: string };
    query: { step?: number | null };
    body: undefined;
    answer: RequestReport;
  };
  /** The messages of one turn, on the line or not. */
  "GET /api/turns/{id}/messages": {
    path: { id: string };
    query: Record<string, never>;
    body: undefined;
    answer: MessageList;
  };
  /** A session as a file. */
  "GET /api/sessions/{id}/export": {
    path: { id: string };
    query: { format?: "ai-sdk" | "claude-code" | "html" | "json" | "jsonl" | "md" | "openai" | "pi"; redact?: boolean; hidden?: boolean };
    body: undefined;
    answer: Blob;
  };
  /** Take in a session that was exported. */
  "POST /api/import": {
    path: Record<string, never>;
    query: { workspace?: string | null };
    body: Record<string, unknown>;
    answer: SessionShape;
  };
  /** Take in a session of another program, from the bytes of its file. */
  "POST /api/import-from": {
    path: Record<string, never>;
    query: { program: "claude-code" | "codex" | "opencode" | "pi"; workspace?: string | null };
    body: Record<string, unknown>;
    answer: Arrival;
  };
  /** Messages that hold these words, hidden ones too. */
  "GET /api/search": {
    path: Record<string, never>;
    query: { q: string; limit?: number; cursor?: string | null; session?: string | null; wait?: boolean };
    body: undefined;
    answer: SearchPage;
  };
  /** Chat, as the AI SDK v6 does it. */
  "POST /api/chat": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: ChatBody;
    answer: undefined;
    frame: Chunk;
  };
  /** The live message from its first part, and on; or that of one turn, which may be over. */
  "GET /api/chat/{id}/stream": {
    path: { id: string };
    query: { replay?: boolean; message_id?: string | null };
    body: undefined;
    answer: undefined;
    frame: Chunk;
  };
  /** What happens on this host, from now on. */
  "GET /api/events": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    answer: undefined;
    frame: EventFrame;
  };
  /** Take an event in and start, or queue, its turn. The same again is answered alike. */
  "POST /api/events": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: NewEvent;
    answer: Received;
  };
  /** What came in and what went out for it, newest first. */
  "GET /api/events/ledger": {
    path: Record<string, never>;
    query: { limit?: number; cursor?: string | null; session?: string | null; source?: string | null; turn?: string | null; direction?: "in" | "out" | null };
    body: undefined;
    answer: EventList;
  };
  /** All schedules. */
  "GET /api/schedules": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    answer: ScheduleList;
  };
  /** Keep a schedule. */
  "POST /api/schedules": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: NewSchedule;
    answer: Schedule;
  };
  /** Tell a session whenever a resource of an MCP server changes. */
  "POST /api/schedules/watch": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: NewWatch;
    answer: Schedule;
  };
  /** When a schedule would fire next, without keeping one. */
  "GET /api/schedules/preview": {
    path: Record<string, never>;
    query: { cron: string; timezone?: string };
    body: undefined;
    answer: SchedulePreview;
  };
  /** Take a schedule out. What it has run stays. */
  "DELETE /api/schedules/{id}": {
    path: { id: string };
    query: Record<string, never>;
    body: undefined;
    answer: undefined;
  };
  /** A schedule, with when it fires next. */
  "GET /api/schedules/{id}": {
    path: { id: string };
    query: Record<string, never>;
    body: undefined;
    answer: Schedule;
  };
  /** Change what is given, pause, or resume. */
  "PATCH /api/schedules/{id}": {
    path: { id: string };
    query: Record<string, never>;
    body: SchedulePatch;
    answer: Schedule;
  };
  /** Run a schedule now; its next time stays. */
  "POST /api/schedules/{id}/run": {
    path: { id: string };
    query: Record<string, never>;
    body: undefined;
    answer: Received;
  };
  /** All webhooks, without their secrets. */
  "GET /api/hooks": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    answer: WebhookList;
  };
  /** Keep a webhook. Its secret is in this answer and in no other. */
  "POST /api/hooks": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: NewWebhook;
    answer: WebhookShape;
  };
  /** Take a webhook out. What came in stays. */
  "DELETE /api/hooks/{name}": {
    path: { name: string };
    query: Record<string, never>;
    body: undefined;
    answer: undefined;
  };
  /** A webhook. */
  "GET /api/hooks/{name}": {
    path: { name: string };
    query: Record<string, never>;
    body: undefined;
    answer: WebhookShape;
  };
  /** Change what is given, pause, or resume. */
  "PATCH /api/hooks/{name}": {
    path: { name: string };
    query: Record<string, never>;
    body: WebhookPatch;
    answer: WebhookShape;
  };
  /** A delivery, signed with the secret of the webhook; no token. A repeated delivery gets the same answer, and a duplicate under another id starts nothing. */
  "POST /api/hooks/{name}": {
    path: { name: string };
    query: Record<string, never>;
    body: Record<string, unknown>;
    answer: Received | Challenge | Duplicate;
  };
  /** A new secret, in this answer and in no other. The old one counts no more. */
  "POST /api/hooks/{name}/rotate": {
    path: { name: string };
    query: Record<string, never>;
    body: NewSecret | undefined;
    answer: WebhookShape;
  };
  /** This document. */
  "GET /openapi.json": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    answer: Record<string, unknown>;
  };
}
