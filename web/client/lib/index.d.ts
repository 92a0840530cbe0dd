/** A typed client of a clew server, without dependencies, for browsers and node. */
export type * from '../schema.js';
export { type Answer, type Asked, Client, type Operation } from './client.js';
export { type Frame, frames, type Streaming } from './frames.js';
export { BadAnswer, isProblem, isTemporary, Problem, Unreachable } from './problem.js';
export { type Chunk, Position, RESET } from './position.js';
export { readEvents, type ServerEvent } from './sse.js';
export { events, type Patience, start, Turn } from './turn.js';
