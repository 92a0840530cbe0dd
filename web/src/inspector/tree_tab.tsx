/** The tree: turns as a graph, with the head, what left the line, summaries and branches. */

import { Background, Controls, type Edge, Handle, type Node, type NodeProps, Position, ReactFlow, ReactFlowProvider, useReactFlow } from '@xyflow/react';
import '@xyflow/react/dist/style.css';
import { useEffect, useMemo } from 'react';
import type { TreeTurn } from '../api/types';
import { goTo } from '../state/route';
import { useStore } from '../state/store';
import { useThis } from '../state/use_conversation';
import { inspectTurn, view } from '../state/view';
import { Button } from '../ui/button';
import { count } from '../ui/words';
import { treeLayout } from './tree_layout';

type TurnNode = Node<{ turn: TreeTurn }, 'turn'>;
type BranchNode = Node<{ sessionId: string; title: string }, 'branch'>;

const TYPES = { turn: TurnBox, branch: BranchBox };

export function TreeTab() {
  const conversation = useThis();
  const tree = useStore(conversation.store, (state) => state.tree);
  useEffect(() => {
    void conversation.refreshTree();
  }, [conversation]);
  const { nodes, edges } = useMemo(() => {
    if (!tree) return { nodes: [], edges: [] };
    const laid = treeLayout(tree);
    const shown: (TurnNode | BranchNode)[] = [
      ...laid.turns.map(({ turn, x, y }): TurnNode => ({ id: turn.id, type: 'turn', position: { x, y }, data: { turn }, ariaLabel: describe(turn) })),
      ...laid.branches.map(({ sessionId, title, x, y }): BranchNode => ({ id: sessionId, type: 'branch', position: { x, y }, data: { sessionId, title }, ariaLabel: `Branch ${title}` })),
    ];
    const lines: Edge[] = [
      ...laid.edges.map(({ from, to, onLine }) => ({ id: `${from} ${to}`, source: from, target: to, style: { stroke: onLine ? 'var(--thread)' : 'var(--line)', strokeWidth: onLine ? 2 : 1.5 } })),
      ...laid.branches.flatMap(({ sessionId, turnId }) =>
        turnId === null ? [] : [{ id: `${turnId} ${sessionId}`, source: turnId, target: sessionId, style: { stroke: 'var(--info)', strokeDasharray: '4 3' } }],
      ),
    ];
    return { nodes: shown, edges: lines };
  }, [tree]);

  if (!tree) return null;
  if (tree.turns.length === 0) return <p className="p-4 text-sm text-quiet">No turn yet. Each one becomes a node here, and each rewind a way that parts.</p>;
  const hidden = tree.turns.filter((turn) => !turn.on_line).length;
  return (
    <div className="flex h-full flex-col">
      <p className="border-b border-line px-4 py-1.5 text-xs text-quiet">
        {count(tree.turns.length, 'turn')}, {hidden} off the line, {count(tree.branches.length, 'branch', 'branches')}. Pick a turn to inspect it.
      </p>
      <div className="min-h-64 flex-1">
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
            colorMode="light"
            onNodeClick={(_, node) => pick(node as TurnNode | BranchNode)}
          >
            <Background color="var(--line)" />
            <Controls showInteractive={false} />
            <AtHead id={tree.open_turn_id ?? tree.head_turn_id} />
          </ReactFlow>
        </ReactFlowProvider>
      </div>
    </div>
  );
}

function pick(node: TurnNode | BranchNode): void {
  if (node.type === 'turn') inspectTurn(node.data.turn.id);
}

/** Opens where the head is: in a long session the beginning says little. */
function AtHead({ id }: { id: string | null }) {
  const flow = useReactFlow();
  useEffect(() => {
    const node = id === null ? undefined : flow.getNode(id);
    if (node) void flow.setCenter(node.position.x + 90, node.position.y - 60, { zoom: 0.9 });
    else void flow.fitView({ maxZoom: 1 });
  }, [flow, id]);
  return null;
}

function describe(turn: TreeTurn): string {
  const kind = turn.kind === 'compaction' ? 'Summary' : 'Turn';
  return `${kind} ${turn.text || turn.id}${turn.is_head ? ', the head' : ''}${turn.on_line ? '' : ', off the line'}, ${turn.status}`;
}

function TurnBox({ data: { turn } }: NodeProps<TurnNode>) {
  const picked = useStore(view, (state) => state.turn === turn.id);
  const look = turn.is_head ? 'border-thread bg-thread-soft' : turn.on_line ? 'border-thread bg-raised' : 'border-line bg-panel text-quiet';
  return (
    <div className={`w-44 rounded-lg border px-2 py-1 text-xs ${look} ${turn.kind === 'compaction' ? 'border-dashed' : ''} ${picked ? 'ring-2 ring-thread' : ''}`}>
      <Handle type="target" position={Position.Top} className="opacity-0!" />
      <p dir="auto" className="truncate">
        {turn.kind === 'compaction' ? 'Summary' : turn.text || turn.id}
      </p>
      <p className="truncate text-[11px] text-quiet">
        {turn.is_head ? 'head · ' : ''}
        {turn.status}
      </p>
      <Handle type="source" position={Position.Bottom} className="opacity-0!" />
    </div>
  );
}

function BranchBox({ data: { sessionId, title } }: NodeProps<BranchNode>) {
  const conversation = useThis();
  return (
    <div className="w-44 rounded-lg border border-dashed border-info bg-info-soft px-2 py-1 text-xs text-ink">
      <Handle type="target" position={Position.Top} className="opacity-0!" />
      <p dir="auto" className="truncate" title={title}>
        {title}
      </p>
      <div className="nodrag flex gap-1">
        <Button look="quiet" className="px-1 py-0 text-xs underline" onClick={() => goTo({ session: sessionId })}>
          Open
        </Button>
        <Button look="quiet" className="px-1 py-0 text-xs underline" onClick={() => goTo({ session: conversation.id, beside: sessionId })}>
          Compare
        </Button>
      </div>
    </div>
  );
}
