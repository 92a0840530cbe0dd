/** The tree: turns as a graph, with the head, rewound turns, summaries and branches. */

import { Background, type BuiltInEdge, Controls, Handle, type Node, type NodeProps, Position, ReactFlow, ReactFlowProvider, useNodesInitialized, useReactFlow, useStore as useFlow } from '@xyflow/react';
import '@xyflow/react/dist/style.css';
import { type KeyboardEvent, useEffect, useMemo, useState } from 'react';
import type { TreeTurn } from '../api/types';
import { useDark } from '../frame/theme';
import { compareSessions } from '../compare/compare';
import { goTo } from '../state/route';
import { useStore } from '../state/store';
import { useThis } from '../state/use_conversation';
import { inspectTurn, view } from '../state/view';
import { Button } from '../ui/button';
import { count } from '../ui/format';
import { ROW, treeLayout } from './tree_layout';

type TurnNode = Node<{ turn: TreeTurn }, 'turn'>;
type BranchNode = Node<{ sessionId: string; title: string }, 'branch'>;

/** Turns rendered at first, and added with each page. */
const PAGE = 500;
/** Trees up to this size are shown whole. */
const MAX_WHOLE_TURNS = 12;
/** Margin around the graph, in pixels. */
const MARGIN = 16;
/** Width of the boxes below. */
const BOX_WIDTH = 288;

/** Edges bend within the indentation. */
const EDGE_PATH = { offset: 7, borderRadius: 4 };

const TYPES = { turn: TurnBox, branch: BranchBox };

export function TreeTab() {
  const conversation = useThis();
  const read = useStore(conversation.store, (state) => state.tree);
  const [limit, setLimit] = useState(PAGE);
  // The thread may have loaded the whole tree of a long session, which is too much to render at once.
  const tree = useMemo(() => {
    if (!read || read.turns.length <= limit) return read;
    const from = read.turns.map((turn) => turn.id).sort().at(-limit)!;
    return { ...read, turns: read.turns.filter((turn) => turn.id >= from), next_cursor: from };
  }, [read, limit]);
  const earlier = () => {
    setLimit(limit + PAGE);
    if (read && read.turns.length < limit + PAGE) void conversation.tree.loadOlder().catch(() => undefined);
  };
  useEffect(() => {
    void conversation.tree.refresh();
  }, [conversation]);
  const { nodes, edges } = useMemo(() => {
    if (!tree) return { nodes: [], edges: [] };
    const layout = treeLayout(tree);
    const shown: (TurnNode | BranchNode)[] = [
      ...layout.turns.map(({ turn, x, y }): TurnNode => ({ id: turn.id, type: 'turn', position: { x, y }, data: { turn }, ariaLabel: describe(turn) })),
      ...layout.branches.map(({ sessionId, title, x, y }): BranchNode => ({ id: sessionId, type: 'branch', position: { x, y }, data: { sessionId, title }, ariaLabel: `Branch ${title}` })),
    ];
    const lines: BuiltInEdge[] = [
      ...layout.edges.map(({ from, to, onLine, changesColumn }) => ({
        id: `${from} ${to}`,
        type: 'smoothstep' as const,
        pathOptions: EDGE_PATH,
        source: from,
        target: to,
        targetHandle: changesColumn ? 'side' : 'top',
        style: { stroke: onLine ? 'var(--thread)' : 'var(--quiet)', strokeWidth: onLine ? 2 : 1.2 },
      })),
      ...layout.branches.flatMap(({ sessionId, turnId }) =>
        turnId === null ? [] : [{ id: `${turnId} ${sessionId}`, type: 'smoothstep' as const, pathOptions: EDGE_PATH, source: turnId, target: sessionId, targetHandle: 'side', style: { stroke: 'var(--info)', strokeDasharray: '4 3' } }],
      ),
    ];
    return { nodes: shown, edges: lines };
  }, [tree]);

  const dark = useDark();
  if (!tree) return null;
  if (tree.turns.length === 0) return <p className="p-4 text-sm text-quiet">No turns yet. Turns appear here as a graph, with rewound turns and branches.</p>;
  const hidden = tree.turns.filter((turn) => !turn.on_line).length;
  return (
    <div className="flex h-full flex-col">
      <p className="border-b border-line px-4 py-1.5 text-xs text-quiet">
        {tree.next_cursor ? 'The newest ' : ''}
        {count(tree.turns.length, 'turn')}, {hidden} rewound, {count(tree.branches.length, 'branch', 'branches')}. Select a turn to inspect it.
        {tree.next_cursor && (
          <Button tone="quiet" className="px-1 py-0 text-xs underline" onClick={earlier}>
            Earlier turns
          </Button>
        )}
      </p>
      <div className="min-h-64 flex-1" onKeyDown={(event) => pickFocused(event, nodes)}>
        <ReactFlowProvider>
          <ReactFlow
            nodes={nodes}
            edges={edges}
            nodeTypes={TYPES}
            onlyRenderVisibleElements
            nodesDraggable={false}
            nodesConnectable={false}
            edgesFocusable={false}
            minZoom={0.05}
            colorMode={dark ? 'dark' : 'light'}
            onNodeClick={(_, node) => pick(node as TurnNode | BranchNode)}
          >
            <Background color="var(--line)" />
            <Controls showInteractive={false} />
            <AtHead id={tree.open_turn_id ?? tree.head_turn_id} turns={tree.turns.length} />
          </ReactFlow>
        </ReactFlowProvider>
      </div>
    </div>
  );
}

function pick(node: TurnNode | BranchNode): void {
  if (node.type === 'turn') inspectTurn(node.data.turn.id);
}

/** Enter opens the focused node like a click; the graph's own keys only select it. */
function pickFocused(event: KeyboardEvent, nodes: (TurnNode | BranchNode)[]): void {
  if (event.key !== 'Enter' && event.key !== ' ') return;
  const focused = event.target as HTMLElement;
  const node = focused.matches('.react-flow__node') ? nodes.find(({ id }) => id === focused.dataset.id) : undefined;
  if (node?.type !== 'turn') return;
  event.preventDefault();
  pick(node);
  // The tab of the node is replaced; keep the focus in the inspector.
  document.getElementById('inspector-panel')?.focus();
}

/** Show a small tree whole, from the top, and a large one at its head. */
function AtHead({ id, turns }: { id: string | null; turns: number }) {
  const flow = useReactFlow();
  const measured = useNodesInitialized();
  const width = useFlow((state) => state.width);
  const height = useFlow((state) => state.height);
  useEffect(() => {
    const node = id === null ? undefined : flow.getNode(id);
    if (node && turns > MAX_WHOLE_TURNS) void flow.setCenter(node.position.x + 150, node.position.y - 120, { zoom: 1 });
    else {
      // Computed from known sizes: nodes out of view are never measured.
      const wide = Math.max(...flow.getNodes().map(({ position }) => position.x)) + BOX_WIDTH;
      const high = Math.max(...flow.getNodes().map(({ position }) => position.y)) + ROW;
      const zoom = Math.max(0.3, Math.min(1, (width - 2 * MARGIN) / wide, (height - 2 * MARGIN) / high));
      void flow.setViewport({ x: Math.max(MARGIN, (width - wide * zoom) / 2), y: MARGIN, zoom });
    }
  }, [flow, id, turns, measured, width, height]);
  return null;
}

function describe(turn: TreeTurn): string {
  const kind = turn.kind === 'compaction' ? 'Summary' : 'Turn';
  return `${kind} ${turn.text || turn.id}${turn.is_head ? ', head' : ''}${turn.on_line ? '' : ', rewound'}, ${turn.status}`;
}

function TurnBox({ data: { turn } }: NodeProps<TurnNode>) {
  const picked = useStore(view, (state) => state.turn === turn.id);
  const colors = turn.is_head ? 'border-thread bg-thread-soft' : turn.on_line ? 'border-thread bg-raised' : 'border-line bg-panel text-quiet';
  return (
    <div className={`h-10 w-72 rounded-lg border px-2 py-0.5 text-xs ${colors} ${turn.kind === 'compaction' ? 'border-dashed' : ''} ${picked ? 'ring-2 ring-thread' : ''}`}>
      <EdgeHandles />
      <p dir="auto" className="truncate">
        {turn.kind === 'compaction' ? 'Summary' : turn.text || turn.id}
      </p>
      <p className="truncate text-[11px] text-quiet">
        {turn.is_head ? 'head · ' : ''}
        {turn.status}
      </p>
    </div>
  );
}

/** Handles of the edges: at the top for the next turn of a column, at the side for indented ones. */
function EdgeHandles() {
  // Without a size, so that edges end at the boxes.
  const hidden = 'size-0! min-h-0! min-w-0! border-0! opacity-0! pointer-events-none!';
  return (
    <>
      <Handle id="top" type="target" position={Position.Top} className={`left-3! ${hidden}`} />
      <Handle id="side" type="target" position={Position.Left} className={hidden} />
      <Handle id="below" type="source" position={Position.Bottom} className={`left-3! ${hidden}`} />
    </>
  );
}

function BranchBox({ data: { sessionId, title } }: NodeProps<BranchNode>) {
  const conversation = useThis();
  return (
    <div className="flex h-9 w-72 items-center gap-1 rounded-lg border border-dashed border-info bg-info-soft px-2 text-xs text-ink">
      <EdgeHandles />
      <p dir="auto" className="min-w-0 flex-1 truncate" title={title}>
        {title}
      </p>
      <div className="nodrag flex">
        <Button tone="quiet" className="px-1 py-0 text-xs underline" onClick={() => goTo({ session: sessionId })}>
          Open
        </Button>
        <Button tone="quiet" className="px-1 py-0 text-xs underline" onClick={() => compareSessions({ name: conversation.store.get().session?.title ?? 'This conversation', session: conversation.id }, { name: title, session: sessionId })}>
          Compare
        </Button>
      </div>
    </div>
  );
}
