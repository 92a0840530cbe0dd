/** A typed client of a clew server, without dependencies, for browsers and node. */
export { Client } from './client.js';
export { frames } from './frames.js';
export { BadAnswer, isProblem, isTemporary, Problem, Unreachable } from './problem.js';
export { Position, RESET } from './position.js';
export { readEvents } from './sse.js';
export { events, start, Turn } from './turn.js';
